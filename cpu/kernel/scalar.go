// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package kernel

import (
	"math"

	"github.com/gomlx/compute/dtypes/bfloat16"
	"github.com/gomlx/compute/dtypes/float16"
)

// The functions of one element, as GoMLX's pure-Go backend defines them. Kernels are loops around these.

type signed interface {
	int8 | int16 | int32 | int64
}

type unsigned interface {
	uint8 | uint16 | uint32 | uint64
}

type integer interface{ signed | unsigned }

type float interface{ float32 | float64 }

type number interface{ integer | float }

// half is a floating-point type of 16 bits, which is computed with as float32.
type half interface {
	bfloat16.BFloat16 | float16.Float16
	Float32() float32
}

func toHalf[T half](f float32) T {
	var t T
	switch p := any(&t).(type) {
	case *bfloat16.BFloat16:
		*p = bfloat16.FromFloat32(f)
	case *float16.Float16:
		*p = float16.FromFloat32(f)
	}
	return t
}

func logistic(x float64) float64 {
	if x >= 0 {
		return 1 / (1 + math.Exp(-x))
	}
	e := math.Exp(x)
	return e / (1 + e)
}

func rsqrt(x float64) float64 { return 1 / math.Sqrt(x) }

// mathOps are functions of a float that are computed in float64 and rounded once.
var mathOps = map[Op]func(float64) float64{
	"Exp": math.Exp, "Expm1": math.Expm1, "Log": math.Log, "Log1p": math.Log1p, "Logistic": logistic,
	"Ceil": math.Ceil, "Floor": math.Floor, "Round": math.RoundToEven, "Rsqrt": rsqrt, "Sqrt": math.Sqrt,
	"Cos": math.Cos, "Sin": math.Sin, "Tanh": math.Tanh, "Erf": math.Erf,
}

// mathOps2 are functions of two floats that are computed in float64 and rounded once.
var mathOps2 = map[Op]func(x, y float64) float64{"Rem": math.Mod, "Pow": math.Pow, "Atan2": math.Atan2}

func abs[T signed | float](x T) T {
	if x < 0 {
		return -x
	}
	return x
}

func sign[T number](x T) T {
	switch {
	case x < 0:
		return minusOne[T]()
	case x > 0:
		return 1
	}
	return 0
}

// minusOne is -1 of a signed type; unsigned numbers are never below 0.
func minusOne[T number]() T {
	var zero T
	return zero - 1
}

func powInt[T integer](base, exp T) T {
	result := T(1)
	for exp > 0 {
		if exp%2 == 1 {
			result *= base
		}
		base *= base
		exp >>= 1
	}
	return result
}

func shiftRightLogical[T integer](x, by T) T {
	switch x := any(x).(type) {
	case int8:
		return T(uint8(x) >> uint(by))
	case int16:
		return T(uint16(x) >> uint(by))
	case int32:
		return T(uint32(x) >> uint(by))
	case int64:
		return T(uint64(x) >> uint(by))
	}
	return x >> uint(by)
}

// positive are the bits of an integer, with zeros above them.
func positive[T integer](x T) uint64 {
	switch x := any(x).(type) {
	case int8:
		return uint64(uint8(x))
	case int16:
		return uint64(uint16(x))
	case int32:
		return uint64(uint32(x))
	}
	return uint64(x)
}
