// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

// Package elements is for tests: random slices of all element types, their reductions done one element after the other, and
// what it takes to handle slices whose type is not known.
package elements

import (
	"bytes"
	"fmt"
	"math"
	"math/rand/v2"
	"reflect"
	"unsafe"

	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/dtypes/bfloat16"
	"github.com/gomlx/compute/dtypes/float16"

	"github.com/easyparallel/epl/comm/internal/transport"
)

// Type is one of GoMLX's types: how to make random slices of it, and how to reduce them.
type Type struct {
	DType dtypes.DType
	Fill  func(rng *rand.Rand, n int) any
	// reduce combines the inputs element by element, first to last, and scales.
	Reduce func(r transport.Reduction, scale float64, inputs []any) any
	Ops    []transport.Reduction
}

var anyReduction = []transport.Reduction{transport.Sum, transport.Max, transport.Min, transport.Prod}

// reference makes an element from a combination of two, done in type A.
func reference[T, A any](dtype dtypes.DType, ops []transport.Reduction, random func(*rand.Rand) T,
	widen func(T) A, combine func(r transport.Reduction, a, b A) A, scaled func(A, float64) A, narrow func(A) T) Type {
	return Type{
		DType: dtype,
		Ops:   ops,
		Fill: func(rng *rand.Rand, n int) any {
			s := make([]T, n)
			for i := range s {
				s[i] = random(rng)
			}
			return s
		},
		Reduce: func(r transport.Reduction, scale float64, inputs []any) any {
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

func same[T any](x T) T { return x }

func native[T orderedType](dtype dtypes.DType, random func(*rand.Rand) T) Type {
	scaled := func(x T, s float64) T {
		if s == 1 {
			return x
		}
		return x * T(s)
	}
	return reference(dtype, anyReduction, random, same, combine, scaled, same)
}

func combine[T orderedType](r transport.Reduction, a, b T) T {
	switch r {
	case transport.Sum:
		return a + b
	case transport.Max:
		return max(a, b)
	case transport.Min:
		return min(a, b)
	}
	return a * b
}

// half is a float of 16 bits, whose sums round once.
func half[T interface{ Float32() float32 }](dtype dtypes.DType, narrow func(float32) T) Type {
	return reference(dtype, anyReduction, func(rng *rand.Rand) T { return narrow(float32(rng.NormFloat64())) },
		T.Float32, combine, func(x float32, s float64) float32 { return x * float32(s) }, narrow)
}

func complexes[T complex64 | complex128](dtype dtypes.DType, random func(*rand.Rand) T, scaled func(T, float64) T) Type {
	return reference(dtype, []transport.Reduction{transport.Sum, transport.Prod}, random, same, func(r transport.Reduction, a, b T) T {
		if r == transport.Sum {
			return a + b
		}
		return a * b
	}, scaled, same)
}

func integer[T orderedType](rng *rand.Rand) T { return T(rng.Uint64()) }

// All are all types that GoMLX has a Go type for.
var All = []Type{
	native(dtypes.Float32, func(r *rand.Rand) float32 { return float32(r.NormFloat64()) }),
	native(dtypes.Float64, func(r *rand.Rand) float64 { return r.NormFloat64() }),
	half(dtypes.BFloat16, bfloat16.FromFloat32),
	half(dtypes.Float16, RoundToFloat16),
	native(dtypes.Int8, integer[int8]),
	native(dtypes.Int16, integer[int16]),
	native(dtypes.Int32, integer[int32]),
	native(dtypes.Int64, integer[int64]),
	native(dtypes.Uint8, integer[uint8]),
	native(dtypes.Uint16, integer[uint16]),
	native(dtypes.Uint32, integer[uint32]),
	native(dtypes.Uint64, integer[uint64]),
	reference(dtypes.Bool, anyReduction, func(r *rand.Rand) bool { return r.IntN(2) == 0 }, same,
		func(r transport.Reduction, a, b bool) bool {
			if r == transport.Sum || r == transport.Max {
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

// RoundToFloat16 rounds to nearest, ties to even, by definition. (GoMLX's own conversion loses numbers below 2⁻¹⁴.)
func RoundToFloat16(x float32) float16.Float16 {
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

// BytesOf returns the memory of a slice.
func BytesOf(flat any) []byte {
	b, ok := transport.BufferOf(flat)
	if !ok {
		panic(fmt.Sprintf("%T", flat))
	}
	return unsafe.Slice((*byte)(b.Ptr), b.Bytes())
}

// SameBits compares two slices.
func SameBits(a, b any) bool {
	return reflect.TypeOf(a) == reflect.TypeOf(b) && bytes.Equal(BytesOf(a), BytesOf(b))
}

// Slice is flat[from:to].
func Slice(flat any, from, to int) any { return reflect.ValueOf(flat).Slice(from, to).Interface() }

// Clone copies a slice.
func Clone(flat any) any {
	v := reflect.ValueOf(flat)
	return reflect.AppendSlice(reflect.MakeSlice(v.Type(), 0, v.Len()), v).Interface()
}

// MakeLike returns a slice of the same type.
func MakeLike(flat any, n int) any { return reflect.MakeSlice(reflect.TypeOf(flat), n, n).Interface() }

// Concat joins slices.
func Concat(flats ...any) any {
	v := reflect.ValueOf(MakeLike(flats[0], 0))
	for _, f := range flats {
		v = reflect.AppendSlice(v, reflect.ValueOf(f))
	}
	return v.Interface()
}

// Parts divides some elements at random into n parts, some of which are empty.
func Parts(rng *rand.Rand, total, n int) []int {
	counts := make([]int, n)
	for range min(total, 50) { // some small ones, often empty
		counts[rng.IntN(n)]++
	}
	counts[rng.IntN(n)] += total - min(total, 50)
	return counts
}

// SeedOf returns random numbers that depend on the arguments only.
func SeedOf(args ...any) *rand.Rand {
	var h uint64 = 14695981039346656037
	for _, b := range []byte(fmt.Sprint(args...)) {
		h = (h ^ uint64(b)) * 1099511628211
	}
	return rand.New(rand.NewPCG(h, 1))
}

// ordered is the element types that have an order.
type orderedType interface {
	int8 | int16 | int32 | int64 | uint8 | uint16 | uint32 | uint64 | float32 | float64
}
