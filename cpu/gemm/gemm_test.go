// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package gemm

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"unsafe"

	"github.com/gomlx/compute/dtypes"

	"github.com/easyparallel/epl/cpu/isa"
	"github.com/easyparallel/epl/cpu/kernel"
	"github.com/easyparallel/epl/cpu/pool"
)

type float interface{ float32 | float64 }

func numbers[T float](r *rand.Rand, n int) []T {
	s := make([]T, n)
	for i := range s {
		s[i] = T(r.NormFloat64())
	}
	return s
}

func ptr[T any](s []T) unsafe.Pointer { return unsafe.Pointer(unsafe.SliceData(s)) }

// naive computes a product element by element, in float64, and by how much rounding to half a unit may change each.
func naive[T float](p *Product, a, b []T, unit float64) (c []T, bound []float64) {
	c, bound = make([]T, p.Entries()*p.M*p.CRow), make([]float64, p.Entries()*p.M*p.CRow)
	for e := range p.Entries() {
		oa, ob, oc := p.offsets(e)
		for i := range p.M {
			for j := range p.N {
				var sum, size float64
				for k := range p.K {
					x := float64(a[middle+oa+i*p.A.Row+k*p.A.Col]) * float64(b[middle+ob+k*p.B.Row+j*p.B.Col])
					sum += x
					size += math.Abs(x)
				}
				bound[oc+i*p.CRow+j] = float64(p.K+2) * unit * size
				c[oc+i*p.CRow+j] = T(sum)
			}
		}
	}
	return c, bound
}

// middle is where operands begin: some strides are negative.
const middle = 70000

// layouts are the strides of an operand of r×c elements.
func layouts(r, c int) []Matrix {
	return []Matrix{{c, 1}, {1, r}, {2 * c, 2}, {c + 3, 1}, {0, 1}, {1, 0}, {0, 0}, {-c, 1}, {c, -1}, {-1, -r}}
}

func check[T float](t *testing.T, d dtypes.DType, unit float64) {
	r := rand.New(rand.NewPCG(1, 2))
	sizes := []int{1, 2, 3, 4, 5, 7, 8, 11, 12, 13, 16, 17, 31, 32, 33, 40, 65, 100}
	teams := []*pool.Pool{pool.New(1), pool.New(3)}
	defer teams[0].Close()
	defer teams[1].Close()
	for range 150 {
		pick := func() int { return sizes[r.IntN(len(sizes))] }
		p := &Product{DType: d, M: pick(), N: pick(), K: pick()}
		if r.IntN(6) == 0 {
			p.K += 500
		}
		if r.IntN(20) == 0 {
			p.K = 0
		}
		switch r.IntN(40) {
		case 0:
			p.M = 0
		case 1:
			p.N = 0
		}
		p.A, p.B = layouts(p.M, p.K)[r.IntN(10)], layouts(p.K, p.N)[r.IntN(10)]
		p.CRow = max(p.N+r.IntN(2)*5, 1)
		a, b := numbers[T](r, middle+4*(p.M+1)*(2*p.K+4)), numbers[T](r, middle+4*(p.K+1)*(2*p.N+4))
		if r.IntN(4) == 0 {
			for range 3 {
				a[middle+r.IntN(p.M*p.K+1)] = T(math.NaN())
				b[middle+r.IntN(p.K*p.N+1)] = T(math.Inf(1 - 2*r.IntN(2)))
			}
		}
		if r.IntN(3) == 0 {
			p.Batch = []Batch{{Size: 2, A: 2 * p.M, B: 0, C: 2 * p.M * p.CRow}, {Size: 2, A: p.M, B: p.N, C: p.M * p.CRow}}
		}
		want, bound := naive(p, a, b, unit)
		var first []T
		for _, team := range teams {
			c := numbers[T](r, len(want)+8)
			before := append([]T(nil), c...)
			// then is called once for every element, when its value is final.
			var then Then
			seen := make([]T, len(c))
			times := make([]int, len(c))
			if p.WholeRows = r.IntN(2) == 0; p.Entries() == 1 {
				then = func(_ *pool.Worker, row, rows, col, cols int) {
					if p.WholeRows && cols != p.N {
						panic("a part of a row")
					}
					for i := row; i < row+rows; i++ {
						for j := col; j < col+cols; j++ {
							seen[i*p.CRow+j] = c[i*p.CRow+j]
							times[i*p.CRow+j]++
						}
					}
				}
			}
			if err := p.Run(team, ptr(a[middle:]), ptr(b[middle:]), ptr(c), then); err != nil {
				t.Fatal(err)
			}
			for i := range want {
				if then != nil && !p.outside(i) && (times[i] != 1 || !near(float64(seen[i]), float64(c[i]), 0)) {
					t.Fatalf("%+v: element %d is %v, and was seen %d times, as %v", *p, i, c[i], times[i], seen[i])
				}
				if p.outside(i) {
					if c[i] != before[i] {
						t.Fatalf("%+v: element %d beside the result was written", *p, i)
					}
					continue
				}
				if !near(float64(c[i]), float64(want[i]), bound[i]) {
					t.Fatalf("%+v: element %d is %v, not %v", *p, i, c[i], want[i])
				}
				if first != nil && !near(float64(first[i]), float64(c[i]), 0) {
					t.Fatalf("%+v: element %d depends on the number of threads", *p, i)
				}
			}
			first = c
			added(t, p, team, a, b, c)
		}
	}
}

