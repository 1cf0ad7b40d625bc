// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package hlo

import (
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"math"
	"reflect"
	"strconv"
	"strings"

	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/dtypes/bfloat16"
	"github.com/gomlx/compute/dtypes/float16"
	"github.com/gomlx/compute/shapes"

	"github.com/easyparallel/epl/ir"
)

// types are the names of dtypes in MLIR. It has no integers of one bit: i1 is a bool.
var types = map[dtypes.DType]string{
	dtypes.Bool: "i1",
	dtypes.Int2: "i2", dtypes.Int4: "i4", dtypes.Int8: "i8", dtypes.Int16: "i16", dtypes.Int32: "i32", dtypes.Int64: "i64",
	dtypes.Uint2: "ui2", dtypes.Uint4: "ui4", dtypes.Uint8: "ui8", dtypes.Uint16: "ui16", dtypes.Uint32: "ui32", dtypes.Uint64: "ui64",
	dtypes.Float16: "f16", dtypes.BFloat16: "bf16", dtypes.Float32: "f32", dtypes.Float64: "f64",
	dtypes.Complex64: "complex<f32>", dtypes.Complex128: "complex<f64>",
	dtypes.F8E5M2: "f8E5M2", dtypes.F8E4M3FN: "f8E4M3FN", dtypes.F8E4M3B11FNUZ: "f8E4M3B11FNUZ", dtypes.F8E5M2FNUZ: "f8E5M2FNUZ",
	dtypes.F8E4M3FNUZ: "f8E4M3FNUZ", dtypes.F8E4M3: "f8E4M3", dtypes.F8E3M4: "f8E3M4", dtypes.F8E8M0FNU: "f8E8M0FNU", dtypes.F4E2M1FN: "f4E2M1FN",
}

// typeText is the type of a tensor, as "tensor<2x3xf32>".
func typeText(s shapes.Shape) string {
	name, ok := types[s.DType]
	switch {
	case s.IsDynamic():
		refuse("the shape %s is known only at run time", ir.ShapeText(s))
	case !ok:
		refuse("XLA has no %s", s.DType)
	}
	var w strings.Builder
	w.WriteString("tensor<")
	for _, d := range s.Dimensions {
		fmt.Fprintf(&w, "%dx", d)
	}
	return w.String() + name + ">"
}

func typesText(of []shapes.Shape) string {
	r := make([]string, len(of))
	for i, s := range of {
		r[i] = typeText(s)
	}
	return strings.Join(r, ", ")
}

// Attributes, as they stand between braces.

func array(name string, xs []int) string {
	if len(xs) == 0 {
		return name + " = array<i64>"
	}
	return fmt.Sprintf("%s = array<i64: %s>", name, commas(xs))
}

func integer(name string, x int) string { return fmt.Sprintf("%s = %d : i64", name, x) }

func boolean(name string, x bool) string { return fmt.Sprintf("%s = %t", name, x) }

func enum(name, kind, x string) string { return fmt.Sprintf("%s = #stablehlo<%s %s>", name, kind, x) }

// rows is a matrix of integers with the given number of columns.
func rows[R ~[]int](name string, xs []R, columns int) string {
	texts := make([]string, len(xs))
	for i, x := range xs {
		texts[i] = list(x)
	}
	text := "[" + strings.Join(texts, ", ") + "]"
	if len(xs) == 0 || columns == 0 {
		text = ""
	}
	return fmt.Sprintf("%s = dense<%s> : tensor<%dx%dxi64>", name, text, len(xs), columns)
}

func pairs(name string, xs [][2]int) string {
	r := make([][]int, len(xs))
	for i := range xs {
		r[i] = xs[i][:]
	}
	return rows(name, r, 2)
}

func list(xs []int) string { return "[" + commas(xs) + "]" }

func commas(xs []int) string {
	texts := make([]string, len(xs))
	for i, x := range xs {
		texts[i] = strconv.Itoa(x)
	}
	return strings.Join(texts, ", ")
}

// short is how many numbers of a constant are written one by one.
const short = 16

// literal is the value of a constant: exact, and short where it can be.
func literal(l ir.Literal) string {
	d, n := l.Shape.DType, l.Shape.Size()
	raw := dtypes.UnsafeByteSliceFromAny(l.Flat)
	size := max(d.Bits()/8, 1)
	splat := n > 0 && !d.IsPacked()
	for i := size; splat && i < len(raw); i++ {
		splat = raw[i] == raw[i-size]
	}
	switch {
	case n == 0:
		return "dense<>"
	case splat:
		return "dense<" + element(d, raw, 0) + ">"
	case n > short && !d.IsPacked() && d != dtypes.Bool: // how bits are packed in hexadecimal differs between versions of MLIR
		return `dense<"0x` + strings.ToUpper(hex.EncodeToString(raw)) + `">`
	}
	var w strings.Builder
	w.WriteString("dense<")
	nested(&w, l.Shape.Dimensions, 0, func(i int) string { return element(d, raw, i) })
	w.WriteString(">")
	return w.String()
}

