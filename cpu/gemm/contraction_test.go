// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package gemm

import (
	"bytes"
	"math"
	"math/rand/v2"
	"os"
	"os/exec"
	"testing"
	"unsafe"

	"github.com/gomlx/compute/dtypes"

	"github.com/easyparallel/epl/cpu/isa"
	"github.com/easyparallel/epl/cpu/pool"
)

// times calls f for every index of dims, with where that is in A, B and C.
func times(dims []Dim, a, b, c int, f func(a, b, c int)) {
	if len(dims) == 0 {
		f(a, b, c)
		return
	}
	for i := range dims[0].Size {
		times(dims[1:], a+i*dims[0].A, b+i*dims[0].B, c+i*dims[0].C, f)
	}
}

// naiveContraction computes element by element, in float64.
func naiveContraction[T float](p *Contraction, regions []Region, x, y []T) []T {
	sums := make([]T, p.Size)
	for _, r := range regions {
		times(append(append([]Dim{p.Groups, p.Cols}, r.Rows...), r.Outer...), r.A, r.B, r.C, func(a, b, c int) {
			var depth []Dim
			for i, d := range r.Depth {
				depth = append(depth, Dim{Size: d.Size, A: d.A, B: d.Step * p.Depth[i].B})
				b += d.From * p.Depth[i].B
			}
			var sum float64
			times(depth, a, b, 0, func(a, b, _ int) { sum += float64(x[a]) * float64(y[b]) })
			sums[c] = T(sum)
		})
	}
	return sums
}

// randomContraction is like a convolution of an image of h×w pixels with channels last: forward with a border, by its weights,
// or with pixels as columns.
func randomContraction(r *rand.Rand, d dtypes.DType) (p *Contraction, regions []Region, a, b int) {
	h, w, ci, co, k, n := 1+r.IntN(20), 3+r.IntN(40), 1+r.IntN(20), 1+r.IntN(70), 1+r.IntN(3), 1+r.IntN(3)
	groups := 1 + r.IntN(2)*r.IntN(2)
	p = &Contraction{DType: d}
	image, weights := n*(h+k-1)*w*ci, k*ci*co
	row, all := w*ci, (h+k-1)*w*ci
	switch r.IntN(4) {
	case 0: // by weights: depth are pixels
		p.Depth = []Dim{{n, 0, h * w * co, 0}, {h, 0, w * co, 0}, {w, 0, co, 0}}
		p.Cols, p.Size = Dim{co, 0, 1, 1}, groups*weights
		p.Groups = Dim{groups, image, n * h * w * co, weights}
		regions = []Region{{Rows: []Dim{{ci, 1, 0, co}, {k, row, 0, ci * co}}, Depth: []Range{{n, 0, 1, all}, {h, 0, 1, row}, {w, 0, 1, ci}}}}
		return p, regions, groups * image, groups * n * h * w * co
	case 1: // columns are pixels: A is the kernel, k×ci×co, B an image with channels first
		step := 1 + r.IntN(2)
		cols := (w + step - 1) / step
		p.Depth = []Dim{{k, 0, w, 0}, {ci, 0, (h + k - 1) * w, 0}}
		p.Cols, p.Size = Dim{cols, 0, step, 1}, groups*n*co*h*cols
		p.Groups = Dim{groups, weights, image, n * co * h * cols}
		regions = []Region{{Rows: []Dim{{co, 1, 0, h * cols}}, Outer: []Dim{{n, 0, image / n, co * h * cols}, {h, 0, w, cols}}, Depth: []Range{{k, 0, 1, ci * co}, {ci, 0, 1, co}}}}
		return p, regions, groups * weights, groups * image
	}
	// Forward: the last row of pixels has the first tap only, and the pixel behind every row none; columns may lie apart.
	apart := 1 + r.IntN(2)
	p.Depth = []Dim{{k, 0, ci * co, 0}, {ci, 0, co, 0}}
	p.Cols = Dim{co, 0, 1, apart}
	if r.IntN(2) == 0 { // the kernel's channels the other way round
		p.Depth, p.Cols.B = []Dim{{k, 0, ci * co, 0}, {ci, 0, 1, 0}}, ci
	}
	out := (w + 1) * co * apart
	p.Size = groups * n * h * out
	p.Groups = Dim{groups, image, weights, n * h * out}
	rows := func(lines, pixels int) []Dim {
		return []Dim{{n, all, 0, h * out}, {lines, row, 0, out}, {pixels, ci, 0, co * apart}}
	}
	whole := []Range{{k, 0, 1, row}, {ci, 0, 1, 1}}
	if h > 1 {
		regions = append(regions, Region{Rows: rows(h-1, w), Depth: whole})
	}
	regions = append(regions, Region{A: (h - 1) * row, C: (h - 1) * out, Rows: rows(1, w), Depth: []Range{{1, k - 1, 1, row}, {ci, 0, 1, 1}}},
		Region{C: w * co * apart, Rows: rows(h, 1), Depth: []Range{{0, 0, 1, row}, {ci, 0, 1, 1}}})
	return p, regions, groups * image, groups * weights
}

