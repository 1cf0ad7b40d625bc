// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package kernel

import (
	"flag"
	"fmt"
	"math"
	"math/rand/v2"
	"reflect"
	"testing"
	"unsafe"

	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/dtypes/bfloat16"
	"github.com/gomlx/compute/dtypes/float16"

	"github.com/easyparallel/epl/cpu/isa"
)

// odd are numbers for which kernels are easily wrong.
var odd = []float64{0, math.Copysign(0, -1), 1, -1, 0.5, -0.5, math.Inf(1), math.Inf(-1), math.NaN(), 1e-40, -1e-40, 1.4e-45, 3e38, -3e38, 89, -104, 88.8, -103.97,
	1e-8, 9.2, -9.3, 4.1, 3.9999, 0.70710678, 1.4142135, 150, -150, 1 << 24, math.Pi}

func fill[T float](r *rand.Rand, n int) []T {
	s := make([]T, n)
	for i := range s {
		if s[i] = T(r.NormFloat64() * 3); r.IntN(4) == 0 {
			s[i] = T(odd[r.IntN(len(odd))])
		}
	}
	return s
}

func at[T any](s []T) unsafe.Pointer { return unsafe.Pointer(unsafe.SliceData(s)) }

// levels runs a test for every level that this CPU has, after the portable one.
func levels(t *testing.T, f func(t *testing.T)) {
	best := isa.Best()
	defer use(isa.Current())
	for l := isa.Portable + 1; l <= best; l++ {
		use(l)
		t.Run(l.String(), f)
	}
}

// portably runs f with portable kernels.
func portably(f func()) {
	now := current
	use(isa.Portable)
	f()
	use(now)
}

func sameBits[T float](a, b T) bool {
	return a == b && math.Signbit(float64(a)) == math.Signbit(float64(b)) || a != a && b != b
}

// sizes are columns of rows, whole vectors or not.
var sizes = []int{1, 2, 3, 7, 8, 9, 15, 16, 17, 31, 32, 33, 63, 64, 65, 100}

func binaryCase[T float](t *testing.T, op Op, d dtypes.DType, form Form) {
	r := rand.New(rand.NewPCG(uint64(form), 1))
	var slow Func
	portably(func() { slow = Binary(op, d, form) })
	fast := Binary(op, d, form)
	size := d.Size()
	out := size
	if isComparison[op] {
		out = 1
	}
	for _, cols := range sizes {
		const rows = 3
		a, b := fill[T](r, rows*cols), fill[T](r, rows*cols)
		x := Args{A: at(a), B: at(b), SA: cols * size, SB: cols * size, SD: (cols + 2) * out, Rows: rows, Cols: cols}
		run := func(f Func) []byte {
			d := make([]byte, rows*(cols+2)*out)
			for i := range d {
				d[i] = 0xab
			}
			y := x
			y.D = at(d)
			f(&y)
			return d
		}
		compareBytes[T](t, fmt.Sprintf("%s %s form %d cols %d", op, d, form, cols), run(slow), run(fast), out != 1)
	}
}

// compareBytes compares results as bits, but for the bits of NaN.
func compareBytes[T float](t *testing.T, what string, want, got []byte, floats bool) {
	t.Helper()
	if !floats {
		if string(want) != string(got) {
			t.Fatalf("%s: %v, not %v", what, got, want)
		}
		return
	}
	n := int(unsafe.Sizeof(*new(T)))
	w, g := unsafe.Slice((*T)(at(want)), len(want)/n), unsafe.Slice((*T)(at(got)), len(got)/n)
	for i := range w {
		if !sameBits(w[i], g[i]) {
			t.Fatalf("%s: element %d is %v, not %v", what, i, g[i], w[i])
		}
	}
}

