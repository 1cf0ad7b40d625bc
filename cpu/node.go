// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package cpu

import (
	"math"
	"slices"

	"github.com/easyparallel/epl/cpu/kernel"
	"github.com/easyparallel/epl/ir"
)

// node is a step of a compiled segment: a group of fused ops, a product, or another op. Nodes are ordered by position:
// what a node reads was written by nodes before it.
type node struct {
	pos int
	ops []*ir.Op
	// group is what a group of fused ops computes; nil for other nodes.
	group *group
	// firstUser is a lower bound of the positions of the nodes that read it.
	firstUser int
	// into is the node that has taken its ops; nil: it has them.
	into *node
}

// now is the node that has the ops of n.
func (n *node) now() *node {
	for n != nil && n.into != nil {
		n = n.into
	}
	return n
}

const never = math.MaxInt

// class says how often an op of a group computes: for every element, once per row, or as a reduction of all elements.
type class uint8

const (
	full      class = iota // one result per element
	perRow                 // one result per row
	reduceRow              // reads every element, gives one result per row
	reduceCol              // reads every element, gives one result per column, at the end
	reduceAll              // reads every element, gives one result, at the end
)

// reduces tells whether ops of the class are reductions.
func (c class) reduces() bool { return c == reduceRow || c == reduceCol || c == reduceAll }

// group is a set of ops that run together, block by block, over a domain of n elements in rows of cols.
type group struct {
	n    int
	cols int // 0: rows do not matter
	ops  map[*ir.Op]class
}

func (g *group) rows() int {
	if g.cols == 0 {
		return 1
	}
	return g.n / g.cols
}

// hasRows tells whether some value of the group is one per row.
func (g *group) hasRows() bool {
	for _, c := range g.ops {
		if c == perRow || c == reduceRow {
			return true
		}
	}
	return false
}

// reduces tells whether some op of the group is a reduction.
func (g *group) reduces() bool {
	for _, c := range g.ops {
		if c.reduces() {
			return true
		}
	}
	return false
}

// axesOf are the axes that a reduction reduces; ok is false for other ops.
func axesOf(op *ir.Op) (axes []int, ok bool) {
	switch a := op.Attrs.(type) {
	case *ir.ReduceSum:
		axes = a.Axes
	case *ir.ReduceProduct:
		axes = a.Axes
	case *ir.ReduceMax:
		axes = a.Axes
	case *ir.ReduceMin:
		axes = a.Axes
	case *ir.ReduceLogicalAnd:
		axes = a.Axes
	case *ir.ReduceLogicalOr:
		axes = a.Axes
	case *ir.ReduceLogicalXor:
		axes = a.Axes
	case *ir.ReduceBitwiseAnd:
		axes = a.Axes
	case *ir.ReduceBitwiseOr:
		axes = a.Axes
	case *ir.ReduceBitwiseXor:
		axes = a.Axes
	default:
		return nil, false
	}
	if len(axes) == 0 {
		for i := range op.Inputs[0].Shape.Rank() {
			axes = append(axes, i)
		}
	}
	return axes, true
}

// reduceAny adds a reduction whose axes are neither the first nor the last: a view puts them last.
func (b *builder) reduceAny(op *ir.Op) bool {
	axes, ok := axesOf(op)
	if !ok || !plain(op.Inputs[0]) || !plain(op.Outputs[0]) || kernel.Reduce(kernel.Op(op.Type()), op.Inputs[0].Shape.DType) == nil {
		return false
	}
	in := op.Inputs[0]
	var order []int
	for i := range in.Shape.Rank() {
		if !slices.Contains(axes, i) {
			order = append(order, i)
		}
	}
	kept := len(order)
	order = append(order, axes...)
	t := synthetic(&ir.Transpose{Permutation: order}, permuted(in.Shape, order), in)
	b.views.add(t)
	r := synthetic(withAxes(op.Attrs, seq(kept, len(axes))), op.Outputs[0].Shape, t.Outputs[0])
	if !fusible(r) {
		return false
	}
	b.fuser.add(r)
	b.views[op.Outputs[0]] = b.views.of(r.Outputs[0])
	return true
}

