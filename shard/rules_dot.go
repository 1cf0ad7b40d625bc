// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package shard

import "github.com/easyparallel/epl/ir"

// dot: batch dims, then what is free on the left and on the right, make the output; what is contracted is summed up.
func dot(op *ir.Op) *Rule {
	r := &Rule{}
	a := op.Attrs.(*ir.DotGeneral)
	left, right := dims(op.Inputs[0]), dims(op.Inputs[1])
	out := 0
	for i, d := range a.LHSBatchAxes {
		r.factor(op, left[d], 0, d, a.RHSBatchAxes[i], out)
		out++
	}
	for _, d := range others(len(left), a.LHSBatchAxes, a.LHSContractingAxes) {
		r.factor(op, left[d], 0, d, whole, out)
		out++
	}
	for _, d := range others(len(right), a.RHSBatchAxes, a.RHSContractingAxes) {
		r.factor(op, right[d], 0, whole, d, out)
		out++
	}
	for i, d := range a.LHSContractingAxes {
		r.factor(op, left[d], ir.ReduceBySum, d, a.RHSContractingAxes[i], whole)
	}
	return r
}

// convolution: batch and output channels are free, input channels are summed up. Spatial dims stay whole.
func convolution(op *ir.Op) *Rule {
	r := &Rule{}
	a := op.Attrs.(*ir.ConvGeneral)
	x, kernel := dims(op.Inputs[0]), dims(op.Inputs[1])
	if a.BatchGroupCount > 1 {
		return r
	}
	r.factor(op, x[a.Axes.InputBatch], 0, a.Axes.InputBatch, whole, a.Axes.OutputBatch)
	if a.ChannelGroupCount > 1 {
		return r
	}
	r.factor(op, kernel[a.Axes.KernelOutputChannels], 0, whole, a.Axes.KernelOutputChannels, a.Axes.OutputChannels)
	r.factor(op, x[a.Axes.InputChannels], ir.ReduceBySum, a.Axes.InputChannels, a.Axes.KernelInputChannels, whole)
	return r
}