func TestVectorKernelsOfTwoOperandsGiveTheBitsOfPortableOnes(t *testing.T) {
	levels(t, func(t *testing.T) {
		for _, op := range []Op{"Add", "Sub", "Mul", "Div", "Max", "Min", "Equal", "NotEqual", "LessThan", "LessOrEqual", "GreaterThan", "GreaterOrEqual"} {
			for _, form := range []Form{0, ScalarA, ScalarB} {
				binaryCase[float32](t, op, dtypes.Float32, form)
				binaryCase[float64](t, op, dtypes.Float64, form)
			}
		}
	})
}

func unaryCase[T float](t *testing.T, op Op, d dtypes.DType) {
	r := rand.New(rand.NewPCG(5, 6))
	var slow Func
	portably(func() { slow = Unary(op, d, 0) })
	fast := Unary(op, d, 0)
	for _, cols := range sizes {
		a := fill[T](r, 2*cols)
		want, got := make([]T, 2*cols+1), make([]T, 2*cols+1)
		x := Args{A: at(a), SA: cols * d.Size(), SD: cols * d.Size(), Rows: 2, Cols: cols}
		x.D = at(want)
		slow(&x)
		x.D = at(got)
		fast(&x)
		for i := range want {
			if !sameBits(want[i], got[i]) {
				t.Fatalf("%s of %v (%d columns, element %d) is %v, not %v", op, a[min(i, len(a)-1)], cols, i, got[i], want[i])
			}
		}
	}
}

func TestVectorKernelsOfOneOperandGiveTheBitsOfPortableOnes(t *testing.T) {
	levels(t, func(t *testing.T) {
		for _, op := range []Op{"Neg", "Abs", "Sqrt", "Round", "Floor", "Ceil", "Sign", "Exp", "Expm1", "Log", "Log1p", "Logistic", "Rsqrt", "Erf", "Tanh", "Sin", "Cos"} {
			unaryCase[float32](t, op, dtypes.Float32)
			unaryCase[float64](t, op, dtypes.Float64)
		}
	})
}

func TestVectorKernelsChooseAndAddUpAsPortableOnes(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	levels(t, func(t *testing.T) {
		for _, cols := range sizes {
			cond := make([]bool, 3*cols)
			for i := range cond {
				cond[i] = r.IntN(2) == 0
			}
			for _, d := range []dtypes.DType{dtypes.Float32, dtypes.Float64} {
				size := d.Size()
				a, b := make([]byte, 3*cols*size), make([]byte, 3*cols*size)
				for i := range a {
					a[i], b[i] = byte(r.IntN(256)), byte(r.IntN(256))
				}
				for form := range ScalarC << 1 {
					x := Args{A: at(cond), B: at(a), C: at(b), SA: cols, SB: cols * size, SC: cols * size, SD: cols * size, Rows: 3, Cols: cols}
					want, got := make([]byte, 3*cols*size), make([]byte, 3*cols*size)
					x.D = at(want)
					portably(func() { Where(size, form)(&x) })
					x.D = at(got)
					Where(size, form)(&x)
					if string(want) != string(got) {
						t.Fatalf("where, %s, form %d, %d columns", d, form, cols)
					}
				}
			}
			sumCase[float32](t, dtypes.Float32, cols)
			sumCase[float64](t, dtypes.Float64, cols)
		}
	})
}

func sumCase[T float](t *testing.T, d dtypes.DType, cols int) {
	r := rand.New(rand.NewPCG(9, uint64(cols)))
	a := make([]T, 5*cols)
	for i := range a {
		a[i] = T(r.NormFloat64())
	}
	size := d.Size()
	for _, columns := range []bool{false, true} {
		run := func() []T {
			out := make([]T, max(cols, 5)+1)
			red := Reduce("ReduceSum", d)
			x := Args{A: at(a), SA: cols * size, D: at(out), SD: size, Rows: 5, Cols: cols}
			if columns {
				x.SD = 0
				red.Columns(&x)
			} else {
				red.Row(&x)
			}
			return out
		}
		var want []T
		portably(func() { want = run() })
		for i, v := range run() {
			if !sameBits(want[i], v) {
				t.Fatalf("sum of %s, columns %v, %d columns: element %d is %v, not %v", d, columns, cols, i, v, want[i])
			}
		}
	}
}

