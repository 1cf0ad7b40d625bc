// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package gemm

import (
	"unsafe"

	"github.com/easyparallel/epl/cpu/isa"
)

//go:generate sh -c "go run gen_direct_amd64.go > direct_amd64.s"
//go:generate sh -c "go run gen_direct_amd64.go -table | gofmt > direct_table_amd64.go"

func init() { useDirect(isa.Best()) }

// useDirect chooses the microkernels of a level.
func useDirect(l isa.Level) {
	fast = l == isa.AVX512
	switch l {
	case isa.AVX512:
		direct32 = []direct{
			{cols: 32, kernels: table_direct512_32, mask: maskBits},
			{cols: 16, kernels: table_direct512_16, mask: maskBits},
		}
		direct64 = []direct{{cols: 16, kernels: table_direct512d_16, mask: maskBits}}
	case isa.AVX2:
		direct32 = []direct{{cols: 16, kernels: table_direct256_16, mask: maskBytes, whole: true}}
		direct64 = []direct{{cols: 8, kernels: table_direct256d_8, mask: maskBytes, whole: true}}
	default:
		direct32, direct64 = portableDirect[float32](), portableDirect[float64]()
	}
}

// maskBits has a bit for every column.
func maskBits(cols, _ int) uintptr { return 1<<cols - 1 }

// ones are 64 bytes of ones, then as many of zeros.
var ones = func() (m [128]byte) {
	for i := range 64 {
		m[i] = 0xff
	}
	return m
}()

// maskBytes is where a mask begins in memory.
func maskBytes(cols, size int) uintptr { return uintptr(unsafe.Pointer(&ones[64-cols*size])) }

//go:noescape
func copyLines512(dst, src unsafe.Pointer, dstStep, srcStep, rows int, mask, zero uint64)

// copyLines copies rows of cols elements, and writes zeros behind them up to width. Distances are in bytes.
func copyLines(dst, src unsafe.Pointer, dstStep, srcStep, rows, cols, width, size int) {
	if words := width * size / 4; fast && words <= 32 && rows > 0 {
		copyLines512(dst, src, dstStep, srcStep, rows, 1<<(cols*size/4)-1, 1<<words-1)
		return
	}
	copyLinesPortable(dst, src, dstStep, srcStep, rows, cols, width, size)
}

// fast tells whether there is AVX-512.
var fast bool
