// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package shard

import (
	"slices"

	"github.com/easyparallel/epl/ir"
)

// gather: the dims of the indices, and those of the operand that are taken whole and not indexed. Along a dim of which an index
// takes one row, a device gives the rows that it has: each comes from one device.
func gather(op *ir.Op) *Rule {
	r := &Rule{}
	a := op.Attrs.(*ir.Gather)
	x, indices, out := dims(op.Inputs[0]), dims(op.Inputs[1]), dims(op.Outputs[0])
	batch := others(len(indices), []int{a.IndexVectorAxis}) // the dims of the indices that stand for those outside the windows
	for n, d := range others(len(out), a.OffsetOutputAxes) {
		r.factor(op, indices[batch[n]], 0, whole, batch[n], d)
	}
	n := 0
	for d, size := range x {
		indexed := slices.Contains(a.StartIndexMap, d)
		if indexed && a.SliceSizes[d] == 1 {
			r.factor(op, size, ir.ReduceBySum, d, whole, whole)
		}
		if slices.Contains(a.CollapsedSliceAxes, d) {
			continue
		}
		if a.SliceSizes[d] == size && !indexed {
			r.factor(op, size, 0, d, whole, a.OffsetOutputAxes[n])
		}
		n++
	}
	return r
}

// scatterOf returns the attributes of any scatter, which are the same for all, and how it combines.
func scatterOf(a ir.Attrs) (ir.ScatterSum, ir.Reduction) {
	switch a := a.(type) {
	case *ir.ScatterMax:
		return ir.ScatterSum(*a), ir.ReduceByMax
	case *ir.ScatterMin:
		return ir.ScatterSum(*a), ir.ReduceByMin
	}
	return *a.(*ir.ScatterSum), ir.ReduceBySum
}

// scatter: the dims of indices and updates, over which updates are reduced, and those of the operand that are updated whole
// and not indexed. Along a dim of which an index updates one row, a device takes the updates of the rows that it has.
func scatter(op *ir.Op) *Rule {
	r := &Rule{}
	a, how := scatterOf(op.Attrs)
	x, indices, updates := dims(op.Inputs[0]), dims(op.Inputs[1]), dims(op.Inputs[2])
	base := whole
	if how == ir.ReduceBySum {
		base = term // it is added to the sums of all devices: once
	}
	batch := others(len(indices), []int{a.IndexVectorAxis})
	for n, d := range others(len(updates), a.UpdateWindowAxes) {
		r.factor(op, indices[batch[n]], how, base, batch[n], d, whole)
	}
	n := 0
	for d, size := range x {
		rows, window := 1, whole
		if !slices.Contains(a.InsertedWindowAxes, d) {
			window = a.UpdateWindowAxes[n]
			rows = updates[window]
			n++
		}
		switch indexed := slices.Contains(a.ScatterAxesToOperandAxes, d); {
		case indexed && rows == 1:
			r.factor(op, size, 0, d, whole, whole, d)
		case !indexed && rows == size:
			r.factor(op, size, 0, d, whole, window, d)
		}
	}
	return r
}

// dynamicSlice: dims that are taken whole.
func dynamicSlice(op *ir.Op) *Rule {
	return sameDims(op, 1, func(d int) bool { return dims(op.Inputs[0])[d] == dims(op.Outputs[0])[d] })
}

// dynamicUpdate: dims that are updated whole.
func dynamicUpdate(op *ir.Op) *Rule {
	return sameDims(op, 2, func(d int) bool { return dims(op.Inputs[0])[d] == dims(op.Inputs[1])[d] })
}
