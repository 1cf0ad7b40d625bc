// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package kernel

import (
	"fmt"
	"testing"
	"unsafe"

	"github.com/easyparallel/epl/comm/internal/transport"
)

// BenchmarkKernel measures summing inputs that are in the second-level cache into as many outputs, on one core. GB/s are
// bytes of one input per time.
func BenchmarkKernel(b *testing.B) {
	const n = 16 << 10
	kernels := []struct {
		name string
		size int
		sum  func(dst, src []unsafe.Pointer, acc *Scratch)
	}{
		{"float32", 4, func(dst, src []unsafe.Pointer, acc *Scratch) {
			reduceOrdered(transport.Sum, float32(1), dst, src, sumFloat32(dst, src, n, 1), n, acc)
		}},
		{"float32-scaled", 4, func(dst, src []unsafe.Pointer, acc *Scratch) {
			reduceOrdered(transport.Sum, float32(0.5), dst, src, sumFloat32(dst, src, n, 0.5), n, acc)
		}},
		{"float32-portable", 4, func(dst, src []unsafe.Pointer, acc *Scratch) {
			reduceOrdered(transport.Sum, float32(1), dst, src, 0, n, acc)
		}},
		{"float64", 8, func(dst, src []unsafe.Pointer, acc *Scratch) {
			reduceOrdered(transport.Sum, 1.0, dst, src, sumFloat64(dst, src, n, 1), n, acc)
		}},
		{"bfloat16", 2, func(dst, src []unsafe.Pointer, acc *Scratch) {
			reduceHalf(bfloat16Format, transport.Sum, 1, dst, src, sumBFloat16(dst, src, n, 1), n, acc)
		}},
		{"bfloat16-portable", 2, func(dst, src []unsafe.Pointer, acc *Scratch) {
			reduceHalf(bfloat16Format, transport.Sum, 1, dst, src, 0, n, acc)
		}},
		{"float16", 2, func(dst, src []unsafe.Pointer, acc *Scratch) {
			reduceHalf(float16Format, transport.Sum, 1, dst, src, sumFloat16(dst, src, n, 1), n, acc)
		}},
		{"float16-portable", 2, func(dst, src []unsafe.Pointer, acc *Scratch) {
			reduceHalf(float16Format, transport.Sum, 1, dst, src, 0, n, acc)
		}},
	}
	for _, k := range kernels {
		for _, inputs := range []int{2, 3, 4, 8} {
			b.Run(fmt.Sprintf("%s/inputs=%d", k.name, inputs), func(b *testing.B) {
				var acc Scratch
				var src []unsafe.Pointer
				for range inputs {
					src = append(src, unsafe.Pointer(unsafe.SliceData(make([]float64, n*k.size/8))))
				}
				b.SetBytes(int64(n * k.size))
				for b.Loop() {
					k.sum(src, src, &acc)
				}
			})
		}
	}
}
