// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package cpu

import (
	"fmt"
	"slices"

	"github.com/gomlx/compute/dtypes"

	"github.com/easyparallel/epl/cpu/kernel"
	"github.com/easyparallel/epl/cpu/loop"
	"github.com/easyparallel/epl/ir"
)

// code is a group, compiled: instructions that are run for one block of its domain after the other. A block is some
// whole rows, or a part of one, so it is a range of elements in any case.
type code struct {
	n, rows, cols int
	blockRows     int // rows of a block
	blockCols     int // columns of a block; less than cols only if blockRows is 1
	instrs        []instr
	steps         []instr     // what runs: the instructions, runs of them as loops
	streams       []ref       // tensors that are asked for a block ahead
	scratch       int         // bytes of registers that a worker needs
	mems          []*ir.Value // the tensors that it reads and writes, by number
	partials      []partial
	parts         int // into how many ranges of rows the work is divided where columns are added up; 0: it does not matter
}

// partial is memory for the partial results of a reduction over rows: count times width elements.
type partial struct {
	d             dtypes.DType
	width, count  int
	all           bool // one result for every chunk of a row, else width for every part
	red           *kernel.Reduction
	out           int // the mem of the result
	offset, bytes int // where it lies in the group's own memory
}

// ref is an operand of an instruction: a register, or a tensor in memory seen through strides.
type ref struct {
	mem      int  // number of the tensor; -1: a register
	slot     int  // number of the register
	offset   int  // bytes from the beginning
	row, col int  // bytes from row to row and from column to column of the domain, for tensors
	rowWise  bool // one element per row: for instructions on rows contiguous, for others the scalar form
	scalar   bool // one element in a row
	elem     int  // bytes of an element
}

type kind uint8

const (
	onFull    kind = iota // f on every element
	onRows                // f on one element per row
	rowReduce             // f reduces rows of a into d
	colReduce             // f reduces a into a partial result of this part
	allReduce             // f reduces a into partial results of its rows
	loadFull              // the range of a view that the block is, into d
	loadRows              // the same for one element per row
	countUp
	onLoop // a loop does what several instructions on every element did
)

// instr is one step of a block.
type instr struct {
	kind       kind
	f          kernel.Func
	d, a, b, c ref
	flat       bool // operands are contiguous over rows: a block is one long row
	view       *strided
	io         kernel.IotaFunc
	inner, dim int // of an iota
	partial    int
	op         *ir.Op
	name       kernel.Op // what f computes of float32, if a loop could do it, or "Copy"
	loop       *loop.Func
	refs       []ref // of a loop: its operands, then its results
	done       int   // how many instructions a loop does
}

// slotInfo describes a register while code is made.
type slotInfo struct {
	elem    int
	rowWise bool
	offset  int
}

// loadKey finds a view that was copied into a register.
type loadKey struct {
	root *ir.Value
	text string
}

// coder makes the code of a group.
type coder struct {
	*code
	views  views
	g      *group
	memNo  map[*ir.Value]int
	where  map[*ir.Value]ref
	loaded map[loadKey]ref
	slots  []slotInfo
	free   []int
	last   map[*ir.Value]int // the last op that reads a value of the group
	at     int
	temps  []int
}

// compileGroup makes the code of a group; stored are the values of it that others read.
// loops makes loops; nil: there are none.
func compileGroup(vs views, n *node, stored func(*ir.Value) bool, loops func(*loop.Program) *loop.Func) *code {
	g := n.group
	c := &coder{code: &code{n: g.n, rows: 1, cols: g.n}, views: vs, g: g, memNo: make(map[*ir.Value]int, len(n.ops)), where: make(map[*ir.Value]ref, len(n.ops)),
		loaded: map[loadKey]ref{}, last: make(map[*ir.Value]int, len(n.ops))}
	if g.cols == 0 {
		g.cols = c.columns(n)
	}
	if g.cols != 0 {
		c.rows, c.cols = g.rows(), g.cols
	}
	for i, op := range n.ops {
		for _, in := range op.Inputs {
			c.last[vs.of(in).root] = i
		}
	}
	for i, op := range n.ops {
		c.at = i
		c.op(op, g.ops[op], stored(op.Outputs[0]))
		c.free = append(c.free, c.temps...)
		c.temps = c.temps[:0]
		c.release(i, n.ops)
	}
	c.finish()
	c.makeSteps(loops)
	return c.code
}

