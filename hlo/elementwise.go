// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package hlo

import (
	"slices"

	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/shapes"

	"github.com/easyparallel/epl/ir"
)

// simple are the elementwise operations that have one of StableHLO.
var simple = map[ir.OpType]string{
	ir.OpAbs: "abs", ir.OpBitCount: "popcnt", ir.OpBitwiseNot: "not", ir.OpCeil: "ceil", ir.OpClz: "count_leading_zeros",
	ir.OpCos: "cosine", ir.OpExp: "exponential", ir.OpExpm1: "exponential_minus_one", ir.OpFloor: "floor", ir.OpImag: "imag",
	ir.OpIsFinite: "is_finite", ir.OpLog: "log", ir.OpLog1p: "log_plus_one", ir.OpLogicalNot: "not", ir.OpLogistic: "logistic",
	ir.OpNeg: "negate", ir.OpReal: "real", ir.OpRound: "round_nearest_even", ir.OpRsqrt: "rsqrt", ir.OpSign: "sign",
	ir.OpSin: "sine", ir.OpSqrt: "sqrt", ir.OpTanh: "tanh",

	ir.OpAdd: "add", ir.OpAtan2: "atan2", ir.OpBitwiseAnd: "and", ir.OpBitwiseOr: "or", ir.OpBitwiseXor: "xor", ir.OpComplex: "complex",
	ir.OpDiv: "divide", ir.OpLogicalAnd: "and", ir.OpLogicalOr: "or", ir.OpLogicalXor: "xor", ir.OpMax: "maximum", ir.OpMin: "minimum",
	ir.OpMul: "multiply", ir.OpPow: "power", ir.OpRem: "remainder", ir.OpShiftLeft: "shift_left",
	ir.OpShiftRightArithmetic: "shift_right_arithmetic", ir.OpShiftRightLogical: "shift_right_logical", ir.OpSub: "subtract",
}

// directions are the comparisons.
var directions = map[ir.OpType]string{
	ir.OpEqual: "EQ", ir.OpNotEqual: "NE", ir.OpGreaterThan: "GT", ir.OpGreaterOrEqual: "GE", ir.OpLessThan: "LT", ir.OpLessOrEqual: "LE",
	ir.OpEqualTotalOrder: "EQ", ir.OpNotEqualTotalOrder: "NE", ir.OpGreaterThanTotalOrder: "GT", ir.OpGreaterOrEqualTotalOrder: "GE",
	ir.OpLessThanTotalOrder: "LT", ir.OpLessOrEqualTotalOrder: "LE",
}

var totalOrder = []ir.OpType{ir.OpEqualTotalOrder, ir.OpNotEqualTotalOrder, ir.OpGreaterThanTotalOrder, ir.OpGreaterOrEqualTotalOrder,
	ir.OpLessThanTotalOrder, ir.OpLessOrEqualTotalOrder}

