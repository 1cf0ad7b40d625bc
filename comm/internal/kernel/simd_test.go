// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

//go:build goexperiment.simd && amd64

package kernel

import (
	"testing"
	"unsafe"

	"github.com/easyparallel/epl/comm/internal/elements"
	"github.com/easyparallel/epl/comm/internal/transport"
)

// A machine chooses one width; this tests those that it has.
func TestAllVectorWidthsGiveTheBitsOfThePortableKernel(t *testing.T) {
	if !hasAVX2 {
		t.Skip("the machine has no AVX2")
	}
	testWidth(t, "float32x8", sumFloat32x8)
	testWidth(t, "float64x4", sumFloat64x4)
	if !hasAVX512 {
		t.Skip("the machine has no AVX-512")
	}
	testWidth(t, "float32x16", sumFloat32x16)
	testWidth(t, "float64x8", sumFloat64x8)
}

func testWidth[T float32 | float64](t *testing.T, name string, kernel func(dst, src []unsafe.Pointer, n int, scale T) int) {
	t.Run(name, func(t *testing.T) {
		rng := elements.SeedOf(name)
		for range 300 {
			n, inputs := rng.IntN(500), 1+rng.IntN(9)
			var src []unsafe.Pointer
			for range inputs {
				s := make([]T, n+2)
				for i := range s {
					s[i] = T(rng.NormFloat64())
				}
				src = append(src, unsafe.Pointer(&s[1]))
			}
			got, want := make([]T, n+1), make([]T, n+1)
			scale := T(1)
			if rng.IntN(2) == 0 {
				scale = T(rng.NormFloat64())
			}
			done := kernel([]unsafe.Pointer{unsafe.Pointer(&got[0])}, src, n, scale)
			if done > n || n-done >= 64 {
				t.Fatalf("did %d of %d elements", done, n)
			}
			reduceOrdered(transport.Sum, scale, []unsafe.Pointer{unsafe.Pointer(&want[0])}, src, 0, done, new(Scratch))
			if !elements.SameBits(got, want) { // neither wrote past what was done
				t.Fatalf("%d inputs of %d elements times %g: wrong", inputs, n, scale)
			}
		}
	})
}
