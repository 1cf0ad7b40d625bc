// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package cpu

import (
	"slices"
	"unsafe"

	"github.com/easyparallel/epl/cpu/kernel"
	"github.com/easyparallel/epl/cpu/pool"
	"github.com/easyparallel/epl/ir"
)

// padSum is a chain of additions of parts: tensors that a Pad has put among zeros. It is what the gradient of slices of a
// tensor looks like, of the steps of a recurrent network for example, and op by op each of them costs the whole tensor. Here
// parts are added to where they lie.
type padSum struct {
	base  *ir.Value // what parts are added to; nil: zeros
	parts []*ir.Op  // Pads, in the order of the additions
	adds  []*ir.Op  // all but the last
}

// padSums finds the chains of a segment, by their last op, and the ops that are part of one.
func (b *builder) padSums(ops []*ir.Op) (last map[*ir.Op]*padSum, within map[*ir.Op]bool) {
	last, within = map[*ir.Op]*padSum{}, map[*ir.Op]bool{}
	if !b.opts.elementwise {
		return last, within
	}
	here := make(map[*ir.Op]bool, len(ops))
	for _, op := range ops {
		here[op] = true
	}
	part := func(v *ir.Value) *ir.Op {
		if !here[v.Op] {
			return nil // of another segment, which may have left its inputs out
		}
		return b.part(v)
	}
	for _, op := range ops {
		if op.Type() != ir.OpAdd || !op.Inputs[0].Shape.Equal(op.Outputs[0].Shape) || !op.Inputs[1].Shape.Equal(op.Outputs[0].Shape) ||
			kernel.Binary("Add", op.Outputs[0].Shape.DType, 0) == nil {
			continue
		}
		x, y := op.Inputs[0], op.Inputs[1]
		if part(y) == nil {
			x, y = y, x
		}
		if part(y) == nil || x == y {
			continue
		}
		s := &padSum{}
		switch before := b.onlyUse(x); {
		case before != nil && last[before] != nil:
			s = last[before]
			delete(last, before)
			s.adds = append(s.adds, before)
		case part(x) != nil:
			s.parts = []*ir.Op{part(x)}
		default:
			s.base = x
		}
		s.parts = append(s.parts, part(y))
		last[op] = s
	}
	for op, s := range last {
		if s.base == nil && !s.common().empty() {
			delete(last, op) // -0 plus -0 is -0, which sums that begin with 0 are not
			continue
		}
		for _, p := range slices.Concat(s.parts, s.adds) {
			within[p] = true
		}
	}
	return last, within
}

// common is what all parts have in common.
func (s *padSum) common() box {
	x := boxOf(s.parts[0])
	for _, p := range s.parts[1:] {
		y := boxOf(p)
		for i := range x.dims {
			from, to := max(x.start[i], y.start[i]), min(x.start[i]+x.dims[i], y.start[i]+y.dims[i])
			x.start[i], x.dims[i] = from, max(0, to-from)
		}
	}
	x.strides = rowMajor(x.dims)
	return x
}

// onlyUse returns the op of a value that nothing else reads.
func (b *builder) onlyUse(v *ir.Value) *ir.Op {
	if b.uses[v] != 1 {
		return nil
	}
	return v.Op
}

// part returns the op of a value that is a part, and read only once.
func (b *builder) part(v *ir.Value) *ir.Op {
	op := b.onlyUse(v)
	if op == nil || op.Type() != ir.OpPad || !plain(op.Inputs[0]) || !plain(v) {
		return nil
	}
	if op.Inputs[1].Op == nil {
		return nil
	}
	zero, ok := op.Inputs[1].Op.Attrs.(*ir.Constant)
	if !ok || slices.ContainsFunc(bytesOf(zero.Value.Flat), func(b byte) bool { return b != 0 }) {
		return nil
	}
	config := op.Attrs.(*ir.Pad).AxesConfig
	if len(config) != v.Shape.Rank() || len(config) == 0 {
		return nil
	}
	for _, a := range config {
		if a.Interior != 0 || a.Start < 0 || a.End < 0 {
			return nil
		}
	}
	return op
}

