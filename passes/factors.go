// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package passes

import (
	"slices"

	"github.com/gomlx/compute/shapes"

	"github.com/easyparallel/epl/ir"
)

// A gradient that is a product of what a layer read and of the gradient of what it gave, with the samples contracted, need not be reduced: each
// model replica can gather those two factors of all samples, and compute its part of the gradient from them. That is as much work as its share
// of the whole one, and for layers that are wider than the batch is large the factors are far smaller than the gradient.

// factors are the operands of such a product.
type factors struct {
	rows, columns *ir.Value // their free dims are the first and the last of the gradient
	dot           *ir.DotGeneral
	row           int // the dim of rows that is the first of the gradient
}

// factorsOf finds the factors of what a merge adds up. The first dim of both has the samples.
func factorsOf(merge *ir.Op) (f factors, ok bool) {
	v := merge.Inputs[0]
	swapped, isTransposed := v.Op.Attrs.(*ir.Transpose)
	if isTransposed {
		v = v.Op.Inputs[0]
	}
	d, isDot := v.Op.Attrs.(*ir.DotGeneral)
	if !isDot || len(d.LHSBatchAxes) > 0 || !slices.Contains(d.LHSContractingAxes, 0) || slices.Index(d.LHSContractingAxes, 0) != slices.Index(d.RHSContractingAxes, 0) {
		return f, false
	}
	lhs, rhs := v.Op.Inputs[0], v.Op.Inputs[1]
	f = factors{lhs, rhs, d, 0}
	if isTransposed {
		n := lhs.Shape.Rank() - len(d.LHSContractingAxes)
		for i, axis := range swapped.Permutation { // the dims of the right operand come first
			if axis != (i+n)%v.Shape.Rank() {
				return f, false
			}
		}
		f.rows, f.columns = rhs, lhs
		f.dot = &ir.DotGeneral{LHSContractingAxes: d.RHSContractingAxes, RHSContractingAxes: d.LHSContractingAxes, Config: d.Config}
	}
	for axis := range f.rows.Shape.Rank() {
		if !slices.Contains(f.dot.LHSContractingAxes, axis) {
			f.row = axis
			return f, f.rows.Op.Varying && f.columns.Op.Varying && f.columns.Shape.Rank() > len(f.dot.RHSContractingAxes)
		}
	}
	return f, false // the gradient of something else than a matrix
}

// factoredSize is the least gradient for which factors are gathered: by themselves, while smaller ones share a bucket.
const factoredSize = 1 << 18

// pay tells whether n model replicas gather less than half of what a gradient is, and each can have as many of its rows.
func (f factors) pay(gradient shapes.Shape, n int) bool {
	return gradient.Size() >= factoredSize && gradient.Dimensions[0]%n == 0 && 2*n*(f.rows.Shape.Size()+f.columns.Shape.Size()) <= gradient.Size()
}

// multiply makes of the merge of a divided gradient the model replica's rows of the product, laid out flat.
func (z *division) multiply(merge *ir.Op) {
	f, _ := factorsOf(merge)
	insert := z.insertAt(merge.Attribution)
	rows, columns := insert.concat(f.rows, z.n, z.joined), insert.concat(f.columns, z.n, z.joined)
	if merge.Attrs.(*ir.Merge).How == ir.Mean {
		columns = insert(&ir.Div{}, columns.Shape, columns, insert.instances(columns.Shape.DType))
	}
	own := insert(&ir.Reshard{}, rows.Shape, rows, z.position())
	own.SetOn(ir.Replicas, ir.Placement{Kind: ir.Sharded, Dim: f.row, Unit: 1}, z.n)
	product := insert(f.dot, merge.Outputs[0].Shape, own, columns)
	product.SetOn(ir.Replicas, ir.Placement{Kind: ir.Sharded, Unit: 1}, z.n)
	merge.Attrs, merge.Inputs = &ir.Reshape{Dimensions: product.Shape.Dimensions}, []*ir.Value{product}
	z.put(merge)
}

// insertAt adds ops with an attribution.
func (z *division) insertAt(at ir.Attribution) inserter {
	return func(a ir.Attrs, s shapes.Shape, in ...*ir.Value) *ir.Value {
		op := z.p.NewOp(a, in, s)
		op.Attribution = at
		op.SetVarying()
		z.put(op)
		return op.Outputs[0]
	}
}
