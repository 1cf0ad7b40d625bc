// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package cpu

import (
	"strconv"
	"strings"
	"unsafe"

	"github.com/gomlx/compute/dtypes"

	"github.com/easyparallel/epl/cpu/kernel"
	"github.com/easyparallel/epl/cpu/loop"
	"github.com/easyparallel/epl/ir"
)

// copied is the name of an instruction that writes an operand out.
const copied kernel.Op = "Copy"

// inLoops is the kernel of an op, if loops have it for its type; "": they have not.
func inLoops(op *ir.Op) kernel.Op {
	if op.Outputs[0].Shape.DType != dtypes.Float32 || loop.Arity(loop.Op(op.Type())) != len(op.Inputs) {
		return ""
	}
	return kernel.Op(op.Type())
}

// makeSteps turns instructions into what runs: runs of them that a loop can do become one. compile makes the loops; nil:
// there are none.
func (c *coder) makeSteps(compile func(*loop.Program) *loop.Func) {
	for i := 0; i < len(c.instrs); {
		to := i
		for compile != nil && to < len(c.instrs) && c.instrs[to].canLoop() {
			to++
		}
		if to-i >= 2 {
			if x, p := c.loopOf(i, to); p != nil {
				if x.loop = compile(p); x.loop != nil {
					c.steps = append(c.steps, x)
					i = to
					continue
				}
			}
		}
		for to = max(to, i+1); i < to; i++ {
			c.steps = append(c.steps, c.instrs[i])
		}
	}
	c.findStreams()
}

// canLoop tells whether an instruction can be part of a loop.
func (in *instr) canLoop() bool {
	if in.kind != onFull || in.name == "" || in.d.elem != 4 || in.d.rowWise || in.d.col != 4 {
		return false
	}
	for _, r := range []*ref{&in.a, &in.b} {
		if r.elem != 0 && (r.elem != 4 || !r.scalar && r.col != 4) {
			return false
		}
	}
	return true
}

// loopOf makes one instruction, and its program, of those from i to to. The program is nil if there is none.
func (c *coder) loopOf(i, to int) (instr, *loop.Program) {
	p := &loop.Program{}
	x := instr{kind: onLoop, flat: true, done: to - i}
	// What a place in memory holds: an operand, or ^n, the result of instruction n of the program.
	holds := map[ref]int{}
	read := func(r ref) int {
		v, ok := holds[r]
		if !ok {
			v = len(p.Operands)
			holds[r] = v
			p.Operands = append(p.Operands, loop.Operand{Scalar: r.scalar, Prefetch: r.mem >= 0})
			x.refs = append(x.refs, r)
		}
		return v
	}
	var results []ref // of the program's instructions
	for k := i; k < to; k++ {
		in := &c.instrs[k]
		x.flat = x.flat && in.flat
		a := read(in.a)
		if in.name == copied {
			if in.d.mem >= 0 || c.isLive(in.d, to) {
				return instr{}, nil
			}
			holds[in.d] = a
			continue
		}
		b := a
		if in.b.elem != 0 {
			b = read(in.b)
		}
		holds[in.d] = ^len(p.Instrs)
		p.Instrs = append(p.Instrs, loop.Instr{Op: loop.Op(in.name), A: a, B: b})
		results = append(results, in.d)
	}
	number := func(v int) int {
		if v < 0 {
			return len(p.Operands) + ^v
		}
		return v
	}
	for n := range p.Instrs {
		in := &p.Instrs[n]
		in.A, in.B = number(in.A), number(in.B)
		if d := results[n]; d.mem >= 0 || holds[d] == ^n && c.isLive(d, to) {
			p.Stores = append(p.Stores, loop.Store{Value: number(^n), Prefetch: d.mem >= 0})
			x.refs = append(x.refs, d)
		}
	}
	return x, p
}

// isLive tells whether an instruction from at on reads what a register holds before that.
func (c *coder) isLive(d ref, at int) bool {
	for k := at; k < len(c.instrs); k++ {
		in := &c.instrs[k]
		for _, r := range []*ref{&in.a, &in.b, &in.c} {
			if r.elem != 0 && r.mem < 0 && r.slot == d.slot {
				return true
			}
		}
		if in.d.elem != 0 && in.d.mem < 0 && in.d.slot == d.slot {
			return false
		}
	}
	return false
}

// findStreams finds the tensors that blocks read or write in order and no loop asks for.
func (c *coder) findStreams() {
	seen := map[int]bool{}
	for i := range c.steps {
		in := &c.steps[i]
		for _, r := range append([]ref{in.a, in.b, in.c, in.d}, in.refs...) {
			if r.elem == 0 || r.mem < 0 || seen[r.mem] {
				continue
			}
			if in.kind == onLoop {
				seen[r.mem] = true
			} else if in.view == nil && !r.scalar && !r.rowWise && r.col == r.elem && (r.row == c.cols*r.elem || c.rows == 1) {
				seen[r.mem] = true
				c.streams = append(c.streams, r)
			}
		}
	}
}

// prefetch asks for what a block reads and writes, as much of it as is due before step k of the block before it.
func (c *code) prefetch(k int, next *block, mem []unsafe.Pointer) {
	for i := range c.streams {
		r := &c.streams[i]
		lines := next.rows * next.cols * r.elem / 64
		from, to := k*lines/len(c.steps), (k+1)*lines/len(c.steps)
		if to > from {
			kernel.Prefetch(unsafe.Add(r.at(next, nil, mem), from*64), to-from)
		}
	}
}

// loopsText tells of how many ops loops are, as "loop of 14"; "": there are none.
func (c *code) loopsText() string {
	var ops []string
	for i := range c.steps {
		if n := c.steps[i].done; n > 0 {
			ops = append(ops, strconv.Itoa(n))
		}
	}
	if len(ops) == 0 {
		return ""
	}
	return "loop of " + strings.Join(ops, "+")
}

// runLoop runs a loop for a block.
func (in *instr) runLoop(b *block, scratch unsafe.Pointer, mem []unsafe.Pointer) {
	var x loop.Args
	for i := range in.refs {
		r := &in.refs[i]
		x.Pointers[i], x.Strides[i] = uintptr(r.at(b, scratch, mem)), r.row
	}
	if in.flat {
		in.loop.Run(&x, 1, b.rows*b.cols)
	} else {
		in.loop.Run(&x, b.rows, b.cols)
	}
}
