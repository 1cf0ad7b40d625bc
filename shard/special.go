// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package shard

import (
	"slices"

	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/shapes"

	"github.com/easyparallel/epl/ir"
)

// Mostly a device does with its rows what one device did with all of them. The ops here are different: what a device has to do
// depends on which rows it has, or devices have to exchange something on the way. They are written in other words, for all
// devices: what depends on the device is computed from its position.

// specials write such ops down. They return nil if the op, with these placements, is like others.
var specials = map[ir.OpType]func(*writing) []*ir.Value{
	ir.OpIota: (*writing).iota, ir.OpSlice: (*writing).slice, ir.OpPad: (*writing).thenRows, ir.OpConcatenate: (*writing).thenRows,
	ir.OpGather: (*writing).gather, ir.OpScatterSum: (*writing).scatter, ir.OpScatterMax: (*writing).scatter, ir.OpScatterMin: (*writing).scatter,
	ir.OpArgMinMax: (*writing).argMinMax, ir.OpSort: (*writing).sort, ir.OpFusedSoftmax: (*writing).softmax,
}

// writing is an op to be written down for the devices of its stage.
type writing struct {
	*assignment
	op *ir.Op
	g  *group
	strategy
}

// each is the placement of what is different on each device.
var each = Placement{Kind: ir.Each}

// sharded adds an op that follows its rule.
func (t *writing) sharded(p Placement, a ir.Attrs, s shapes.Shape, in ...*ir.Value) *ir.Value {
	return t.add(siteOf(t.op), t.g, p, a, s, in...)
}

// alone adds an op that every device computes on what it has, as if that were all.
func (t *writing) alone(p Placement, a ir.Attrs, s shapes.Shape, in ...*ir.Value) *ir.Value {
	v := t.sharded(p, a, s, in...)
	v.Op.PerShard = true
	return v
}

// moved is a value in another placement.
func (t *writing) moved(v *ir.Value, p Placement) *ir.Value {
	return t.reshard(siteOf(t.op), t.g, p, v)
}

// stack is what all devices have, in a new first dim.
func (t *writing) stack(v *ir.Value) *ir.Value {
	s := shapes.Make(v.Shape.DType, append([]int{len(t.g.places)}, dims(v)...)...)
	return t.sharded(Placement{}, &ir.Reshard{Stack: true}, s, v)
}

var index = shapes.Make(dtypes.Int64)

// start is the device's first row of n; or that of the next device.
func (t *writing) start(p Placement, n int, next bool) *ir.Value {
	type key struct {
		g    *group
		p    Placement
		n    int
		next bool
	}
	return t.once(key{t.g, p, n, next}, func() *ir.Value {
		at := t.alone(each, &ir.ConvertDType{DType: dtypes.Int64}, index, t.position(t.g))
		if next {
			at = t.alone(each, &ir.Add{}, index, at, t.constant(int64(1)))
		}
		return p.Start(at, n, t.g.Division, func(a ir.Attrs, in ...*ir.Value) *ir.Value { return t.alone(each, a, index, in...) },
			func(x int) *ir.Value { return t.constant(int64(x)) })
	})
}

// isAlong tells whether a placement shards one of the dims.
func isAlong(p Placement, dims ...int) bool { return p.Kind == Sharded && slices.Contains(dims, p.Dim) }

// convert is a value of another type, as it is placed.
func (t *writing) convert(v *ir.Value, d dtypes.DType) *ir.Value {
	if v.Shape.DType == d {
		return v
	}
	return t.alone(v.On(ir.Model), &ir.ConvertDType{DType: d}, shapes.Make(d, dims(v)...), v)
}

