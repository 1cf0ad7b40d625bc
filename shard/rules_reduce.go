package shard

import (
	"iter"
	"reflect"
	"slices"

	"github.com/easyparallel/epl/ir"
)

func init() {
	for t, how := range map[ir.OpType]ir.Reduction{
		ir.OpReduceSum: ir.ReduceBySum, ir.OpReduceMax: ir.ReduceByMax, ir.OpReduceMin: ir.ReduceByMin,
		ir.OpReduceProduct: 0, ir.OpReduceBitwiseAnd: 0, ir.OpReduceBitwiseOr: 0, ir.OpReduceBitwiseXor: 0,
		ir.OpReduceLogicalAnd: 0, ir.OpReduceLogicalOr: 0, ir.OpReduceLogicalXor: 0,
	} {
		rules[t] = func(op *ir.Op) *Rule { return reduce(op, how) }
	}
	rules[ir.OpArgMinMax] = func(op *ir.Op) *Rule {
		axis := op.Attrs.(*ir.ArgMinMax).Axis
		r := &Rule{}
		r.except(op, []int{axis})
		r.factor(op, dims(op.Inputs[0])[axis], 0, axis, whole)
		return r
	}
	rules[ir.OpCumSum] = func(op *ir.Op) *Rule {
		r := sameDims(op, func(d int) bool { return d != op.Attrs.(*ir.CumSum).Axis })
		r.Linear = Sums
		return r
	}
	rules[ir.OpSort] = order
	rules[ir.OpReduceWindow] = reduceWindow
	rules[ir.OpSelectAndScatterMax] = func(op *ir.Op) *Rule {
		a := op.Attrs.(*ir.SelectAndScatterMax)
		return outsideWindow(op, a.WindowDimensions, a.WindowStrides, a.Paddings)
	}
	rules[ir.OpSelectAndScatterMin] = func(op *ir.Op) *Rule {
		a := op.Attrs.(*ir.SelectAndScatterMin)
		return outsideWindow(op, a.WindowDimensions, a.WindowStrides, a.Paddings)
	}
}

func reduceAxes(a ir.Attrs) []int {
	switch a := a.(type) {
	case *ir.ReduceSum:
		return a.Axes
	case *ir.ReduceMax:
		return a.Axes
	case *ir.ReduceMin:
		return a.Axes
	case *ir.ReduceProduct:
		return a.Axes
	case *ir.ReduceBitwiseAnd:
		return a.Axes
	case *ir.ReduceBitwiseOr:
		return a.Axes
	case *ir.ReduceBitwiseXor:
		return a.Axes
	case *ir.ReduceLogicalAnd:
		return a.Axes
	case *ir.ReduceLogicalOr:
		return a.Axes
	case *ir.ReduceLogicalXor:
		return a.Axes
	}
	return nil
}

// reduce: what is reduced becomes Partial, if devices know the reduction. Else they exchange what each has reduced, and reduce
// that.
func reduce(op *ir.Op, how ir.Reduction) *Rule {
	r := &Rule{}
	axes := reduceAxes(op.Attrs)
	if how == ir.ReduceBySum {
		r.Linear = Sums
	}
	for d, n := range dims(op.Inputs[0]) {
		if len(axes) == 0 || slices.Contains(axes, d) {
			r.factor(op, n, how, d, whole)
		}
	}
	if len(axes) > 0 { // else all dims are reduced
		r.except(op, axes)
	}
	return r
}

// order is the rule of Sort, whose comparator sees numbers: other dims. Along its own, devices exchange the rows that come first
// on each, if nobody needs the others.
func order(op *ir.Op) *Rule {
	axis := op.Attrs.(*ir.Sort).Axis
	r := sameDims(op, func(d int) bool { return d != axis })
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

// except adds a factor for every dim of the input but those that are reduced away.
func (r *Rule) except(op *ir.Op, axes []int) {
	out := 0
	for d, n := range dims(op.Inputs[0]) {
		if !slices.Contains(axes, d) {
			r.factor(op, n, 0, d, out)
			out++
		}
	}
}

func reduceWindow(op *ir.Op) *Rule {
	a := op.Attrs.(*ir.ReduceWindow)
	one := func(s []int, d int) bool { return d >= len(s) || s[d] == 1 }
	r := outsideWindow(op, a.WindowDimensions, a.Strides, a.Paddings)
	r.Factors = slices.DeleteFunc(r.Factors, func(f Factor) bool {
		d := f.In[0].Dim
		return !one(a.InputDilations, d) || !one(a.WindowDilations, d)
	})
	return r
}

// outsideWindow is the rule of an op that works on windows: dims that the windows do not extend over.
func outsideWindow(op *ir.Op, window, strides []int, paddings [][2]int) *Rule {
	return sameDims(op, func(d int) bool {
		return d < len(window) && window[d] == 1 && (len(strides) == 0 || strides[d] == 1) && (len(paddings) == 0 || paddings[d] == [2]int{})
	})
}

// withAxes is the same reduction of other axes.
func withAxes(a ir.Attrs, axes []int) ir.Attrs {
	b := reflect.New(reflect.TypeOf(a).Elem())
	b.Elem().FieldByName("Axes").Set(reflect.ValueOf(axes))
	return b.Interface().(ir.Attrs)
}
