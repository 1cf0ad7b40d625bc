package kernel

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
	"unsafe"

	"github.com/gomlx/compute/dtypes"

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
		for _, op := range []Op{"Neg", "Abs", "Sqrt", "Exp", "Log", "Logistic", "Rsqrt", "Erf", "Tanh"} {
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

// stride is how many float32 lie between two that TestMathKernels… looks at; 1 looks at all of them.
const stride = 4099

// The functions that are computed in float64 and rounded once give the bits of math's, but for these many of all numbers
// that are looked at, by one unit in the last place.
func TestMathKernelsGiveTheBitsOfMath(t *testing.T) {
	levels(t, func(t *testing.T) {
		for _, op := range []Op{"Exp", "Log", "Logistic", "Rsqrt", "Erf", "Tanh"} {
			const block = 1 << 12
			a, d := make([]float32, block), make([]float32, block)
			fast, wrong := Unary(op, dtypes.Float32, 0), 0
			for bits := uint64(0); bits < 1<<32; {
				for i := range a {
					a[i] = math.Float32frombits(uint32(bits))
					bits += stride
				}
				fast(&Args{A: at(a), D: at(d), Rows: 1, Cols: block})
				for i, x := range a {
					want := float32(mathOps[op](float64(x)))
					if sameBits(want, d[i]) {
						continue
					}
					wrong++
					if math.Abs(float64(math.Float32bits(want))-float64(math.Float32bits(d[i]))) > 1 {
						t.Fatalf("%s of %v is %v, not %v", op, x, d[i], want)
					}
				}
			}
			if wrong > 2 {
				t.Errorf("%s: %d results are not those of math", op, wrong)
			}
		}
	})
}