// added checks that a product is added to what C is as by an addition of its own: c is the product alone.
func added[T float](t *testing.T, p *Product, team *pool.Pool, a, b, c []T) {
	if !p.CanAdd() {
		return
	}
	sum := numbers[T](rand.New(rand.NewPCG(3, 4)), len(c))
	before := slices.Clone(sum)
	q := *p
	q.Add = true
	if err := q.Run(team, ptr(a[middle:]), ptr(b[middle:]), ptr(sum), nil); err != nil {
		t.Fatal(err)
	}
	for i := range sum {
		want := before[i]
		if i < p.Entries()*p.M*p.CRow && !p.outside(i) {
			want += c[i]
		}
		if !near(float64(sum[i]), float64(want), 0) {
			t.Fatalf("%+v: element %d of the sum is %v, not %v", q, i, sum[i], want)
		}
	}
}

// near tells whether numbers are equal, or differ by at most tolerance.
func near(x, y, tolerance float64) bool {
	return x == y || math.IsNaN(x) && math.IsNaN(y) || math.Abs(x-y) <= tolerance
}

// outside tells whether an element lies between the rows of C.
func (p *Product) outside(i int) bool { return i%p.CRow >= p.N }

func TestProductsOfHalfPrecisionAreThoseOfTheSameFloats(t *testing.T) {
	best := isa.Best()
	defer use(best)
	r := rand.New(rand.NewPCG(3, 4))
	team := pool.New(2)
	defer team.Close()
	halves := make([]uint16, 1<<17)
	for i := range halves {
		halves[i] = uint16(r.IntN(2))<<15 | 0x3800 + uint16(r.IntN(0x800)) // of either type, none large
	}
	for l := isa.Portable; l <= best; l++ {
		use(l)
		for _, in := range []dtypes.DType{dtypes.BFloat16, dtypes.Float16} {
			floats := make([]float32, len(halves))
			kernel.Convert(in, dtypes.Float32, 0)(&kernel.Args{D: ptr(floats), A: ptr(halves), Rows: 1, Cols: len(halves)})
			for range 40 {
				p := &Product{DType: dtypes.Float32, M: 1 + r.IntN(70), N: 1 + r.IntN(70), K: r.IntN(300)}
				p.A, p.B, p.CRow = layouts(p.M, p.K)[r.IntN(7)], layouts(p.K, p.N)[r.IntN(7)], p.N
				want, got := make([]float32, p.M*p.N), make([]float32, p.M*p.N)
				if err := p.Run(team, ptr(floats), ptr(floats), ptr(want), nil); err != nil {
					t.Fatal(err)
				}
				p.In = in
				if err := p.Run(team, ptr(halves), ptr(halves), ptr(got), nil); err != nil {
					t.Fatal(err)
				}
				if !slices.Equal(want, got) {
					t.Fatalf("%v, %s: %+v differs from the product of float32", l, in, *p)
				}
			}
		}
	}
}

func TestProductsOfAnyStridesAndSizes(t *testing.T) {
	best := isa.Best()
	defer use(isa.Current())
	for l := isa.Portable; l <= best; l++ {
		t.Run(l.String(), func(t *testing.T) {
			use(l)
			check[float32](t, dtypes.Float32, 0x1p-24)
			check[float64](t, dtypes.Float64, 0x1p-52)
		})
	}
}

func TestIntegersWrapAround(t *testing.T) {
	for _, threads := range []int{1, 3} {
		team := pool.New(threads)
		for _, d := range []dtypes.DType{dtypes.Int8, dtypes.Uint64} {
			const m, n, k = 101, 37, 300
			p := &Product{DType: d, M: m, N: n, K: k, A: Matrix{1, m}, B: Matrix{n, 1}, CRow: n}
			r := rand.New(rand.NewPCG(1, 2))
			size := d.Size()
			a, b, c := make([]byte, m*k*size), make([]byte, k*n*size), make([]byte, m*n*size)
			for _, x := range [][]byte{a, b} {
				for i := range x {
					x[i] = byte(r.Uint32())
				}
			}
			if err := p.Run(team, unsafe.Pointer(&a[0]), unsafe.Pointer(&b[0]), unsafe.Pointer(&c[0]), nil); err != nil {
				t.Fatal(err)
			}
			at := func(x []byte, i int) (v uint64) {
				for j := range size {
					v |= uint64(x[i*size+j]) << (8 * j)
				}
				return v
			}
			for i := range m {
				for j := range n {
					var want uint64
					for s := range k {
						want += at(a, s*m+i) * at(b, s*n+j)
					}
					want &= ^uint64(0) >> (64 - 8*size)
					if got := at(c, i*n+j); got != want {
						t.Fatalf("%s, %d threads: element %d, %d is %d, not %d", d, threads, i, j, got, want)
					}
				}
			}
		}
		team.Close()
	}
}

