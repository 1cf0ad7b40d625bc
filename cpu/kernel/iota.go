// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package kernel

import (
	"unsafe"

	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/dtypes/bfloat16"
	"github.com/gomlx/compute/dtypes/float16"
)

// IotaFunc writes elements start … start+n-1 of an iota to d: element i is (i / inner) mod size.
type IotaFunc func(d unsafe.Pointer, start, n, inner, size int)

// Iota finds the kernel of a type; nil: there is none.
func Iota(d dtypes.DType) IotaFunc {
	switch d {
	case dtypes.Float32:
		return counted[float32]
	case dtypes.Float64:
		return counted[float64]
	case dtypes.Int8:
		return counted[int8]
	case dtypes.Int16:
		return counted[int16]
	case dtypes.Int32:
		return counted[int32]
	case dtypes.Int64:
		return counted[int64]
	case dtypes.Uint8:
		return counted[uint8]
	case dtypes.Uint16:
		return counted[uint16]
	case dtypes.Uint32:
		return counted[uint32]
	case dtypes.Uint64:
		return counted[uint64]
	case dtypes.BFloat16:
		return countedBy(func(i int) bfloat16.BFloat16 { return bfloat16.FromFloat32(float32(i)) })
	case dtypes.Float16:
		return countedBy(func(i int) float16.Float16 { return float16.FromFloat32(float32(i)) })
	}
	return nil
}

func counted[T number](p unsafe.Pointer, start, n, inner, size int) {
	if inner > 1 {
		repeated(unsafe.Slice((*T)(p), n), start, inner, size, func(i int) T { return T(i) })
		return
	}
	d := unsafe.Slice((*T)(p), n)
	for k := start % size; len(d) > 0; k = 0 {
		run := min(len(d), size-k)
		for i := range d[:run] {
			d[i] = T(k + i)
		}
		d = d[run:]
	}
}

func countedBy[T any](of func(int) T) IotaFunc {
	return func(p unsafe.Pointer, start, n, inner, size int) {
		repeated(unsafe.Slice((*T)(p), n), start, inner, size, of)
	}
}

// repeated writes every number inner times.
func repeated[T any](d []T, start, inner, size int, of func(int) T) {
	left := inner - start%inner
	for k := start / inner % size; len(d) > 0; left = inner {
		run, v := min(len(d), left), of(k)
		for i := range d[:run] {
			d[i] = v
		}
		d = d[run:]
		if k++; k == size {
			k = 0
		}
	}
}
