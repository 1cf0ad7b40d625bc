// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package kernel

import (
	"math/bits"

	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/dtypes/bfloat16"
	"github.com/gomlx/compute/dtypes/float16"

	"github.com/easyparallel/epl/cpu/isa"
)

// key finds a kernel by its operation and the type of its operands.
type key struct {
	op Op
	d  dtypes.DType
}

// The kernels by operation and type, then by form. Files for an architecture replace entries when the program starts.
var (
	unaries  = map[key]map[Form]Func{}
	binaries = map[key]map[Form]Func{}
	converts = map[[2]dtypes.DType]map[Form]Func{}
	wheres   = map[whereKey]Func{}
	// The reductions of rows and columns that are more than a loop around a function.
	rowReductions, columnReductions = map[key]Func{}, map[key]Func{}
)

// whereKey finds a kernel that chooses, by the bytes of an element.
type whereKey struct {
	size int
	form Form
}

var isComparison = map[Op]bool{"Equal": true, "NotEqual": true, "GreaterThan": true, "GreaterOrEqual": true, "LessThan": true, "LessOrEqual": true}

// Unary finds a kernel D = op(A); nil: there is none.
func Unary(op Op, d dtypes.DType, form Form) Func { return unaries[key{op, d}][form] }

// Binary finds a kernel D = op(A, B); nil: there is none. D of a comparison is bool, else of the type of A and B.
func Binary(op Op, d dtypes.DType, form Form) Func { return binaries[key{op, d}][form] }

// Convert finds a kernel that converts A to another type; nil: there is none.
func Convert(from, to dtypes.DType, form Form) Func { return converts[[2]dtypes.DType{from, to}][form] }

// Where finds a kernel D = B where A, else C, for elements of a size in bytes; nil: there is none.
func Where(size int, form Form) Func { return wheres[whereKey{size, form}] }

// Copy finds a kernel D = A for elements of a size in bytes; nil: there is none.
func Copy(size int, form Form) Func {
	switch size {
	case 1:
		return copies[uint8](form)
	case 2:
		return copies[uint16](form)
	case 4:
		return copies[uint32](form)
	case 8:
		return copies[uint64](form)
	}
	return nil
}

func copies[T any](form Form) Func {
	if form == ScalarA {
		return unary(func(a T) T { return a })[ScalarA]
	}
	return func(x *Args) {
		for r := range x.Rows {
			copy(row[T](x.D, x.SD, r, x.Cols), row[T](x.A, x.SA, r, x.Cols))
		}
	}
}

func init() { isa.OnUse(use) }

// fillTables enters the portable kernels.
func fillTables() {
	for form := range ScalarC << 1 {
		wheres[whereKey{1, form}] = where[uint8](form)
		wheres[whereKey{2, form}] = where[uint16](form)
		wheres[whereKey{4, form}] = where[uint32](form)
		wheres[whereKey{8, form}] = where[uint64](form)
	}
	fillReductions()
	floats[float32](dtypes.Float32)
	floats[float64](dtypes.Float64)
	halves[bfloat16.BFloat16](dtypes.BFloat16)
	halves[float16.Float16](dtypes.Float16)
	unaries[key{"IsFinite", dtypes.Float32}] = isFinite[uint32](0x7f800000)
	unaries[key{"IsFinite", dtypes.Float64}] = isFinite[uint64](0x7ff0000000000000)
	unaries[key{"IsFinite", dtypes.BFloat16}] = isFinite[uint16](0x7f80)
	unaries[key{"IsFinite", dtypes.Float16}] = isFinite[uint16](0x7c00)
	integers[int8](dtypes.Int8)
	integers[int16](dtypes.Int16)
	integers[int32](dtypes.Int32)
	integers[int64](dtypes.Int64)
	integers[uint8](dtypes.Uint8)
	integers[uint16](dtypes.Uint16)
	integers[uint32](dtypes.Uint32)
	integers[uint64](dtypes.Uint64)
	bools()
	conversions()
}

// common are the operations that all numbers have.
func common[T number](d dtypes.DType) {
	binaries[key{"Add", d}] = add[T]()
	binaries[key{"Sub", d}] = sub[T]()
	binaries[key{"Mul", d}] = mul[T]()
	binaries[key{"Div", d}] = binary(func(a, b T) T { return a / b })
	binaries[key{"Max", d}] = binary(func(a, b T) T { return max(a, b) })
	binaries[key{"Min", d}] = binary(func(a, b T) T { return min(a, b) })
	comparisons(d, func(x T) T { return x })
	unaries[key{"Sign", d}] = unary(sign[T])
}

