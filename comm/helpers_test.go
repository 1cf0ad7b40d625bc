package comm

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"reflect"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"
	"unsafe"

	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/dtypes/bfloat16"
	"github.com/gomlx/compute/dtypes/float16"
)

// transports are the ways to make a world. What is tested with newWorldOf holds for all of them.
var transports = []struct {
	name string
	make func(n int, opts Options) (*World, error)
}{
	{"in-process", NewInProcess},
	{"shared memory", newWorlds(func(int) string { return "a" }, one)},
	{"TCP", newWorlds(func(i int) string { return fmt.Sprint("host", i) }, one)},
	{"both", newWorlds(func(i int) string { return fmt.Sprint("host", i/2) }, one)},
	{"shared memory, two ranks each", newWorlds(func(int) string { return "a" }, two)},
	{"TCP, two ranks each", newWorlds(func(i int) string { return fmt.Sprint("host", i) }, two)},
	{"both, two ranks each", newWorlds(func(i int) string { return fmt.Sprint("host", i/2) }, two)},
	{"TCP, opaque", newOpaqueWorlds},
	{"both, uneven", newWorlds(func(i int) string { return []string{"a", "a", "b", "a"}[i%4] }, func(i int) int { return []int{2, 1, 3}[i%3] })},
}

// severalWorkers tells whether a world is one of a job with several. There an error breaks the whole job, and only those
// who see its cause have it from the source: others are told by the mesh.
func severalWorkers(w *World) bool { return len(w.layout.Workers) > 1 }

// forEachTransport runs a test with all of them.
func forEachTransport(t *testing.T, f func(t *testing.T, newWorld func(t *testing.T, n int, opts Options) *World)) {
	for _, tr := range transports {
		t.Run(tr.name, func(t *testing.T) {
			if testing.Short() && strings.Contains(tr.name, ", ") {
				t.Skip("a variant of another layout; not with -short")
			}
			f(t, func(t *testing.T, n int, opts Options) *World {
				t.Helper()
				w, err := tr.make(n, opts)
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() { closeAll(t, w) })
				return w
			})
		})
	}
}

// ends returns the communicators of a group, by position.
func ends(t testing.TB, g *Group, channel int) (cs []*Communicator) {
	t.Helper()
	for _, r := range g.Ranks() {
		g, err := worldOf(g.world, r).Group(g.ranks)
		if err != nil {
			t.Fatal(err)
		}
		c, err := g.Communicator(r, channel)
		if err != nil {
			t.Fatal(err)
		}
		cs = append(cs, c)
	}
	return cs
}

// onAll runs f for all communicators at once, each in its goroutine, and returns their errors. Who comes first is random.
func onAll(cs []*Communicator, f func(c *Communicator) error) []error {
	errs := make([]error, len(cs))
	var wg sync.WaitGroup
	for _, i := range rand.Perm(len(cs)) {
		wg.Go(func() {
			for range rand.IntN(4) {
				runtime.Gosched()
			}
			if rand.IntN(50) == 0 {
				time.Sleep(time.Duration(rand.IntN(200)) * time.Microsecond) // long enough to park
			}
			errs[i] = f(cs[i])
		})
	}
	wg.Wait()
	return errs
}

// mustAll is onAll for what must succeed.
func mustAll(t testing.TB, cs []*Communicator, f func(c *Communicator) error) {
	t.Helper()
	for i, err := range onAll(cs, f) {
		if err != nil {
			t.Fatalf("position %d: %v", i, err)
		}
	}
}

// element is one of GoMLX's types: how to make random slices of it, and how to reduce them.
type element struct {
	dtype dtypes.DType
	fill  func(rng *rand.Rand, n int) any
	// reduce combines the inputs element by element, first to last, and scales.
	reduce func(r Reduction, scale float64, inputs []any) any
	ops    []Reduction
}

var anyReduction = []Reduction{Sum, Max, Min, Prod}

