// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package passes

import (
	"slices"

	"github.com/gomlx/compute"
	"github.com/gomlx/compute/shapes"

	"github.com/easyparallel/epl/ir"
)

// unfuseDense writes dense layers of float32 out as a dot and a sum: the pure-Go backend has them as one op in float32 only. Those
// with an activation stay; in training there are none, since gradients go through what the activation reads.
func unfuseDense(p *ir.Program) {
	var ops []*ir.Op
	for _, op := range p.Main.Ops {
		if d, ok := op.Attrs.(*ir.FusedDense); ok && op.Phase != ir.Apply && is32(op.Outputs[0]) && !op.Outputs[0].Shape.IsDynamic() &&
			d.Options.Activation == compute.ActivationNone {
			x, w, bias, out := op.Inputs[0], op.Inputs[1], op.Inputs[2], op.Outputs[0].Shape
			add := func(a ir.Attrs, s shapes.Shape, in ...*ir.Value) *ir.Value {
				made := p.NewOp(a, in, s)
				made.Func, made.Attribution = op.Func, op.Attribution
				ops = append(ops, made)
				return made.Outputs[0]
			}
			axis := 0
			if d.Options.WeightLayout == compute.DenseLayoutOutputsInput {
				axis = w.Shape.Rank() - 1
			}
			dot := &ir.DotGeneral{LHSContractingAxes: []int{x.Shape.Rank() - 1}, RHSContractingAxes: []int{axis}}
			if bias == nil {
				op.Attrs, op.Inputs = dot, []*ir.Value{x, w}
			} else {
				y := add(dot, out, x, w)
				var last []int
				for i := out.Rank() - bias.Shape.Rank(); i < out.Rank(); i++ {
					last = append(last, i)
				}
				b := add(&ir.BroadcastInDim{OutputShape: out, BroadcastAxes: last}, out, bias)
				op.Attrs, op.Inputs = &ir.Add{}, []*ir.Value{y, b}
			}
			op.Twin = nil
		}
		ops = append(ops, op)
	}
	p.Main.Ops = slices.Clip(ops)
}
