// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package cpu_test

import (
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"

	"github.com/gomlx/compute"
	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/shapes"

	"github.com/easyparallel/epl/ir"
)

// writer makes random programs.
type writer struct {
	*rand.Rand
	p      *ir.Program
	values []*ir.Value // that ops may read
	inputs []any
}

func (w *writer) add(a ir.Attrs, shape shapes.Shape, in ...*ir.Value) *ir.Value {
	op := w.p.NewOp(a, in, shape)
	w.p.Main.Append(op)
	w.values = append(w.values, op.Outputs[0])
	return op.Outputs[0]
}

func (w *writer) parameter(s shapes.Shape, flat any) *ir.Value {
	w.inputs = append(w.inputs, flat)
	return w.add(&ir.Parameter{Name: fmt.Sprint("arg", len(w.inputs)), Shape: s}, s)
}

// constant adds a tensor that is in the program.
func (w *writer) constant(s shapes.Shape, of func(i int) float64) *ir.Value {
	flat := reflect.MakeSlice(reflect.SliceOf(s.DType.GoType()), s.Size(), s.Size())
	for i := range s.Size() {
		put(flat.Index(i), of(i))
	}
	return w.add(&ir.Constant{Value: ir.Literal{Shape: s, Flat: flat.Interface()}}, s)
}

func (w *writer) dims() []int {
	d := make([]int, w.IntN(4))
	for i := range d {
		d[i] = []int{1, 2, 3, 5, 8, 17, 33}[w.IntN(7)]
	}
	if len(d) > 0 && w.IntN(40) == 0 {
		d[w.IntN(len(d))] = 0
	}
	if len(d) > 1 && w.IntN(40) == 0 {
		d[0] = 200 // so that threads have something to share
	}
	return d
}

func (w *writer) pick() *ir.Value { return w.values[w.IntN(len(w.values))] }

// like finds or makes a value of the same type and dims.
func (w *writer) like(v *ir.Value) *ir.Value {
	var same []*ir.Value
	for _, o := range w.values {
		if o.Shape.Equal(v.Shape) {
			same = append(same, o)
		}
	}
	if w.IntN(4) == 0 { // broadcast from fewer dims
		s := v.Shape.Clone()
		for i := range s.Dimensions {
			if w.IntN(2) == 0 {
				s.Dimensions[i] = 1
			}
		}
		for _, o := range w.values {
			if o.Shape.Equal(s) {
				return w.add(&ir.BroadcastInDim{OutputShape: v.Shape, BroadcastAxes: seq(len(s.Dimensions))}, v.Shape, o)
			}
		}
	}
	return same[w.IntN(len(same))]
}

func one[T any](w *writer, list ...T) T { return list[w.IntN(len(list))] }

// step adds an op, or some; none if those that it drew do not fit.
func (w *writer) step() {
	x := w.pick()
	if x.Shape.Size() > 1<<16 {
		return
	}
	d := x.Shape.DType
	general := []func(*ir.Value){w.binary, w.binary, w.unary, w.compare, w.choose, w.reduce, w.reduce, w.transpose, w.reshape, w.slice, w.convert, w.pad, w.gather, w.scatter,
		w.concatenate, w.count, w.search, w.window, w.sort}
	switch k := w.IntN(len(general) + 3); {
	case k < len(general):
		general[k](x)
	case isFloat(d) && k == len(general), isInteger(d):
		w.dot(x)
	case isFloat(d):
		one(w, w.function, w.fused)(x)
	}
}

