package shard

import (
	"maps"
	"slices"

	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/shapes"

	"github.com/easyparallel/epl/ir"
)

// argMinMax finds the best of the device's rows, and then the best of those of all devices. In both steps the backend chooses,
// so that equal rows and NaNs are treated as in the whole.
func (t *writing) argMinMax() [][]*ir.Value {
	a, p := t.op.Attrs.(*ir.ArgMinMax), t.in[0]
	if !p.isShardedAlong(a.Axis) {
		return nil
	}
	out := t.op.Outputs[0].Shape
	places := shapes.Make(dtypes.Int64, out.Dimensions...)
	best := t.all(func(d *device) *ir.Value {
		return d.add(&ir.ArgMinMax{Axis: a.Axis, OutputDType: dtypes.Int64, IsMin: a.IsMin}, places, d.comparable(d.in[0], a.IsMin))
	})
	values := t.stack(t.all(func(d *device) *ir.Value { return d.pick(d.in[0], a.Axis, best[d.index]) }))
	numbers := t.stack(t.all(func(d *device) *ir.Value {
		from, _ := d.rowsOf(p, t.op.Inputs[0].Shape)
		v := best[d.index]
		if from > 0 {
			v = d.add(&ir.Add{}, places, v, d.constant(int64(from)))
		}
		return d.convert(v, out.DType)
	}))
	return t.each(func(d *device) *ir.Value {
		first := d.add(&ir.ArgMinMax{Axis: 0, OutputDType: dtypes.Int64, IsMin: a.IsMin}, places, values[d.index])
		return d.pick(numbers[d.index], 0, first)
	})
}

// comparable makes nothing of NaNs in half precision, but for those of the first device: the pure-Go backend passes over them,
// unless the first row of all is one.
func (d *device) comparable(v *ir.Value, isMin bool) *ir.Value {
	t := v.Shape.DType
	if !t.IsHalfPrecision() || d.index == 0 {
		return v
	}
	worst := t.LowestValue()
	if isMin {
		worst = t.HighestValue()
	}
	return d.add(&ir.Where{}, v.Shape, d.add(&ir.IsNaN{}, shapes.Make(dtypes.Bool, dims(v)...), v), d.constant(worst), v)
}

// pick takes, along an axis, the rows that an index has for each position of the other dims.
func (d *device) pick(v *ir.Value, axis int, at *ir.Value) *ir.Value {
	rank := v.Shape.Rank()
	s := shapes.Make(at.Shape.DType, append(slices.Clone(dims(at)), 1)...)
	a := ir.Gather{IndexVectorAxis: rank - 1, SliceSizes: slices.Repeat([]int{1}, rank), CollapsedSliceAxes: rangeOf(rank), StartIndexMap: rangeOf(rank)}
	var vector []*ir.Value
	for dim, other := 0, 0; dim < rank; dim++ {
		if dim == axis {
			vector = append(vector, d.reshape(at, s.Dimensions...))
			continue
		}
		vector = append(vector, d.add(&ir.Iota{Shape: s, IotaAxis: other}, s))
		other++
	}
	return d.add(&a, shapes.Make(v.Shape.DType, dims(at)...), v, d.join(rank-1, vector...))
}

// sort sorts the device's rows, and then the first ones of all devices. The outputs have only the rows that somebody takes.
func (t *writing) sort() [][]*ir.Value {
	a := t.op.Attrs.(*ir.Sort)
	if !t.in[0].isShardedAlong(a.Axis) {
		return nil
	}
	n := firsts(t.op, maps.Keys(t.plan))
	cut := func(all [][]*ir.Value) [][]*ir.Value { // sorts what each device has, and takes the first rows
		sorted := make([][]*ir.Value, len(all))
		for j, place := range t.g.places {
			var in []*ir.Value
			var out []shapes.Shape
			for _, values := range all {
				in, out = append(in, values[j]), append(out, values[j].Shape)
			}
			op := t.p.NewOp(a, in, out...)
			op.Funcs = t.copyFuncs(t.op.Funcs, nil)
			t.put(op, siteOf(t.op), place)
			for i, v := range op.Outputs {
				sorted[i] = append(sorted[i], t.rows(siteOf(t.op), place, v, a.Axis, 0, min(n, dims(v)[a.Axis])))
			}
		}
		return sorted
	}
	all := cut(t.ins)
	for i := range all {
		all[i] = t.allGather(all[i], a.Axis)
	}
	return cut(all)
}

// reduce reduces the device's rows, and then what all devices have.
func (t *writing) reduce() [][]*ir.Value {
	p, axes := t.in[0], reduceAxes(t.op.Attrs)
	if p.Kind != Sharded || len(axes) > 0 && !p.isShardedAlong(axes...) {
		return nil
	}
	out := t.op.Outputs[0].Shape
	kept := slices.Clone(dims(t.op.Inputs[0]))
	for d := range kept {
		if len(axes) == 0 || slices.Contains(axes, d) {
			kept[d] = 1
		}
	}
	all := t.allGather(t.all(func(d *device) *ir.Value { return d.reshape(d.add(t.op.Attrs, out, d.in[0]), kept...) }), p.Dim)
	return t.each(func(d *device) *ir.Value { return d.add(t.op.Attrs, out, all[d.index]) })
}

// softmax needs the largest number of all devices, and the sum.
func (t *writing) softmax() [][]*ir.Value {
	axis := t.op.Attrs.(*ir.FusedSoftmax).Axis
	if !t.in[0].isShardedAlong(axis) {
		return nil
	}
	kept := t.op.Inputs[0].Shape.Clone()
	kept.Dimensions[axis] = 1
	reduced := func(d *device, a ir.Attrs, v *ir.Value) *ir.Value {
		return d.reshape(d.add(a, shapes.Make(kept.DType, slices.Delete(slices.Clone(kept.Dimensions), axis, axis+1)...), v), kept.Dimensions...)
	}
	largest := t.allReduce(t.all(func(d *device) *ir.Value { return reduced(d, &ir.ReduceMax{Axes: []int{axis}}, d.in[0]) }), ir.ReduceByMax)
	powers := t.all(func(d *device) *ir.Value {
		return d.add(&ir.Exp{}, d.output(), d.add(&ir.Sub{}, d.output(), d.in[0], largest[d.index]))
	})
	sums := t.allReduce(t.all(func(d *device) *ir.Value { return reduced(d, &ir.ReduceSum{Axes: []int{axis}}, powers[d.index]) }), ir.ReduceBySum)
	return t.each(func(d *device) *ir.Value { return d.add(&ir.Div{}, d.output(), powers[d.index], sums[d.index]) })
}
