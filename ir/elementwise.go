// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package ir

import "slices"

// ElementwiseTypes are the operations that compute every element of their only output from the elements of the inputs at
// the same position, or from scalars.
var ElementwiseTypes = []OpType{
	OpAbs, OpAdd, OpAtan2, OpBitCount, OpBitwiseAnd, OpBitwiseNot, OpBitwiseOr, OpBitwiseXor, OpCeil,
	OpClamp, OpClz, OpComplex, OpConj, OpConvertDType, OpCos, OpDiv, OpEqual, OpEqualTotalOrder, OpErf,
	OpExp, OpExpm1, OpFloor, OpGreaterOrEqual, OpGreaterOrEqualTotalOrder, OpGreaterThan,
	OpGreaterThanTotalOrder, OpIdentity, OpImag, OpIsFinite, OpIsNaN, OpLessOrEqual, OpLessOrEqualTotalOrder,
	OpLessThan, OpLessThanTotalOrder, OpLog, OpLog1p, OpLogicalAnd, OpLogicalNot, OpLogicalOr, OpLogicalXor,
	OpLogistic, OpMax, OpMin, OpMul, OpNeg, OpNotEqual, OpNotEqualTotalOrder, OpPow, OpReal, OpRem,
	OpRound, OpRsqrt, OpShiftLeft, OpShiftRightArithmetic, OpShiftRightLogical, OpSign, OpSin, OpSqrt,
	OpSub, OpTanh, OpWhere,
}

var elementwise = map[OpType]bool{}

func init() {
	for _, t := range ElementwiseTypes {
		elementwise[t] = true
	}
}

// IsElementwiseType tells whether an operation computes every element from those at the same position.
func IsElementwiseType(t OpType) bool { return elementwise[t] }

// IsElementwise tells whether the op computes every element by itself: its inputs are scalars, or of its own dims.
func (op *Op) IsElementwise() bool {
	if !elementwise[op.Type()] {
		return false
	}
	for _, in := range op.Inputs {
		if in.Shape.Rank() > 0 && !slices.Equal(in.Shape.Dimensions, op.Outputs[0].Shape.Dimensions) {
			return false
		}
	}
	return true
}