// iota counts from the device's first row. Numbers that are no integers are made of some: adding would round them once more.
func (t *writing) iota() []*ir.Value {
	a, p := t.op.Attrs.(*ir.Iota), t.out[0]
	if !isAlong(p, a.IotaAxis) {
		return nil
	}
	s := a.Shape
	if !s.DType.IsInt() {
		s = shapes.Make(dtypes.Int64, s.Dimensions...)
	}
	v := t.alone(p, &ir.Iota{Shape: s, IotaAxis: a.IotaAxis}, s)
	start := t.convert(t.start(p, s.Dimensions[p.Dim], false), s.DType)
	return []*ir.Value{t.convert(t.alone(p, &ir.Add{}, s, v, start), a.Shape.DType)}
}

// slice takes what the device has of the rows that are asked for, and zeros for the others.
func (t *writing) slice() []*ir.Value {
	p, out := t.in[0], t.op.Outputs[0].Shape
	if p.Kind != Sharded || t.out[0].Kind != Partial {
		return nil
	}
	a, x := t.op.Attrs.(*ir.Slice), t.op.Inputs[0]
	b := ir.Slice{Starts: slices.Clone(a.Starts), Limits: slices.Clone(a.Limits), Strides: slices.Clone(a.Strides)}
	if b.Strides == nil {
		b.Strides = slices.Repeat([]int{1}, out.Rank())
	}
	b.Starts[p.Dim], b.Limits[p.Dim], b.Strides[p.Dim] = 0, dims(x)[p.Dim], 1
	cut := out.Clone()
	cut.Dimensions[p.Dim] = dims(x)[p.Dim]
	if !slices.Equal(cut.Dimensions, dims(x)) || !slices.Equal(b.Strides, slices.Repeat([]int{1}, out.Rank())) { // along other dims
		x = t.sharded(p, &b, cut, x)
	}
	m := out.Dimensions[p.Dim]
	rows := make([]int64, m)
	for i := range rows {
		rows[i] = int64(a.Starts[p.Dim] + i*strideOf(a, p.Dim))
	}
	s := shapes.Make(dtypes.Int64, m, 1)
	asked := t.add(site{}, t.g, Placement{}, &ir.Constant{Value: ir.Literal{Shape: s, Flat: rows}}, s)
	sizes := slices.Clone(cut.Dimensions)
	sizes[p.Dim] = 1
	g := &ir.Gather{IndexVectorAxis: 1, OffsetOutputAxes: others(out.Rank(), []int{p.Dim}), CollapsedSliceAxes: []int{p.Dim}, StartIndexMap: []int{p.Dim}, SliceSizes: sizes}
	return []*ir.Value{t.mine(g, x, asked, p, out)}
}

// mine gathers the rows that the device has, and zeros for those of others; all are there.
func (t *writing) mine(a *ir.Gather, table, indices *ir.Value, p Placement, out shapes.Shape) *ir.Value {
	n := dims(table)[p.Dim]
	one, replace := t.split(indices, a.IndexVectorAxis, slices.Index(a.StartIndexMap, p.Dim))
	one = t.clamp(one, t.constant(int64(0)), t.constant(int64(n-1))) // an index that is out of bounds means the nearest row
	local := t.alone(each, &ir.Sub{}, one.Shape, one, t.start(p, n, false))
	b := *a
	b.IndicesAreSorted = false
	v := t.alone(each, &b, out, table, replace(local))
	return t.choose(partialOf(ir.ReduceBySum), t.between(one, p, n), v, t.zero(out.DType), a.OffsetOutputAxes)
}

// thenRows computes the whole, of which the device takes its rows: there is nothing to it but moving elements.
func (t *writing) thenRows() []*ir.Value {
	p := t.out[0]
	switch a := t.op.Attrs.(type) {
	case *ir.Pad:
		if p.Kind != Sharded || t.in[0].Kind != Replicated {
			return nil
		}
	case *ir.Concatenate:
		if !isAlong(p, a.Axis) {
			return nil
		}
	}
	out := t.op.Outputs[0].Shape
	return []*ir.Value{t.moved(t.sharded(Placement{}, t.op.Attrs, out, t.op.Inputs...), p)}
}