// columns chooses the columns of a group that could have any: those of what is broadcast into it.
func (c *coder) columns(n *node) int {
	for _, op := range n.ops {
		for i := range op.Inputs {
			v := operand(c.views, op, i)
			d, s := squeeze(v.dims, v.strides)
			if len(d) < 2 || v.size() != c.n {
				continue
			}
			inner := d[len(d)-1]
			if len(d) == 2 || s[len(d)-1] <= 1 {
				return inner
			}
		}
	}
	return 0
}

func (c *coder) mem(v *ir.Value) int {
	if i, ok := c.memNo[v]; ok {
		return i
	}
	c.memNo[v] = len(c.mems)
	c.mems = append(c.mems, v)
	return c.memNo[v]
}

// register takes a free register, or a new one.
func (c *coder) register(elem int, rowWise bool) ref {
	for i, s := range c.free {
		if x := c.slots[s]; x.elem == elem && x.rowWise == rowWise {
			c.free = slices.Delete(c.free, i, i+1)
			return ref{mem: -1, slot: s, rowWise: rowWise, scalar: rowWise, elem: elem}
		}
	}
	c.slots = append(c.slots, slotInfo{elem: elem, rowWise: rowWise})
	return ref{mem: -1, slot: len(c.slots) - 1, rowWise: rowWise, scalar: rowWise, elem: elem}
}

func (c *coder) temp(elem int, rowWise bool) ref {
	r := c.register(elem, rowWise)
	c.temps = append(c.temps, r.slot)
	return r
}

// release frees the registers of values that no later op reads.
func (c *coder) release(at int, ops []*ir.Op) {
	done := func(v *ir.Value) {
		if r, ok := c.where[v]; ok && r.mem < 0 {
			c.free = append(c.free, r.slot)
			delete(c.where, v)
		}
	}
	for _, in := range ops[at].Inputs {
		if v := c.views.of(in).root; c.last[v] == at {
			done(v)
			for k, r := range c.loaded {
				if k.root == v {
					c.free = append(c.free, r.slot)
					delete(c.loaded, k)
				}
			}
		}
	}
	if out := ops[at].Outputs[0]; !c.isRead(out) {
		done(out)
	}
}

// isRead tells whether an op of the group reads a value.
func (c *coder) isRead(v *ir.Value) bool { _, ok := c.last[v]; return ok }

// output is where an op puts its result.
func (c *coder) output(op *ir.Op, rowWise, stored bool) ref {
	v := op.Outputs[0]
	elem := v.Shape.DType.Size()
	if !stored {
		r := c.register(elem, rowWise)
		c.where[v] = r
		return r
	}
	r := ref{mem: c.mem(v), elem: elem, rowWise: rowWise, scalar: rowWise, row: elem}
	if !rowWise {
		r.row, r.col = c.cols*elem, elem
	}
	c.where[v] = r
	return r
}

// read finds an operand of an op that computes for every element.
func (c *coder) read(op *ir.Op, i int) ref {
	v := operand(c.views, op, i)
	if r, ok := c.where[v.root]; ok { // of this group: as it is, or one per row
		return r
	}
	elem := v.root.Shape.DType.Size()
	r := ref{mem: -1, offset: v.offset * elem, elem: elem}
	if od, os, id, is, ok := cutAt(v.dims, v.strides, c.cols); ok {
		od, os = squeeze(od, os)
		id, is = squeeze(id, is)
		direct := len(id) <= 1 && len(od) <= 1
		if len(id) == 1 {
			r.col = is[0] * elem
		}
		if len(od) == 1 {
			r.row = os[0] * elem
		}
		r.scalar = r.col == 0
		if direct && (r.col == elem || r.col == 0) && c.cols > 1 || direct && c.cols == 1 {
			r.mem = c.mem(v.root)
			if c.cols == 1 {
				r.scalar = false
			}
			return r
		}
	}
	return c.load(v, loadFull)
}

// readRow finds an operand of an op that computes once per row.
func (c *coder) readRow(op *ir.Op, i int) ref {
	v := operand(c.views, op, i)
	if r, ok := c.where[v.root]; ok {
		return r
	}
	elem := v.root.Shape.DType.Size()
	d, s := squeeze(v.dims, v.strides)
	switch {
	case len(d) == 0 || len(d) == 1 && s[0] == 0:
		return ref{mem: c.mem(v.root), offset: v.offset * elem, elem: elem, scalar: true}
	case len(d) == 1 && s[0] == 1:
		return ref{mem: c.mem(v.root), offset: v.offset * elem, elem: elem, rowWise: true, scalar: true, row: elem}
	}
	return c.load(v, loadRows)
}

