// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package shard

import (
	"slices"

	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/shapes"

	"github.com/easyparallel/epl/ir"
)

// split returns the index alone, and a function that puts another in its place. Indices become wide enough to calculate
// with.
func (t *writing) split(indices *ir.Value, vector, of int) (one *ir.Value, replace func(*ir.Value) *ir.Value) {
	indices = t.convert(indices, dtypes.Int64)
	if vector == indices.Shape.Rank() || dims(indices)[vector] == 1 {
		return indices, func(v *ir.Value) *ir.Value { return v }
	}
	n, p := dims(indices)[vector], indices.On(ir.Model)
	rows := func(from, to int) *ir.Value {
		a, s := rowsFrom(indices.Shape, vector, from, to)
		return t.sharded(p, a, s, indices)
	}
	return rows(of, of+1), func(v *ir.Value) *ir.Value {
		pieces := []*ir.Value{v}
		if of > 0 {
			pieces = slices.Insert(pieces, 0, rows(0, of))
		}
		if of+1 < n {
			pieces = append(pieces, rows(of+1, n))
		}
		return t.alone(v.On(ir.Model), &ir.Concatenate{Axis: vector}, indices.Shape, pieces...)
	}
}

// rowsFrom takes some rows of a dim.
func rowsFrom(s shapes.Shape, dim, from, to int) (*ir.Slice, shapes.Shape) {
	s = s.Clone()
	a := &ir.Slice{Starts: make([]int, s.Rank()), Limits: slices.Clone(s.Dimensions), Strides: slices.Repeat([]int{1}, s.Rank())}
	a.Starts[dim], a.Limits[dim], s.Dimensions[dim] = from, to, to-from
	return a, s
}

// between tells for every index whether it is one of the device's rows, of n.
func (t *writing) between(v *ir.Value, p Placement, n int) *ir.Value {
	s := shapes.Make(dtypes.Bool, dims(v)...)
	return t.alone(each, &ir.LogicalAnd{}, s, t.alone(each, &ir.GreaterOrEqual{}, s, v, t.start(p, n, false)), t.alone(each, &ir.LessThan{}, s, v, t.start(p, n, true)))
}

// clamp keeps indices in a range.
func (t *writing) clamp(v, from, to *ir.Value) *ir.Value {
	return t.alone(v.On(ir.Model), &ir.Min{}, v.Shape, t.alone(v.On(ir.Model), &ir.Max{}, v.Shape, v, from), to)
}

// choose keeps the elements of a value whose index is one of the device's rows, and puts a number in place of others. Dims
// of the value that are not windows are those of the indices.
func (t *writing) choose(p Placement, mine, v, other *ir.Value, windows []int) *ir.Value {
	var sizes []int
	axes := others(v.Shape.Rank(), windows)
	for _, d := range axes {
		sizes = append(sizes, dims(v)[d])
	}
	yes := t.alone(each, &ir.Reshape{Dimensions: sizes}, shapes.Make(dtypes.Bool, sizes...), mine)
	s := shapes.Make(dtypes.Bool, dims(v)...)
	yes = t.alone(each, &ir.BroadcastInDim{OutputShape: s, BroadcastAxes: axes}, s, yes)
	return t.alone(p, &ir.Where{}, v.Shape, yes, v, other)
}

// gather takes the rows that the device has, and zeros for those of others.
func (t *writing) gather() []*ir.Value {
	a, p := t.op.Attrs.(*ir.Gather), t.in[0]
	if !isAlong(p, a.StartIndexMap...) {
		return nil
	}
	return []*ir.Value{t.mine(a, t.op.Inputs[0], t.op.Inputs[1], p, t.op.Outputs[0].Shape)}
}

// scatter takes the updates of the rows that the device has; of those of others it makes some that change nothing.
func (t *writing) scatter() []*ir.Value {
	a, how := scatterOf(t.op.Attrs)
	p := t.in[0]
	if !isAlong(p, a.ScatterAxesToOperandAxes...) {
		return nil
	}
	x, updates, n := t.op.Inputs[0], t.op.Inputs[2], dims(t.op.Inputs[0])[p.Dim]
	one, replace := t.split(t.op.Inputs[1], a.IndexVectorAxis, slices.Index(a.ScatterAxesToOperandAxes, p.Dim))
	last := t.alone(each, &ir.Sub{}, index, t.alone(each, &ir.Sub{}, index, t.start(p, n, true), t.start(p, n, false)), t.constant(int64(1)))
	local := t.clamp(t.alone(each, &ir.Sub{}, one.Shape, one, t.start(p, n, false)), t.constant(int64(0)), last)
	b := a
	b.IndicesAreSorted, b.UniqueIndices = false, false
	dtype := updates.Shape.DType
	var attrs ir.Attrs = &b
	nothing := t.zero(dtype)
	switch how {
	case ir.ReduceByMax:
		attrs, nothing = (*ir.ScatterMax)(&b), t.constant(dtype.LowestValue())
	case ir.ReduceByMin:
		attrs, nothing = (*ir.ScatterMin)(&b), t.constant(dtype.HighestValue())
	}
	chosen := t.choose(each, t.between(one, p, n), updates, nothing, a.UpdateWindowAxes)
	return []*ir.Value{t.alone(t.out[0], attrs, x.Shape, x, replace(local), chosen)}
}
