// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package comm

import (
	"unsafe"

	"github.com/gomlx/compute/dtypes/float16"

	"github.com/easyparallel/epl/comm/internal/kernel"
)

// ToFloat16 rounds src to nearest, ties to even, into dst, which must be as long. Values that float16 has only without
// an implicit leading one, below 2⁻¹⁴, are kept.
func ToFloat16(dst []float16.Float16, src []float32) {
	kernel.NarrowFloat16(halves(dst)[:len(src)], src)
}

// FromFloat16 widens src into dst, which must be as long. That is exact.
func FromFloat16(dst []float32, src []float16.Float16) {
	kernel.WidenFloat16(dst[:len(src)], halves(src))
}

// halves views float16 values as their bits.
func halves(h []float16.Float16) []uint16 {
	return unsafe.Slice((*uint16)(unsafe.Pointer(unsafe.SliceData(h))), len(h))
}
