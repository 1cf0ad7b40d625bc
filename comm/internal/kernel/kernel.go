// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

// Package kernel reduces the elements of several buffers into one: all element types and reductions, portable and by vector
// instructions, with the same bits. It assumes that the buffers are as long as it is told.
package kernel

import (
	"unsafe"

	"github.com/gomlx/compute/dtypes"

	"github.com/easyparallel/epl/comm/internal/transport"
)

// BlockElements is how many elements are accumulated at a time, in a scratch that stays in the first-level cache: each
// input is read from memory once, each output written once.
const BlockElements = 1024

// Scratch is a rank's accumulator.
type Scratch [BlockElements]complex128

// Reduce combines n elements of several inputs, in the order of src, and writes the result to all of dst, scaled.
// An output may be one of the inputs; otherwise they must not overlap. Elements are independent of each other and every
// one is computed the same way, wherever it is in the range: how a buffer is divided does not change a bit (of anything
// but the payload of a NaN).
//
// Half-precision floats are accumulated in float32 and rounded once.
func Reduce(dtype dtypes.DType, r transport.Reduction, scale float64, dst, src []unsafe.Pointer, n int, acc *Scratch) {
	done := 0 // by vector instructions
	switch dtype {
	case dtypes.Float32:
		if r == transport.Sum {
			done = sumFloat32(dst, src, n, float32(scale))
		}
		reduceOrdered(r, float32(scale), dst, src, done, n, acc)
	case dtypes.Float64:
		if r == transport.Sum {
			done = sumFloat64(dst, src, n, scale)
		}
		reduceOrdered(r, scale, dst, src, done, n, acc)
	case dtypes.BFloat16:
		if r == transport.Sum {
			done = sumBFloat16(dst, src, n, float32(scale))
		}
		reduceHalf(bfloat16Format, r, float32(scale), dst, src, done, n, acc)
	case dtypes.Float16:
		if r == transport.Sum {
			done = sumFloat16(dst, src, n, float32(scale))
		}
		reduceHalf(float16Format, r, float32(scale), dst, src, done, n, acc)
	case dtypes.Int8:
		reduceOrdered[int8](r, 1, dst, src, 0, n, acc)
	case dtypes.Int16:
		reduceOrdered[int16](r, 1, dst, src, 0, n, acc)
	case dtypes.Int32:
		reduceOrdered[int32](r, 1, dst, src, 0, n, acc)
	case dtypes.Int64:
		reduceOrdered[int64](r, 1, dst, src, 0, n, acc)
	case dtypes.Uint8:
		reduceOrdered[uint8](r, 1, dst, src, 0, n, acc)
	case dtypes.Uint16:
		reduceOrdered[uint16](r, 1, dst, src, 0, n, acc)
	case dtypes.Uint32:
		reduceOrdered[uint32](r, 1, dst, src, 0, n, acc)
	case dtypes.Uint64:
		reduceOrdered[uint64](r, 1, dst, src, 0, n, acc)
	case dtypes.Bool:
		reduceBool(r, dst, src, n, acc)
	case dtypes.Complex64:
		if r == transport.Sum { // part by part
			Reduce(dtypes.Float32, r, scale, dst, src, 2*n, acc)
		} else {
			reduceProd[complex64](float32(scale), dst, src, n, acc)
		}
	case dtypes.Complex128:
		if r == transport.Sum {
			Reduce(dtypes.Float64, r, scale, dst, src, 2*n, acc)
		} else {
			reduceProd[complex128](scale, dst, src, n, acc)
		}
	default:
		panic("epl: no reduction of " + dtype.String() + "; this is a bug of EPL") // transport.BufferOf lets no others in
	}
}

// ordered is the element types that have an order.
type ordered interface {
	int8 | int16 | int32 | int64 | uint8 | uint16 | uint32 | uint64 | float32 | float64
}

// view is n elements of a slice from an index, given its address.
func view[T any](p unsafe.Pointer, from, n int) []T {
	return unsafe.Slice((*T)(unsafe.Add(p, uintptr(from)*unsafe.Sizeof(*new(T)))), n)
}

// accumulator is the scratch as elements of a type.
func accumulator[T any](acc *Scratch, n int) []T { return unsafe.Slice((*T)(unsafe.Pointer(acc)), n) }

// writeAll copies a block to all outputs.
func writeAll[T any](dst []unsafe.Pointer, from int, block []T) {
	for _, p := range dst {
		copy(view[T](p, from, len(block)), block)
	}
}

func reduceOrdered[T ordered](r transport.Reduction, scale T, dst, src []unsafe.Pointer, from, n int, acc *Scratch) {
	for ; from < n; from += BlockElements {
		a := accumulator[T](acc, min(BlockElements, n-from))
		copy(a, view[T](src[0], from, len(a)))
		for _, p := range src[1:] {
			fold(r, a, view[T](p, from, len(a)))
		}
		if scale != 1 {
			multiply(a, scale)
		}
		writeAll(dst, from, a)
	}
}

// multiply scales the elements of a.
//
//go:noinline
func multiply[T ordered](a []T, scale T) {
	for i := range a {
		a[i] *= scale
	}
}

// fold combines the elements of x into a. It is a function of its own because its loops need the registers: inlined,
// they take three times as long.
//
//go:noinline
func fold[T ordered](r transport.Reduction, a, x []T) {
	x = x[:len(a)]
	switch r {
	case transport.Sum:
		for i := range a {
			a[i] += x[i]
		}
	case transport.Prod:
		for i := range a {
			a[i] *= x[i]
		}
	case transport.Max:
		for i := range a {
			a[i] = max(a[i], x[i])
		}
	case transport.Min:
		for i := range a {
			a[i] = min(a[i], x[i])
		}
	}
}

func reduceBool(r transport.Reduction, dst, src []unsafe.Pointer, n int, acc *Scratch) {
	and := r == transport.Prod || r == transport.Min
	for from := 0; from < n; from += BlockElements {
		a := accumulator[bool](acc, min(BlockElements, n-from))
		copy(a, view[bool](src[0], from, len(a)))
		for _, p := range src[1:] {
			x := view[bool](p, from, len(a))
			for i := range a {
				if and {
					a[i] = a[i] && x[i]
				} else {
					a[i] = a[i] || x[i]
				}
			}
		}
		writeAll(dst, from, a)
	}
}

// reduceProd multiplies complex numbers, whose parts are floats of type F.
func reduceProd[T complex64 | complex128, F float32 | float64](scale F, dst, src []unsafe.Pointer, n int, acc *Scratch) {
	for from := 0; from < n; from += BlockElements {
		a := accumulator[T](acc, min(BlockElements, n-from))
		copy(a, view[T](src[0], from, len(a)))
		for _, p := range src[1:] {
			x := view[T](p, from, len(a))
			for i := range a {
				a[i] *= x[i]
			}
		}
		if scale != 1 {
			multiply(accumulator[F](acc, 2*len(a)), scale)
		}
		writeAll(dst, from, a)
	}
}
