package cpu_test

import (
	"flag"
	"fmt"
	"math"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"

	"github.com/gomlx/compute"
	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/dtypes/bfloat16"
	"github.com/gomlx/compute/dtypes/float16"
	_ "github.com/gomlx/compute/gobackend"
	"github.com/gomlx/compute/shapes"
	"github.com/pkg/errors"

	"github.com/easyparallel/epl/cpu"
	"github.com/easyparallel/epl/emit"
	"github.com/easyparallel/epl/ir"
)

var (
	seeds     = flag.Int("cpu.seeds", 300, "random programs to run")
	firstSeed = flag.Uint64("cpu.first", 0, "the first of them")
)

// opByOp is GoMLX's pure-Go backend, the oracle.
func opByOp(t testing.TB) compute.Backend {
	t.Helper()
	b, err := compute.NewWithConfig("go:ops_sequential")
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// engines are the devices that must agree with each other, bit for bit.
func engines(t testing.TB) map[string]compute.Backend {
	list := map[string]compute.Backend{
		"fused":           cpu.New(opByOp(t), 1),
		"fused 3 threads": cpu.New(opByOp(t), 3),
		"unfused":         cpu.New(opByOp(t), 1, cpu.Unfused()),
		"no views":        cpu.New(opByOp(t), 1, cpu.Without("views")),
		"not in place":    cpu.New(opByOp(t), 1, cpu.Without("in-place", "fuse-elementwise")),
		"no reductions":   cpu.New(opByOp(t), 1, cpu.Without("fuse-reduce")),
	}
	for _, b := range list {
		t.Cleanup(b.Finalize)
	}
	return list
}

func seq(n int) []int {
	s := make([]int, n)
	for i := range s {
		s[i] = i
	}
	return s
}

func product(dims []int) int {
	n := 1
	for _, d := range dims {
		n *= d
	}
	return n
}

var (
	floatTypes   = []dtypes.DType{dtypes.Float32, dtypes.Float64, dtypes.BFloat16, dtypes.Float16}
	integerTypes = []dtypes.DType{dtypes.Int32, dtypes.Int8, dtypes.Int16, dtypes.Int64, dtypes.Uint8, dtypes.Uint16, dtypes.Uint32, dtypes.Uint64}
	allTypes     = slices.Concat(floatTypes, integerTypes, []dtypes.DType{dtypes.Bool})
)

// odd are numbers for which code is easily wrong.
var odd = []float64{0, math.Copysign(0, -1), 1, -1, math.Inf(1), math.Inf(-1), math.NaN(), 1e-40, -1e-40, 1.4e-45, 5e-324, 3e38, -3e38, 65504, -65504, 6e-8, 1e300, 0.5, -2.5, 1 << 24}

// put writes a number into an element of any type.
func put(to reflect.Value, f float64) {
	switch p := to.Addr().Interface().(type) {
	case *bfloat16.BFloat16:
		*p = bfloat16.FromFloat32(float32(f))
	case *float16.Float16:
		*p = float16.FromFloat32(float32(f))
	case *float32:
		*p = float32(f)
	case *float64:
		*p = f
	case *bool:
		*p = f > 0
	default:
		i := int64(f)
		if to.CanInt() {
			to.SetInt(i << (64 - to.Type().Bits()) >> (64 - to.Type().Bits()))
		} else {
			to.SetUint(uint64(i) << (64 - to.Type().Bits()) >> (64 - to.Type().Bits()))
		}
	}
}

// get reads an element as a number; of integers above 2⁵³ not all bits.
func get(v reflect.Value) float64 {
	switch x := v.Interface().(type) {
	case bfloat16.BFloat16:
		return float64(x.Float32())
	case float16.Float16:
		return float64(x.Float32())
	case bool:
		if x {
			return 1
		}
		return 0
	}
	switch {
	case v.CanFloat():
		return v.Float()
	case v.CanInt():
		return float64(v.Int())
	}
	return float64(v.Uint())
}

func isFloat(d dtypes.DType) bool { return slices.Contains(floatTypes, d) }

func isInteger(d dtypes.DType) bool { return slices.Contains(integerTypes, d) }

// content are small numbers.
func content(r *rand.Rand, s shapes.Shape) any { return filled(r, s, false) }

// filled are small numbers, or wild ones: anything that a type can hold.
func filled(r *rand.Rand, s shapes.Shape, wild bool) any {
	flat := reflect.MakeSlice(reflect.SliceOf(s.DType.GoType()), s.Size(), s.Size())
	for i := range s.Size() {
		f := float64(r.IntN(9)) - 4
		switch {
		case isFloat(s.DType):
			f = float64(float32(r.NormFloat64() / 2))
			if wild && r.IntN(2) == 0 {
				f = odd[r.IntN(len(odd))]
			}
		case wild && s.DType != dtypes.Bool:
			f = float64(int64(r.Uint64() >> r.IntN(64)))
		case s.DType.IsUnsigned():
			f = math.Abs(f)
		}
		put(flat.Index(i), f)
	}
	return flat.Interface()
}

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

// execute compiles and runs a program.
func execute(t testing.TB, b compute.Backend, p *ir.Program, inputs []any) []any {
	t.Helper()
	x, err := emit.Program(b, p)
	if err != nil {
		t.Fatalf("%+v\n%s", err, p)
	}
	outs, err := run(b, x, p.Main.Params, inputs, p.Main.Outputs)
	if err != nil {
		t.Fatalf("%+v\n%s", err, p)
	}
	return outs
}

// run executes what was compiled, and ends it.
func run(b compute.Backend, x compute.Executable, params []*ir.Value, inputs []any, outputs []*ir.Value) (all []any, err error) {
	defer x.Finalize()
	defer func() {
		if r := recover(); r != nil {
			err = errors.Errorf("%v", r)
		}
	}()
	var ins []compute.Buffer
	for i, v := range params {
		buf, err := b.BufferFromFlatData(0, inputs[i], v.Shape)
		if err != nil {
			return nil, err
		}
		ins = append(ins, buf)
	}
	outs, err := x.Execute(ins, nil, 0)
	if err != nil {
		return nil, err
	}
	for i, o := range outs {
		s := outputs[i].Shape
		flat := reflect.MakeSlice(reflect.SliceOf(s.DType.GoType()), s.Size(), s.Size()).Interface()
		if err := o.ToFlatData(flat); err != nil {
			return nil, err
		}
		all = append(all, flat)
	}
	return all, nil
}

// bits tells whether two results are the same, to the sign of zero (but NaN is NaN).
func bits(a, b any) error {
	x, y := reflect.ValueOf(a), reflect.ValueOf(b)
	for i := range x.Len() {
		u, v := x.Index(i), y.Index(i)
		if !u.Equal(v) && !(math.IsNaN(get(u)) && math.IsNaN(get(v))) || math.Signbit(get(u)) != math.Signbit(get(v)) && !math.IsNaN(get(u)) {
			return fmt.Errorf("element %d: %v and %v", i, u, v)
		}
	}
	return nil
}

// same tells whether two results are the same numbers (NaN is NaN), or within a relative error.
func same(a, b any, tolerance float64) error {
	x := reflect.ValueOf(a)
	largest := 0.0
	for i := range x.Len() {
		if f := math.Abs(get(x.Index(i))); !math.IsInf(f, 0) {
			largest = max(largest, f)
		}
	}
	if math.IsNaN(largest) {
		largest = 0
	}
	return within(a, b, tolerance*largest)
}

// within tells whether two results differ by no more than an error.
func within(a, b any, most float64) error {
	x, y := reflect.ValueOf(a), reflect.ValueOf(b)
	for i := range x.Len() {
		u, v := x.Index(i), y.Index(i)
		f, g := get(u), get(v)
		if !u.Equal(v) && f != g && !(math.IsNaN(f) && math.IsNaN(g)) && !(math.Abs(f-g) <= most) {
			return fmt.Errorf("element %d: %v and %v, not within %g", i, u, v, most)
		}
	}
	return nil
}

// ulps is the distance of two floats of a type, in units of the last place.
func ulps(d dtypes.DType, a, b reflect.Value) int64 {
	order := func(v reflect.Value) int64 {
		var i int64
		switch x := v.Interface().(type) {
		case float32:
			i = int64(int32(math.Float32bits(x)))
		case float64:
			i = int64(math.Float64bits(x))
		case bfloat16.BFloat16:
			i = int64(int16(x.Bits()))
		case float16.Float16:
			i = int64(int16(x.Bits()))
		}
		if i < 0 {
			i = math.MinInt64>>(64-d.Bits()) - i
		}
		return i
	}
	return max(order(a)-order(b), order(b)-order(a))
}

// nearly tells whether two results differ by a unit in the last place at most.
func nearly(d dtypes.DType, a, b any) error {
	x, y := reflect.ValueOf(a), reflect.ValueOf(b)
	for i := range x.Len() {
		u, v := x.Index(i), y.Index(i)
		if !(math.IsNaN(get(u)) && math.IsNaN(get(v))) && (math.IsNaN(get(u)) != math.IsNaN(get(v)) || ulps(d, u, v) > 1) {
			return fmt.Errorf("element %d: %v and %v, more than a unit in the last place", i, u, v)
		}
	}
	return nil
}

// rounding is the relative error of an operation.
func rounding(d dtypes.DType) float64 {
	switch d {
	case dtypes.Float64:
		return 0x1p-53
	case dtypes.BFloat16:
		return 0x1p-8
	case dtypes.Float16:
		return 0x1p-11
	}
	return 0x1p-24
}

// limit is a number that is not much below the largest of a type.
func limit(d dtypes.DType) float64 {
	switch d {
	case dtypes.Float64:
		return 1e308
	case dtypes.Float16:
		return 6e4
	}
	return 3e38
}

// largest is the largest number of a tensor, and how many are not finite.
func largest(flat any) (m float64, odd int) {
	v := reflect.ValueOf(flat)
	for i := range v.Len() {
		if f := math.Abs(get(v.Index(i))); math.IsNaN(f) || math.IsInf(f, 0) {
			odd++
		} else {
			m = max(m, f)
		}
	}
	return m, odd
}

// scattered computes a scatter by its definition, for the oracle is wrong where a window is smaller than the tensor along an axis
// that it has: it walks the tensor there, not the window.
func scattered(op *ir.Op, x, indices, updates any) any {
	var vector int
	var window, inserted, axes []int
	combine := func(a, b float64) float64 { return a + b }
	switch a := op.Attrs.(type) {
	case *ir.ScatterSum:
		vector, window, inserted, axes = a.IndexVectorAxis, a.UpdateWindowAxes, a.InsertedWindowAxes, a.ScatterAxesToOperandAxes
	case *ir.ScatterMax:
		vector, window, inserted, axes = a.IndexVectorAxis, a.UpdateWindowAxes, a.InsertedWindowAxes, a.ScatterAxesToOperandAxes
		combine = func(a, b float64) float64 { return max(a, b) }
	case *ir.ScatterMin:
		vector, window, inserted, axes = a.IndexVectorAxis, a.UpdateWindowAxes, a.InsertedWindowAxes, a.ScatterAxesToOperandAxes
		combine = func(a, b float64) float64 { return min(a, b) }
	}
	from, list, u := reflect.ValueOf(x), reflect.ValueOf(indices), reflect.ValueOf(updates)
	out := reflect.MakeSlice(from.Type(), from.Len(), from.Len())
	reflect.Copy(out, from)
	dims, shape, inner := op.Inputs[0].Shape.Dimensions, op.Inputs[2].Shape.Dimensions, product(op.Inputs[1].Shape.Dimensions[vector+1:])
	type add struct{ batch, from, to int }
	var adds []add
	for i := range u.Len() {
		at := make([]int, len(dims))
		batch, k := 0, 0
		position, rest := make([]int, len(shape)), i
		for j := len(shape) - 1; j >= 0; j-- {
			position[j] = rest % shape[j]
			rest /= shape[j]
		}
		for j, p := range position {
			if !slices.Contains(window, j) {
				batch = batch*shape[j] + p
				continue
			}
			for slices.Contains(inserted, k) {
				k++
			}
			at[k] += p
			k++
		}
		for j, axis := range axes {
			at[axis] += int(get(list.Index(batch/inner*inner*len(axes) + j*inner + batch%inner)))
		}
		o := 0
		for j, p := range at {
			o = o*dims[j] + p
		}
		adds = append(adds, add{batch, i, o})
	}
	slices.SortStableFunc(adds, func(a, b add) int { return a.batch - b.batch })
	for _, a := range adds {
		put(out.Index(a.to), combine(get(out.Index(a.to)), get(u.Index(a.from))))
	}
	return out.Interface()
}

// agree compares what an op gave on the engine with what it gives on the oracle for the same inputs: the same bits, or, where
// the order of additions or a function differs, what rounding may do.
func agree(op *ir.Op, in []any, want, got any) error {
	d := op.Outputs[0].Shape.DType
	switch op.Attrs.(type) {
	case *ir.ScatterSum, *ir.ScatterMax, *ir.ScatterMin:
		if d.Bits() < 64 {
			want = scattered(op, in[0], in[1], in[2])
		}
	}
	if !isFloat(d) {
		return bits(want, got)
	}
	sum := func(n int, terms float64) error {
		highest, _ := largest(want)
		if terms *= float64(n); terms > limit(d) {
			return nil // what overflows depends on the order
		}
		return within(want, got, 4*float64(n+1)*terms*min(rounding(d), 0x1p-24)+2*rounding(d)*highest)
	}
	switch a := op.Attrs.(type) {
	case *ir.Exp, *ir.Tanh, *ir.Erf, *ir.Logistic, *ir.Log, *ir.Log1p, *ir.Expm1, *ir.Sin, *ir.Cos, *ir.Pow, *ir.Atan2, *ir.Rsqrt:
		return nearly(d, want, got)
	case *ir.ReduceSum:
		x, _ := largest(in[0])
		return sum(op.Inputs[0].Shape.Size()/max(1, op.Outputs[0].Shape.Size()), x)
	case *ir.DotGeneral:
		x, odd1 := largest(in[0])
		y, odd2 := largest(in[len(in)-1])
		if odd1+odd2 > 0 && d != dtypes.Float32 && d != dtypes.Float64 {
			return nil
		}
		return sum(op.Inputs[0].Shape.Dimensions[a.LHSContractingAxes[0]], x*y)
	case *ir.ReduceProduct:
		x, odd := largest(in[0])
		if n := op.Inputs[0].Shape.Size() / max(1, op.Outputs[0].Shape.Size()); odd > 0 || math.Pow(max(1, x), float64(n)) > limit(d) {
			return nil // what overflows depends on the order
		}
		m, _ := largest(want)
		return within(want, got, m*(1e4*min(rounding(d), 0x1p-24)+4*rounding(d))+0x1p-120) // it may be denormal half way
	case *ir.FusedSoftmax, *ir.FusedLayerNorm, *ir.FusedGelu, *ir.FusedDense:
		for _, x := range in {
			if m, odd := largest(x); odd > 0 || m > 1e3 {
				return nil
			}
		}
		if _, odd := largest(want); odd > 0 {
			return nil
		}
		x, _ := largest(in[0])
		y, _ := largest(want)
		if a, ok := op.Attrs.(*ir.FusedLayerNorm); ok { // what is left of equal numbers is divided by as little as this
			x /= math.Sqrt(a.Epsilon)
		}
		return within(want, got, 1e4*max(x, y)*min(rounding(d), 0x1p-24)+4*y*rounding(d))
	}
	return bits(want, got)
}

// checkProgram runs a program on all engines, which must give the same bits, and compares every op of it with the oracle. It
// returns false for a program that the oracle cannot run either.
func checkProgram(t testing.TB, w *writer, list map[string]compute.Backend, oracle compute.Backend) bool {
	t.Helper()
	// All values, op by op.
	whole := *w.p
	main := *w.p.Main
	main.Outputs = nil
	at := map[*ir.Value]int{}
	for _, op := range main.Ops {
		for _, v := range op.Outputs {
			at[v] = len(main.Outputs)
			main.Outputs = append(main.Outputs, v)
		}
	}
	whole.Main = &main
	x, err := emit.Program(list["unfused"], &whole)
	var all []any
	if err == nil {
		all, err = run(list["unfused"], x, main.Params, w.inputs, main.Outputs)
	}
	if err != nil {
		if x, wrong := emit.Program(oracle, &whole); wrong == nil {
			if _, wrong = run(oracle, x, main.Params, w.inputs, main.Outputs); wrong == nil {
				t.Fatalf("the oracle can run this: %+v\n%s", err, w.p)
			}
		}
		return false
	}
	for name, b := range list {
		for i, got := range execute(t, b, w.p, w.inputs) {
			if err := bits(all[at[w.p.Main.Outputs[i]]], got); err != nil {
				t.Fatalf("output %d of %q differs from that of the op alone: %v\n%s", i, name, err, w.p)
			}
		}
	}
	for _, op := range main.Ops {
		if _, ok := op.Attrs.(*ir.Parameter); ok {
			continue
		}
		var ins []*ir.Value
		var values []any
		for _, v := range op.Inputs {
			if v != nil && !slices.Contains(ins, v) {
				ins, values = append(ins, v), append(values, all[at[v]])
			}
		}
		x, err := emit.Segment(oracle, &ir.Segment{Name: op.String(), Inputs: ins, Ops: []*ir.Op{op}, Outputs: op.Outputs})
		if err != nil {
			t.Fatalf("%+v\n%s", err, w.p)
		}
		outs, err := run(oracle, x, ins, values, op.Outputs)
		if err != nil {
			t.Fatalf("%+v\n%s", err, w.p)
		}
		for i, want := range outs {
			if err := agree(op, values, want, all[at[op.Outputs[i]]]); err != nil {
				t.Fatalf("output %d of %s differs from that of the oracle: %v\ninputs: %v\n%s", i, op, err, values, w.p)
			}
		}
	}
	return true
}

func TestRandomProgramsGiveTheResultsOfTheBackendFusedAndUnfused(t *testing.T) {
	oracle, list := opByOp(t), engines(t)
	defer oracle.Finalize()
	n := uint64(*seeds)
	if testing.Short() {
		n = 60
	}
	ran := uint64(0)
	for seed := *firstSeed; seed < *firstSeed+n; seed++ {
		w := program(rand.New(rand.NewPCG(seed, 7)), fmt.Sprint("random ", seed))
		if checkProgram(t, w, list, oracle) {
			ran++
		}
	}
	if ran < n*3/4 {
		t.Errorf("only %d of %d programs ran", ran, n)
	}
}

// source draws what a program is from bytes, so that a fuzzer can change it piece by piece; then it draws at random.
type source struct {
	bytes []byte
	then  *rand.PCG
}

func (s *source) Uint64() uint64 {
	if len(s.bytes) == 0 {
		return s.then.Uint64()
	}
	x := uint64(s.bytes[0]) * 0x0101010101010101
	s.bytes = s.bytes[1:]
	return x
}

func FuzzPrograms(f *testing.F) {
	for _, seed := range []string{"", "a", "sums of rows", "\x00\xff\x80\x7f", "views of views of views", "conversions there and back again"} {
		f.Add([]byte(seed))
	}
	oracle, list := opByOp(f), engines(f)
	f.Cleanup(oracle.Finalize)
	f.Fuzz(func(t *testing.T, data []byte) {
		checkProgram(t, program(rand.New(&source{data, rand.NewPCG(1, 2)}), "fuzz"), list, oracle)
	})
}