func checkContractions[T float](t *testing.T, d dtypes.DType, tolerance float64) {
	r := rand.New(rand.NewPCG(5, 6))
	teams := []*pool.Pool{pool.New(1), pool.New(3)}
	defer teams[0].Close()
	defer teams[1].Close()
	for n := range 120 {
		p, regions, na, nb := randomContraction(r, d)
		p.Compile(regions)
		a, b := numbers[T](r, na), numbers[T](r, nb)
		want := naiveContraction(p, regions, a, b)
		var first []T
		for _, team := range teams {
			c, beyond := numbers[T](r, p.Size+8), T(12345)
			for i := p.Size; i < len(c); i++ {
				c[i] = beyond
			}
			scratch := make([]byte, p.Scratch()+64)
			at := unsafe.Pointer(unsafe.SliceData(scratch))
			if err := p.Run(team, ptr(a), ptr(b), ptr(c), unsafe.Add(at, -uintptr(at)&63)); err != nil {
				t.Fatal(err)
			}
			for i, v := range c[p.Size:] {
				if v != beyond {
					t.Fatalf("%d: element %d behind the result was written", n, i)
				}
			}
			for i := range want {
				if p.Cols.C > 1 && i%p.Cols.C > 0 {
					continue // between columns
				}
				if math.Abs(float64(c[i]-want[i])) > tolerance*math.Sqrt(float64(p.rows+1)) {
					t.Fatalf("%d: element %d is %v, not %v: %+v", n, i, c[i], want[i], regions)
				}
				if first != nil && first[i] != c[i] {
					t.Fatalf("%d: element %d depends on the number of threads", n, i)
				}
			}
			first = c
		}
	}
}

func TestContractionsAtAllLevels(t *testing.T) {
	best := isa.Best()
	defer use(best)
	defer useDirect(best)
	for l := isa.Portable; l <= best; l++ {
		t.Run(l.String(), func(t *testing.T) {
			use(l)
			useDirect(l)
			checkContractions[float32](t, dtypes.Float32, 1e-5)
			checkContractions[float64](t, dtypes.Float64, 1e-13)
		})
	}
}

func TestGeneratedDirectKernelsAreWhatTheGeneratorWrites(t *testing.T) {
	if testing.Short() {
		t.Skip("short: the generator is not built")
	}
	for file, command := range map[string]string{"direct_amd64.s": "go run gen_direct_amd64.go", "direct_table_amd64.go": "go run gen_direct_amd64.go -table | gofmt"} {
		want, err := exec.Command("sh", "-c", command).Output()
		if err != nil {
			t.Fatal(err)
		}
		got, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(want, got) {
			t.Errorf("%s is not what gen_direct_amd64.go writes: run go generate", file)
		}
	}
}
