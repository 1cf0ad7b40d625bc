// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package cpu

import (
	"github.com/gomlx/compute"

	"github.com/easyparallel/epl/ir"
)

// dense adds a dense layer as a product and the ops behind it, which become part of a group; false: it is none that can be
// written so.
func (b *builder) dense(op *ir.Op) bool {
	a, ok := op.Attrs.(*ir.FusedDense)
	if !ok {
		return false
	}
	x, w, out := op.Inputs[0], op.Inputs[1], op.Outputs[0]
	axis := 0
	if a.Options.WeightLayout == compute.DenseLayoutOutputsInput {
		axis = w.Shape.Rank() - 1
	}
	dot := synthetic(&ir.DotGeneral{LHSContractingAxes: []int{x.Shape.Rank() - 1}, RHSContractingAxes: []int{axis}}, out.Shape, x, w)
	list := []*ir.Op{dot}
	then := func(attrs ir.Attrs, more ...*ir.Value) {
		list = append(list, synthetic(attrs, out.Shape, append([]*ir.Value{list[len(list)-1].Outputs[0]}, more...)...))
	}
	if len(op.Inputs) > 2 && op.Inputs[2] != nil {
		bias := op.Inputs[2]
		var axes []int
		for i := range bias.Shape.Rank() {
			axes = append(axes, out.Shape.Rank()-bias.Shape.Rank()+i)
		}
		spread := synthetic(&ir.BroadcastInDim{OutputShape: out.Shape, BroadcastAxes: axes}, out.Shape, bias)
		if !b.views.add(spread) {
			return false
		}
		then(&ir.Add{}, spread.Outputs[0])
	}
	switch a.Options.Activation {
	case compute.ActivationNone:
	case compute.ActivationTanh:
		then(&ir.Tanh{})
	default:
		return false
	}
	if !b.dot(dot, dot.Attrs.(*ir.DotGeneral)) {
		return false
	}
	for _, o := range list[1:] {
		b.fuser.add(o)
	}
	b.views[out] = b.views.of(list[len(list)-1].Outputs[0])
	return true
}