// load copies a view into a register, once.
func (c *coder) load(v view, k kind) ref {
	key := loadKey{v.root, fmt.Sprint(k, v.offset, v.dims, v.strides)}
	if r, ok := c.loaded[key]; ok {
		return r
	}
	elem := v.root.Shape.DType.Size()
	d := c.register(elem, k == loadRows)
	c.instrs = append(c.instrs, instr{kind: k, d: d, a: ref{mem: c.mem(v.root), offset: v.offset * elem, elem: elem}, view: newStrided(v, elem)})
	c.loaded[key] = d
	return d
}

func (c *coder) emit(in instr) { c.instrs = append(c.instrs, in) }

// apply emits a kernel that is found by the form of its operands.
func (c *coder) apply(op *ir.Op, rows bool, d ref, find func(kernel.Form) kernel.Func, args ...ref) {
	k := onFull
	if rows {
		k = onRows
	}
	var form kernel.Form
	for i, a := range args {
		if isScalar(a, rows) {
			form |= 1 << i
		}
	}
	f := find(form)
	if f == nil { // all operands are one element per row: one of them is written out
		t := c.temp(args[0].elem, rows)
		c.emit(instr{kind: k, op: op, name: copied, f: kernel.Copy(args[0].elem, kernel.ScalarA), d: t, a: args[0]})
		args[0] = t
		f = find(form &^ kernel.ScalarA)
	}
	in := instr{kind: k, op: op, name: inLoops(op), f: f, d: d}
	for i, a := range args {
		*[]*ref{&in.a, &in.b, &in.c}[i] = a
	}
	c.emit(in)
}

func isScalar(a ref, rows bool) bool {
	if rows {
		return !a.rowWise
	}
	return a.scalar
}

// op emits the instructions of an op.
func (c *coder) op(op *ir.Op, cl class, stored bool) {
	rows := cl == perRow
	read := c.read
	if rows {
		read = c.readRow
	}
	out := op.Outputs[0].Shape.DType
	if r, _, ok := reduction(op); ok && r != full {
		c.reduce(op, cl, stored)
		return
	}
	if a, ok := op.Attrs.(*ir.Iota); ok {
		dims := dimsOf(op.Outputs[0])
		inner, dim := 1, 1
		if len(dims) > 0 {
			inner, dim = rowMajor(dims)[a.IotaAxis], dims[a.IotaAxis]
		}
		c.emit(instr{kind: countUp, op: op, d: c.output(op, rows, stored), io: kernel.Iota(out), inner: inner, dim: dim})
		return
	}
	args := make([]ref, len(op.Inputs))
	for i := range args {
		args[i] = read(op, i)
	}
	name := kernel.Op(op.Type())
	in := out
	if len(op.Inputs) > 0 {
		in = op.Inputs[0].Shape.DType
	}
	var find func(kernel.Form) kernel.Func
	_, isReduction := axesOf(op)
	switch op.Attrs.(type) {
	case *ir.Reshape, *ir.Identity, *ir.Bitcast:
		find = func(f kernel.Form) kernel.Func { return kernel.Copy(out.Size(), f) }
	case *ir.ConvertDType:
		find = func(f kernel.Form) kernel.Func {
			if in == out {
				return kernel.Copy(out.Size(), f)
			}
			return kernel.Convert(in, out, f)
		}
	case *ir.Where:
		find = func(f kernel.Form) kernel.Func { return kernel.Where(out.Size(), f) }
	case *ir.Clamp: // min, x, max
		t := c.temp(out.Size(), rows)
		c.apply(op, rows, t, func(f kernel.Form) kernel.Func { return kernel.Binary("Max", out, f) }, args[1], args[0])
		c.apply(op, rows, c.output(op, rows, stored), func(f kernel.Form) kernel.Func { return kernel.Binary("Min", out, f) }, t, args[2])
		return
	default:
		switch {
		case isReduction: // of nothing
			find = func(f kernel.Form) kernel.Func { return kernel.Copy(out.Size(), f) }
		case len(args) == 1:
			find = func(f kernel.Form) kernel.Func { return kernel.Unary(name, in, f) }
		default:
			find = func(f kernel.Form) kernel.Func { return kernel.Binary(name, in, f) }
		}
	}
	c.apply(op, rows, c.output(op, rows, stored), find, args...)
}