func (w *writer) binary(x *ir.Value) {
	switch d := x.Shape.DType; {
	case d == dtypes.Bool:
		w.add(one[ir.Attrs](w, &ir.LogicalAnd{}, &ir.LogicalOr{}, &ir.LogicalXor{}), x.Shape, x, w.like(x))
	case isInteger(d) && w.IntN(2) == 0:
		a := one[ir.Attrs](w, &ir.BitwiseAnd{}, &ir.BitwiseOr{}, &ir.BitwiseXor{}, &ir.ShiftLeft{}, &ir.ShiftRightArithmetic{}, &ir.ShiftRightLogical{}, &ir.Pow{})
		w.add(a, x.Shape, x, w.like(x))
	case isInteger(d) && w.IntN(3) == 0: // by no zero
		y := w.add(&ir.BitwiseOr{}, x.Shape, w.like(x), w.constant(x.Shape, func(int) float64 { return 1 }))
		w.add(one[ir.Attrs](w, &ir.Div{}, &ir.Rem{}), x.Shape, x, y)
	default:
		w.add(one[ir.Attrs](w, &ir.Add{}, &ir.Sub{}, &ir.Mul{}, &ir.Max{}, &ir.Min{}), x.Shape, x, w.like(x))
	}
}

func (w *writer) unary(x *ir.Value) {
	d := x.Shape.DType
	if d == dtypes.Bool {
		w.add(&ir.LogicalNot{}, x.Shape, x)
		return
	}
	list := []ir.Attrs{&ir.Abs{}, &ir.Sign{}}
	if !d.IsUnsigned() {
		list = append(list, &ir.Neg{})
	}
	if isInteger(d) {
		list = append(list, &ir.BitwiseNot{}, &ir.BitCount{}, &ir.Clz{})
	} else {
		list = append(list, &ir.Ceil{}, &ir.Floor{}, &ir.Round{})
		if w.IntN(4) == 0 {
			w.add(one[ir.Attrs](w, &ir.IsFinite{}, &ir.IsNaN{}), shapes.Make(dtypes.Bool, x.Shape.Dimensions...), x)
			return
		}
	}
	w.add(one(w, list...), x.Shape, x)
}

// function is a function of floats.
func (w *writer) function(x *ir.Value) {
	if w.IntN(4) == 0 {
		w.add(one[ir.Attrs](w, &ir.Div{}, &ir.Pow{}, &ir.Rem{}, &ir.Atan2{}), x.Shape, x, w.like(x))
		return
	}
	w.add(one[ir.Attrs](w, &ir.Exp{}, &ir.Tanh{}, &ir.Erf{}, &ir.Logistic{}, &ir.Sqrt{}, &ir.Rsqrt{}, &ir.Log{}, &ir.Log1p{}, &ir.Expm1{}, &ir.Sin{}, &ir.Cos{}), x.Shape, x)
}

func (w *writer) compare(x *ir.Value) {
	if x.Shape.DType != dtypes.Bool {
		w.add(one[ir.Attrs](w, &ir.GreaterThan{}, &ir.GreaterOrEqual{}, &ir.Equal{}, &ir.NotEqual{}, &ir.LessThan{}, &ir.LessOrEqual{}),
			shapes.Make(dtypes.Bool, x.Shape.Dimensions...), x, w.like(x))
	}
}

func (w *writer) choose(x *ir.Value) {
	if x.Shape.DType == dtypes.Bool {
		return
	}
	if w.IntN(3) == 0 {
		scalar := shapes.Make(x.Shape.DType)
		w.add(&ir.Clamp{}, x.Shape, w.constant(scalar, func(int) float64 { return 1 }), x, one(w, w.like(x), w.constant(scalar, func(int) float64 { return 3 })))
		return
	}
	c := w.add(one[ir.Attrs](w, &ir.GreaterThan{}, &ir.Equal{}, &ir.LessOrEqual{}), shapes.Make(dtypes.Bool, x.Shape.Dimensions...), x, w.like(x))
	w.add(&ir.Where{}, x.Shape, c, x, w.like(x))
}

