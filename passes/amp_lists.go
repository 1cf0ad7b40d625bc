// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package passes

import "github.com/easyparallel/epl/ir"

// class says how mixed precision treats an op.
type class uint8

const (
	// full ops compute in float32: they add many values up, lose digits in the low type, or are not worth a list. An op that is
	// on no list is one of them.
	full class = iota
	// low ops compute in the low type: that is where the time goes.
	low
	// follow ops are arithmetic that takes the low type if what it reads has it.
	follow
	// move ops only move elements: what they read has the type of what they give.
	move
)

// classes are the lists of mixed precision. The pure-Go backend and XLA compute all of these in float16 and bfloat16.
var classes = map[ir.OpType]class{
	ir.OpDotGeneral:  low,
	ir.OpConvGeneral: low,

	ir.OpAbs: follow, ir.OpAdd: follow, ir.OpClamp: follow, ir.OpMax: follow, ir.OpMin: follow, ir.OpMul: follow,
	ir.OpNeg: follow, ir.OpSub: follow, ir.OpWhere: follow,
	// Reading a part of a large value in the low type would cast all of it: these follow what they read, but do not ask for it.
	ir.OpGather: follow, ir.OpPad: follow,

	ir.OpBroadcastInDim: move, ir.OpConcatenate: move, ir.OpIdentity: move, ir.OpReshape: move, ir.OpReverse: move,
	ir.OpSlice: move, ir.OpTranspose: move, ir.OpSchedulingBarrier: move, ir.OpOptimizationBarrier: move,
}

// why are the reasons of the log for full ops; what is not here is on no list.
var why = map[ir.OpType]string{
	ir.OpReduceSum: "adds many values up", ir.OpReduceProduct: "multiplies many values", ir.OpCumSum: "adds many values up",
	ir.OpReduceWindow: "reduces many values", ir.OpScatterSum: "adds many values up",
	ir.OpExp: "grows beyond the low type", ir.OpExpm1: "grows beyond the low type", ir.OpPow: "grows beyond the low type",
	ir.OpLog: "loses digits", ir.OpLog1p: "loses digits", ir.OpErf: "loses digits", ir.OpTanh: "loses digits", ir.OpLogistic: "loses digits",
	ir.OpDiv: "loses digits", ir.OpSqrt: "loses digits", ir.OpRsqrt: "loses digits",
	ir.OpBatchNormForTraining: "is a norm", ir.OpBatchNormForInference: "is a norm", ir.OpBatchNormGradient: "is a norm",
}