func comparisons[A any, T number](d dtypes.DType, f func(A) T) {
	binaries[key{"Equal", d}] = binary(func(a, b A) bool { return f(a) == f(b) })
	binaries[key{"NotEqual", d}] = binary(func(a, b A) bool { return f(a) != f(b) })
	binaries[key{"GreaterThan", d}] = binary(func(a, b A) bool { return f(a) > f(b) })
	binaries[key{"GreaterOrEqual", d}] = binary(func(a, b A) bool { return f(a) >= f(b) })
	binaries[key{"LessThan", d}] = binary(func(a, b A) bool { return f(a) < f(b) })
	binaries[key{"LessOrEqual", d}] = binary(func(a, b A) bool { return f(a) <= f(b) })
}

func floats[T float](d dtypes.DType) {
	common[T](d)
	for op, f := range mathOps {
		unaries[key{op, d}] = unary(func(x T) T { return T(f(float64(x))) })
	}
	for op, f := range mathOps2 {
		binaries[key{op, d}] = binary(func(x, y T) T { return T(f(float64(x), float64(y))) })
	}
	unaries[key{"Neg", d}] = unary(func(x T) T { return -x })
	unaries[key{"Abs", d}] = unary(abs[T])
	unaries[key{"IsNaN", d}] = unary(func(x T) bool { return x != x })
}

func halves[T half](d dtypes.DType) {
	via := func(f func(float32) float32) map[Form]Func {
		return unary(func(x T) T { return toHalf[T](f(x.Float32())) })
	}
	via2 := func(f func(x, y float32) float32) map[Form]Func {
		return binary(func(x, y T) T { return toHalf[T](f(x.Float32(), y.Float32())) })
	}
	for op, f := range mathOps {
		unaries[key{op, d}] = via(func(x float32) float32 { return float32(f(float64(x))) })
	}
	for op, f := range mathOps2 {
		binaries[key{op, d}] = via2(func(x, y float32) float32 { return float32(f(float64(x), float64(y))) })
	}
	binaries[key{"Add", d}] = via2(func(x, y float32) float32 { return x + y })
	binaries[key{"Sub", d}] = via2(func(x, y float32) float32 { return x - y })
	binaries[key{"Mul", d}] = via2(func(x, y float32) float32 { return x * y })
	binaries[key{"Div", d}] = via2(func(x, y float32) float32 { return x / y })
	binaries[key{"Max", d}] = via2(func(x, y float32) float32 { return max(x, y) })
	binaries[key{"Min", d}] = via2(func(x, y float32) float32 { return min(x, y) })
	comparisons(d, T.Float32)
	unaries[key{"Sign", d}] = via(sign[float32])
	unaries[key{"Neg", d}] = via(func(x float32) float32 { return -x })
	unaries[key{"Abs", d}] = via(abs[float32])
	unaries[key{"IsNaN", d}] = unary(func(x T) bool { f := x.Float32(); return f != f })
}

// isFinite looks at the exponent: all of its bits are set in what is no number. reliability.nan looks at every gradient, so that it is no function that is called for each.
func isFinite[T uint16 | uint32 | uint64](exponent T) map[Form]Func {
	kernels := unary(func(x T) bool { return x&exponent != exponent })
	kernels[0] = func(x *Args) {
		for r := range x.Rows {
			d, a := row[bool](x.D, x.SD, r, x.Cols), row[T](x.A, x.SA, r, x.Cols)
			for i, v := range a[:len(d)] {
				d[i] = v&exponent != exponent
			}
		}
	}
	return kernels
}

func integers[T integer](d dtypes.DType) {
	common[T](d)
	binaries[key{"Rem", d}] = binary(func(a, b T) T { return a % b })
	binaries[key{"Pow", d}] = binary(powInt[T])
	binaries[key{"BitwiseAnd", d}] = binary(func(a, b T) T { return a & b })
	binaries[key{"BitwiseOr", d}] = binary(func(a, b T) T { return a | b })
	binaries[key{"BitwiseXor", d}] = binary(func(a, b T) T { return a ^ b })
	binaries[key{"ShiftLeft", d}] = binary(func(a, b T) T { return a << uint(b) })
	binaries[key{"ShiftRightArithmetic", d}] = binary(func(a, b T) T { return a >> uint(b) })
	binaries[key{"ShiftRightLogical", d}] = binary(shiftRightLogical[T])
	unaries[key{"BitwiseNot", d}] = unary(func(x T) T { return ^x })
	unaries[key{"BitCount", d}] = unary(func(x T) T { return T(bits.OnesCount64(positive(x))) })
	unaries[key{"Clz", d}] = unary(func(x T) T { return T(bits.LeadingZeros64(positive(x)) - 64 + d.Bits()) })
	unaries[key{"Abs", d}] = unary(func(x T) T { return x })
	if minusOne[T]() < 0 {
		unaries[key{"Neg", d}] = unary(func(x T) T { return -x })
		unaries[key{"Abs", d}] = unary(func(x T) T {
			if x < 0 {
				return -x
			}
			return x
		})
	}
}

