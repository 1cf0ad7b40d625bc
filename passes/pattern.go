// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package passes

import (
	"maps"
	"math"
	"slices"

	"github.com/easyparallel/epl/ir"
)

// pattern describes how a value is computed. Patterns share parts, as values do: a part that comes twice is one value. Reshapes and
// broadcasts on the way do not matter, and neither does the order of two operands of a sum or a product.
type pattern struct {
	op   ir.OpType // "": any value
	of   []*pattern
	test func(v *ir.Value, m *match) bool // nil: none
	// loose: its shape may be another than those that fit.
	loose bool
}

func of(op ir.OpType, parts ...*pattern) *pattern { return &pattern{op: op, of: parts} }

// anything is any value.
func anything() *pattern { return &pattern{} }

// exactly is a constant.
func exactly(x float64) *pattern {
	return &pattern{test: func(v *ir.Value, _ *match) bool { return isNumber(v, x) }}
}

// isNumber tells whether a value is a number everywhere.
func isNumber(v *ir.Value, x float64) bool {
	flat := constant(v)
	return flat != nil && !slices.ContainsFunc(flat, func(y float32) bool { return math.Abs(float64(y)-x) > 1e-6*math.Abs(x) })
}

// sumOf sums over axes: the same ones everywhere in a pattern.
func sumOf(x *pattern) *pattern {
	return &pattern{op: ir.OpReduceSum, of: []*pattern{x}, test: func(v *ir.Value, m *match) bool {
		axes := v.Op.Attrs.(*ir.ReduceSum).Axes
		if m.axes == nil {
			m.axes = axes
		}
		return len(axes) > 0 && slices.Equal(m.axes, axes)
	}}
}

// meanOf divides a sum by the number of its terms.
func meanOf(x *pattern) *pattern { return of(ir.OpMul, sumOf(x), oneOfN) }

// oneOfN divides by the number of terms of a sum.
var oneOfN = &pattern{test: func(v *ir.Value, m *match) bool {
	n := 1
	for _, axis := range m.axes {
		n *= m.full.Shape.Dimensions[axis]
	}
	return m.axes != nil && isNumber(v, 1/float64(n))
}}

// match is what parts of a pattern stand for.
type match struct {
	full  *ir.Value // the value that was to match: all are of its shape, or have one number for each sum
	axes  []int     // those of sums
	value map[*pattern]*ir.Value
	seen  []*ir.Value
}

// find matches a pattern with a value, given the axes of sums, and what some of its parts stand for, if they are known; nil: it does not match.
func (p *pattern) find(v *ir.Value, axes []int, given map[*pattern]*ir.Value) *match {
	return p.findFor(v, v, axes, given)
}

// findFor matches a pattern with a value that has one number for each sum over axes of another, the whole.
func (p *pattern) findFor(v, whole *ir.Value, axes []int, given map[*pattern]*ir.Value) *match {
	m := (&match{full: whole, axes: axes, value: given}).with(p, v)
	if m == nil || slices.ContainsFunc(m.seen, func(v *ir.Value) bool { return !m.fits(v) }) {
		return nil
	}
	return m
}

// with is a match in which a pattern stands for a value, too; nil: it cannot.
func (m *match) with(p *pattern, v *ir.Value) *match {
	m = &match{m.full, m.axes, maps.Clone(m.value), slices.Clip(m.seen)}
	if !p.loose {
		m.seen = append(m.seen, v)
	}
	for p.op != "" && v.Op.Type() != p.op && m.reshapes(v.Op) {
		v = v.Op.Inputs[0]
		m.seen = append(m.seen, v)
	}
	if known := m.value[p]; known != nil && p.test == nil {
		if known != v {
			return nil
		}
		return m
	}
	if p.op != "" && (v.Op.Type() != p.op || len(v.Op.Inputs) != len(p.of)) {
		return nil
	}
	if m.value == nil {
		m.value = map[*pattern]*ir.Value{}
	}
	m.value[p] = v
	orders := [][]*ir.Value{v.Op.Inputs}
	if p.op == ir.OpAdd || p.op == ir.OpMul {
		orders = append(orders, []*ir.Value{v.Op.Inputs[1], v.Op.Inputs[0]})
	}
	for _, in := range orders {
		trial := m
		for i, part := range p.of {
			if trial != nil {
				trial = trial.with(part, in[i])
			}
		}
		if trial != nil && (p.test == nil || p.test(v, trial)) {
			return trial
		}
	}
	return nil
}

// reshapes tells whether an op only repeats, or adds or drops axes of size 1.
func (m *match) reshapes(op *ir.Op) bool {
	switch a := op.Attrs.(type) {
	case *ir.Identity:
		return true
	case *ir.Reshape:
		ones := func(n int) bool { return n == 1 }
		return slices.Equal(slices.DeleteFunc(slices.Clone(op.Inputs[0].Shape.Dimensions), ones), slices.DeleteFunc(slices.Clone(a.Dimensions), ones))
	case *ir.BroadcastInDim:
		return op.Inputs[0].Shape.Size() == 1 || slices.IsSorted(a.BroadcastAxes) && len(a.BroadcastAxes) == a.OutputShape.Rank()
	}
	return false
}

// fits tells whether a value has the shape of the whole, or one number for each sum, with or without the axes of the sums, or a single one.
func (m *match) fits(v *ir.Value) bool {
	var without []int
	ones := slices.Clone(m.full.Shape.Dimensions)
	for i, n := range m.full.Shape.Dimensions {
		if slices.Contains(m.axes, i) {
			ones[i] = 1
		} else {
			without = append(without, n)
		}
	}
	dims := v.Shape.Dimensions
	return v.Shape.Size() == 1 || slices.Equal(dims, m.full.Shape.Dimensions) || slices.Equal(dims, ones) || slices.Equal(dims, without)
}
