// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package cost

import (
	"slices"

	"github.com/gomlx/compute/dtypes"

	"github.com/easyparallel/epl/ir"
)

// Kernel is what a device does at a time: an op, or ops that are fused.
type Kernel struct {
	Family string
	DType  dtypes.DType
	Ops    int
	// Flops are those of a kernel that is no group: of a product, a convolution, a move.
	Flops int64
	// Size is the flops of one of the products of a batch, by which the rate is looked up.
	Size int64
	// M and N are the rows and columns of a product, and of the one that a convolution is.
	M, N int64
	// Operands are the bytes of what a product multiplies.
	Operands int64
	// Broken: a group has other ops than plain arithmetic, or reads elements out of order. Else it can be one loop, which keeps what it computes in registers.
	Broken bool
	// Rows is how many short rows the reductions of a group begin.
	Rows int64
	// Work, Math and Sums are what a group computes, in additions: plainly, in functions such as Exp, and in reductions.
	Work, Math, Sums int64
	// Read and Written are bytes of memory.
	Read, Written int64
}

// Kernels are what a device runs for a segment, in order. If it fuses, what only moves elements is free, and elementwise ops and reductions are
// groups: those that need nothing of each other that is complete only when all elements are there. A group reads what is made elsewhere, once, and
// writes what is used elsewhere.
//
// It is a model of what XLA and EPL's engine for CPUs do, without their limits: it takes time in proportion to the ops.
func Kernels(s *ir.Segment, fuses bool) []*Kernel {
	f := &fusing{fuses: fuses, returned: map[*ir.Value]bool{}, values: make(map[*ir.Value]*made, len(s.Ops)+len(s.Inputs)), groups: map[place]*Kernel{}}
	for _, v := range s.Inputs {
		f.values[v] = &made{root: v}
	}
	for _, v := range s.Outputs {
		f.returned[v] = true
	}
	for _, op := range s.Ops {
		f.op(op)
	}
	for _, v := range s.Outputs {
		f.force(v, 0)
		f.write(f.of(f.of(v).root))
	}
	return f.kernels
}

// fusing makes kernels.
type fusing struct {
	fuses    bool
	returned map[*ir.Value]bool // by the segment
	values   map[*ir.Value]*made
	groups   map[place]*Kernel
	kernels  []*Kernel
}

// place is where a group is: after so many kernels that wait for each other, over so many elements.
type place struct{ level, space int64 }

// made is what is known of a value.
type made struct {
	root    *ir.Value // what it is a view of
	kernel  *Kernel   // that makes it; nil: it is given
	at      place     // of a group
	level   int64     // from which on it is there as a whole
	rows    bool      // it is a reduction of rows: the group goes on with it
	whole   bool      // a product or a convolution made it: it is there before a group begins
	written bool
	readBy  *Kernel // the last that read it
	// later is an op that has not been given a kernel yet: one of what is there, which is computed where it is used, or a padding, of which a sum
	// takes what is inside.
	later *ir.Op
}

// of is what is known of a value; parameters and constants are given.
func (f *fusing) of(v *ir.Value) *made {
	m := f.values[v]
	if m == nil {
		m = &made{root: v}
		f.values[v] = m
	}
	return m
}

// write has a value written, since another kernel reads it.
func (f *fusing) write(m *made) {
	if m.kernel != nil && !m.written {
		m.written = true
		m.kernel.Written += m.root.Bytes()
	}
}

// read has a kernel read a value, of which it may look at a part.
func (f *fusing) read(k *Kernel, v *ir.Value, bytes int64) {
	f.force(v, 0)
	m := f.of(v)
	root := f.of(m.root)
	if root.kernel == k || root.readBy == k {
		return
	}
	root.readBy = k
	f.write(root)
	if m.root.Op.Type() == ir.OpIota {
		return // computed on the way
	}
	k.Read += min(bytes, m.root.Bytes())
}

// isView tells whether an op only gives elements other places, which costs nothing where ops are fused.
func isView(op *ir.Op) bool {
	switch op.Type() {
	case ir.OpBroadcastInDim, ir.OpTranspose, ir.OpReverse, ir.OpSlice, ir.OpIota:
		return true
	}
	return renames[op.Type()]
}

