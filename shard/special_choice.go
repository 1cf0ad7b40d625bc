// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package shard

import (
	"slices"

	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/shapes"

	"github.com/easyparallel/epl/ir"
)

// argMinMax finds the best of the device's rows, and then the best of those of all devices. In both steps the backend chooses,
// so that equal rows and NaNs are treated as in the whole.
func (t *writing) argMinMax() []*ir.Value {
	a, p := t.op.Attrs.(*ir.ArgMinMax), t.in[0]
	if !isAlong(p, a.Axis) {
		return nil
	}
	x, out := t.op.Inputs[0], t.op.Outputs[0].Shape
	places := shapes.Make(dtypes.Int64, out.Dimensions...)
	best := t.alone(each, &ir.ArgMinMax{Axis: a.Axis, OutputDType: dtypes.Int64, IsMin: a.IsMin}, places, t.comparable(x, p, a.IsMin))
	values := t.stack(t.pick(each, x, a.Axis, best))
	numbers := t.stack(t.convert(t.alone(each, &ir.Add{}, places, best, t.start(p, dims(x)[p.Dim], false)), out.DType))
	first := t.sharded(Placement{}, &ir.ArgMinMax{Axis: 0, OutputDType: dtypes.Int64, IsMin: a.IsMin}, places, values)
	return []*ir.Value{t.pick(Placement{}, numbers, 0, first)}
}

// comparable makes nothing of NaNs in half precision, but for those of the first device: the pure-Go backend passes over them,
// unless the first row of all is one.
func (t *writing) comparable(v *ir.Value, p Placement, isMin bool) *ir.Value {
	d := v.Shape.DType
	if !d.IsHalfPrecision() {
		return v
	}
	worst := d.LowestValue()
	if isMin {
		worst = d.HighestValue()
	}
	one, all := shapes.Make(dtypes.Bool), shapes.Make(dtypes.Bool, dims(v)...)
	later := t.alone(each, &ir.GreaterThan{}, one, t.position(t.g), t.constant(int32(0)))
	odd := t.alone(p, &ir.LogicalAnd{}, all, t.sharded(p, &ir.IsNaN{}, all, v), later)
	return t.alone(p, &ir.Where{}, v.Shape, odd, t.constant(worst), v)
}

// pick takes, along an axis, the rows that an index has for each position of the other dims.
func (t *writing) pick(p Placement, v *ir.Value, axis int, at *ir.Value) *ir.Value {
	rank := v.Shape.Rank()
	s := shapes.Make(at.Shape.DType, append(slices.Clone(dims(at)), 1)...)
	a := ir.Gather{IndexVectorAxis: rank - 1, SliceSizes: slices.Repeat([]int{1}, rank), CollapsedSliceAxes: others(rank), StartIndexMap: others(rank)}
	var vector []*ir.Value
	for dim, other := 0, 0; dim < rank; dim++ {
		if dim == axis {
			vector = append(vector, t.alone(p, &ir.Reshape{Dimensions: s.Dimensions}, s, at))
			continue
		}
		vector = append(vector, t.alone(p, &ir.Iota{Shape: s, IotaAxis: other}, s))
		other++
	}
	indices := vector[0]
	if rank > 1 {
		all := s.Clone()
		all.Dimensions[rank-1] = rank
		indices = t.alone(p, &ir.Concatenate{Axis: rank - 1}, all, vector...)
	}
	return t.alone(p, &a, shapes.Make(v.Shape.DType, dims(at)...), v, indices)
}

// sort sorts the device's rows, and then the first ones of all devices. The outputs have only the rows that somebody takes.
func (t *writing) sort() []*ir.Value {
	a, p := t.op.Attrs.(*ir.Sort), t.in[0]
	if !isAlong(p, a.Axis) {
		return nil
	}
	n := t.firsts()
	all := t.sorted(p, t.op.Inputs, true)
	for i, v := range all {
		if least := slices.Min(t.g.Shares(dims(v)[a.Axis], p.Unit)); n <= least {
			all[i] = t.first(v, shardOf(a.Axis, n), n, n*len(t.g.places))
		}
		all[i] = t.moved(all[i], Placement{})
	}
	all = t.sorted(Placement{}, all, false)
	for i, v := range all {
		if n < dims(v)[a.Axis] {
			all[i] = t.first(v, Placement{}, n, n)
		}
	}
	return all
}

