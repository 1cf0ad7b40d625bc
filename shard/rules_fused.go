// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package shard

import (
	"slices"

	"github.com/gomlx/compute"

	"github.com/easyparallel/epl/ir"
)

// batchNormInference does the same for all samples.
func batchNormInference(op *ir.Op) *Rule {
	axis := channel(op, op.Attrs.(*ir.BatchNormForInference).FeatureAxis)
	r := features(op, axis)
	for _, d := range others(op.Inputs[0].Shape.Rank(), []int{axis}) {
		r.factor(op, dims(op.Inputs[0])[d], 0, d, whole, whole, whole, whole, d)
	}
	return r
}

// channel is the dim of features.
func channel(op *ir.Op, axis int) int {
	if axis < 0 {
		axis += op.Inputs[0].Shape.Rank()
	}
	return axis
}

// features is the rule of batch normalisation, which treats every feature by itself: what is no vector of features has a dim for
// them.
func features(op *ir.Op, axis int) *Rule {
	axis = channel(op, axis)
	var to []int
	for _, v := range slices.Concat(op.Inputs, op.Outputs) {
		to = append(to, min(axis, v.Shape.Rank()-1))
	}
	r := &Rule{}
	r.factor(op, dims(op.Inputs[0])[axis], 0, to...)
	return r
}

// dense: rows of the input and features of the output are free. What is contracted is summed up, the bias once, if nothing
// follows.
func dense(op *ir.Op) *Rule {
	r := &Rule{}
	o := op.Attrs.(*ir.FusedDense).Options
	x, weight, out := dims(op.Inputs[0]), dims(op.Inputs[1]), dims(op.Outputs[0])
	last, contracted, first := len(x)-1, 0, 1 // of the weight: the dim that is contracted, and the first one of features
	if o.WeightLayout == compute.DenseLayoutOutputsInput {
		contracted, first = len(weight)-1, 0
	}
	for d := range last {
		r.factor(op, x[d], 0, d, whole, whole, d)
	}
	for i := range len(out) - last {
		r.factor(op, out[last+i], 0, whole, first+i, i, last+i)
	}
	if o.Activation == compute.ActivationNone {
		r.factor(op, x[last], ir.ReduceBySum, last, contracted, term, whole)
	}
	return r
}