func (f *fusing) op(op *ir.Op) {
	switch {
	case op.IsLeaf():
		return
	case renames[op.Type()] || f.fuses && isView(op):
		f.view(op)
		return
	}
	if f.sum(op) {
		return
	}
	family := Family(op)
	if pad, ok := op.Attrs.(*ir.Pad); ok && f.fuses && len(pad.AxesConfig) > 0 {
		f.values[op.Outputs[0]] = &made{root: op.Outputs[0], level: f.of(op.Inputs[0]).level, later: op}
		return
	}
	if group := family == Elementwise || family == Math || family == Reduce; group && f.fuses && len(op.Outputs) == 1 && !moves[op.Type()] && len(op.Funcs) == 0 {
		f.join(op, family)
		return
	}
	c := Of(op)
	k := &Kernel{Family: family, DType: typeOf(op), Ops: 1, Flops: c.Flops, Size: c.Flops, Written: c.BytesWritten}
	k.product(op)
	op.Uses(func(v *ir.Value) { f.force(v, 0) })
	f.kernels = append(f.kernels, k)
	level := int64(0)
	op.Uses(func(v *ir.Value) {
		level = max(level, f.of(v).level)
		bytes := v.Bytes()
		if len(op.Inputs) > 0 && v == op.Inputs[0] && looksAtAPart(op) {
			bytes = min(bytes, op.Outputs[0].Bytes())
		}
		f.read(k, v, bytes)
	})
	for _, v := range op.Outputs {
		f.values[v] = &made{root: v, kernel: k, level: level + 1, written: true, whole: family == Dot || family == Conv}
	}
}

// sum adds a product or a reduction to something that is given, where the segment returns that, as it does the sum over
// micro-batches: what computes it does so when it writes.
func (f *fusing) sum(op *ir.Op) bool {
	if op.Type() != ir.OpAdd || !f.returned[op.Outputs[0]] {
		return false
	}
	for i, v := range op.Inputs {
		x, given := f.of(f.of(v).root), op.Inputs[1-i]
		_, isInput := given.Op.Attrs.(*ir.Parameter)
		_, reduces := perInput[x.root.Op.Type()]
		if reduces = reduces && x.kernel != nil; isInput && (reduces || x.whole && x.kernel.Family == Dot) && x.readBy == nil && v.Shape.Equal(given.Shape) {
			f.write(x)
			f.read(x.kernel, given, given.Bytes())
			f.values[op.Outputs[0]] = &made{root: op.Outputs[0], kernel: x.kernel, level: x.level, written: true}
			x.kernel.Ops++
			return true
		}
	}
	return false
}

// product fills in the size of a product.
func (k *Kernel) product(op *ir.Op) {
	switch a := op.Attrs.(type) {
	case *ir.DotGeneral:
		lhs, rhs := op.Inputs[0].Shape, op.Inputs[1].Shape
		depth, batch := int64(1), int64(1)
		for _, axis := range a.LHSContractingAxes {
			depth *= dim(lhs.Dimensions, axis)
		}
		for _, axis := range a.LHSBatchAxes {
			batch *= dim(lhs.Dimensions, axis)
		}
		each := max(depth*batch, 1)
		k.M, k.N, k.Size = size(lhs)/each, size(rhs)/each, k.Size/max(batch, 1)
		k.Operands = op.Inputs[0].Bytes() + op.Inputs[1].Bytes()
	case *ir.ConvGeneral:
		k.N = dim(op.Outputs[0].Shape.Dimensions, a.Axes.OutputChannels)
		k.M = size(op.Outputs[0].Shape) / max(k.N, 1)
	}
}

// shortRow is what a row has at least for its beginning to count nothing.
const shortRow = 64

// shortRows are the rows of a reduction that are short. Other ops go through all elements at once.
func shortRows(op *ir.Op) int64 {
	shape := op.Inputs[0].Shape
	n, columns := size(shape), last(shape)
	if _, reduces := perInput[op.Type()]; !reduces || columns >= shortRow || n <= columns {
		return 0
	}
	return n / columns
}

// loops tells whether an op is plain arithmetic on elements that are in order, or the same for all.
func (f *fusing) loops(op *ir.Op) bool {
	switch op.Type() {
	case ir.OpAdd, ir.OpSub, ir.OpMul, ir.OpDiv, ir.OpSqrt, ir.OpNeg, ir.OpSign, ir.OpAbs:
	default:
		return false
	}
	for _, v := range op.Inputs {
		if root := f.of(v).root; root != v && size(root.Shape) > 1 && !sameOrder(v) {
			return false
		}
	}
	return true
}

// sameOrder tells whether a view only has another shape. A product is written in the order in which it is used, if it is transposed.
func sameOrder(v *ir.Value) bool {
	v = named(v)
	if v.Op.Type() == ir.OpTranspose {
		return Family(named(v.Op.Inputs[0]).Op) == Dot
	}
	return !isView(v.Op)
}

// named is what a value is another name or shape of.
func named(v *ir.Value) *ir.Value {
	for renames[v.Op.Type()] && len(v.Op.Inputs) > 0 {
		v = v.Op.Inputs[0]
	}
	return v
}

// view makes a value another one's.
func (f *fusing) view(op *ir.Op) {
	if len(op.Inputs) == 0 {
		return
	}
	for _, v := range op.Outputs {
		m := *f.of(op.Inputs[0])
		f.values[v] = &m
	}
}

