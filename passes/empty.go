// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package passes

import (
	"reflect"
	"slices"

	"github.com/gomlx/compute/shapes"

	"github.com/easyparallel/epl/ir"
)

// empty computes nothing for tensors without elements, and nothing from them: what has no elements, and what is a sum over none,
// is known. Backends fail on some ops without elements, and there is nothing to send or to merge either.
func empty(p *ir.Program) int {
	concatenated := map[*ir.Value]bool{} // their shape depends on how many instances there are
	for _, v := range slices.Concat(p.Collection("GlobalConcat"), p.Collection("LocalConcat")) {
		concatenated[v] = true
	}
	updates := map[*ir.Value]*ir.Value{} // the new value of a variable comes from the variable, and so is where it is
	for _, x := range p.Variables {
		if x.Update != nil && isEmpty(x.Update.Shape) {
			updates[x.Update] = x.Param
		}
	}
	by := map[*ir.Value]*ir.Value{}
	for _, op := range slices.Clone(p.Main.Ops) {
		switch t := op.Type(); {
		case op.IsLeaf() || slices.ContainsFunc(op.Outputs, func(v *ir.Value) bool { return concatenated[v] }):
		case (t == ir.OpScatterSum || t == ir.OpScatterMax || t == ir.OpScatterMin) && isEmpty(op.Inputs[2].Shape):
			by[op.Outputs[0]] = put(p, op, &ir.Identity{}, op.Outputs[0].Shape, op.Inputs[0])
		case t == ir.OpBroadcastInDim || t == ir.OpIdentity: // they are what this pass makes
		case computesZeros(op):
			for _, v := range op.Outputs {
				if param := updates[v]; param != nil {
					by[v] = put(p, op, &ir.Identity{}, v.Shape, param)
				} else {
					by[v] = zeros(p, op, v.Shape)
				}
			}
		}
	}
	return replace(p, by)
}

// isEmpty tells whether a tensor has no elements. Dims that are not known yet count as some.
func isEmpty(s shapes.Shape) bool { return slices.Contains(s.Dimensions, 0) }

// computesZeros tells whether all that the op computes has no elements, or is a sum over none.
func computesZeros(op *ir.Op) bool {
	none := func(v *ir.Value) bool { return v != nil && isEmpty(v.Shape) }
	switch op.Attrs.(type) {
	case *ir.DotGeneral, *ir.ReduceSum:
		return slices.ContainsFunc(op.Inputs, none)
	}
	return len(op.Outputs) > 0 && !slices.ContainsFunc(op.Outputs, func(v *ir.Value) bool { return !none(v) })
}

// zeros makes zeros where an op is.
func zeros(p *ir.Program, at *ir.Op, s shapes.Shape) *ir.Value {
	scalar := shapes.Make(s.DType)
	zero := put(p, at, &ir.Constant{Value: ir.Literal{Shape: scalar, Flat: reflect.MakeSlice(reflect.SliceOf(s.DType.GoType()), 1, 1).Interface()}}, scalar)
	return put(p, at, &ir.BroadcastInDim{OutputShape: s.Clone()}, s, zero)
}

// put makes an op where another is, for the same purpose.
func put(p *ir.Program, at *ir.Op, a ir.Attrs, s shapes.Shape, in ...*ir.Value) *ir.Value {
	op := p.NewOp(a, in, s)
	p.Main.InsertBefore(at, op)
	return op.Outputs[0]
}
