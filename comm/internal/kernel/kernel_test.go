// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package kernel

import (
	"math"
	"math/rand/v2"
	"testing"
	"unsafe"

	"github.com/gomlx/compute/dtypes/bfloat16"
	"github.com/gomlx/compute/dtypes/float16"

	"github.com/easyparallel/epl/comm/internal/elements"
	"github.com/easyparallel/epl/comm/internal/transport"
)

// reduceSlices calls a kernel with slices.
func reduceSlices(e elements.Type, r transport.Reduction, scale float64, dst, src []any) {
	pointers := func(flats []any) (ps []unsafe.Pointer) {
		for _, f := range flats {
			b, _ := transport.BufferOf(f)
			ps = append(ps, b.Ptr)
		}
		return ps
	}
	b, _ := transport.BufferOf(src[0])
	Reduce(e.DType, r, scale, pointers(dst), pointers(src), b.Len, new(Scratch))
}

// Lengths around the widths of vectors and blocks, and buffers that begin anywhere.
func TestKernelsAreExactForAllLengthsOffsetsAndNumbersOfInputs(t *testing.T) {
	for _, e := range elements.All {
		t.Run(e.DType.String(), func(t *testing.T) {
			rng := elements.SeedOf(t.Name())
			for range 400 {
				size, inputs, outputs, offset := 1+rng.IntN(300), 1+rng.IntN(9), 1+rng.IntN(9), rng.IntN(5)
				if rng.IntN(4) == 0 {
					size += BlockElements - 100
				}
				var src, dst []any
				for range inputs {
					src = append(src, elements.Slice(e.Fill(rng, size+offset), offset, size+offset))
				}
				for range outputs {
					dst = append(dst, elements.Slice(e.Fill(rng, size+offset), offset, size+offset))
				}
				scale := 1.0
				if transport.Scalable(e.DType) && rng.IntN(2) == 0 {
					scale = rng.Float64()
				}
				r := e.Ops[rng.IntN(len(e.Ops))]
				want := e.Reduce(r, scale, src)
				if rng.IntN(2) == 0 { // in place
					dst = src
				}
				reduceSlices(e, r, scale, dst, src)
				for _, d := range dst {
					if !elements.SameBits(d, want) {
						t.Fatalf("%s·%g of %d inputs, %d outputs, %d elements from %d: wrong", r, scale, inputs, outputs, size, offset)
					}
				}
			}
		})
	}
}

func TestSpecialFloatsAreReducedAsIEEESays(t *testing.T) {
	nan, inf := float32(math.NaN()), float32(math.Inf(1))
	for _, c := range []struct {
		r          transport.Reduction
		a, b, want float32
	}{
		{transport.Sum, inf, 1, inf}, {transport.Sum, inf, -inf, nan}, {transport.Sum, nan, 1, nan}, {transport.Sum, 1, nan, nan},
		{transport.Max, nan, 1, nan}, {transport.Max, 1, nan, nan}, {transport.Min, nan, 1, nan}, {transport.Min, 1, nan, nan}, {transport.Max, inf, 1, inf},
		{transport.Prod, inf, 0, nan}, {transport.Sum, float32(math.Copysign(0, -1)), float32(math.Copysign(0, -1)), float32(math.Copysign(0, -1))},
	} {
		for _, n := range []int{1, 200} {
			x, y := make([]float32, n), make([]float32, n)
			hx, hy, bx, by := make([]float16.Float16, n), make([]float16.Float16, n), make([]bfloat16.BFloat16, n), make([]bfloat16.BFloat16, n)
			for i := range n {
				x[i], y[i] = c.a, c.b
				hx[i], hy[i] = float16.FromFloat32(c.a), float16.FromFloat32(c.b)
				bx[i], by[i] = bfloat16.FromFloat32(c.a), bfloat16.FromFloat32(c.b)
			}
			reduceSlices(elements.All[0], c.r, 1, []any{x, y}, []any{x, y})
			reduceSlices(elements.All[2], c.r, 1, []any{bx, by}, []any{bx, by})
			reduceSlices(elements.All[3], c.r, 1, []any{hx, hy}, []any{hx, hy})
			for i := range n {
				for _, got := range []float32{x[i], y[i], hx[i].Float32(), hy[i].Float32(), bx[i].Float32(), by[i].Float32()} {
					if math.Float32bits(got) != math.Float32bits(c.want) && (got == got || c.want == c.want) {
						t.Fatalf("%s(%g, %g) = %g, want %g", c.r, c.a, c.b, got, c.want)
					}
				}
			}
		}
	}
}

