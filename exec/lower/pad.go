// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package lower

import (
	"reflect"
	"slices"

	"github.com/gomlx/compute"
	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/dtypes/bfloat16"
	"github.com/gomlx/compute/dtypes/float16"
	"github.com/gomlx/compute/shapes"
	"github.com/pkg/errors"

	"github.com/easyparallel/epl/ir"
)

// Devices that run a segment together have parts of one shape, that of the largest. Where a size does not divide, some have a unit less: their last
// rows are padding, and may be anything, also NaN. What is computed row by row needs no more than that. Ops that mix rows of a sharded dim read
// padding as a number that changes nothing there, by selection; collectives leave it out. So no padding is ever part of a result.

// Uneven tells whether devices have unequal parts of a value: what they run together pads them.
func Uneven(v *ir.Value) bool {
	if v == nil {
		return false
	}
	p := v.On(ir.Model)
	return p.Kind == ir.Sharded && (extra(p, v.Shape.Dimensions[p.Dim], v.Devices(ir.Model)) > 0 || weighted(v))
}

// weighted tells whether devices have parts in proportion to weights.
func weighted(v *ir.Value) bool { return v.Division(ir.Model).Weights != nil }

// extra is how many devices have a unit more than others, of n rows.
func extra(p ir.Placement, n, k int) int { return n / p.Unit % k }

// largest is how many rows of n these have, or all if there are none.
func largest(p ir.Placement, n, k int) int { return (n/p.Unit + k - 1) / k * p.Unit }

// CanPad is nil if devices that have unequal parts of values can run an op together, else the reason why not.
func CanPad(op *ir.Op) error {
	all := slices.Concat(op.Inputs, op.Outputs)
	i := slices.IndexFunc(all, Uneven)
	if i < 0 || op.IsLeaf() {
		return nil
	}
	p, n, k := all[i].On(ir.Model), all[i].Shape.Dimensions, all[i].Devices(ir.Model)
	if weighted(all[i]) {
		return errors.Errorf("%s: %s have parts in proportion to their weights, and what devices run together has equal parts", op, all[i].Division(ir.Model))
	}
	no := func(why string) error {
		return errors.Errorf("%s: %d rows, in units of %d, do not divide among %d devices, and %s", op, n[p.Dim], p.Unit, k, why)
	}
	whole := slices.ContainsFunc(op.Outputs, func(v *ir.Value) bool { return v.On(ir.Model).Kind != ir.Sharded })
	switch a := op.Attrs.(type) {
	case *ir.Reshard, *ir.FillEnd, *ir.OptimizationBarrier, *ir.SchedulingBarrier:
		return nil
	case *ir.Merge:
		if a.How == ir.Concat && Uneven(op.Inputs[0]) && p.Dim == 0 {
			return no("model replicas put rows of that dim one after the other")
		}
		return nil
	case *ir.Gather:
		if op.PerShard { // by indices that are the device's own, or of which nothing is used
			return nil
		}
	}
	if whole && slices.ContainsFunc(op.Inputs, Uneven) && !mixes[op.Type()] {
		return no("nothing is known that padding could be for this operation")
	}
	return nil
}

// mixes are the operations that mix rows of a sharded dim, and for which there are numbers that change nothing.
var mixes = map[ir.OpType]bool{
	ir.OpDotGeneral: true, ir.OpConvGeneral: true, ir.OpFusedDense: true, ir.OpFusedScaledDotProductAttentionVJP: true,
	ir.OpScatterSum: true, ir.OpScatterMax: true, ir.OpScatterMin: true, ir.OpArgMinMax: true,
	ir.OpReduceSum: true, ir.OpReduceMax: true, ir.OpReduceMin: true, ir.OpReduceProduct: true, ir.OpReduceBitwiseAnd: true, ir.OpReduceBitwiseOr: true,
	ir.OpReduceBitwiseXor: true, ir.OpReduceLogicalAnd: true, ir.OpReduceLogicalOr: true, ir.OpReduceLogicalXor: true,
}

// operands are the inputs of an op as it may read them: with padding that changes nothing in its results.
func (l *lowering) operands(op *ir.Op) []*ir.Value {
	inputs := make([]*ir.Value, len(op.Inputs))
	for i, v := range op.Inputs {
		if v == nil {
			continue
		}
		if inputs[i] = l.values[v]; l.mesh != nil && Uneven(v) && !isFlat(v) { // what is flat has been filled
			if with := neutral(op, i); with != nil {
				inputs[i] = l.filled(v, with)
			}
		}
	}
	return inputs
}

