package shard

import (
	"slices"

	"github.com/easyparallel/epl/ir"
)

func init() {
	rules[ir.OpGather] = gather
	rules[ir.OpScatterSum] = func(op *ir.Op) *Rule {
		a := op.Attrs.(*ir.ScatterSum)
		// The base is added to the sums of all devices: once.
		return scatter(op, ir.ReduceBySum, term, a.IndexVectorAxis, a.UpdateWindowAxes, a.InsertedWindowAxes, a.ScatterAxesToOperandAxes)
	}
	rules[ir.OpScatterMax] = func(op *ir.Op) *Rule {
		a := op.Attrs.(*ir.ScatterMax)
		return scatter(op, ir.ReduceByMax, whole, a.IndexVectorAxis, a.UpdateWindowAxes, a.InsertedWindowAxes, a.ScatterAxesToOperandAxes)
	}
	rules[ir.OpScatterMin] = func(op *ir.Op) *Rule {
		a := op.Attrs.(*ir.ScatterMin)
		return scatter(op, ir.ReduceByMin, whole, a.IndexVectorAxis, a.UpdateWindowAxes, a.InsertedWindowAxes, a.ScatterAxesToOperandAxes)
	}
}

// batchDim is the dim of the indices that stands for the nth dim outside the windows.
func batchDim(n, indexVectorAxis int) int {
	if n >= indexVectorAxis {
		return n + 1
	}
	return n
}

// gather: the dims of the indices, and those of the operand that are taken whole and not indexed.
func gather(op *ir.Op) *Rule {
	r := &Rule{}
	a := op.Attrs.(*ir.Gather)
	x, indices, out := dims(op.Inputs[0]), dims(op.Inputs[1]), dims(op.Outputs[0])
	n := 0
	for d := range out {
		if !slices.Contains(a.OffsetOutputAxes, d) {
			i := batchDim(n, a.IndexVectorAxis)
			r.factor(op, indices[i], 0, whole, i, d)
			n++
		}
	}
	n = 0
	for d, size := range x {
		if slices.Contains(a.CollapsedSliceAxes, d) {
			continue
		}
		if a.SliceSizes[d] == size && !slices.Contains(a.StartIndexMap, d) {
			r.factor(op, size, 0, d, whole, a.OffsetOutputAxes[n])
		}
		n++
	}
	return r
}

// scatter: the dims of indices and updates, over which updates are reduced, and those of the operand that are updated whole
// and not indexed.
func scatter(op *ir.Op, how ir.Reduction, base, indexVectorAxis int, window, inserted, indexed []int) *Rule {
	r := &Rule{}
	x, indices, updates := dims(op.Inputs[0]), dims(op.Inputs[1]), dims(op.Inputs[2])
	n := 0
	for d := range updates {
		if !slices.Contains(window, d) {
			i := batchDim(n, indexVectorAxis)
			r.factor(op, indices[i], how, base, i, d, whole)
			n++
		}
	}
	n = 0
	for d, size := range x {
		if slices.Contains(inserted, d) {
			continue
		}
		if updates[window[n]] == size && !slices.Contains(indexed, d) {
			r.factor(op, size, 0, d, whole, window[n], d)
		}
		n++
	}
	return r
}