// join finds a group for an elementwise op or a reduction.
func (f *fusing) join(op *ir.Op, family string) {
	out := op.Outputs[0]
	there, level := family != Reduce, int64(0)
	for _, v := range op.Inputs {
		if v == nil {
			continue
		}
		root := f.of(f.of(v).root)
		there = there && (root.kernel == nil || root.whole) && (root.later == nil || root.later.Type() != ir.OpPad)
		level = max(level, f.of(v).level)
		if _, sum := op.Attrs.(*ir.Add); sum && root.later != nil && root.later.Type() == ir.OpPad {
			f.addInside(op, v, root.later)
			return
		}
	}
	if there {
		f.values[out] = &made{root: out, level: level, later: op}
		return
	}
	at := place{level: level, space: size(op.Outputs[0].Shape)}
	rows := false
	if family == Reduce {
		at.space = size(op.Inputs[0].Shape)
		rows = reducesRows(op)
	}
	inherited := false
	for _, v := range op.Inputs {
		if m := f.of(v); v != nil && m.rows && m.at.level == at.level && m.at.space > at.space {
			at.space, inherited = m.at.space, true // a value of each row: the group of the rows goes on
		}
	}
	f.put(op, family, at, rows, inherited)
}

// addInside adds what was padded to the other operand, in its memory.
func (f *fusing) addInside(op *ir.Op, padded *ir.Value, pad *ir.Op) {
	inner := pad.Inputs[0]
	f.force(inner, 0)
	k := &Kernel{Family: Elementwise, DType: typeOf(op), Ops: 2, Work: size(inner.Shape), Read: inner.Bytes(), Written: inner.Bytes()}
	f.kernels = append(f.kernels, k)
	f.read(k, inner, inner.Bytes())
	level := f.of(inner).level
	for _, v := range op.Inputs {
		if v != padded {
			f.force(v, 0)
			root := f.of(f.of(v).root)
			f.write(root)
			level = max(level, root.level)
		}
	}
	f.values[op.Outputs[0]] = &made{root: op.Outputs[0], kernel: k, level: level + 1, written: true}
}

// force gives an op a kernel that was left for later, since its value is used at a level.
func (f *fusing) force(v *ir.Value, level int64) {
	root := f.of(f.of(v).root)
	op := root.later
	if op == nil {
		return
	}
	root.later = nil
	if op.Type() == ir.OpPad {
		f.force(op.Inputs[0], 0)
		k := &Kernel{Family: Move, DType: typeOf(op), Ops: 1, Written: root.root.Bytes()}
		f.kernels = append(f.kernels, k)
		f.read(k, op.Inputs[0], op.Inputs[0].Bytes())
		root.kernel, root.written = k, true
		root.level++
		return
	}
	f.put(op, Family(op), place{max(level, root.level), size(op.Outputs[0].Shape)}, false, false)
}

// put puts an op into a group.
func (f *fusing) put(op *ir.Op, family string, at place, rows, inherited bool) {
	for _, v := range op.Inputs {
		if v != nil {
			f.force(v, at.level)
		}
	}
	k := f.groups[at]
	if k == nil {
		k = &Kernel{Family: Elementwise, DType: typeOf(op)}
		f.groups[at] = k
		f.kernels = append(f.kernels, k)
	}
	k.Ops++
	k.Rows += shortRows(op)
	k.Broken = k.Broken || !f.loops(op)
	switch n := Of(op).Flops; family {
	case Math:
		k.Math += n
	case Reduce:
		k.Sums += n
	default:
		k.Work += n
	}
	for _, v := range op.Inputs {
		if v != nil {
			f.read(k, v, v.Bytes())
		}
	}
	out := op.Outputs[0]
	m := &made{root: out, kernel: k, at: at, level: at.level, rows: rows || inherited}
	if family == Reduce && !rows {
		m.level++ // complete only at the end
	}
	f.values[out] = m
}

// reducesRows tells whether a reduction is over the last dims: a group does that on its way.
func reducesRows(op *ir.Op) bool {
	var axes []int
	switch a := op.Attrs.(type) {
	case *ir.ReduceSum:
		axes = a.Axes
	case *ir.ReduceMax:
		axes = a.Axes
	case *ir.ReduceMin:
		axes = a.Axes
	case *ir.ReduceProduct:
		axes = a.Axes
	default:
		return false
	}
	rank := op.Inputs[0].Shape.Rank()
	if len(axes) == 0 || len(axes) == rank {
		return false
	}
	for i := range axes {
		if !slices.Contains(axes, rank-1-i) {
			return false
		}
	}
	return true
}

// typeOf is the type whose rate counts: that of what an op reads, since products of half precision may give float32.
func typeOf(op *ir.Op) dtypes.DType {
	if len(op.Inputs) > 0 && op.Inputs[0] != nil {
		if t := op.Inputs[0].Shape.DType; t.IsFloat() {
			return t
		}
	}
	return op.Outputs[0].Shape.DType
}