// reference makes an element from a combination of two, done in type A.
func reference[T, A any](dtype dtypes.DType, ops []Reduction, random func(*rand.Rand) T,
	widen func(T) A, combine func(r Reduction, a, b A) A, scaled func(A, float64) A, narrow func(A) T) element {
	return element{
		dtype: dtype,
		ops:   ops,
		fill: func(rng *rand.Rand, n int) any {
			s := make([]T, n)
			for i := range s {
				s[i] = random(rng)
			}
			return s
		},
		reduce: func(r Reduction, scale float64, inputs []any) any {
			out := make([]T, len(inputs[0].([]T)))
			for i := range out {
				acc := widen(inputs[0].([]T)[i])
				for _, in := range inputs[1:] {
					acc = combine(r, acc, widen(in.([]T)[i]))
				}
				out[i] = narrow(scaled(acc, scale))
			}
			return out
		},
	}
}

// reduction is what a group has to compute: the inputs in the order of positions if they are all in one worker; else over
// the ranks of each worker, then, if some but not all workers share a host, over those of each host, then over all.
func (e element) reduction(g *Group, r Reduction, scale float64, in []any) any {
	places := g.world.layout.Workers
	order, parts := []int{}, map[int][]any{}
	for pos, rank := range g.ranks {
		worker := g.world.workerOf[rank]
		if parts[worker] == nil {
			order = append(order, worker)
		}
		parts[worker] = append(parts[worker], in[pos])
	}
	if len(order) == 1 {
		return e.reduce(r, scale, in)
	}
	hosts, onHost := []string{}, map[string][]any{}
	var all []any
	for _, worker := range order {
		x := e.reduce(r, 1, parts[worker])
		host := places[worker].Host
		if onHost[host] == nil {
			hosts = append(hosts, host)
		}
		onHost[host] = append(onHost[host], x)
		all = append(all, x)
	}
	if len(hosts) > 1 && len(hosts) < len(order) {
		all = nil
		for _, host := range hosts {
			all = append(all, e.reduce(r, 1, onHost[host]))
		}
	}
	return e.reduce(r, scale, all)
}

func same[T any](x T) T { return x }

func native[T ordered](dtype dtypes.DType, random func(*rand.Rand) T) element {
	scaled := func(x T, s float64) T {
		if s == 1 {
			return x
		}
		return x * T(s)
	}
	return reference(dtype, anyReduction, random, same, combine, scaled, same)
}

func combine[T ordered](r Reduction, a, b T) T {
	switch r {
	case Sum:
		return a + b
	case Max:
		return max(a, b)
	case Min:
		return min(a, b)
	}
	return a * b
}

// half is a float of 16 bits, whose sums round once.
func half[T interface{ Float32() float32 }](dtype dtypes.DType, narrow func(float32) T) element {
	return reference(dtype, anyReduction, func(rng *rand.Rand) T { return narrow(float32(rng.NormFloat64())) },
		T.Float32, combine, func(x float32, s float64) float32 { return x * float32(s) }, narrow)
}

func complexes[T complex64 | complex128](dtype dtypes.DType, random func(*rand.Rand) T, scaled func(T, float64) T) element {
	return reference(dtype, []Reduction{Sum, Prod}, random, same, func(r Reduction, a, b T) T {
		if r == Sum {
			return a + b
		}
		return a * b
	}, scaled, same)
}

func integer[T ordered](rng *rand.Rand) T { return T(rng.Uint64()) }

// elements are all types that GoMLX has a Go type for.
var elements = []element{
	native(dtypes.Float32, func(r *rand.Rand) float32 { return float32(r.NormFloat64()) }),
	native(dtypes.Float64, func(r *rand.Rand) float64 { return r.NormFloat64() }),
	half(dtypes.BFloat16, bfloat16.FromFloat32),
	half(dtypes.Float16, roundToFloat16),
	native(dtypes.Int8, integer[int8]),
	native(dtypes.Int16, integer[int16]),
	native(dtypes.Int32, integer[int32]),
	native(dtypes.Int64, integer[int64]),
	native(dtypes.Uint8, integer[uint8]),
	native(dtypes.Uint16, integer[uint16]),
	native(dtypes.Uint32, integer[uint32]),
	native(dtypes.Uint64, integer[uint64]),
	reference(dtypes.Bool, anyReduction, func(r *rand.Rand) bool { return r.IntN(2) == 0 }, same,
		func(r Reduction, a, b bool) bool {
			if r == Sum || r == Max {
				return a || b
			}
			return a && b
		}, func(x bool, _ float64) bool { return x }, same),
	complexes(dtypes.Complex64,
		func(r *rand.Rand) complex64 { return complex(float32(r.NormFloat64()), float32(r.NormFloat64())) },
		func(x complex64, s float64) complex64 { return complex(real(x)*float32(s), imag(x)*float32(s)) }),
	complexes(dtypes.Complex128,
		func(r *rand.Rand) complex128 { return complex(r.NormFloat64(), r.NormFloat64()) },
		func(x complex128, s float64) complex128 { return complex(real(x)*s, imag(x)*s) }),
}