func (w *writer) reduce(x *ir.Value) {
	d, dims := x.Shape.DType, x.Shape.Dimensions
	if len(dims) == 0 {
		return
	}
	axes, kept := []int{}, []int{}
	for i, n := range dims {
		if w.IntN(2) == 0 {
			axes = append(axes, i)
		} else {
			kept = append(kept, n)
		}
	}
	if len(axes) == 0 {
		axes, kept = []int{len(dims) - 1}, dims[:len(dims)-1]
	}
	list := []ir.Attrs{&ir.ReduceSum{Axes: axes}, &ir.ReduceMax{Axes: axes}, &ir.ReduceSum{Axes: axes}, &ir.ReduceMin{Axes: axes}, &ir.ReduceProduct{Axes: axes}}
	switch {
	case d == dtypes.Bool:
		list = []ir.Attrs{&ir.ReduceLogicalAnd{Axes: axes}, &ir.ReduceLogicalOr{Axes: axes}, &ir.ReduceLogicalXor{Axes: axes}}
	case isInteger(d):
		list = append(list, &ir.ReduceBitwiseAnd{Axes: axes}, &ir.ReduceBitwiseOr{Axes: axes}, &ir.ReduceBitwiseXor{Axes: axes})
	}
	r := w.add(one(w, list...), shapes.Make(d, kept...), x)
	if w.IntN(2) == 0 && d != dtypes.Bool { // back again, as softmax and layer norm do
		axes := slices.DeleteFunc(seq(len(dims)), func(i int) bool { return slices.Contains(axes, i) })
		b := w.add(&ir.BroadcastInDim{OutputShape: x.Shape, BroadcastAxes: axes}, x.Shape, r)
		w.add(one[ir.Attrs](w, &ir.Sub{}, &ir.Mul{}), x.Shape, x, b)
	}
}

func (w *writer) transpose(x *ir.Value) {
	dims := x.Shape.Dimensions
	perm := w.Perm(len(dims))
	to := make([]int, len(dims))
	for i, k := range perm {
		to[i] = dims[k]
	}
	w.add(&ir.Transpose{Permutation: perm}, shapes.Make(x.Shape.DType, to...), x)
}

func (w *writer) reshape(x *ir.Value) {
	dims := x.Shape.Dimensions
	to := []int{x.Shape.Size()}
	switch {
	case w.IntN(2) == 0 && len(dims) > 1:
		to = append([]int{dims[0] * dims[1]}, dims[2:]...)
	case w.IntN(2) == 0:
		to = append([]int{1}, dims...)
	}
	w.add(&ir.Reshape{Dimensions: to}, shapes.Make(x.Shape.DType, to...), x)
}

func (w *writer) slice(x *ir.Value) {
	dims := x.Shape.Dimensions
	if len(dims) == 0 || x.Shape.Size() == 0 {
		return
	}
	if w.IntN(3) == 0 {
		w.add(&ir.Reverse{Axes: []int{w.IntN(len(dims))}}, x.Shape, x)
		return
	}
	a := &ir.Slice{Starts: make([]int, len(dims)), Limits: slices.Clone(dims), Strides: make([]int, len(dims))}
	to := make([]int, len(dims))
	for i, n := range dims {
		a.Starts[i], a.Strides[i] = w.IntN(n), 1+w.IntN(3)
		to[i] = (n - a.Starts[i] + a.Strides[i] - 1) / a.Strides[i]
	}
	w.add(a, shapes.Make(x.Shape.DType, to...), x)
}

func (w *writer) convert(x *ir.Value) {
	d, dims := x.Shape.DType, x.Shape.Dimensions
	to := one(w, allTypes...)
	if w.IntN(4) == 0 && d != dtypes.Bool && to != dtypes.Bool && d.Size() == to.Size() {
		w.add(&ir.Bitcast{TargetDType: to}, shapes.Make(to, dims...), x)
		return
	}
	if to != d {
		w.add(&ir.ConvertDType{DType: to}, shapes.Make(to, dims...), x)
	}
}

func (w *writer) pad(x *ir.Value) {
	d, dims := x.Shape.DType, x.Shape.Dimensions
	if len(dims) == 0 || d == dtypes.Bool || x.Shape.Size() == 0 {
		return
	}
	a, to := &ir.Pad{}, slices.Clone(dims)
	for i, n := range dims {
		c := compute.PadAxis{Start: w.IntN(3), End: w.IntN(2), Interior: w.IntN(2)}
		a.AxesConfig = append(a.AxesConfig, c)
		to[i] = c.Start + c.End + n + (n-1)*c.Interior
	}
	w.add(a, shapes.Make(d, to...), x, w.add(&ir.ReduceMin{Axes: seq(len(dims))}, shapes.Make(d), x))
}