// neutral is what an op reads as padding of an input; nil: it may be anything.
func neutral(op *ir.Op, input int) any {
	t := op.Inputs[input].Shape.DType
	lowest, highest := t.LowestValue(), t.HighestValue()
	if (op.Type() == ir.OpDiv || op.Type() == ir.OpRem) && t.IsInt() && input == 1 {
		return highest // some devices cannot divide integers by 0
	}
	if !mixes[op.Type()] || !slices.ContainsFunc(op.Outputs, func(v *ir.Value) bool { return v.On(ir.Model).Kind != ir.Sharded }) {
		return nil
	}
	zero := reflect.Zero(t.GoType()).Interface()
	switch a := op.Attrs.(type) {
	case *ir.ReduceMax:
		return lowest
	case *ir.ReduceMin:
		return highest
	case *ir.ArgMinMax: // of equal rows the first is taken, which is none of them
		if a.IsMin {
			return highest
		}
		return lowest
	case *ir.ScatterMax:
		if input == 2 {
			return lowest
		}
	case *ir.ScatterMin:
		if input == 2 {
			return highest
		}
	case *ir.ReduceProduct:
		return one(t)
	case *ir.ReduceLogicalAnd:
		return true
	case *ir.ReduceBitwiseAnd:
		if t.IsUnsigned() {
			return highest
		}
		return reflect.ValueOf(-1).Convert(t.GoType()).Interface()
	case *ir.FusedScaledDotProductAttentionVJP:
		if t == dtypes.Bool {
			return true // a query that sees no key has no weights
		}
	}
	return zero
}

// one is the number 1.
func one(t dtypes.DType) any {
	switch t {
	case dtypes.BFloat16:
		return bfloat16.FromFloat32(1)
	case dtypes.Float16:
		return float16.FromFloat32(1)
	case dtypes.Complex64:
		return complex64(1)
	case dtypes.Complex128:
		return complex128(1)
	}
	return reflect.ValueOf(1).Convert(t.GoType()).Interface()
}

// sort sorts the rows of the device along the dim that is sharded; padding comes last.
func (l *lowering) sort(op *ir.Op) {
	var outputs []shapes.Shape
	inputs := l.operands(op)
	for _, v := range inputs {
		outputs = append(outputs, v.Shape)
	}
	flags := shapes.Make(dtypes.Bool, outputs[0].Dimensions...)
	padding := l.add(&ir.LogicalNot{}, flags, l.inside(op.Inputs[0]))
	c := l.p.NewOp(op.Attrs, append(inputs, padding), append(outputs, flags)...)
	c.Funcs, c.Attribution, c.Varying = l.p.CopyFuncs(op.Funcs, nil), op.Attribution, op.Varying
	before := c.Funcs[0] // is a row to come before another?
	add := func(a ir.Attrs, in ...*ir.Value) *ir.Value {
		op := l.p.NewOp(a, in, shapes.Make(dtypes.Bool))
		before.Append(op)
		return op.Outputs[0]
	}
	one, other := add(&ir.Parameter{Name: "padding", Shape: shapes.Make(dtypes.Bool)}), add(&ir.Parameter{Name: "other_padding", Shape: shapes.Make(dtypes.Bool)})
	before.Outputs = []*ir.Value{add(&ir.LogicalAnd{}, add(&ir.LogicalNot{}, one), add(&ir.LogicalOr{}, other, before.Outputs[0]))}
	for i, v := range op.Outputs {
		l.is(v, c.Outputs[i])
	}
	l.to.Ops = append(l.to.Ops, c)
}

// filling is a value whose padding is set to a number.
type filling struct {
	v    *ir.Value
	with any
}

// filled is what the device has of a value, with padding set to a number.
func (l *lowering) filled(v *ir.Value, with any) *ir.Value {
	x := l.values[v]
	key := filling{x, with}
	if l.fillings[key] == nil {
		l.fillings[key] = l.add(&ir.Where{}, x.Shape, l.inside(v), x, l.constant(with))
	}
	return l.fillings[key]
}

// inside tells, element by element, whether what the device has of a value is no padding.
func (l *lowering) inside(v *ir.Value) *ir.Value {
	s, p, k := l.values[v].Shape, v.On(ir.Model), v.Devices(ir.Model)
	n := largest(p, v.Shape.Dimensions[p.Dim], k)
	has := l.either(v, l.number(n), l.number(n-p.Unit))
	ints := shapes.Make(dtypes.Int64, s.Dimensions[p.Dim])
	inside := l.add(&ir.LessThan{}, shapes.Make(dtypes.Bool, ints.Dimensions...), l.add(&ir.Iota{Shape: ints}, ints), has)
	if all := shapes.Make(dtypes.Bool, s.Dimensions...); s.Rank() > 1 {
		inside = l.add(&ir.BroadcastInDim{OutputShape: all, BroadcastAxes: []int{p.Dim}}, all, inside)
	}
	return inside
}

// either is one value on devices that have more of v than others, and another on those.
func (l *lowering) either(v, long, short *ir.Value) *ir.Value {
	p := v.On(ir.Model)
	more := l.add(&ir.LessThan{}, shapes.Make(dtypes.Bool), l.here(), l.number(extra(p, v.Shape.Dimensions[p.Dim], v.Devices(ir.Model))))
	return l.add(&ir.Where{}, long.Shape, l.broadcast(more, long.Shape.Dimensions), long, short)
}

// Model replicas may have flat parts of parts that are not equal. On a device that has less these are shorter, too, and lie elsewhere in what it has.

