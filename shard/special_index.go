package shard

import (
	"slices"

	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/shapes"

	"github.com/easyparallel/epl/ir"
)

// split returns the index alone, and a function that puts another in its place. Indices become wide enough to calculate
// with.
func (d *device) split(indices *ir.Value, vector, of int) (one *ir.Value, replace func(*ir.Value) *ir.Value) {
	indices = d.convert(indices, dtypes.Int64)
	if vector == indices.Shape.Rank() || dims(indices)[vector] == 1 {
		return indices, func(v *ir.Value) *ir.Value { return v }
	}
	n := dims(indices)[vector]
	return d.rows(indices, vector, of, of+1), func(v *ir.Value) *ir.Value {
		pieces := []*ir.Value{v}
		if of > 0 {
			pieces = slices.Insert(pieces, 0, d.rows(indices, vector, 0, of))
		}
		if of+1 < n {
			pieces = append(pieces, d.rows(indices, vector, of+1, n))
		}
		return d.join(vector, pieces...)
	}
}

// between tells for every index whether it is one of the device's rows.
func (d *device) between(v *ir.Value, from, to int) *ir.Value {
	s := shapes.Make(dtypes.Bool, dims(v)...)
	return d.add(&ir.LogicalAnd{}, s, d.add(&ir.GreaterOrEqual{}, s, v, d.constant(int64(from))), d.add(&ir.LessThan{}, s, v, d.constant(int64(to))))
}

// clamp keeps indices in a range.
func (d *device) clamp(v *ir.Value, from, to int) *ir.Value {
	return d.add(&ir.Min{}, v.Shape, d.add(&ir.Max{}, v.Shape, v, d.constant(int64(from))), d.constant(int64(to-1)))
}

// choose keeps the elements of a value whose index is one of the device's rows, and puts a number in place of others. Dims
// of the value that are not windows are those of the indices.
func (d *device) choose(mine, v, other *ir.Value, windows []int) *ir.Value {
	var sizes, axes []int
	for i, n := range dims(v) {
		if !slices.Contains(windows, i) {
			sizes, axes = append(sizes, n), append(axes, i)
		}
	}
	return d.add(&ir.Where{}, v.Shape, d.broadcast(d.reshape(mine, sizes...), v.Shape, axes...), v, other)
}

// gather takes the rows that the device has, and zeros for those of others. As in the whole, an index that is out of bounds
// means the nearest row.
func (t *writing) gather() [][]*ir.Value {
	a, p := t.op.Attrs.(*ir.Gather), t.in[0]
	if !p.isShardedAlong(a.StartIndexMap...) {
		return nil
	}
	table := t.op.Inputs[0].Shape
	return t.each(func(d *device) *ir.Value {
		from, to := d.rowsOf(p, table)
		one, replace := d.split(d.in[1], a.IndexVectorAxis, slices.Index(a.StartIndexMap, p.Dim))
		one = d.clamp(one, 0, table.Dimensions[p.Dim])
		local := d.add(&ir.Sub{}, one.Shape, one, d.constant(int64(from)))
		b := *a
		b.IndicesAreSorted = false
		v := d.add(&b, t.op.Outputs[0].Shape, d.in[0], replace(local))
		return d.choose(d.between(one, from, to), v, t.zero(v.Shape.DType), a.OffsetOutputAxes)
	})
}

// scatter takes the updates of the rows that the device has; of those of others it makes some that change nothing.
func (t *writing) scatter() [][]*ir.Value {
	a, how := scatterOf(t.op.Attrs)
	p := t.in[0]
	if !p.isShardedAlong(a.ScatterAxesToOperandAxes...) {
		return nil
	}
	return t.each(func(d *device) *ir.Value {
		from, to := d.rowsOf(p, t.op.Inputs[0].Shape)
		one, replace := d.split(d.in[1], a.IndexVectorAxis, slices.Index(a.ScatterAxesToOperandAxes, p.Dim))
		local := d.clamp(d.add(&ir.Sub{}, one.Shape, one, d.constant(int64(from))), 0, to-from)
		b := a
		b.IndicesAreSorted, b.UniqueIndices = false, false
		dtype := d.in[2].Shape.DType
		nothing := t.zero(dtype)
		var attrs ir.Attrs = &b
		switch how {
		case ir.ReduceByMax:
			attrs, nothing = (*ir.ScatterMax)(&b), d.constant(dtype.LowestValue())
		case ir.ReduceByMin:
			attrs, nothing = (*ir.ScatterMin)(&b), d.constant(dtype.HighestValue())
		}
		updates := d.choose(d.between(one, from, to), d.in[2], nothing, a.UpdateWindowAxes)
		return d.add(attrs, d.output(), d.in[0], replace(local), updates)
	})
}