func bools() {
	d := dtypes.Bool
	binaries[key{"LogicalAnd", d}] = binary(func(a, b bool) bool { return a && b })
	binaries[key{"LogicalOr", d}] = binary(func(a, b bool) bool { return a || b })
	binaries[key{"LogicalXor", d}] = binary(func(a, b bool) bool { return a != b })
	unaries[key{"LogicalNot", d}] = unary(func(a bool) bool { return !a })
}

// conversions fills the table for all pairs of types that GoMLX's backend converts element by element.
func conversions() {
	from[float32](dtypes.Float32)
	from[float64](dtypes.Float64)
	from[int8](dtypes.Int8)
	from[int16](dtypes.Int16)
	from[int32](dtypes.Int32)
	from[int64](dtypes.Int64)
	from[uint8](dtypes.Uint8)
	from[uint16](dtypes.Uint16)
	from[uint32](dtypes.Uint32)
	from[uint64](dtypes.Uint64)
	fromHalf[bfloat16.BFloat16](dtypes.BFloat16)
	fromHalf[float16.Float16](dtypes.Float16)
	fromBool()
}

func from[T number](d dtypes.DType) {
	to(d, dtypes.Float32, func(x T) float32 { return float32(x) })
	to(d, dtypes.Float64, func(x T) float64 { return float64(x) })
	to(d, dtypes.Int8, func(x T) int8 { return int8(x) })
	to(d, dtypes.Int16, func(x T) int16 { return int16(x) })
	to(d, dtypes.Int32, func(x T) int32 { return int32(x) })
	to(d, dtypes.Int64, func(x T) int64 { return int64(x) })
	to(d, dtypes.Uint8, func(x T) uint8 { return uint8(x) })
	to(d, dtypes.Uint16, func(x T) uint16 { return uint16(x) })
	to(d, dtypes.Uint32, func(x T) uint32 { return uint32(x) })
	to(d, dtypes.Uint64, func(x T) uint64 { return uint64(x) })
	to(d, dtypes.BFloat16, func(x T) bfloat16.BFloat16 { return bfloat16.FromFloat32(float32(x)) })
	to(d, dtypes.Float16, func(x T) float16.Float16 { return float16.FromFloat32(float32(x)) })
	to(d, dtypes.Bool, func(x T) bool { return x != 0 })
}

func fromHalf[T half](d dtypes.DType) {
	to(d, dtypes.Float32, T.Float32)
	to(d, dtypes.Float64, func(x T) float64 { return float64(x.Float32()) })
	to(d, dtypes.Int8, func(x T) int8 { return int8(x.Float32()) })
	to(d, dtypes.Int16, func(x T) int16 { return int16(x.Float32()) })
	to(d, dtypes.Int32, func(x T) int32 { return int32(x.Float32()) })
	to(d, dtypes.Int64, func(x T) int64 { return int64(x.Float32()) })
	to(d, dtypes.Uint8, func(x T) uint8 { return uint8(x.Float32()) })
	to(d, dtypes.Uint16, func(x T) uint16 { return uint16(x.Float32()) })
	to(d, dtypes.Uint32, func(x T) uint32 { return uint32(x.Float32()) })
	to(d, dtypes.Uint64, func(x T) uint64 { return uint64(x.Float32()) })
	to(d, dtypes.BFloat16, func(x T) bfloat16.BFloat16 { return bfloat16.FromFloat32(x.Float32()) })
	to(d, dtypes.Float16, func(x T) float16.Float16 { return float16.FromFloat32(x.Float32()) })
	to(d, dtypes.Bool, func(x T) bool { return x.Float32() != 0 })
	delete(converts, [2]dtypes.DType{d, d}) // a conversion to the same type changes no bit
}

func fromBool() {
	d := dtypes.Bool
	number := func(x bool) uint8 {
		if x {
			return 1
		}
		return 0
	}
	to(d, dtypes.Float32, func(x bool) float32 { return float32(number(x)) })
	to(d, dtypes.Float64, func(x bool) float64 { return float64(number(x)) })
	to(d, dtypes.Int8, func(x bool) int8 { return int8(number(x)) })
	to(d, dtypes.Int16, func(x bool) int16 { return int16(number(x)) })
	to(d, dtypes.Int32, func(x bool) int32 { return int32(number(x)) })
	to(d, dtypes.Int64, func(x bool) int64 { return int64(number(x)) })
	to(d, dtypes.Uint8, number)
	to(d, dtypes.Uint16, func(x bool) uint16 { return uint16(number(x)) })
	to(d, dtypes.Uint32, func(x bool) uint32 { return uint32(number(x)) })
	to(d, dtypes.Uint64, func(x bool) uint64 { return uint64(number(x)) })
	to(d, dtypes.BFloat16, func(x bool) bfloat16.BFloat16 { return bfloat16.FromFloat32(float32(number(x))) })
	to(d, dtypes.Float16, func(x bool) float16.Float16 { return float16.FromFloat32(float32(number(x))) })
}

func to[A, D any](a, d dtypes.DType, f func(A) D) {
	converts[[2]dtypes.DType{a, d}] = unary(f)
}