// All halves, and floats around them.
func TestHalvesConvertToNearestEven(t *testing.T) {
	const all = 1 << 16
	halves, floats := make([]uint16, all), make([]float32, all)
	for i := range halves {
		halves[i] = uint16(i)
	}
	WidenFloat16(floats, halves)
	for i, f := range floats {
		if want := float16.FromBits(uint16(i)).Float32(); f != want && (f == f || want == want) {
			t.Fatalf("float16 %#x is %g, want %g", i, f, want)
		}
	}
	narrowed := make([]uint16, all)
	for i, f := range floats { // the number itself, halfway to the next, and a bit more or less
		if f != f || math.IsInf(float64(f), 0) {
			continue
		}
		next := math.Float32frombits(math.Float32bits(f) + 1<<(f16Shift-1))
		near := []float32{f, next, math.Nextafter32(next, 0), math.Nextafter32(next, 1e9), f * 1e-5, f * 1e5, f / 3}
		NarrowFloat16(narrowed, near)
		for j, x := range near {
			if want := elements.RoundToFloat16(x).Bits(); narrowed[j] != want {
				t.Fatalf("%g (near %#x) becomes float16 %#x, want %#x", x, i, narrowed[j], want)
			}
		}
	}
	widenBFloat16(floats, halves)
	narrowBFloat16(narrowed, floats)
	for i, f := range floats {
		if f == f && narrowed[i] != uint16(i) || f != f && bfloat16.FromBits(narrowed[i]).Float32() == bfloat16.FromBits(narrowed[i]).Float32() {
			t.Fatalf("bfloat16 %#x is %g, which becomes %#x", i, f, narrowed[i])
		}
	}
	quiet := []float32{math.Float32frombits(0x7f800001)} // a NaN whose payload is lost
	if narrowBFloat16(narrowed, quiet); bfloat16.FromBits(narrowed[0]).Float32() == bfloat16.FromBits(narrowed[0]).Float32() {
		t.Errorf("a NaN becomes bfloat16 %#x", narrowed[0])
	}
}

// The vector conversions must agree with the portable ones for every value, the smallest and the specials too.
func TestVectorHalvesAgreeWithPortableOnes(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	const n = 1 << 16
	for _, format := range []struct {
		name   string
		half   halfFormat
		vector func(dst, src []unsafe.Pointer, n int, scale float32) int
	}{{"bfloat16", bfloat16Format, sumBFloat16}, {"float16", float16Format, sumFloat16}} {
		t.Run(format.name, func(t *testing.T) {
			x, y := make([]uint16, n), make([]uint16, n)
			for i := range x {
				x[i], y[i] = uint16(i), uint16(rng.Uint32())
			}
			got, want := make([]uint16, n), make([]uint16, n)
			src := []unsafe.Pointer{unsafe.Pointer(&x[0]), unsafe.Pointer(&y[0])}
			for _, scale := range []float32{1, 1e-3, 3} {
				done := format.vector([]unsafe.Pointer{unsafe.Pointer(&got[0])}, src, n, scale)
				if done == 0 {
					t.Skip("no vector instructions in this build, or on this machine")
				}
				reduceHalf(format.half, transport.Sum, scale, []unsafe.Pointer{unsafe.Pointer(&want[0])}, src, 0, n, new(Scratch))
				g, w := make([]float32, n), make([]float32, n)
				format.half.widen(g, got)
				format.half.widen(w, want)
				for i := range g {
					if got[i] != want[i] && (g[i] == g[i] || w[i] == w[i]) {
						t.Fatalf("(%#x + %#x)·%g = %#x, want %#x", x[i], y[i], scale, got[i], want[i])
					}
				}
			}
		})
	}
}