// patterns are bits of numbers of some type: odd ones, then random ones.
func patterns(r *rand.Rand, d dtypes.DType, n int) []byte {
	size := d.Size()
	out := make([]byte, n*size)
	for i := range n {
		p := unsafe.Pointer(&out[i*size])
		x := odd[r.IntN(len(odd))]
		if r.IntN(3) == 0 {
			x = r.NormFloat64() * 1000
		}
		switch d {
		case dtypes.Bool:
			*(*bool)(p) = r.IntN(2) == 0
		case dtypes.Float32:
			*(*float32)(p) = float32(x)
		case dtypes.Float64:
			*(*float64)(p) = x
		default:
			for k := range size {
				out[i*size+k] = byte(r.Uint32())
			}
			if r.IntN(3) == 0 { // close to 0, where numbers are often equal
				clear(out[i*size : (i+1)*size])
				out[i*size] = byte(r.IntN(3))
			}
		}
	}
	return out
}

// sameNumbers compares results as bits, but for the bits of NaN.
func sameNumbers(d dtypes.DType, want, got []byte) bool {
	size := d.Size()
	for i := 0; i < len(want); i += size {
		if string(want[i:i+size]) == string(got[i:i+size]) {
			continue
		}
		w, g := unsafe.Pointer(&want[i]), unsafe.Pointer(&got[i])
		nan := false
		switch d {
		case dtypes.Float32:
			nan = *(*float32)(w) != *(*float32)(w) && *(*float32)(g) != *(*float32)(g)
		case dtypes.Float64:
			nan = *(*float64)(w) != *(*float64)(w) && *(*float64)(g) != *(*float64)(g)
		case dtypes.BFloat16:
			a, b := (*bfloat16.BFloat16)(w).Float32(), (*bfloat16.BFloat16)(g).Float32()
			nan = a != a && b != b
		case dtypes.Float16:
			a, b := (*float16.Float16)(w).Float32(), (*float16.Float16)(g).Float32()
			nan = a != a && b != b
		}
		if !nan {
			return false
		}
	}
	return true
}

// agree runs a kernel of this level and the portable one on rows of patterns that do not begin where vectors do.
func agree(t *testing.T, what string, in []dtypes.DType, out dtypes.DType, form Form, find func() Func) {
	t.Helper()
	var slow Func
	portably(func() { slow = find() })
	fast := find()
	if slow == nil {
		t.Fatalf("there is no %s", what)
	}
	r := rand.New(rand.NewPCG(uint64(len(what)), uint64(form)))
	for _, cols := range append(sizes, 200) {
		const rows = 3
		x := Args{Rows: rows, Cols: cols, SD: cols * out.Size()}
		for i, d := range in {
			size := d.Size()
			p := unsafe.Pointer(unsafe.SliceData(patterns(r, d, rows*cols+1)[size:]))
			*[]*unsafe.Pointer{&x.A, &x.B, &x.C}[i] = p
			*[]*int{&x.SA, &x.SB, &x.SC}[i] = cols * size
		}
		run := func(f Func) []byte {
			y := x
			d := make([]byte, (rows*cols+2)*out.Size())
			y.D = unsafe.Pointer(&d[out.Size()])
			f(&y)
			if y != (Args{D: y.D, A: x.A, B: x.B, C: x.C, SD: x.SD, SA: x.SA, SB: x.SB, SC: x.SC, Rows: rows, Cols: cols}) {
				t.Fatalf("%s changes its arguments", what)
			}
			return d
		}
		if want, got := run(slow), run(fast); !sameNumbers(out, want, got) {
			t.Fatalf("%s, form %d, %d columns:\n%v, not\n%v", what, form, cols, got, want)
		}
	}
}