// add makes the chain a node. A thread computes all of some places along one axis, in the order of the additions.
func (s *padSum) add(b *builder, op *ir.Op) {
	var inputs []*ir.Value
	if s.base != nil {
		inputs = append(inputs, s.base)
	}
	out := op.Outputs[0]
	dims, size, dtype := dimsOf(out), out.Shape.DType.Size(), out.Shape.DType
	axis := 0 // the first of more than one place
	for axis < len(dims)-1 && dims[axis] == 1 {
		axis++
	}
	var boxes []box
	for _, part := range s.parts {
		inputs, boxes = append(inputs, part.Inputs[0]), append(boxes, boxOf(part))
	}
	strides := rowMajor(dims)
	slab := strides[axis] * size
	tasks := max(1, min(dims[axis], product(dims)*size/moved))
	add, addZero := kernel.Binary("Add", dtype, 0), kernel.Binary("Add", dtype, kernel.ScalarB)
	hasBase, common := s.base != nil, s.common()
	zero := make([]byte, max(size, 8))
	run := func(team *pool.Pool, in, out []unsafe.Pointer) error {
		return team.Run(tasks, func(w *pool.Worker, t int) {
			from, to := t*dims[axis]/tasks, (t+1)*dims[axis]/tasks
			x := &w.Args
			x.Rows = 1
			if begin, n := unsafe.Add(out[0], from*slab), (to-from)*slab; hasBase {
				// Where a part has zeros, they turn -0 into 0.
				x.Cols = n / size
				x.D, x.A, x.B = begin, unsafe.Add(in[0], from*slab), unsafe.Pointer(&zero[0])
				addZero(x)
				common.each(dims, strides, axis, from, to, func(_, whole, n int) {
					copyStrided(unsafe.Add(out[0], whole*size), unsafe.Add(in[0], whole*size), n, size, size)
				})
			} else {
				clear(unsafe.Slice((*byte)(begin), n))
			}
			parts := in[len(in)-len(boxes):]
			for i := range boxes {
				boxes[i].each(dims, strides, axis, from, to, func(part, whole, n int) {
					x.Cols = n
					x.D = unsafe.Add(out[0], whole*size)
					x.A, x.B = x.D, unsafe.Add(parts[i], part*size)
					add(x)
				})
			}
		})
	}
	b.whole(op, &task{native: run}, inputs)
}

// box is where a part lies in the whole; strides are those of the part.
type box struct{ dims, start, strides []int }

func boxOf(part *ir.Op) box {
	dims := dimsOf(part.Inputs[0])
	x := box{dims: slices.Clone(dims), strides: rowMajor(dims)}
	for _, a := range part.Attrs.(*ir.Pad).AxesConfig {
		x.start = append(x.start, a.Start)
	}
	return x
}

func (x box) empty() bool { return slices.Contains(x.dims, 0) }

// each calls f for every run of elements that lie one after the other in both, in places from…to of the whole along an axis:
// where it begins in the part and in the whole, and how long it is. Axes before that one have one place.
func (x box) each(dims, strides []int, axis, from, to int, f func(part, whole, n int)) {
	from, to = max(from, x.start[axis]), min(to, x.start[axis]+x.dims[axis])
	if from >= to || x.empty() {
		return
	}
	run := len(dims) - 1 // elements along this axis and those after it are one run
	for run > axis && x.dims[run] == dims[run] {
		run--
	}
	mine := x.strides
	n := x.dims[run] * mine[run]
	part, whole := (from-x.start[axis])*mine[axis], 0
	for i, at := range x.start {
		whole += at * strides[i]
	}
	whole += (from - x.start[axis]) * strides[axis]
	if run == axis {
		f(part, whole, (to-from)*mine[axis])
		return
	}
	for k := range (to - from) * product(x.dims[axis+1:run]) {
		p, q, rest := part, whole, k
		for i := run - 1; i > axis; i-- {
			c := rest % x.dims[i]
			rest /= x.dims[i]
			p, q = p+c*mine[i], q+c*strides[i]
		}
		f(p+rest*mine[axis], q+rest*strides[axis], n)
	}
}
