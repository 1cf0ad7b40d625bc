// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package shard

import (
	"slices"

	"github.com/gomlx/compute/dtypes"

	"github.com/easyparallel/epl/ir"
)

// elementwise: every dim of the output is one of the inputs, except of those that are scalars or have one row.
func elementwise(op *ir.Op) *Rule {
	r := &Rule{Linear: linearity(op)}
	for d, n := range dims(op.Outputs[0]) {
		to := slices.Repeat([]int{d}, len(op.Inputs)+1)
		for i, in := range op.Inputs {
			if at(dims(in), d, 1) != n {
				to[i] = whole
			}
		}
		r.factor(op, n, 0, to...)
	}
	return r
}

func linearity(op *ir.Op) Linearity {
	switch op.Attrs.(type) {
	case *ir.Identity:
		return Moves
	case *ir.Neg:
		return Sums
	case *ir.Add, *ir.Sub:
		return Adds
	case *ir.Mul:
		return Scales
	case *ir.Div:
		if !op.Outputs[0].Shape.DType.IsInt() { // the quotient of a sum of integers is not the sum of quotients
			return Divides
		}
	case *ir.Where:
		if op.Inputs[0].Shape.Size() == 1 && isZero(op.Inputs[2]) {
			return Keeps
		}
	}
	return NotLinear
}

// isZero tells whether a value is the number 0.
func isZero(v *ir.Value) bool {
	c, ok := v.Op.Attrs.(*ir.Constant)
	return ok && v.Shape.Size() == 1 && !slices.ContainsFunc(dtypes.UnsafeByteSliceFromAny(c.Value.Flat), func(b byte) bool { return b != 0 })
}

// isNumber tells whether all elements of a value are the same number. A Partial sum may be multiplied by one: the result is
// finite exactly if that of the whole sum is. Elementwise, a zero on one device could meet an infinity that belongs to
// another.
func isNumber(v *ir.Value) bool {
	return v.Shape.Size() == 1 || reshapes(v.Op) && isNumber(v.Op.Inputs[0])
}
