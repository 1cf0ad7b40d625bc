// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package kernel

import (
	"math"

	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/dtypes/bfloat16"
	"github.com/gomlx/compute/dtypes/float16"
)

// Lanes is the number of partial results of a reduction along a row: element i goes to lane i mod Lanes, and the lanes
// are joined as a tree (lane i with lane i+16, then i+8, 4, 2, 1). Vector registers of any width compute the same.
const Lanes = 32

// Reduction are the kernels of a reduction. Partial results have a type of their own: half precision is accumulated in
// float32.
type Reduction struct {
	Partial dtypes.DType
	Init    any  // the partial result of nothing, of the Go type of Partial
	Row     Func // D, one partial result per row, of the rows of A
	Columns Func // D, a row of partial results, takes in the rows of A
	JoinRow Func // as Row, of partial results
	Join    Func // as Columns, of partial results
	Finish  Func // D = the results of the partial results A
}

// Reduce finds the kernels of a reduction of elements of a type; nil: there are none.
func Reduce(op Op, d dtypes.DType) *Reduction {
	switch d {
	case dtypes.Float32:
		return reduction[float32](op, d, float32(math.Inf(-1)), float32(math.Inf(1)))
	case dtypes.Float64:
		return reduction[float64](op, d, math.Inf(-1), math.Inf(1))
	case dtypes.Int8:
		return integerReduction[int8](op, d, math.MinInt8, math.MaxInt8)
	case dtypes.Int16:
		return integerReduction[int16](op, d, math.MinInt16, math.MaxInt16)
	case dtypes.Int32:
		return integerReduction[int32](op, d, math.MinInt32, math.MaxInt32)
	case dtypes.Int64:
		return integerReduction[int64](op, d, math.MinInt64, math.MaxInt64)
	case dtypes.Uint8:
		return integerReduction[uint8](op, d, 0, math.MaxUint8)
	case dtypes.Uint16:
		return integerReduction[uint16](op, d, 0, math.MaxUint16)
	case dtypes.Uint32:
		return integerReduction[uint32](op, d, 0, math.MaxUint32)
	case dtypes.Uint64:
		return integerReduction[uint64](op, d, 0, math.MaxUint64)
	case dtypes.BFloat16:
		return halfReduction[bfloat16.BFloat16](op, d)
	case dtypes.Float16:
		return halfReduction[float16.Float16](op, d)
	case dtypes.Bool:
		return boolReduction(op)
	}
	return nil
}

func reduction[T number](op Op, d dtypes.DType, lowest, highest T) *Reduction {
	same := func(x T) T { return x }
	switch op {
	case "ReduceSum":
		return newReduction(op, d, d, 0, func(a, b T) T { return a + b }, same, same)
	case "ReduceProduct":
		return newReduction(op, d, d, 1, func(a, b T) T { return a * b }, same, same)
	case "ReduceMax":
		return newReduction(op, d, d, lowest, func(a, b T) T { return max(a, b) }, same, same)
	case "ReduceMin":
		return newReduction(op, d, d, highest, func(a, b T) T { return min(a, b) }, same, same)
	}
	return nil
}

func integerReduction[T integer](op Op, d dtypes.DType, lowest, highest T) *Reduction {
	same := func(x T) T { return x }
	switch op {
	case "ReduceBitwiseAnd":
		return newReduction(op, d, d, ^T(0), func(a, b T) T { return a & b }, same, same)
	case "ReduceBitwiseOr":
		return newReduction(op, d, d, 0, func(a, b T) T { return a | b }, same, same)
	case "ReduceBitwiseXor":
		return newReduction(op, d, d, 0, func(a, b T) T { return a ^ b }, same, same)
	}
	return reduction(op, d, lowest, highest)
}

func halfReduction[T half](op Op, d dtypes.DType) *Reduction {
	from, to := func(x T) float32 { return x.Float32() }, toHalf[T]
	inf := float32(math.Inf(1))
	switch op {
	case "ReduceSum":
		return newReduction(op, d, dtypes.Float32, 0, func(a, b float32) float32 { return a + b }, from, to)
	case "ReduceProduct":
		return newReduction(op, d, dtypes.Float32, 1, func(a, b float32) float32 { return a * b }, from, to)
	case "ReduceMax":
		return newReduction(op, d, dtypes.Float32, -inf, func(a, b float32) float32 { return max(a, b) }, from, to)
	case "ReduceMin":
		return newReduction(op, d, dtypes.Float32, inf, func(a, b float32) float32 { return min(a, b) }, from, to)
	}
	return nil
}

func boolReduction(op Op) *Reduction {
	same := func(x bool) bool { return x }
	switch op {
	case "ReduceLogicalAnd":
		return newReduction(op, dtypes.Bool, dtypes.Bool, true, func(a, b bool) bool { return a && b }, same, same)
	case "ReduceLogicalOr":
		return newReduction(op, dtypes.Bool, dtypes.Bool, false, func(a, b bool) bool { return a || b }, same, same)
	case "ReduceLogicalXor":
		return newReduction(op, dtypes.Bool, dtypes.Bool, false, func(a, b bool) bool { return a != b }, same, same)
	}
	return nil
}