func TestVectorKernelsOfHalvesIntegersAndBoolsGiveTheBitsOfPortableOnes(t *testing.T) {
	levels(t, func(t *testing.T) {
		for at := range binaries {
			if at.d == dtypes.Float32 || at.d == dtypes.Float64 || at.op == "Div" && at.d.IsInt() || at.op == "Rem" || at.op == "Pow" || at.op == "Atan2" {
				continue
			}
			out := at.d
			if isComparison[at.op] {
				out = dtypes.Bool
			}
			for _, form := range []Form{0, ScalarA, ScalarB} {
				agree(t, fmt.Sprint(at.op, " of ", at.d), []dtypes.DType{at.d, at.d}, out, form, func() Func { return Binary(at.op, at.d, form) })
			}
		}
		for at := range unaries {
			out := at.d
			if at.op == "IsFinite" || at.op == "IsNaN" {
				out = dtypes.Bool
			}
			if at.d != dtypes.Float32 && at.d != dtypes.Float64 {
				agree(t, fmt.Sprint(at.op, " of ", at.d), []dtypes.DType{at.d}, out, 0, func() Func { return Unary(at.op, at.d, 0) })
			}
		}
		for pair := range converts {
			agree(t, fmt.Sprint("conversion of ", pair[0], " to ", pair[1]), []dtypes.DType{pair[0]}, pair[1], 0, func() Func { return Convert(pair[0], pair[1], 0) })
		}
		for form := range ScalarC << 1 {
			for _, d := range []dtypes.DType{dtypes.Uint8, dtypes.Uint16} {
				agree(t, fmt.Sprint("choice of ", d), []dtypes.DType{dtypes.Bool, d, d}, d, form, func() Func { return Where(d.Size(), form) })
			}
		}
	})
}

func TestVectorReductionsGiveTheBitsOfPortableOnes(t *testing.T) {
	levels(t, func(t *testing.T) {
		for _, d := range []dtypes.DType{dtypes.Float32, dtypes.Float64, dtypes.BFloat16, dtypes.Float16, dtypes.Int32, dtypes.Int64} {
			for _, op := range []Op{"ReduceSum", "ReduceMax", "ReduceMin", "ReduceProduct"} {
				red := Reduce(op, d)
				if red == nil {
					continue
				}
				for what, of := range map[string]func(r *Reduction) Func{
					"rows": func(r *Reduction) Func { return r.Row }, "columns": func(r *Reduction) Func { return r.Columns },
				} {
					agree(t, fmt.Sprint(op, " of ", what, " of ", d), []dtypes.DType{d}, red.Partial, 0, func() Func { return of(Reduce(op, d)) })
				}
				agree(t, fmt.Sprint(op, " of partial results of ", d), []dtypes.DType{red.Partial}, red.Partial, 0, func() Func { return Reduce(op, d).JoinRow })
				agree(t, fmt.Sprint("end of ", op, " of ", d), []dtypes.DType{red.Partial}, d, 0, func() Func { return Reduce(op, d).Finish })
			}
		}
	})
}

func TestIotaCounts(t *testing.T) {
	for _, c := range []struct{ start, n, inner, size int }{{0, 10, 1, 4}, {3, 9, 1, 4}, {0, 7, 3, 2}, {5, 20, 3, 4}, {2, 1, 1, 1}, {1, 0, 1, 5}} {
		d := make([]float32, c.n+1)
		Iota(dtypes.Float32)(at(d), c.start, c.n, c.inner, c.size)
		half := make([]bfloat16.BFloat16, c.n+1)
		Iota(dtypes.BFloat16)(at(half), c.start, c.n, c.inner, c.size)
		for i := range c.n {
			if want := float32((c.start + i) / c.inner % c.size); d[i] != want || half[i].Float32() != want {
				t.Fatalf("%+v: element %d is %v and %v, not %v", c, i, d[i], half[i].Float32(), want)
			}
		}
		if d[c.n] != 0 || half[c.n] != 0 {
			t.Fatalf("%+v: more was written", c)
		}
	}
}

