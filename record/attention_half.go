// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package record

import (
	"github.com/gomlx/compute"
	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/shapes"

	"github.com/easyparallel/epl/ir"
)

// Attention in half precision only has an engine as one op, so that under mixed precision it is recorded so, with casts around it.

// halfAttention records a fused attention whose operands are float32.
func (f *Func) halfAttention(a *ir.FusedScaledDotProductAttention, in []compute.Value) ([]compute.Value, error) {
	given, operands := in, make([]*ir.Value, len(in))
	for i, v := range in {
		if v != nil {
			operands[i] = v.(*Value).Value
		}
	}
	twin, clone := findTwin(f.fn.Ops, operands, []shapes.Shape{operands[0].Shape}), false
	if twin == nil {
		var err error
		if twin, err = f.cloned(a, operands); err != nil {
			return nil, err
		}
		clone = true
	}
	in, err := f.boundBias(in)
	if err != nil {
		return nil, err
	}
	outs, err := f.inHalf(a, in, 0, 1, 2, attentionBias)
	if err != nil {
		return nil, err
	}
	if outs[0], err = f.ConvertDType(outs[0], dtypes.Float32); err != nil { // the others are float32 in any case
		return nil, err
	}
	if twin != nil {
		setTwin(outs[:1], twin)
	}
	if twin != nil && !clone {
		f.fused(a, opInputs{vals: given}, outs, twin[0])
	}
	return outs, nil
}

// halfGradient records the gradient of a fused attention whose operands are float32. The operands after those of the
// attention are its result, its states, which stay as they are, and the gradient of its result.
func (f *Func) halfGradient(a *ir.FusedScaledDotProductAttentionVJP, in []compute.Value) ([]compute.Value, error) {
	which := []int{0, 1, 2, 3, len(in) - 1}
	if a.Options != nil {
		which[3] = attentionBias + 2
		which = append(which, attentionBias)
		var err error
		if in, err = f.boundBias(in); err != nil {
			return nil, err
		}
	}
	outs, err := f.inHalf(a, in, which...)
	if err != nil {
		return nil, err
	}
	for i := range outs {
		if outs[i], err = f.ConvertDType(outs[i], dtypes.Float32); err != nil {
			return nil, err
		}
	}
	return outs, nil
}

// attentionBias is where the bias stands among the operands of an attention with options: after query, key, value and two
// lengths, and before the mask.
const attentionBias = 5

// boundBias keeps a bias within float16, where a mask of -1e9 would be infinite, and a row that is masked wholly not a number.
func (f *Func) boundBias(in []compute.Value) ([]compute.Value, error) {
	if f.b.backend.opts.HalfType != dtypes.Float16 || len(in) <= attentionBias || in[attentionBias] == nil {
		return in, nil
	}
	v, err := f.b.own(in[attentionBias])
	if err != nil || v.Shape.DType != dtypes.Float32 {
		return in, err
	}
	least, err := f.Constant([]float32{-65504})
	if err != nil {
		return nil, err
	}
	bounded := clone(in)
	bounded[attentionBias], err = f.Max(in[attentionBias], least)
	return bounded, err
}

// inHalf records an op with some of its operands cast to the type of mixed precision.
func (f *Func) inHalf(a ir.Attrs, in []compute.Value, which ...int) ([]compute.Value, error) {
	cast := clone(in)
	for _, i := range which {
		if i >= len(in) || in[i] == nil {
			continue
		}
		v, err := f.b.own(in[i])
		if err != nil {
			return nil, err
		}
		if v.Shape.DType != dtypes.Float32 {
			continue
		}
		if cast[i], err = f.ConvertDType(in[i], f.b.backend.opts.HalfType); err != nil {
			return nil, err
		}
	}
	return f.record(a, opInputs{vals: cast})
}

// halves tells whether mixed precision is on, and makes of an attention in float32, or its gradient, one that is recorded as one op.
func (f *Func) halves(layout compute.AttentionAxesLayout, o *compute.ScaledDotProductAttentionConfig, in []compute.Value) bool {
	half := f.b.backend.opts.HalfType
	if half == dtypes.InvalidDType {
		return false
	}
	of := make([]shapes.Shape, len(in))
	for i, v := range in {
		if v == nil {
			continue
		}
		x, err := f.b.own(v)
		if err != nil {
			return false
		}
		if of[i] = x.Shape; of[i].DType == dtypes.Float32 {
			of[i].DType = half
		} else if i == 0 {
			return false
		}
	}
	return ir.FusesAttention(layout, o, of)
}
