// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package record

import (
	"sync"

	"github.com/gomlx/compute"
	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/gobackend"
	"github.com/gomlx/compute/shapes"
	"github.com/pkg/errors"

	"github.com/easyparallel/epl/ir"
)

// Shapes and capabilities come from GoMLX's pure-Go backend, and from rules of our own for what it lacks, whatever runs the program: so the
// same model is recorded as the same program everywhere, and a plan for it is valid everywhere.

// pureGo is the backend whose builders tell shapes. It runs nothing.
var pureGo = sync.OnceValues(func() (compute.Backend, error) { return gobackend.New("ops_sequential") })

// capabilities are what can be recorded: what the pure-Go backend has, and what EPL has rules for.
var capabilities = sync.OnceValue(func() compute.Capabilities {
	b, err := pureGo()
	if err != nil {
		return compute.Capabilities{}
	}
	c := b.Capabilities().Clone()
	for _, t := range lowered {
		c.Operations[t] = true
	}
	c.Operations[compute.OpTypeFusedScaledDotProductAttention] = true
	// That of its gradient stays false: GoMLX then differentiates what attention is written out as, and the builder records the fused
	// gradient beside that.
	return c
})

// newShadow is a builder of the pure-Go backend, with main a function of it that has rules of our own.
func newShadow(name string) (compute.Builder, compute.Function, error) {
	b, err := pureGo()
	if err != nil {
		return nil, nil, errors.WithMessage(err, "epl: programs cannot be recorded")
	}
	shadow := b.Builder(name)
	return shadow, rules{shadow.Main()}, nil
}

// rules are a function that is for shapes only.
type rules struct{ compute.Function }

// fused is an error if no engine has an attention as one op.
func (f rules) fused(layout compute.AttentionAxesLayout, o *compute.ScaledDotProductAttentionConfig, operands ...compute.Value) error {
	if o != nil {
		operands = append(operands, o.QuerySeqLen, o.KeyValueSeqLen, o.Bias, o.Mask)
	}
	of := make([]shapes.Shape, len(operands))
	for i, v := range operands {
		if v == nil {
			continue
		}
		var err error
		if of[i], err = f.Shape(v); err != nil {
			return err
		}
	}
	if !ir.FusesAttention(layout, o, of) {
		return errors.Wrapf(compute.ErrNotImplemented, "epl: attention of %s and %s, %s, is not recorded as one op", of[0], of[1], layout)
	}
	return nil
}

// FusedScaledDotProductAttention implements compute.Function. The state is the logarithm of the sum of exponentials.
func (f rules) FusedScaledDotProductAttention(q, k, v compute.Value, layout compute.AttentionAxesLayout, o *compute.ScaledDotProductAttentionConfig) (compute.Value, []compute.Value, error) {
	if err := f.fused(layout, o, q, k, v); err != nil {
		return nil, nil, err
	}
	s, err := f.Shape(q)
	if err != nil {
		return nil, nil, err
	}
	state, err := f.Iota(shapes.Make(dtypes.Float32, s.Dimensions[0], s.Dimensions[layout.HeadsAxis()], s.Dimensions[layout.SeqAxis()]), 0)
	return q, []compute.Value{state}, err
}

// FusedScaledDotProductAttentionVJP implements compute.Function.
func (f rules) FusedScaledDotProductAttentionVJP(q, k, v compute.Value, layout compute.AttentionAxesLayout, o *compute.ScaledDotProductAttentionConfig, _ compute.Value, _ []compute.Value, _ compute.Value) (compute.Value, compute.Value, compute.Value, error) {
	return q, k, v, f.fused(layout, o, q, k, v)
}
