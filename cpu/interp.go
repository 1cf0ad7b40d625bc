// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package cpu

import (
	"reflect"
	"unsafe"

	"github.com/gomlx/compute/dtypes"

	"github.com/easyparallel/epl/cpu/kernel"
	"github.com/easyparallel/epl/cpu/pool"
)

// tasks is how many pieces of work a group gives to the threads of its device. Where partial results are added up it does
// not depend on their number.
func (c *code) tasks() int {
	if c.parts > 0 {
		return c.parts
	}
	return min(max(c.n/(1<<13), 1), 64, c.blocks())
}

// run does one of the tasks of a group. mem are its tensors, own its memory for partial results.
func (c *code) run(w *pool.Worker, task int, mem []unsafe.Pointer, own unsafe.Pointer) {
	scratch := w.Scratch(c.scratch)
	if c.parts > 0 { // a range of rows
		for i := range c.partials {
			if p := &c.partials[i]; !p.all {
				fill(p.d, unsafe.Add(own, p.offset+task*p.width*p.d.Size()), p.width, p.red.Init)
			}
		}
		from, to := task*c.rows/c.parts, (task+1)*c.rows/c.parts
		perRow := (c.cols + c.blockCols - 1) / c.blockCols
		c.blocksOf(w, (to-from+c.blockRows-1)/c.blockRows*perRow, func(i int) block {
			r, col := from+i/perRow*c.blockRows, i%perRow*c.blockCols
			return block{part: task, row: r, col: col, rows: min(c.blockRows, to-r), cols: min(c.blockCols, c.cols-col)}
		}, scratch, mem, own)
		return
	}
	blocks, tasks := c.blocks(), c.tasks()
	perRow := (c.cols + c.blockCols - 1) / c.blockCols
	from, to := task*blocks/tasks, (task+1)*blocks/tasks
	c.blocksOf(w, to-from, func(i int) block {
		b := block{row: (from + i) / perRow * c.blockRows, col: (from + i) % perRow * c.blockCols}
		b.rows, b.cols = min(c.blockRows, c.rows-b.row), min(c.blockCols, c.cols-b.col)
		return b
	}, scratch, mem, own)
}

// blocksOf runs all steps for n blocks, one after the other. While one is computed, the next is on its way to the caches.
func (c *code) blocksOf(w *pool.Worker, n int, at func(i int) block, scratch unsafe.Pointer, mem []unsafe.Pointer, own unsafe.Pointer) {
	if n == 0 {
		return
	}
	b := at(0)
	for i := range n {
		var next block
		if i+1 < n {
			next = at(i + 1)
		}
		for k := range c.steps {
			if next.rows > 0 {
				c.prefetch(k, &next, mem)
			}
			c.step(&w.Args, &c.steps[k], &b, scratch, mem, own)
		}
		b = next
	}
}

// block is a piece of a group's domain.
type block struct {
	part                 int
	row, col, rows, cols int
}

// at is where an operand of a block begins.
func (r *ref) at(b *block, scratch unsafe.Pointer, mem []unsafe.Pointer) unsafe.Pointer {
	if r.mem < 0 {
		return unsafe.Add(scratch, r.offset)
	}
	return unsafe.Add(mem[r.mem], r.offset+b.row*r.row+b.col*r.col)
}

// step runs an instruction for a block.
func (c *code) step(x *kernel.Args, in *instr, b *block, scratch unsafe.Pointer, mem []unsafe.Pointer, own unsafe.Pointer) {
	switch in.kind {
	case onLoop:
		in.runLoop(b, scratch, mem)
	case onFull:
		x.Rows, x.Cols = b.rows, b.cols
		if in.flat {
			x.Rows, x.Cols = 1, b.rows*b.cols
		}
		c.operands(x, in, b, scratch, mem)
		in.f(x)
	case onRows:
		x.Rows, x.Cols = 1, b.rows
		c.operands(x, in, b, scratch, mem)
		in.f(x)
	case rowReduce:
		x.Rows, x.Cols = b.rows, b.cols
		x.D, x.SD = in.d.at(b, scratch, mem), in.d.elem
		x.A, x.SA = in.a.at(b, scratch, mem), in.a.row
		in.f(x)
	case colReduce:
		p := &c.partials[in.partial]
		x.Rows, x.Cols = b.rows, b.cols
		x.D = unsafe.Add(own, p.offset+(b.part*p.width+b.col)*p.d.Size())
		x.A, x.SA = in.a.at(b, scratch, mem), in.a.row
		in.f(x)
	case allReduce:
		p := &c.partials[in.partial]
		chunks, size := c.chunks(), p.d.Size()
		a := in.a.at(b, scratch, mem)
		for col := 0; col < b.cols; col += chunk {
			x.Rows, x.Cols = b.rows, min(chunk, b.cols-col)
			x.D, x.SD = unsafe.Add(own, p.offset+(b.row*chunks+(b.col+col)/chunk)*size), chunks*size
			x.A, x.SA = unsafe.Add(a, col*in.a.elem), in.a.row
			in.f(x)
		}
	case loadFull:
		in.view.load(in.d.at(b, scratch, mem), unsafe.Add(mem[in.a.mem], in.a.offset), b.row*c.cols+b.col, b.rows*b.cols)
	case loadRows:
		in.view.load(in.d.at(b, scratch, mem), unsafe.Add(mem[in.a.mem], in.a.offset), b.row, b.rows)
	case countUp:
		start, n := b.row*c.cols+b.col, b.rows*b.cols
		if in.d.rowWise {
			start, n = b.row, b.rows
		}
		in.io(in.d.at(b, scratch, mem), start, n, in.inner, in.dim)
	}
}

func (c *code) operands(x *kernel.Args, in *instr, b *block, scratch unsafe.Pointer, mem []unsafe.Pointer) {
	x.D, x.SD = in.d.at(b, scratch, mem), in.d.row
	if in.a.elem != 0 {
		x.A, x.SA = in.a.at(b, scratch, mem), in.a.row
	}
	if in.b.elem != 0 {
		x.B, x.SB = in.b.at(b, scratch, mem), in.b.row
	}
	if in.c.elem != 0 {
		x.C, x.SC = in.c.at(b, scratch, mem), in.c.row
	}
}

// join adds the partial results up, when all tasks are done.
func (c *code) join(w *pool.Worker, mem []unsafe.Pointer, own unsafe.Pointer) {
	x := &w.Args
	for i := range c.partials {
		p := &c.partials[i]
		first := unsafe.Add(own, p.offset)
		size := p.d.Size()
		if p.all {
			x.D, x.SD, x.A, x.SA, x.Rows, x.Cols = first, 0, first, 0, 1, p.count
			p.red.JoinRow(x)
		} else if p.count > 1 {
			x.D, x.A, x.SA, x.Rows, x.Cols = first, unsafe.Add(first, p.width*size), p.width*size, p.count-1, p.width
			p.red.Join(x)
		}
		x.D, x.SD, x.A, x.SA, x.Rows, x.Cols = mem[p.out], 0, first, 0, 1, p.width
		p.red.Finish(x)
	}
}

// fill writes a value n times.
func fill(d dtypes.DType, p unsafe.Pointer, n int, value any) {
	size := d.Size()
	first := reflect.NewAt(d.GoType(), p).Elem()
	first.Set(reflect.ValueOf(value))
	all := unsafe.Slice((*byte)(p), n*size)
	for done := size; done < len(all); done *= 2 {
		copy(all[done:], all[:done])
	}
}