// boxes are the shapes of what a device has in all model replicas together: of those that have more, and of the others.
func boxes(v *ir.Value) (long, short shapes.Shape) {
	whole, p := *v, v.On(ir.Model)
	whole.SetOn(ir.Replicas, ir.Placement{}, v.Devices(ir.Replicas))
	long = whole.LocalShape(nil)
	return long, resized(long, p.Dim, long.Dimensions[p.Dim]-p.Unit)
}

// laid lays out flat what the device has of v, so that k model replicas can have equal parts.
func (l *lowering) laid(v, x *ir.Value, k int) *ir.Value {
	long := l.flat(x, k)
	if l.mesh == nil || !Uneven(v) {
		return long
	}
	_, s := boxes(v)
	short := l.flat(l.rows(x, v.On(ir.Model).Dim, 0, s.Dimensions[v.On(ir.Model).Dim]), k)
	n, c := long.Shape.Size()/k, short.Shape.Size()/k
	return l.either(v, long, l.reshape(l.longer(l.reshape(short, k, c), 1, n-c), k*n))
}

// stood makes what a device has of v of the flat parts of k model replicas.
func (l *lowering) stood(v, parts *ir.Value, k int) *ir.Value {
	stand := func(x *ir.Value, s shapes.Shape) *ir.Value {
		if n := s.Size(); n < x.Shape.Size() {
			x = l.rows(x, 0, 0, n)
		}
		return l.reshape(x, s.Dimensions...)
	}
	if l.mesh == nil || !Uneven(v) {
		return stand(parts, v.LocalShape(l.at))
	}
	long, short := boxes(v)
	c, p := ir.PartShape(short, k).Size(), v.On(ir.Model)
	less := l.reshape(l.rows(l.reshape(parts, k, parts.Shape.Size()/k), 1, 0, c), k*c)
	return l.either(v, stand(parts, long), l.longer(stand(less, short), p.Dim, p.Unit))
}

// here is where the device is along the axis Model.
func (l *lowering) here() *ir.Value {
	return l.add(&ir.ConvertDType{DType: dtypes.Int64}, index, l.place)
}

// IsPosition tells whether a value is where a device is along the axis Model.
func IsPosition(v *ir.Value) bool {
	a, ok := v.Op.Attrs.(*ir.Position)
	return ok && a.Axis == ir.Model
}

// rows are some rows of a dim.
func (l *lowering) rows(v *ir.Value, dim, from, to int) *ir.Value {
	a := &ir.Slice{Starts: make([]int, v.Shape.Rank()), Limits: slices.Clone(v.Shape.Dimensions), Strides: slices.Repeat([]int{1}, v.Shape.Rank())}
	a.Starts[dim], a.Limits[dim] = from, to
	return l.add(a, resized(v.Shape, dim, to-from), v)
}

// longer adds rows of zeros at the end of a dim.
func (l *lowering) longer(v *ir.Value, dim, by int) *ir.Value {
	if by == 0 {
		return v
	}
	ends := make([]compute.PadAxis, v.Shape.Rank())
	ends[dim].End = by
	return l.add(&ir.Pad{AxesConfig: ends}, resized(v.Shape, dim, v.Shape.Dimensions[dim]+by), v, l.constant(reflect.Zero(v.Shape.DType.GoType()).Interface()))
}

// spread pads what every device is to get of something whole: rows of n become those of k parts of one size.
func (l *lowering) spread(v *ir.Value, p ir.Placement, k int) *ir.Value {
	n := v.Shape.Dimensions[p.Dim]
	return l.parts(v, p, n, k, largest(p, n, k)-p.Unit, func(v *ir.Value, dim int) *ir.Value { return l.longer(v, dim, p.Unit) })
}

// joined cuts padding out of k parts of one size: what is left are n rows.
func (l *lowering) joined(v *ir.Value, p ir.Placement, n, k int) *ir.Value {
	size := largest(p, n, k)
	return l.parts(v, p, n, k, size, func(v *ir.Value, dim int) *ir.Value { return l.rows(v, dim, 0, size-p.Unit) })
}

// parts changes those parts of k that have, or should have, padding. They are the last, and have so many rows each.
func (l *lowering) parts(v *ir.Value, p ir.Placement, n, k, rows int, change func(v *ir.Value, dim int) *ir.Value) *ir.Value {
	more := extra(p, n, k)
	if more == 0 {
		return v
	}
	first := more * largest(p, n, k)
	rest := l.rows(v, p.Dim, first, v.Shape.Dimensions[p.Dim])
	rest = l.reshape(rest, slices.Replace(slices.Clone(rest.Shape.Dimensions), p.Dim, p.Dim+1, k-more, rows)...)
	rest = change(rest, p.Dim+1)
	total := (k - more) * rest.Shape.Dimensions[p.Dim+1]
	rest = l.reshape(rest, slices.Replace(slices.Clone(rest.Shape.Dimensions), p.Dim, p.Dim+2, total)...)
	return l.add(&ir.Concatenate{Axis: p.Dim}, resized(v.Shape, p.Dim, first+total), l.rows(v, p.Dim, 0, first), rest)
}