func (w *writer) concatenate(x *ir.Value) {
	dims := slices.Clone(x.Shape.Dimensions)
	if len(dims) == 0 {
		return
	}
	axis, in := w.IntN(len(dims)), []*ir.Value{x}
	for range 1 + w.IntN(2) {
		in = append(in, w.like(x))
	}
	dims[axis] *= len(in)
	w.add(&ir.Concatenate{Axis: axis}, shapes.Make(x.Shape.DType, dims...), in...)
}

func (w *writer) count(x *ir.Value) {
	if n := x.Shape.Rank(); n > 0 {
		s := shapes.Make(one(w, allTypes[:len(allTypes)-1]...), x.Shape.Dimensions...)
		w.add(&ir.Iota{Shape: s, IotaAxis: w.IntN(n)}, s)
	}
}

// search finds the largest along an axis, or adds up along it.
func (w *writer) search(x *ir.Value) {
	d, dims := x.Shape.DType, x.Shape.Dimensions
	if len(dims) == 0 || d == dtypes.Bool || x.Shape.Size() == 0 {
		return
	}
	axis := w.IntN(len(dims))
	if w.IntN(2) == 0 {
		w.add(&ir.CumSum{Axis: axis, Options: compute.CumSumOptions{Exclusive: w.IntN(2) == 0, Reverse: w.IntN(2) == 0}}, x.Shape, x)
		return
	}
	to := one(w, integerTypes...)
	w.add(&ir.ArgMinMax{Axis: axis, OutputDType: to, IsMin: w.IntN(2) == 0}, shapes.Make(to, slices.Delete(slices.Clone(dims), axis, axis+1)...), x)
}

// indices are vectors of indices, a few of which are outside if they may.
func (w *writer) indices(x *ir.Value, axes, last []int, outside bool) (v *ir.Value, vectorAxis int, batch []int) {
	for range w.IntN(3) {
		batch = append(batch, 1+w.IntN(4))
	}
	vectorAxis = w.IntN(len(batch) + 1)
	dims := slices.Insert(slices.Clone(batch), vectorAxis, len(axes))
	inner := product(dims[vectorAxis+1:])
	s := shapes.Make(one(w, integerTypes...), dims...)
	v = w.constant(s, func(i int) float64 {
		n := last[i/inner%len(axes)] + 1
		if outside && w.IntN(6) == 0 && !s.DType.IsUnsigned() {
			return float64(w.IntN(3*n) - n)
		}
		return float64(w.IntN(min(n, 127)))
	})
	return v, vectorAxis, batch
}

// someAxes draws axes of a tensor, and sizes of pieces along all of them.
func (w *writer) someAxes(dims []int) (axes, sizes, last []int) {
	axes = w.Perm(len(dims))[:1+w.IntN(len(dims))]
	sizes = slices.Clone(dims)
	for _, a := range axes {
		if sizes[a] = 1; w.IntN(2) == 0 {
			sizes[a] = 1 + w.IntN(dims[a])
		}
		last = append(last, dims[a]-sizes[a])
	}
	return axes, sizes, last
}

// interleave draws where the axes of a piece are among those of batches.
func (w *writer) interleave(batch, piece []int) (axes, dims []int) {
	total := len(batch) + len(piece)
	axes = w.Perm(total)[:len(piece)]
	slices.Sort(axes)
	b, p := 0, 0
	for i := range total {
		if slices.Contains(axes, i) {
			dims = append(dims, piece[p])
			p++
		} else {
			dims = append(dims, batch[b])
			b++
		}
	}
	return axes, dims
}

// collapsed are the axes of a piece that are of size 1 and left away, and the sizes of the others.
func (w *writer) collapsed(sizes, axes []int) (gone, kept []int) {
	for i, n := range sizes {
		if n == 1 && slices.Contains(axes, i) && w.IntN(2) == 0 {
			gone = append(gone, i)
		} else {
			kept = append(kept, n)
		}
	}
	return gone, kept
}