// Which float32 TestMathKernels… looks at. All of them take a quarter of an hour: -kernel.every=1; or, in 64 runs, -kernel.every=64 and
// -kernel.first from 0 to 63.
var (
	every = flag.Uint64("kernel.every", 4099, "distance of the float32, as bits, that the functions are compared at")
	first = flag.Uint64("kernel.first", 0, "the first of them")
)

// The functions that are computed in float64 and rounded once give the bits of math's, but for a few in a thousand million, by one
// unit in the last place.
func TestMathKernelsGiveTheBitsOfMath(t *testing.T) {
	const block = 1 << 12
	a, d, want := make([]float32, block), make([]float32, block), make([]float32, block)
	x := Args{A: at(a), D: at(d), Rows: 1, Cols: block}
	for _, op := range []Op{"Exp", "Expm1", "Log", "Log1p", "Logistic", "Rsqrt", "Erf", "Tanh", "Sin", "Cos"} {
		kernels := map[isa.Level]Func{}
		for l := isa.Portable + 1; l <= isa.Best(); l++ {
			use(l)
			kernels[l] = Unary(op, dtypes.Float32, 0)
		}
		wrong, numbers := map[isa.Level]int{}, 0
		for bits := *first; bits < 1<<32; {
			n := 0
			for ; n < block && bits < 1<<32; n++ {
				a[n] = math.Float32frombits(uint32(bits))
				want[n] = float32(mathOps[op](float64(a[n])))
				bits += *every
			}
			numbers += n
			for l, f := range kernels {
				f(&x)
				for i, v := range want[:n] {
					if sameBits(v, d[i]) {
						continue
					}
					wrong[l]++
					if math.Abs(float64(math.Float32bits(v))-float64(math.Float32bits(d[i]))) > 1 {
						t.Fatalf("%s of %v is %v, not %v (%s)", op, a[i], d[i], v, l)
					}
				}
			}
		}
		for l := range kernels {
			t.Logf("%s, %s: %d of %d differ, by one unit in the last place", op, l, wrong[l], numbers)
			if wrong[l] > 2+numbers>>24 {
				t.Errorf("%s, %s: %d of %d results are not those of math", op, l, wrong[l], numbers)
			}
		}
	}
}

func TestWhatIsNoNumberIsNotFinite(t *testing.T) {
	numbers := []float64{0, math.Copysign(0, -1), 1, -1, math.SmallestNonzeroFloat32, 65504, -65504, math.Inf(1), math.Inf(-1), math.NaN(), math.Copysign(math.NaN(), -1)}
	for _, form := range []Form{0, ScalarA} {
		check := func(d dtypes.DType, a any, of func(i int) float64) {
			cols := len(numbers)
			if form == ScalarA {
				cols = 1
			}
			for first := range len(numbers) - cols + 1 {
				got := make([]bool, cols)
				Unary("IsFinite", d, form)(&Args{A: unsafe.Add(reflect.ValueOf(a).UnsafePointer(), first*d.Size()), D: at(got), Rows: 1, Cols: cols})
				for i, x := range got {
					if f := of(first + i); x != (!math.IsInf(f, 0) && !math.IsNaN(f)) {
						t.Errorf("%s %v is finite: %v", d, f, x)
					}
				}
			}
		}
		f32, f64, f16, b16 := make([]float32, len(numbers)), numbers, make([]float16.Float16, len(numbers)), make([]bfloat16.BFloat16, len(numbers))
		for i, x := range numbers {
			f32[i], f16[i], b16[i] = float32(x), float16.FromFloat32(float32(x)), bfloat16.FromFloat32(float32(x))
		}
		check(dtypes.Float32, f32, func(i int) float64 { return float64(f32[i]) })
		check(dtypes.Float64, f64, func(i int) float64 { return f64[i] })
		check(dtypes.Float16, f16, func(i int) float64 { return float64(f16[i].Float32()) })
		check(dtypes.BFloat16, b16, func(i int) float64 { return float64(b16[i].Float32()) })
	}
}
