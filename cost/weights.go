// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package cost

import (
	"github.com/gomlx/compute"

	"github.com/easyparallel/epl/ir"
)

// What one element costs, in additions. The numbers are rough: what they say is that a tanh is no addition.
const (
	division = 4
	root     = 5
	exp      = 10 // exponentials, logarithms, sines
	erf      = 15 // what is made of exponentials
	softmax  = exp + 5
	norm     = 8  // mean, variance, scale and shift
	random   = 12 // one number
)

// weights are the ops that compute each element of their output for itself.
var weights = map[ir.OpType]int64{
	ir.OpAbs: 1, ir.OpAdd: 1, ir.OpSub: 1, ir.OpMul: 1, ir.OpNeg: 1, ir.OpMax: 1, ir.OpMin: 1, ir.OpSign: 1,
	ir.OpCeil: 1, ir.OpFloor: 1, ir.OpRound: 1, ir.OpClamp: 2, ir.OpWhere: 1, ir.OpConvertDType: 1,
	ir.OpBitCount: 1, ir.OpBitwiseAnd: 1, ir.OpBitwiseNot: 1, ir.OpBitwiseOr: 1, ir.OpBitwiseXor: 1, ir.OpClz: 1,
	ir.OpShiftLeft: 1, ir.OpShiftRightArithmetic: 1, ir.OpShiftRightLogical: 1,
	ir.OpLogicalAnd: 1, ir.OpLogicalNot: 1, ir.OpLogicalOr: 1, ir.OpLogicalXor: 1, ir.OpIsFinite: 1, ir.OpIsNaN: 1,
	ir.OpEqual: 1, ir.OpNotEqual: 1, ir.OpLessThan: 1, ir.OpLessOrEqual: 1, ir.OpGreaterThan: 1, ir.OpGreaterOrEqual: 1,
	ir.OpEqualTotalOrder: 1, ir.OpNotEqualTotalOrder: 1, ir.OpLessThanTotalOrder: 1, ir.OpLessOrEqualTotalOrder: 1,
	ir.OpGreaterThanTotalOrder: 1, ir.OpGreaterOrEqualTotalOrder: 1,
	ir.OpComplex: 1, ir.OpConj: 1, ir.OpReal: 1, ir.OpImag: 1,
	ir.OpCumSum: 1,
	ir.OpDiv:    division, ir.OpRem: division,
	ir.OpSqrt: root, ir.OpRsqrt: root,
	ir.OpExp: exp, ir.OpExpm1: exp, ir.OpLog: exp, ir.OpLog1p: exp, ir.OpSin: exp, ir.OpCos: exp,
	ir.OpErf: erf, ir.OpTanh: erf, ir.OpLogistic: erf, ir.OpPow: 2 * exp, ir.OpAtan2: 2 * exp,
	ir.OpFusedSoftmax: softmax, ir.OpFusedGelu: erf + 4, ir.OpFusedLayerNorm: norm,
	ir.OpBatchNormForInference: 4, ir.OpBatchNormForTraining: norm, ir.OpBatchNormGradient: 2 * norm,
	ir.OpQuantizedEmbeddingLookup: 2,
	ir.OpAllReduce:                1, ir.OpMerge: 1, ir.OpReshard: 1,
}

// Weight is what an elementwise op costs for each element, in additions.
func Weight(op ir.OpType) int64 { return weights[op] }

// perInput are the ops whose work grows with one of their inputs.
var perInput = map[ir.OpType]struct {
	input  int
	weight int64
}{
	ir.OpReduceSum: {0, 1}, ir.OpReduceProduct: {0, 1}, ir.OpReduceMax: {0, 1}, ir.OpReduceMin: {0, 1},
	ir.OpReduceBitwiseAnd: {0, 1}, ir.OpReduceBitwiseOr: {0, 1}, ir.OpReduceBitwiseXor: {0, 1},
	ir.OpReduceLogicalAnd: {0, 1}, ir.OpReduceLogicalOr: {0, 1}, ir.OpReduceLogicalXor: {0, 1},
	ir.OpArgMinMax:  {0, 2},
	ir.OpScatterSum: {2, 1}, ir.OpScatterMax: {2, 1}, ir.OpScatterMin: {2, 1},
}

// moves are the ops that bring data to other places and compute nothing.
var moves = map[ir.OpType]bool{
	ir.OpBroadcastInDim: true, ir.OpDynamicBroadcastInDim: true, ir.OpTranspose: true, ir.OpReverse: true,
	ir.OpConcatenate: true, ir.OpPad: true, ir.OpDynamicPad: true,
	ir.OpSlice: true, ir.OpDynamicSlice: true, ir.OpDynamicUpdateSlice: true, ir.OpGather: true,
	ir.OpIota: true, ir.OpDynamicIota: true,
}

// renames are the ops that move nothing either: their result is their input, or a number known from its shape.
var renames = map[ir.OpType]bool{
	ir.OpIdentity: true, ir.OpReshape: true, ir.OpDynamicReshape: true, ir.OpBitcast: true,
	ir.OpOptimizationBarrier: true, ir.OpSchedulingBarrier: true,
	ir.OpDynamicShape: true, ir.OpDynamicDimensionSize: true,
}

// activations are the weights of what a fused dense layer ends with.
var activations = map[compute.ActivationType]int64{
	compute.ActivationGelu: erf + 4, compute.ActivationRelu: 1, compute.ActivationSilu: erf + 1,
	compute.ActivationHardSwish: 4, compute.ActivationTanh: erf,
}

// Light tells whether an op does at most a division per element, or only moves data: it is done at once, wherever it
// runs.
func Light(op *ir.Op) bool {
	t := op.Type()
	w := weights[t]
	return 0 < w && w <= division || moves[t] && t != ir.OpGather || renames[t]
}