func (w *writer) gather(x *ir.Value) {
	dims := x.Shape.Dimensions
	if len(dims) == 0 || x.Shape.Size() == 0 {
		return
	}
	axes, sizes, last := w.someAxes(dims)
	i, vector, batch := w.indices(x, axes, last, true)
	gone, kept := w.collapsed(sizes, axes)
	offset, out := w.interleave(batch, kept)
	w.add(&ir.Gather{IndexVectorAxis: vector, OffsetOutputAxes: offset, CollapsedSliceAxes: gone, StartIndexMap: axes, SliceSizes: sizes},
		shapes.Make(x.Shape.DType, out...), x, i)
}

func (w *writer) scatter(x *ir.Value) {
	d, dims := x.Shape.DType, x.Shape.Dimensions
	if len(dims) == 0 || x.Shape.Size() == 0 || d == dtypes.Bool || d == dtypes.Float16 {
		return // the oracle has none of these types
	}
	axes, sizes, last := w.someAxes(dims)
	if d.Bits() == 64 { // windows as the oracle knows them
		for k, a := range axes {
			sizes[a], last[k] = dims[a], 0
		}
	}
	i, vector, batch := w.indices(x, axes, last, false)
	gone, kept := w.collapsed(sizes, axes)
	window, shape := w.interleave(batch, kept)
	u := w.constant(shapes.Make(d, shape...), func(int) float64 { return float64(w.IntN(7)) / 2 })
	var a ir.Attrs
	switch w.IntN(3) {
	case 0:
		a = &ir.ScatterSum{IndexVectorAxis: vector, UpdateWindowAxes: window, InsertedWindowAxes: gone, ScatterAxesToOperandAxes: axes}
	case 1:
		a = &ir.ScatterMax{IndexVectorAxis: vector, UpdateWindowAxes: window, InsertedWindowAxes: gone, ScatterAxesToOperandAxes: axes}
	default:
		a = &ir.ScatterMin{IndexVectorAxis: vector, UpdateWindowAxes: window, InsertedWindowAxes: gone, ScatterAxesToOperandAxes: axes}
	}
	w.add(a, x.Shape, x, i, u)
}

func (w *writer) window(x *ir.Value) {
	d, dims := x.Shape.DType, x.Shape.Dimensions
	if len(dims) == 0 || d == dtypes.Bool || x.Shape.Size() == 0 || x.Shape.Size() > 2000 {
		return
	}
	a := &ir.ReduceWindow{ReductionType: one(w, compute.ReduceOpMax, compute.ReduceOpMin, compute.ReduceOpSum, compute.ReduceOpProduct)}
	to := make([]int, len(dims))
	for i, n := range dims {
		window, stride, pad := 1+w.IntN(min(n, 3)), 1+w.IntN(2), [2]int{w.IntN(2), w.IntN(2)}
		a.WindowDimensions, a.Strides, a.Paddings = append(a.WindowDimensions, window), append(a.Strides, stride), append(a.Paddings, pad)
		to[i] = (n+pad[0]+pad[1]-window)/stride + 1
	}
	w.add(a, shapes.Make(d, to...), x)
}

// sort sorts a tensor, and perhaps another with it.
func (w *writer) sort(x *ir.Value) {
	dims := x.Shape.Dimensions
	if len(dims) == 0 || x.Shape.DType == dtypes.Bool || x.Shape.Size() == 0 || x.Shape.Size() > 300 {
		return
	}
	in := []*ir.Value{x}
	list := []shapes.Shape{x.Shape}
	if w.IntN(2) == 0 {
		s := shapes.Make(dtypes.Int32, dims...)
		in, list = append(in, w.add(&ir.Iota{Shape: s}, s)), append(list, s)
	}
	f := &ir.Func{Parent: w.p.Main}
	for i, s := range list {
		for range 2 {
			scalar := shapes.Make(s.DType)
			f.Append(w.p.NewOp(&ir.Parameter{Name: fmt.Sprint("p", i), Shape: scalar}, nil, scalar))
		}
	}
	of := 2 * w.IntN(len(list))
	less := w.p.NewOp(one[ir.Attrs](w, &ir.LessThan{}, &ir.GreaterThan{}), f.Params[of:of+2], shapes.Make(dtypes.Bool))
	f.Append(less)
	f.Outputs = less.Outputs
	op := w.p.NewOp(&ir.Sort{Axis: w.IntN(len(dims)), IsStable: w.IntN(2) == 0}, in, list...)
	op.Funcs = []*ir.Func{f}
	w.p.Main.Append(op)
	w.values = append(w.values, op.Outputs...)
}