// firsts is how many of the first rows somebody takes.
func (t *writing) firsts() int {
	return firsts(t.op, func(yield func(*ir.Op) bool) {
		for _, s := range t.todo.steps {
			if s.kind == opStep && !yield(s.task.op) {
				return
			}
		}
	})
}

// sorted sorts what each device has of values.
func (t *writing) sorted(p Placement, in []*ir.Value, alone bool) []*ir.Value {
	var out []shapes.Shape
	for _, v := range in {
		out = append(out, v.Shape)
	}
	op := t.p.NewOp(t.op.Attrs, in, out...)
	op.Funcs = t.p.CopyFuncs(t.op.Funcs, nil)
	op.PerShard = alone
	t.put(op, siteOf(t.op), t.g, p)
	return slices.Clone(op.Outputs)
}

// first takes the first n rows that each device has; together they are size.
func (t *writing) first(v *ir.Value, p Placement, n, size int) *ir.Value {
	axis := t.op.Attrs.(*ir.Sort).Axis
	cut, s := rowsFrom(v.Shape, axis, 0, n)
	s.Dimensions[axis] = size
	return t.alone(p, cut, s, v)
}

// reduce reduces the device's rows, and then what all devices have.
func (t *writing) reduce() []*ir.Value {
	p, axes := t.in[0], reduceAxes(t.op.Attrs)
	if p.Kind != Sharded || len(axes) > 0 && !isAlong(p, axes...) {
		return nil
	}
	out := t.op.Outputs[0].Shape
	all := t.stack(t.alone(each, t.op.Attrs, out, t.op.Inputs[0]))
	return []*ir.Value{t.sharded(Placement{}, withAxes(t.op.Attrs, []int{0}), out, all)}
}

// softmax needs the largest number of all devices, and the sum.
func (t *writing) softmax() []*ir.Value {
	p, axis := t.in[0], t.op.Attrs.(*ir.FusedSoftmax).Axis
	if !isAlong(p, axis) {
		return nil
	}
	x := t.op.Inputs[0]
	kept := x.Shape.Clone()
	kept.Dimensions[axis] = 1
	reduced := func(a ir.Attrs, how ir.Reduction, v *ir.Value) *ir.Value {
		s := shapes.Make(kept.DType, slices.Delete(slices.Clone(kept.Dimensions), axis, axis+1)...)
		v = t.sharded(partialOf(how), a, s, v)
		return t.moved(t.sharded(partialOf(how), &ir.Reshape{Dimensions: kept.Dimensions}, kept, v), Placement{})
	}
	largest := reduced(&ir.ReduceMax{Axes: []int{axis}}, ir.ReduceByMax, x)
	powers := t.sharded(p, &ir.Exp{}, x.Shape, t.sharded(p, &ir.Sub{}, x.Shape, x, largest))
	return []*ir.Value{t.sharded(p, &ir.Div{}, x.Shape, powers, reduced(&ir.ReduceSum{Axes: []int{axis}}, ir.ReduceBySum, powers))}
}

// inside tells which exchanges an op has inside when it is sharded along a dim that it works on, and the bytes of what is
// exchanged: those that are written down above.
func (s *step) inside(exchange func(how ir.Collective, bytes int64)) {
	f := s.s.factor
	if f == nil || len(s.s.in) == 0 || s.s.in[0].Kind != Sharded {
		return
	}
	op, along, k := s.task.op, s.s.in[0], int64(len(s.g.places))
	in, out := op.Inputs[0], op.Outputs[0]
	row := in.Bytes() / int64(dims(in)[along.Dim]) // of the dim
	if a, ok := op.Attrs.(*ir.FusedSoftmax); ok && isAlong(along, a.Axis) {
		exchange(ir.AllReduceOf, row)
		exchange(ir.AllReduceOf, row)
	}
	if f.Reduce != 0 || f.Out[0].Dim >= 0 {
		return
	}
	switch a := op.Attrs.(type) { // its result is whole
	case *ir.ArgMinMax:
		exchange(ir.AllGatherOf, k*row)
		exchange(ir.AllGatherOf, k*out.Bytes())
	case *ir.Sort:
		n := int64(firsts(op, slices.Values(op.Func.Ops)))
		for _, v := range op.Inputs {
			exchange(ir.AllGatherOf, min(k*n, int64(dims(v)[a.Axis]))*v.Bytes()/int64(dims(v)[a.Axis]))
		}
	default: // a reduction
		exchange(ir.AllGatherOf, k*out.Bytes())
	}
}