// roundToFloat16 rounds to nearest, ties to even, by definition. (GoMLX's own conversion loses numbers below 2⁻¹⁴.)
func roundToFloat16(x float32) float16.Float16 {
	if x != x || math.IsInf(float64(x), 0) {
		return float16.FromFloat32(x)
	}
	_, exp := math.Frexp(float64(x))           // x = m·2ᵉ with ½ ≤ m < 1
	unit := math.Ldexp(1, max(exp-11, -14-10)) // 11 bits of mantissa, or less below 2⁻¹⁴
	rounded := math.RoundToEven(float64(x)/unit) * unit
	if math.Abs(rounded) > 65504 {
		return float16.Inf(int(math.Copysign(1, rounded)))
	}
	if small := math.Abs(rounded) / unit; math.Abs(rounded) < 0x1p-14 {
		return float16.FromBits(uint16(small) | uint16(math.Float32bits(x)>>16)&0x8000)
	}
	return float16.FromFloat32(float32(rounded)) // exact
}

// bytesOf returns the memory of a slice.
func bytesOf(flat any) []byte {
	b, ok := bufferOf(flat)
	if !ok {
		panic(fmt.Sprintf("%T", flat))
	}
	return unsafe.Slice((*byte)(b.ptr), b.bytes())
}

// sameBits compares two slices.
func sameBits(a, b any) bool {
	return reflect.TypeOf(a) == reflect.TypeOf(b) && bytes.Equal(bytesOf(a), bytesOf(b))
}

// slice is flat[from:to].
func slice(flat any, from, to int) any { return reflect.ValueOf(flat).Slice(from, to).Interface() }

// clone copies a slice.
func clone(flat any) any {
	v := reflect.ValueOf(flat)
	return reflect.AppendSlice(reflect.MakeSlice(v.Type(), 0, v.Len()), v).Interface()
}

// makeLike returns a slice of the same type.
func makeLike(flat any, n int) any { return reflect.MakeSlice(reflect.TypeOf(flat), n, n).Interface() }

// concat joins slices.
func concat(flats ...any) any {
	v := reflect.ValueOf(makeLike(flats[0], 0))
	for _, f := range flats {
		v = reflect.AppendSlice(v, reflect.ValueOf(f))
	}
	return v.Interface()
}

// wantError checks that an error is a sentence of ours that says all of some things.
func wantError(t *testing.T, err error, parts ...string) {
	t.Helper()
	if err == nil {
		t.Fatal("no error")
	}
	if !strings.HasPrefix(err.Error(), "epl: ") {
		t.Errorf("%q does not begin with epl:", err)
	}
	for _, p := range parts {
		if !strings.Contains(err.Error(), p) {
			t.Errorf("the error does not say %q:\n%v", p, err)
		}
	}
}

// wantErrors checks the errors of all ranks.
func wantErrors(t *testing.T, errs []error, parts ...string) {
	t.Helper()
	for i, err := range errs {
		if err == nil {
			t.Fatalf("position %d has no error", i)
		}
		wantError(t, err, parts...)
	}
}

var errTest = errors.New("the test says so")

func parts(rng *rand.Rand, total, n int) []int {
	counts := make([]int, n)
	for range min(total, 50) { // some small ones, often empty
		counts[rng.IntN(n)]++
	}
	counts[rng.IntN(n)] += total - min(total, 50)
	return counts
}

func seedOf(args ...any) *rand.Rand {
	var h uint64 = 14695981039346656037
	for _, b := range []byte(fmt.Sprint(args...)) {
		h = (h ^ uint64(b)) * 1099511628211
	}
	return rand.New(rand.NewPCG(h, 1))
}

func inf() float64 { return math.Inf(1) }