// withAxes is a reduction of other axes.
func withAxes(a ir.Attrs, axes []int) ir.Attrs {
	switch a.(type) {
	case *ir.ReduceSum:
		return &ir.ReduceSum{Axes: axes}
	case *ir.ReduceProduct:
		return &ir.ReduceProduct{Axes: axes}
	case *ir.ReduceMax:
		return &ir.ReduceMax{Axes: axes}
	case *ir.ReduceMin:
		return &ir.ReduceMin{Axes: axes}
	case *ir.ReduceLogicalAnd:
		return &ir.ReduceLogicalAnd{Axes: axes}
	case *ir.ReduceLogicalOr:
		return &ir.ReduceLogicalOr{Axes: axes}
	case *ir.ReduceBitwiseAnd:
		return &ir.ReduceBitwiseAnd{Axes: axes}
	case *ir.ReduceBitwiseOr:
		return &ir.ReduceBitwiseOr{Axes: axes}
	case *ir.ReduceBitwiseXor:
		return &ir.ReduceBitwiseXor{Axes: axes}
	}
	return &ir.ReduceLogicalXor{Axes: axes}
}

// reduction tells how an op reduces, and the columns that it asks its group for.
func reduction(op *ir.Op) (c class, cols int, ok bool) {
	axes, isReduction := axesOf(op)
	if !isReduction || kernel.Reduce(kernel.Op(op.Type()), op.Inputs[0].Shape.DType) == nil {
		return 0, 0, false
	}
	dims := dimsOf(op.Inputs[0])
	var last, changes int // whether the last dim that counts is reduced, and how often that changes from dim to dim
	inner := 1            // elements of the innermost dims that are all reduced or all kept
	for i := len(dims) - 1; i >= 0; i-- {
		if dims[i] == 1 {
			continue
		}
		is := 1
		if slices.Contains(axes, i) {
			is = 2
		}
		if last != 0 && is != last {
			changes++
		}
		if changes == 0 {
			inner *= dims[i]
		}
		last = is
		if changes > 1 {
			return 0, 0, false
		}
	}
	switch {
	case op.Outputs[0].Shape.Size() == 1 || last == 0:
		return reduceAll, rowOf(dims), true
	case changes == 0:
		return full, 0, true // nothing is reduced
	case last == 2: // the outermost dims are reduced
		return reduceCol, inner, true
	}
	return reduceRow, inner, true
}

// rowOf is how long a row is where all elements are reduced: it depends on the dims alone, so that the order in which they
// are added up does not depend on what else is in the group.
func rowOf(dims []int) int {
	n := 1
	for i := len(dims) - 1; i >= 0 && n < 64; i-- {
		n *= dims[i]
	}
	return n
}

// domain are the dims that an op loops over: those of its output, or of what it reduces or copies.
func domain(op *ir.Op) []int {
	if _, ok := axesOf(op); ok {
		return dimsOf(op.Inputs[0])
	}
	switch op.Attrs.(type) {
	case *ir.Reshape:
		return dimsOf(op.Inputs[0])
	}
	return dimsOf(op.Outputs[0])
}

// fusible tells whether an op can be part of a group.
func fusible(op *ir.Op) bool {
	if len(op.Outputs) != 1 || len(op.Funcs) > 0 || !plain(op.Outputs[0]) {
		return false
	}
	for _, in := range op.Inputs {
		if in == nil || !plain(in) {
			return false
		}
	}
	name := kernel.Op(op.Type())
	out := op.Outputs[0].Shape.DType
	switch op.Attrs.(type) {
	case *ir.Iota:
		return kernel.Iota(out) != nil
	case *ir.Reshape, *ir.Identity: // where no view can say it, and where a view must become a tensor
		return kernel.Copy(out.Size(), 0) != nil
	case *ir.ConvertDType:
		in := op.Inputs[0].Shape.DType
		return in == out || kernel.Convert(in, out, 0) != nil
	case *ir.Bitcast:
		return op.Inputs[0].Shape.DType.Size() == out.Size() && kernel.Copy(out.Size(), 0) != nil
	case *ir.Where:
		return kernel.Where(out.Size(), 0) != nil
	case *ir.Clamp:
		return kernel.Binary("Max", out, 0) != nil
	}
	if _, ok := axesOf(op); ok {
		_, _, ok := reduction(op)
		return ok
	}
	switch len(op.Inputs) {
	case 1:
		return kernel.Unary(name, op.Inputs[0].Shape.DType, 0) != nil
	case 2:
		return kernel.Binary(name, op.Inputs[0].Shape.DType, 0) != nil
	}
	return false
}

// plain tells whether a value has elements, and a byte or more for each.
func plain(v *ir.Value) bool {
	return !v.Shape.IsDynamic() && !v.Shape.IsTuple() && v.Shape.Size() > 0 && !v.Shape.DType.IsPacked()
}