// reduce emits a reduction.
func (c *coder) reduce(op *ir.Op, cl class, stored bool) {
	out, in := op.Outputs[0], op.Inputs[0].Shape.DType
	red := kernel.Reduce(kernel.Op(op.Type()), in)
	a := c.read(op, 0)
	if a.scalar { // a row of equal elements is written out, so that it is added up as any other
		t := c.temp(a.elem, false)
		c.emit(instr{kind: onFull, op: op, f: kernel.Copy(a.elem, kernel.ScalarA), d: t, a: a})
		a = t
	}
	if cl == reduceRow {
		if red.Partial == in {
			c.emit(instr{kind: rowReduce, op: op, f: red.Row, d: c.output(op, true, stored), a: a})
			return
		}
		t := c.temp(red.Partial.Size(), true)
		c.emit(instr{kind: rowReduce, op: op, f: red.Row, d: t, a: a})
		c.emit(instr{kind: onRows, op: op, f: red.Finish, d: c.output(op, true, stored), a: t})
		return
	}
	p := partial{d: red.Partial, red: red, out: c.mem(out), width: c.cols, all: cl == reduceAll}
	if cl == reduceAll {
		p.width = 1
	}
	i := instr{kind: colReduce, op: op, f: red.Columns, a: a, partial: len(c.partials)}
	if cl == reduceAll {
		i.kind, i.f = allReduce, red.Row
	}
	c.partials = append(c.partials, p)
	c.emit(i)
}

// The bytes of a block that the fastest caches should hold, and how many elements it may have.
const (
	blockBytes = 32 << 10
	blockMin   = 1024
	blockMax   = 4096
	chunk      = 2048 // elements of a row that are added up at a time where all are
)

// finish chooses the size of blocks, and gives registers their place.
func (c *coder) finish() {
	perElement := 0
	for _, s := range c.slots {
		if !s.rowWise {
			perElement += s.elem
		}
	}
	for _, v := range c.mems {
		if v.Shape.Size() >= c.n {
			perElement += v.Shape.DType.Size()
		}
	}
	elements := min(max(blockBytes/max(perElement, 1)&^63, blockMin), blockMax)
	c.blockRows, c.blockCols = max(1, min(c.rows, elements/c.cols)), c.cols
	rowsNeeded := slices.ContainsFunc(c.slots, func(s slotInfo) bool { return s.rowWise }) ||
		slices.ContainsFunc(c.instrs, func(in instr) bool { return in.kind == rowReduce || in.kind == onRows })
	if c.cols > elements && !rowsNeeded {
		c.blockCols = elements
		if slices.ContainsFunc(c.partials, func(p partial) bool { return p.all }) {
			c.blockCols = chunk
		}
	}
	if slices.ContainsFunc(c.partials, func(p partial) bool { return !p.all }) {
		c.parts = min(max(c.n/(1<<15), 1), 16, c.rows)
	}
	for i := range c.partials {
		p := &c.partials[i]
		p.count = c.parts
		if p.all {
			p.count = c.rows * c.chunks()
		}
		p.bytes = (p.width*p.count*p.d.Size() + 63) &^ 63
	}
	at := 0
	for i := range c.slots {
		s := &c.slots[i]
		s.offset = at
		n := c.blockRows
		if !s.rowWise {
			n *= c.blockCols
		}
		at += (n*s.elem + 63) &^ 63
	}
	c.scratch = at
	place := func(r *ref) {
		if r.mem < 0 {
			r.offset = c.slots[r.slot].offset
			switch {
			case r.rowWise:
				r.row = r.elem
			default:
				r.row, r.col = c.blockCols*r.elem, r.elem
			}
		}
	}
	for i := range c.instrs {
		in := &c.instrs[i]
		refs := []*ref{&in.d, &in.a, &in.b, &in.c}
		in.flat = true
		for _, r := range refs {
			if r.elem == 0 {
				continue
			}
			place(r)
			in.flat = in.flat && (r.row == c.cols*r.elem && r.col == r.elem || r.row == 0 && r.scalar && !r.rowWise)
		}
	}
}

// chunks counts the chunks of a row.
func (c *code) chunks() int { return (c.cols + chunk - 1) / chunk }

// blocks counts the blocks of the domain.
func (c *code) blocks() int {
	if c.blockCols < c.cols {
		return c.rows * ((c.cols + c.blockCols - 1) / c.blockCols)
	}
	return (c.rows + c.blockRows - 1) / c.blockRows
}
