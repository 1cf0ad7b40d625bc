// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package record

import (
	"slices"

	"github.com/gomlx/compute"

	"github.com/easyparallel/epl/ir"
)

// Value is the compute.Value that GoMLX holds for a recorded value.
type Value struct {
	*ir.Value
	fn     *Func
	shadow compute.Value // the same value in the throw-away program; nil after Compile
}

// Builder returns the builder that recorded the value.
func (v *Value) Builder() *Builder { return v.fn.b }

// opInputs collects the operands of an op being recorded, in the order of its parameters.
type opInputs struct {
	vals []compute.Value
	fns  []compute.Function
}

func (in *opInputs) value(v compute.Value)       { in.vals = append(in.vals, v) }
func (in *opInputs) values(v []compute.Value)    { in.vals = append(in.vals, v...) }
func (in *opInputs) function(f compute.Function) { in.fns = append(in.fns, f) }

// clone copies what GoMLX only lends; empty becomes nil, so that equal attributes compare equal.
func clone[T any](s []T) []T {
	if len(s) == 0 {
		return nil
	}
	return slices.Clone(s)
}

// Attributes in which GoMLX hides values: the values become inputs of the op.

func splitQuantization(in *opInputs, q *compute.Quantization) *compute.Quantization {
	if q == nil {
		return nil
	}
	c := *q
	in.value(c.Scale)
	in.value(c.ZeroPoint)
	c.Scale, c.ZeroPoint = nil, nil
	return &c
}

func splitAttention(in *opInputs, a *compute.ScaledDotProductAttentionConfig) *compute.ScaledDotProductAttentionConfig {
	if a == nil {
		return nil
	}
	c := *a
	in.values([]compute.Value{c.QuerySeqLen, c.KeyValueSeqLen, c.Bias, c.Mask})
	c.QuerySeqLen, c.KeyValueSeqLen, c.Bias, c.Mask = nil, nil, nil, nil
	return &c
}

func splitDimensions(in *opInputs, s []compute.DynamicDimensionSpec) []compute.DynamicDimensionSpec {
	s = clone(s)
	for i := range s {
		in.value(s[i].Value)
		s[i].Value = nil
	}
	return s
}

func splitPadAxes(in *opInputs, s []compute.DynamicPadAxis) []compute.DynamicPadAxis {
	s = clone(s)
	for i := range s {
		in.values([]compute.Value{s[i].StartValue, s[i].EndValue, s[i].InteriorValue})
		s[i].StartValue, s[i].EndValue, s[i].InteriorValue = nil, nil, nil
	}
	return s
}

// What the methods of compute.Function return.

func one(vs []compute.Value, err error) (compute.Value, error) {
	if err != nil {
		return nil, err
	}
	return vs[0], nil
}

func two(vs []compute.Value, err error) (a, b compute.Value, _ error) {
	if err != nil {
		return nil, nil, err
	}
	return vs[0], vs[1], nil
}

func three(vs []compute.Value, err error) (a, b, c compute.Value, _ error) {
	if err != nil {
		return nil, nil, nil, err
	}
	return vs[0], vs[1], vs[2], nil
}

func list(vs []compute.Value, err error) ([]compute.Value, error) { return vs, err }

func oneAndList(vs []compute.Value, err error) (compute.Value, []compute.Value, error) {
	if err != nil {
		return nil, nil, err
	}
	return vs[0], vs[1:], nil
}