func init() {
	for t, name := range simple {
		table[t] = func(w *Writer, op *ir.Op, in []Value) []Value {
			return []Value{w.one(name, op.Outputs[0].Shape, w.spreadAll(in, op))}
		}
	}
	for t, direction := range directions {
		table[t] = func(w *Writer, op *ir.Op, in []Value) []Value {
			in = w.spreadAll(in, op)
			return []Value{w.compare(direction, in[0], in[1], slices.Contains(totalOrder, t))}
		}
	}
	signed := func(t ir.OpType, unsigned func(*Writer, Value) Value) { // of what StableHLO has for signed numbers only
		of := table[t]
		table[t] = func(w *Writer, op *ir.Op, in []Value) []Value {
			if in[0].Shape.DType.IsUnsigned() {
				return []Value{unsigned(w, in[0])}
			}
			return of(w, op, in)
		}
	}
	signed(ir.OpAbs, func(_ *Writer, x Value) Value { return x })
	signed(ir.OpSign, func(w *Writer, x Value) Value { return w.binary("minimum", x, w.fill(x.Shape, 1)) })
	add(map[ir.OpType]rule{
		ir.OpIdentity: func(_ *Writer, _ *ir.Op, in []Value) []Value { return in },
		ir.OpErf:      func(w *Writer, _ *ir.Op, in []Value) []Value { return []Value{w.erf(in[0])} },
		ir.OpIsNaN:    func(w *Writer, _ *ir.Op, in []Value) []Value { return []Value{w.isNaN(in[0])} },
		ir.OpConvertDType: func(w *Writer, op *ir.Op, in []Value) []Value {
			return []Value{w.convert(in[0], op.Outputs[0].Shape.DType)}
		},
		ir.OpConj: func(w *Writer, op *ir.Op, in []Value) []Value {
			if !in[0].Shape.DType.IsComplex() {
				return in
			}
			part := shapes.Make(in[0].Shape.DType.RealDType(), in[0].dims()...)
			re, im := w.one("real", part, in), w.one("imag", part, in)
			return []Value{w.one("complex", op.Outputs[0].Shape, []Value{re, w.unary("negate", im)})}
		},
		ir.OpClamp: func(w *Writer, op *ir.Op, in []Value) []Value {
			return []Value{w.one("clamp", op.Outputs[0].Shape, w.spreadAll(in, op))}
		},
		ir.OpWhere: func(w *Writer, op *ir.Op, in []Value) []Value {
			return []Value{w.one("select", op.Outputs[0].Shape, w.spreadAll(in, op))}
		},
	})
}

// spread repeats a value along dims where it has one row, or none.
func (w *Writer) spread(x Value, dims []int) Value {
	switch {
	case slices.Equal(x.dims(), dims):
		return x
	case x.rank() == 0:
		return w.broadcast(x, dims)
	case x.rank() != len(dims):
		refuse("%s does not go with %v", typeText(x.Shape), dims)
	}
	return w.broadcast(x, dims, upTo(len(dims))...)
}

// spreadAll brings the operands of an elementwise operation to the dims of its result.
func (w *Writer) spreadAll(in []Value, op *ir.Op) []Value {
	r := make([]Value, len(in))
	for i, x := range in {
		r[i] = w.spread(x, op.Outputs[0].Shape.Dimensions)
	}
	return r
}

// broadcast repeats a value: its dims become the given axes of the result.
func (w *Writer) broadcast(x Value, dims []int, axes ...int) Value {
	return w.one("broadcast_in_dim", shapes.Make(x.Shape.DType, dims...), []Value{x}, array("broadcast_dimensions", axes))
}

func (w *Writer) unary(name string, x Value) Value { return w.one(name, x.Shape, []Value{x}) }

func (w *Writer) binary(name string, x, y Value) Value { return w.one(name, x.Shape, []Value{x, y}) }

func (w *Writer) selects(which, x, y Value) Value {
	return w.one("select", x.Shape, []Value{which, x, y})
}

func (w *Writer) erf(x Value) Value { return w.emit("chlo.erf", []Value{x}, nil, nil, x.Shape)[0] }

// scale multiplies by a number.
func (w *Writer) scale(x Value, by float64) Value {
	return w.binary("multiply", x, w.fill(x.Shape, by))
}

func (w *Writer) convert(x Value, to dtypes.DType) Value {
	if x.Shape.DType == to {
		return x
	}
	return w.one("convert", shapes.Make(to, x.dims()...), []Value{x})
}

// compare gives bools. In the total order, zeros and NaN are told apart.
func (w *Writer) compare(direction string, x, y Value, total bool) Value {
	kind, d := "SIGNED", x.Shape.DType
	switch {
	case total && d.IsFloat():
		kind = "TOTALORDER"
	case d.IsFloat() || d.IsComplex():
		kind = "FLOAT"
	case d.IsUnsigned() || d == dtypes.Bool:
		kind = "UNSIGNED"
	}
	return w.one("compare", shapes.Make(dtypes.Bool, x.dims()...), []Value{x, y},
		enum("compare_type", "comparison_type", kind), enum("comparison_direction", "comparison_direction", direction))
}

func (w *Writer) isNaN(x Value) Value { return w.compare("NE", x, x, false) }

// upTo are the numbers below n.
func upTo(n int) []int {
	r := make([]int, n)
	for i := range r {
		r[i] = i
	}
	return r
}