// TestTurnedProductsAreTheSame: a block that is computed as its transpose has the bits of one that is not.
func TestTurnedProductsAreTheSame(t *testing.T) {
	if micro32.turn == nil {
		t.Skip("this CPU has no AVX-512: no product is computed as its transpose")
	}
	team := pool.New(2)
	defer team.Close()
	r := rand.New(rand.NewPCG(3, 4))
	plain := micro32
	plain.turn = nil
	for _, m := range []int{4, 5, 12, 16, 31, 32, 33, 63, 64, 65, 100, 128} {
		for _, n := range []int{1, 13, 240, 260, 517} {
			for _, k := range []int{1, 15, 256, 300, 1000} {
				p := &Product{DType: dtypes.Float32, M: m, N: n, K: k, A: Matrix{k, 1}, B: Matrix{1, k}, CRow: n + 3}
				if !turns(p, &micro32, newSource(p, &micro32), m) {
					t.Fatalf("%+v is not turned", p)
				}
				a, b := numbers[float32](r, m*k), numbers[float32](r, n*k)
				got, want := make([]float32, m*p.CRow), make([]float32, m*p.CRow)
				for _, x := range []struct {
					with *micro[float32]
					c    []float32
				}{{&micro32, got}, {&plain, want}} {
					if err := run(p, x.with, team, ptr(a), ptr(b), ptr(x.c), nil); err != nil {
						t.Fatal(err)
					}
				}
				if !slices.Equal(got, want) {
					t.Fatalf("%+v: the transposed product differs", p)
				}
			}
		}
	}
}

// What is asked for while a tile is computed is what the next one reads: every tile of a product that is computed as its transpose, but the first, was asked for.
func TestTilesAreAskedFor(t *testing.T) {
	const apart = 1000
	b := make([]float32, 500*apart)
	for _, n := range []int{1, 12, 13, 240, 241, 500} {
		for _, k := range []int{1, 15, 256, 300, 1000} {
			p := &Product{DType: dtypes.Float32, M: 32, N: n, K: k, A: Matrix{k, 1}, B: Matrix{1, apart}, CRow: n}
			asked, steps := asking{}, depthOf(k)
			for n0 := 0; n0 < n; n0 += turnedLines {
				lines := min(turnedLines, n-n0)
				for k0 := 0; k0 < k; k0 += steps {
					for i := 0; i < lines; i += micro32.rows {
						at := unsafe.Pointer(&b[(n0+i)*apart+k0])
						bytes := 4 * min(steps, k-k0)
						if n0+i+k0 > 0 && (asked.at != at || asked.lines*lineBytes < bytes || asked.left != asked.lines || asked.lines*lineBytes+asked.gap != 4*apart) {
							t.Fatalf("%d lines of %d steps: line %d, step %d was not asked for: %+v", n, k, n0+i, k0, asked)
						}
						asked = following(p, &micro32, ptr(b), n, n0, i, k0, lines, steps)
					}
				}
			}
			if asked.at != nil {
				t.Errorf("%d lines of %d steps: after the last tile %+v is asked for", n, k, asked)
			}
		}
	}
}

// A wide product is computed in blocks of columns whose panels fit into a cache, on one thread as well: with the bits of narrow ones, each element told of once.
func TestWideProductsAreCutIntoColumns(t *testing.T) {
	team := pool.New(1)
	defer team.Close()
	r := rand.New(rand.NewPCG(5, 6))
	const m, n, k, width = 13, 2500, 256, 500
	a, b := numbers[float32](r, m*k), numbers[float32](r, k*n)
	p := &Product{DType: dtypes.Float32, M: m, N: n, K: k, A: Matrix{k, 1}, B: Matrix{n, 1}, CRow: n}
	if rows, cols := p.parts(1); rows != 1 || cols != 3 {
		t.Errorf("%d rows and %d columns of blocks", rows, cols)
	}
	got, want, told := make([]float32, m*n), make([]float32, m*n), make([]int, m*n)
	err := p.Run(team, ptr(a), ptr(b), ptr(got), func(_ *pool.Worker, row, rows, col, cols int) {
		for i := row; i < row+rows; i++ {
			for j := col; j < col+cols; j++ {
				told[i*n+j]++
			}
		}
	})
	if err != nil || slices.Min(told) != 1 || slices.Max(told) != 1 {
		t.Errorf("elements are told of %d to %d times; %v", slices.Min(told), slices.Max(told), err)
	}
	for col := 0; col < n; col += width {
		narrow := *p
		narrow.N = width
		if err := narrow.Run(team, ptr(a), ptr(b[col:]), ptr(want[col:]), nil); err != nil {
			t.Fatal(err)
		}
	}
	if !slices.Equal(got, want) {
		t.Error("it is not the same as narrow products")
	}
}
