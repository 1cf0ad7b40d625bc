// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package passes

import (
	"slices"

	"github.com/easyparallel/epl/ir"
	"github.com/easyparallel/epl/ir/analysis"
)

// sums lets sums of backward, such as gradients of biases, read values before they are rounded: so XLA can take the sum where it computes them,
// which the barrier behind the rounding prevents.
func sums(p *ir.Program, o Options) (int, error) {
	n := 0
	for _, op := range p.Main.Ops {
		if op.Type() != ir.OpReduceSum || op.Phase != ir.Backward {
			continue
		}
		v := op.Inputs[0]
		for _, t := range []ir.OpType{ir.OpConvertDType, ir.OpOptimizationBarrier, ir.OpConvertDType} {
			if v != nil && v.Op.Type() == t && len(v.Op.Inputs) == 1 {
				v = v.Op.Inputs[0]
			} else {
				v = nil
			}
		}
		if is32(v) && is32(op.Inputs[0]) && v.Op.Phase == ir.Backward {
			op.Inputs[0] = v
			n++
		}
	}
	if n > 0 {
		analysis.Sweep(p)
	}
	return n, nil
}

// concat puts side by side what was padded with zeros and added up, as the gradients of parts of a value are.
func concat(p *ir.Program, o Options) (int, error) {
	r := newRewriter(p)
	for _, op := range p.Main.Ops {
		if op.Type() != ir.OpAdd {
			continue
		}
		parts, axis := r.parts(op.Outputs[0])
		if parts == nil {
			continue
		}
		r.found++
		r.by[op.Outputs[0]] = place{r, op}.put(&ir.Concatenate{Axis: axis}, op.Outputs[0].Shape, parts...)
	}
	return r.finish(), nil
}

// parts are what a sum consists of, in order, and the axis along which they stand side by side; nil if it is something else. A sum that is a part of another is not
// looked at by itself.
func (r *rewriter) parts(sum *ir.Value) (parts []*ir.Value, axis int) {
	if users := r.index.Users(sum); len(users) == 1 && users[0].Type() == ir.OpAdd {
		return nil, 0
	}
	type part struct {
		v          *ir.Value
		start, end int
	}
	var all []part
	axis = -1
	var collect func(v *ir.Value) bool
	collect = func(v *ir.Value) bool {
		switch a := v.Op.Attrs.(type) {
		case *ir.Add:
			return (v == sum || r.only(v) != nil) && collect(v.Op.Inputs[0]) && collect(v.Op.Inputs[1])
		case *ir.Pad:
			at := -1
			for i, c := range a.AxesConfig {
				if c.Interior != 0 || c.Start < 0 || c.End < 0 || (c.Start > 0 || c.End > 0) && at >= 0 {
					return false
				}
				if c.Start > 0 || c.End > 0 {
					at = i
				}
			}
			if at < 0 || axis >= 0 && at != axis || !isZeros(v.Op.Inputs[1]) {
				return false
			}
			axis = at
			all = append(all, part{v.Op.Inputs[0], a.AxesConfig[at].Start, v.Shape.Dimensions[at] - a.AxesConfig[at].End})
			return true
		}
		return false
	}
	if !collect(sum) || len(all) < 2 {
		return nil, 0
	}
	slices.SortFunc(all, func(a, b part) int { return a.start - b.start })
	end := 0
	for _, x := range all {
		if x.start != end {
			return nil, 0
		}
		end = x.end
		parts = append(parts, x.v)
	}
	if end != sum.Shape.Dimensions[axis] {
		return nil, 0
	}
	return parts, axis
}

// split multiplies the parts of weights whose products are used apart, as queries, keys and values are: no part is copied out of a whole.
func split(p *ir.Program, o Options) (int, error) {
	if o.splits() {
		return 0, nil // parts of a dim that is divided are on other devices
	}
	r := newRewriter(p)
	for _, op := range p.Main.Ops {
		if op.Type() == ir.OpDotGeneral && op.Phase == ir.Forward {
			r.split(op)
		}
	}
	return r.finish(), nil
}

// split replaces one product, and the sum with a bias, if there is one.
func (r *rewriter) split(op *ir.Op) {
	dot, out := op.Attrs.(*ir.DotGeneral), op.Outputs[0]
	weights, last := op.Inputs[1], out.Shape.Rank()-1
	free := slices.IndexFunc(upTo(weights.Shape.Rank()), func(axis int) bool { return !slices.Contains(dot.RHSContractingAxes, axis) })
	if len(dot.RHSBatchAxes) > 0 || weights.Shape.Rank() != len(dot.RHSContractingAxes)+1 || free < 0 {
		return
	}
	whole, bias := out, (*ir.Value)(nil)
	if next := r.only(out); next != nil && next.Type() == ir.OpAdd {
		for i, in := range next.Inputs {
			b, ok := in.Op.Attrs.(*ir.BroadcastInDim)
			if ok && next.Inputs[1-i] == out && in.Op.Inputs[0].Shape.Rank() == 1 && slices.Equal(b.BroadcastAxes, []int{last}) {
				whole, bias = next.Outputs[0], in.Op.Inputs[0]
			}
		}
	}
	users := r.index.Users(whole)
	for _, user := range users {
		s, ok := user.Attrs.(*ir.Slice)
		if !ok || !slices.Equal(s.Starts[:last], make([]int, last)) || !slices.Equal(s.Limits[:last], out.Shape.Dimensions[:last]) ||
			slices.ContainsFunc(s.Strides, func(n int) bool { return n != 1 }) {
			return
		}
	}
	if len(users) < 2 || slices.Contains(r.p.Main.Outputs, whole) {
		return
	}
	r.found++
	for _, user := range users {
		s, at, part := user.Attrs.(*ir.Slice), place{r, user}, user.Outputs[0].Shape
		cut := func(v *ir.Value, axis int) *ir.Value {
			a := &ir.Slice{Starts: make([]int, v.Shape.Rank()), Limits: slices.Clone(v.Shape.Dimensions), Strides: slices.Repeat([]int{1}, v.Shape.Rank())}
			a.Starts[axis], a.Limits[axis] = s.Starts[last], s.Limits[last]
			shape := v.Shape.Clone()
			shape.Dimensions[axis] = part.Dimensions[last]
			return at.put(a, shape, v)
		}
		product := at.put(dot, part, op.Inputs[0], cut(weights, free))
		if bias != nil {
			product = at.put(&ir.Add{}, part, product, at.put(&ir.BroadcastInDim{OutputShape: part, BroadcastAxes: []int{last}}, part, cut(bias, 0)))
		}
		r.by[user.Outputs[0]] = product
	}
}