func (w *writer) dot(x *ir.Value) {
	dims := x.Shape.Dimensions
	if len(dims) < 2 || x.Shape.Size() == 0 {
		return
	}
	k := len(dims) - 1
	var batch, out []int
	if len(dims) > 2 && w.IntN(2) == 0 {
		batch = []int{0}
	}
	free := slices.DeleteFunc(seq(len(dims)), func(i int) bool { return i == k || slices.Contains(batch, i) })
	for _, i := range slices.Concat(batch, free, free) {
		out = append(out, dims[i])
	}
	if product(out) <= 1<<16 {
		w.add(&ir.DotGeneral{LHSContractingAxes: []int{k}, LHSBatchAxes: batch, RHSContractingAxes: []int{k}, RHSBatchAxes: batch}, shapes.Make(x.Shape.DType, out...), x, w.like(x))
	}
}

// fused adds an op that GoMLX has for several.
func (w *writer) fused(x *ir.Value) {
	d, dims := x.Shape.DType, x.Shape.Dimensions
	if len(dims) == 0 || x.Shape.Size() == 0 || d != dtypes.Float32 && d != dtypes.Float64 {
		return
	}
	k := len(dims) - 1
	switch w.IntN(4) {
	case 0:
		w.add(&ir.FusedSoftmax{Axis: w.IntN(len(dims))}, x.Shape, x)
	case 1:
		w.add(&ir.FusedGelu{Exact: w.IntN(2) == 0}, x.Shape, x)
	case 2:
		var gamma, beta *ir.Value
		if w.IntN(2) == 0 {
			s := shapes.Make(d, dims[k])
			gamma = w.constant(s, func(i int) float64 { return 1 + float64(i%3)/4 })
			beta = w.constant(s, func(i int) float64 { return float64(i%5) / 4 })
		}
		w.add(&ir.FusedLayerNorm{Axes: []int{k}, Epsilon: 1e-3}, x.Shape, x, gamma, beta)
	default:
		a := &ir.FusedDense{Options: compute.DenseConfig{Activation: compute.ActivationType(w.IntN(6)), WeightLayout: compute.DenseLayout(w.IntN(2))}}
		n := 1 + w.IntN(20)
		s := shapes.Make(d, dims[k], n)
		if a.Options.WeightLayout == compute.DenseLayoutOutputsInput {
			s = shapes.Make(d, n, dims[k])
		}
		weights := w.constant(s, func(i int) float64 { return float64(i%11)/8 - 0.5 })
		var bias *ir.Value
		if w.IntN(2) == 0 {
			bias = w.constant(shapes.Make(d, n), func(i int) float64 { return float64(i%7) / 4 })
		}
		w.add(a, shapes.Make(d, append(slices.Clone(dims[:k]), n)...), x, weights, bias)
	}
}

// program writes a random program.
func program(r *rand.Rand, name string) *writer {
	w := &writer{Rand: r, p: ir.NewProgram(name)}
	types := one(w, floatTypes[:1], floatTypes[:2], floatTypes, integerTypes, allTypes)
	for range 2 + w.IntN(3) {
		s := shapes.Make(one(w, types...), w.dims()...)
		w.parameter(s, filled(w.Rand, s, w.IntN(3) == 0))
	}
	for range 5 + w.IntN(40) {
		w.step()
	}
	for range 1 + w.IntN(5) {
		w.p.Main.Outputs = append(w.p.Main.Outputs, w.pick())
	}
	// The oracle wants every parameter to be used.
	w.p.Main.Outputs = append(w.p.Main.Outputs, w.p.Main.Params...)
	return w
}