// nested writes the elements from the i-th on, in brackets, and returns the number of the next one.
func nested(w *strings.Builder, dims []int, i int, element func(int) string) int {
	if len(dims) == 0 {
		w.WriteString(element(i))
		return i + 1
	}
	w.WriteByte('[')
	for j := range dims[0] {
		if j > 0 {
			w.WriteString(", ")
		}
		i = nested(w, dims[1:], i, element)
	}
	w.WriteByte(']')
	return i
}

// element is the i-th number of a constant.
func element(d dtypes.DType, raw []byte, i int) string {
	if d.IsPacked() { // the first of a byte is in its lowest bits
		at, width := i*d.Bits(), d.Bits()
		x := int64(raw[at/8]>>(at%8)) & (1<<width - 1)
		if !d.IsUnsigned() && x >= 1<<(width-1) {
			x -= 1 << width
		}
		return strconv.FormatInt(x, 10)
	}
	size := d.Size()
	raw = raw[i*size : (i+1)*size]
	switch {
	case d == dtypes.Bool:
		return strconv.FormatBool(raw[0] != 0)
	case d.IsComplex():
		real := d.RealDType()
		return fmt.Sprintf("(%s, %s)", float(real, bits(raw[:size/2])), float(real, bits(raw[size/2:])))
	case d.IsFloat():
		return float(d, bits(raw))
	case d.IsUnsigned():
		return strconv.FormatUint(bits(raw), 10)
	}
	shift := 64 - 8*size
	return strconv.FormatInt(int64(bits(raw)<<shift)>>shift, 10)
}

func bits(raw []byte) uint64 {
	var all [8]byte
	copy(all[:], raw)
	return binary.LittleEndian.Uint64(all[:])
}

// float is a number given by its bits: in decimal, or in hexadecimal where that would not be exact.
func float(d dtypes.DType, bits uint64) string {
	var x float64
	exact := true
	switch d {
	case dtypes.Float16:
		x = float64(float16.Float16(bits).Float32())
	case dtypes.BFloat16:
		x = float64(bfloat16.BFloat16(bits).Float32())
	case dtypes.Float32:
		x = float64(math.Float32frombits(uint32(bits)))
		// MLIR reads a float64 and rounds it.
		y, err := strconv.ParseFloat(strconv.FormatFloat(x, 'g', -1, 32), 64)
		exact = err == nil && float32(y) == float32(x)
	default:
		x = math.Float64frombits(bits)
	}
	if math.IsNaN(x) || math.IsInf(x, 0) || !exact {
		return fmt.Sprintf("0x%0*X", 2*d.Size(), bits)
	}
	if d == dtypes.Float64 {
		return decimal(x, 64)
	}
	return decimal(x, 32)
}

// decimal writes a number with the point that MLIR wants.
func decimal(x float64, bits int) string {
	digits, exponent, hasExponent := strings.Cut(strconv.FormatFloat(x, 'g', -1, bits), "e")
	if !strings.Contains(digits, ".") {
		digits += ".0"
	}
	if hasExponent {
		digits += "e" + exponent
	}
	return digits
}

// constant writes a constant.
func (w *Writer) constant(l ir.Literal) Value {
	if d := l.Shape.DType; d == dtypes.Bool && l.Shape.Size() > short {
		bytes := ir.Literal{Shape: shapes.Make(dtypes.Uint8, l.Shape.Dimensions...), Flat: dtypes.UnsafeByteSliceFromAny(l.Flat)}
		if text := literal(bytes); strings.HasPrefix(text, `dense<"`) {
			return w.one("convert", l.Shape, []Value{w.constant(bytes)})
		}
	}
	return w.one("constant", l.Shape, nil, "value = "+literal(l)+" : "+typeText(l.Shape))
}

// fill writes a constant of one number.
func (w *Writer) fill(s shapes.Shape, x float64) Value {
	text := ""
	switch d := s.DType; {
	case d == dtypes.Bool:
		text = strconv.FormatBool(x != 0)
	case d.IsComplex():
		text = "(" + decimal(x, 64) + ", 0.0)"
	case d == dtypes.Float32:
		text = float(d, uint64(math.Float32bits(float32(x))))
	case d.IsInt():
		text = strconv.FormatInt(int64(x), 10)
	default: // a float, which MLIR rounds
		text = decimal(x, 64)
	}
	return w.one("constant", s, nil, "value = dense<"+text+"> : "+typeText(s))
}

// extreme is the least or the greatest number of a type.
func (w *Writer) extreme(d dtypes.DType, least bool) Value {
	x := d.HighestValue()
	if least {
		x = d.LowestValue()
	}
	flat := reflect.MakeSlice(reflect.SliceOf(reflect.TypeOf(x)), 1, 1)
	flat.Index(0).Set(reflect.ValueOf(x))
	return w.constant(ir.Literal{Shape: shapes.Make(d), Flat: flat.Interface()})
}
