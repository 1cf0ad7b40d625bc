// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package passes

import (
	"slices"

	"github.com/gomlx/compute/dtypes"

	"github.com/easyparallel/epl/ir"
)

// sparseGradient recognises the gradient of a gather: rows added to zeros, at indices. Both must have the instances'
// batch as their first dim, so that those of all instances can be put one after the other.
func sparseGradient(g *ir.Value) (*ir.ScatterSum, bool) {
	s, ok := g.Op.Attrs.(*ir.ScatterSum)
	if !ok || !g.Op.Varying || !isZeros(g.Op.Inputs[0]) {
		return nil, false
	}
	indices, updates := g.Op.Inputs[1], g.Op.Inputs[2]
	if indices.Shape.Rank() == 0 || updates.Shape.Rank() == 0 || s.IndexVectorAxis == 0 || slices.Contains(s.UpdateWindowAxes, 0) ||
		indices.Shape.Dimensions[0] != updates.Shape.Dimensions[0] {
		return nil, false
	}
	return s, true
}

// isZeros tells whether a value is zero everywhere because it was written so.
func isZeros(v *ir.Value) bool {
	switch a := v.Op.Attrs.(type) {
	case *ir.BroadcastInDim, *ir.Reshape, *ir.ConvertDType:
		return isZeros(v.Op.Inputs[0])
	case *ir.Constant:
		return !slices.ContainsFunc(dtypes.UnsafeByteSliceFromAny(a.Value.Flat), func(b byte) bool { return b != 0 })
	}
	return false
}

// mergeSparse merges the gradient of a gather without making it dense: the indices and rows of all instances are put
// one after the other and added to zeros once.
func (at spot) mergeSparse(g *ir.Value, s *ir.ScatterSum, how ir.How, w *weight) *ir.Value {
	zeros, indices, updates := g.Op.Inputs[0], g.Op.Inputs[1], g.Op.Inputs[2]
	d := updates.Shape.DType
	if w != nil {
		updates = at.weighted(updates, w)
	}
	insert, n := inserter(at.insert), at.l.p.Local.Instances()
	indices, updates = insert.concat(indices, n, at.l.joined), insert.concat(updates, n, at.l.joined)
	switch {
	case w != nil:
		updates = at.divided(updates, w, d)
	case how == ir.Mean:
		updates = insert(&ir.Div{}, updates.Shape, updates, insert.instances(d))
	}
	return insert(&ir.ScatterSum{IndexVectorAxis: s.IndexVectorAxis, UpdateWindowAxes: s.UpdateWindowAxes,
		InsertedWindowAxes: s.InsertedWindowAxes, ScatterAxesToOperandAxes: s.ScatterAxesToOperandAxes}, g.Shape, zeros, indices, updates)
}