// newReduction makes the kernels of a reduction of T with partial results of type S, d and partial in GoMLX's words. Kernels
// of the tables take the place of the general ones.
func newReduction[T, S any](op Op, d, partial dtypes.DType, init S, f func(S, S) S, from func(T) S, to func(S) T) *Reduction {
	same := func(x S) S { return x }
	r := &Reduction{
		Partial: partial, Init: init,
		Row:     rowReductions[key{op, d}],
		Columns: columnReductions[key{op, d}],
		JoinRow: rowReductions[key{op, partial}],
		Join:    columnReductions[key{op, partial}],
	}
	if d == partial {
		r.Finish = Copy(d.Size(), 0)
	} else {
		r.Finish = Convert(partial, d, 0)
	}
	if r.Row == nil {
		r.Row = reduceRow(init, f, from)
	}
	if r.JoinRow == nil {
		r.JoinRow = reduceRow(init, f, same)
	}
	if r.Join == nil {
		r.Join = reduceColumns(f, same)
		if two := Binary(columnOps[op], partial, 0); two != nil {
			r.Join = taking(two)
		}
	}
	if r.Columns == nil {
		r.Columns = reduceColumns(f, from)
		if d == partial {
			r.Columns = r.Join
		}
	}
	return r
}

// columnOps are the operations that take one row into another.
var columnOps = map[Op]Op{"ReduceSum": "Add", "ReduceMax": "Max", "ReduceMin": "Min", "ReduceProduct": "Mul"}

// fillReductions enters the portable kernels of reductions that others take the place of.
func fillReductions() {
	clear(rowReductions)
	clear(columnReductions)
	rowReductions[key{"ReduceSum", dtypes.Float32}], rowReductions[key{"ReduceSum", dtypes.Float64}] = sumRow[float32], sumRow[float64]
	columnReductions[key{"ReduceSum", dtypes.Float32}], columnReductions[key{"ReduceSum", dtypes.Float64}] = sumColumns[float32], sumColumns[float64]
	halfReductions[bfloat16.BFloat16](dtypes.BFloat16)
	halfReductions[float16.Float16](dtypes.Float16)
}

func halfReductions[T half](d dtypes.DType) {
	from := func(x T) float32 { return x.Float32() }
	enter := func(op Op, init float32, f func(a, b float32) float32) {
		rowReductions[key{op, d}], columnReductions[key{op, d}] = reduceRow(init, f, from), reduceColumns(f, from)
	}
	enter("ReduceSum", 0, func(a, b float32) float32 { return a + b })
	enter("ReduceMax", float32(math.Inf(-1)), func(a, b float32) float32 { return max(a, b) })
	enter("ReduceMin", float32(math.Inf(1)), func(a, b float32) float32 { return min(a, b) })
}

// taking makes a kernel that takes rows into one row of one that computes D of rows of A and B.
func taking(f Func) Func {
	return func(x *Args) {
		before := *x
		x.B, x.SB, x.A, x.SA, x.SD = x.A, x.SA, x.D, 0, 0
		f(x)
		*x = before
	}
}

// reduceRow reduces each row of A to one partial result; D's rows are its elements.
//
//go:noinline
func reduceRow[T, S any](init S, f func(S, S) S, from func(T) S) Func {
	return func(x *Args) {
		for r := range x.Rows {
			a := row[T](x.A, x.SA, r, x.Cols)
			var lanes [Lanes]S
			for i := range lanes {
				lanes[i] = init
			}
			for len(a) >= Lanes {
				for i := range lanes {
					lanes[i] = f(lanes[i], from(a[i]))
				}
				a = a[Lanes:]
			}
			for i := range a {
				lanes[i] = f(lanes[i], from(a[i]))
			}
			for w := Lanes / 2; w > 0; w /= 2 {
				for i := range w {
					lanes[i] = f(lanes[i], lanes[i+w])
				}
			}
			row[S](x.D, x.SD, r, 1)[0] = lanes[0]
		}
	}
}

// reduceColumns reduces the rows of A into the one row D of partial results.
//
//go:noinline
func reduceColumns[T, S any](f func(S, S) S, from func(T) S) Func {
	return func(x *Args) {
		d := row[S](x.D, 0, 0, x.Cols)
		for r := range x.Rows {
			a := row[T](x.A, x.SA, r, x.Cols)
			for i := range d {
				d[i] = f(d[i], from(a[i]))
			}
		}
	}
}

// The loops of sums, which call no function for every element.

func sumRow[T float](x *Args) {
	for r := range x.Rows {
		a := row[T](x.A, x.SA, r, x.Cols)
		var lanes [Lanes]T
		for len(a) >= Lanes {
			for i := range lanes {
				lanes[i] += a[i]
			}
			a = a[Lanes:]
		}
		for i := range a {
			lanes[i] += a[i]
		}
		for w := Lanes / 2; w > 0; w /= 2 {
			for i := range w {
				lanes[i] += lanes[i+w]
			}
		}
		row[T](x.D, x.SD, r, 1)[0] = lanes[0]
	}
}

func sumColumns[T float](x *Args) {
	d := row[T](x.D, 0, 0, x.Cols)
	for r := range x.Rows {
		a := row[T](x.A, x.SA, r, x.Cols)
		for i := range d {
			d[i] += a[i]
		}
	}
}
