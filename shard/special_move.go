package shard

import (
	"slices"

	"github.com/gomlx/compute"
	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/shapes"

	"github.com/easyparallel/epl/ir"
)

// iota counts from the device's first row. Numbers that are no integers are made of some: adding would round them once more.
func (t *writing) iota() [][]*ir.Value {
	a := t.op.Attrs.(*ir.Iota)
	if !t.out[0].isShardedAlong(a.IotaAxis) {
		return nil
	}
	return t.each(func(d *device) *ir.Value {
		from, _ := d.rowsOf(t.out[0], a.Shape)
		s := d.output()
		if !a.Shape.DType.IsInt() {
			s = shapes.Make(dtypes.Int64, s.Dimensions...)
		}
		v := d.add(&ir.Iota{Shape: s, IotaAxis: a.IotaAxis}, s)
		if from > 0 {
			v = d.add(&ir.Add{}, s, v, d.integer(s.DType, from))
		}
		return d.convert(v, a.Shape.DType)
	})
}

// slice takes what the device has of the rows that are asked for, and zeros for the others.
func (t *writing) slice() [][]*ir.Value {
	p := t.in[0]
	if p.Kind != Sharded || t.out[0].Kind != Partial {
		return nil
	}
	a, out := t.op.Attrs.(*ir.Slice), t.op.Outputs[0].Shape
	start, step, n := a.Starts[p.Dim], strideOf(a, p.Dim), out.Dimensions[p.Dim]
	next := func(row int) int { return min(max(0, (row-start+step-1)/step), n) } // the first one asked for, from a row on
	return t.each(func(d *device) *ir.Value {
		from, to := d.rowsOf(p, t.op.Inputs[0].Shape)
		first, end := next(from), next(to)
		zero := d.t.zero(out.DType)
		if first == end {
			return d.broadcast(zero, out)
		}
		b := ir.Slice{Starts: slices.Clone(a.Starts), Limits: slices.Clone(a.Limits), Strides: a.Strides}
		b.Starts[p.Dim] = start + first*step - from
		b.Limits[p.Dim] = start + (end-1)*step - from + 1
		s := out.Clone()
		s.Dimensions[p.Dim] = end - first
		v := d.add(&b, s, d.in[0])
		around := make([]compute.PadAxis, s.Rank())
		around[p.Dim] = compute.PadAxis{Start: first, End: n - end}
		if around[p.Dim] == (compute.PadAxis{}) {
			return v
		}
		return d.add(&ir.Pad{AxesConfig: around}, out, v, zero)
	})
}

// pad makes the device's rows: some of the input, and padding if they are at the ends.
func (t *writing) pad() [][]*ir.Value {
	p := t.out[0]
	if p.Kind != Sharded || t.in[0].Kind != Replicated {
		return nil
	}
	a := t.op.Attrs.(*ir.Pad)
	before, n := padOf(a, p.Dim).Start, dims(t.op.Inputs[0])[p.Dim]
	return t.each(func(d *device) *ir.Value {
		from, to := d.rowsOf(p, t.op.Outputs[0].Shape)
		first, end := max(from, before), min(to, before+n)
		if first >= end {
			return d.broadcast(d.in[1], d.output())
		}
		axes := slices.Clone(a.AxesConfig)
		axes[p.Dim] = compute.PadAxis{Start: first - from, End: to - end}
		return d.add(&ir.Pad{AxesConfig: axes}, d.output(), d.rows(d.in[0], p.Dim, first-before, end-before), d.in[1])
	})
}

// concatenate takes the device's rows out of the inputs.
func (t *writing) concatenate() [][]*ir.Value {
	p, axis := t.out[0], t.op.Attrs.(*ir.Concatenate).Axis
	if !p.isShardedAlong(axis) {
		return nil
	}
	return t.each(func(d *device) *ir.Value {
		from, to := d.rowsOf(p, t.op.Outputs[0].Shape)
		var pieces []*ir.Value
		start := 0
		for _, v := range d.in {
			end := start + dims(v)[axis]
			if first, last := max(from, start), min(to, end); first < last {
				pieces = append(pieces, d.rows(v, axis, first-start, last-start))
			}
			start = end
		}
		return d.join(axis, pieces...)
	})
}

// dynamicSlice repeats the size of dims that are taken whole.
func (t *writing) dynamicSlice() [][]*ir.Value {
	return t.each(func(d *device) *ir.Value {
		return d.add(&ir.DynamicSlice{SliceDims: d.output().Dimensions}, d.output(), d.in...)
	})
}
