// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package shard

import (
	"iter"
	"reflect"
	"slices"

	"github.com/easyparallel/epl/ir"
)

// reductions are those that devices can do together.
var reductions = map[ir.OpType]ir.Reduction{ir.OpReduceSum: ir.ReduceBySum, ir.OpReduceMax: ir.ReduceByMax, ir.OpReduceMin: ir.ReduceByMin}

// stackedReductions are the others: devices exchange what each has reduced, and reduce that.
var stackedReductions = []ir.OpType{ir.OpReduceProduct, ir.OpReduceBitwiseAnd, ir.OpReduceBitwiseOr, ir.OpReduceBitwiseXor,
	ir.OpReduceLogicalAnd, ir.OpReduceLogicalOr, ir.OpReduceLogicalXor}

// reduceAxes are what a reduction reduces; none: all.
func reduceAxes(a ir.Attrs) []int { return axesOf(a).Interface().([]int) }

// withAxes is the same reduction of other axes.
func withAxes(a ir.Attrs, axes []int) ir.Attrs {
	b := reflect.New(reflect.TypeOf(a).Elem()).Interface().(ir.Attrs)
	axesOf(b).Set(reflect.ValueOf(axes))
	return b
}

func axesOf(a ir.Attrs) reflect.Value { return reflect.ValueOf(a).Elem().FieldByName("Axes") }

// reduce: what is reduced becomes Partial, if devices know the reduction.
func reduce(op *ir.Op) *Rule {
	axes, how := reduceAxes(op.Attrs), reductions[op.Type()]
	if len(axes) == 0 {
		axes = others(op.Inputs[0].Shape.Rank())
	}
	r := &Rule{}
	if how == ir.ReduceBySum {
		r.Linear = Sums
	}
	for d, n := range dims(op.Inputs[0]) {
		if slices.Contains(axes, d) {
			r.factor(op, n, how, d, whole)
		}
	}
	r.except(op, axes)
	return r
}

// argMinMax: other dims. Along its own, devices exchange the best that each has.
func argMinMax(op *ir.Op) *Rule {
	axis := op.Attrs.(*ir.ArgMinMax).Axis
	r := &Rule{}
	r.except(op, []int{axis})
	r.factor(op, dims(op.Inputs[0])[axis], 0, axis, whole)
	return r
}

// except adds a factor for every dim of the input but those that are reduced away.
func (r *Rule) except(op *ir.Op, axes []int) {
	for out, d := range others(op.Inputs[0].Shape.Rank(), axes) {
		r.factor(op, dims(op.Inputs[0])[d], 0, d, out)
	}
}

// order is the rule of Sort, whose comparator sees numbers: other dims. Along its own, devices exchange the rows that come first
// on each, if nobody needs the others.
func order(op *ir.Op) *Rule {
	axis := op.Attrs.(*ir.Sort).Axis
	r := allBut(op, axis)
	if op.Func != nil && firsts(op, slices.Values(op.Func.Ops)) > 0 {
		refs := append(slices.Repeat([]int{axis}, len(op.Inputs)), slices.Repeat([]int{whole}, len(op.Outputs))...)
		r.factor(op, dims(op.Outputs[0])[axis], 0, refs...)
	}
	return r
}

// firsts is how many rows anybody takes of what an op sorts, from the first one; 0 if some need others. It looks for those who
// do among the given ops.
func firsts(sort *ir.Op, ops iter.Seq[*ir.Op]) (n int) {
	axis := sort.Attrs.(*ir.Sort).Axis
	if slices.ContainsFunc(sort.Func.Outputs, func(v *ir.Value) bool { return v.Op == sort }) {
		return 0
	}
	for op := range ops {
		uses := false
		op.Uses(func(v *ir.Value) { uses = uses || v.Op == sort })
		if !uses {
			continue
		}
		a, ok := op.Attrs.(*ir.Slice)
		if !ok || a.Starts[axis] != 0 || strideOf(a, axis) != 1 {
			return 0
		}
		n = max(n, a.Limits[axis])
	}
	return n
}

// outsideWindow is the rule of an op that works on windows: dims that the windows do not extend over.
func outsideWindow(op *ir.Op, window []int, paddings [][2]int, ones ...[]int) *Rule {
	return sameDims(op, len(op.Inputs), func(d int) bool {
		other := func(list []int) bool { return at(list, d, 1) != 1 }
		return at(window, d, 0) == 1 && at(paddings, d, [2]int{}) == [2]int{} && !slices.ContainsFunc(ones, other)
	})
}
