// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package cpu

import (
	"unsafe"

	"github.com/easyparallel/epl/cpu/gemm"
	"github.com/easyparallel/epl/cpu/pool"
)

// wholeRowsMin is from how many rows on a product is cut into rows alone, because the group that follows it needs them
// whole.
const wholeRowsMin = 128

// follows tells whether a group can be done with every part of the only product of a step as soon as it is computed: it
// reads the elements of the product in order, and its blocks are rows of the product, or parts of them. If it needs whole
// rows, the product then computes them whole.
func (b *builder) follows(step []*task, t *task) bool {
	if !b.opts.dots || t.code == nil || len(step) != 1 || step[0].dot == nil {
		return false
	}
	p, c := step[0].dot, t.code
	if p.Entries() != 1 || p.CRow != p.N || c.n != p.M*p.N || c.rows != 1 && c.cols != p.N || len(c.partials) > 0 {
		return false
	}
	reads := false
	for i := range c.instrs {
		in := &c.instrs[i]
		for _, r := range []*ref{&in.a, &in.b, &in.c} {
			if r.elem == 0 || r.mem < 0 || t.mems[r.mem] != step[0].mems[step[0].reads] {
				continue
			}
			if in.view != nil || r.offset != 0 || r.scalar || r.rowWise || r.col != r.elem || c.rows > 1 && r.row != c.cols*r.elem {
				return false
			}
			reads = true
		}
	}
	if reads && c.wholeRows() {
		if c.rows == 1 || p.M < wholeRowsMin {
			return false
		}
		p.WholeRows = true
	}
	return reads
}

// wholeRows tells whether blocks are whole rows in any case.
func (c *code) wholeRows() bool {
	for i := range c.instrs {
		if k := c.instrs[i].kind; k == rowReduce || k == onRows || k == loadRows || c.instrs[i].d.rowWise {
			return true
		}
	}
	return false
}

// then runs a group for parts of a product of n columns.
func (c *code) then(n int, mem []unsafe.Pointer) gemm.Then {
	return func(w *pool.Worker, row, rows, col, cols int) {
		scratch := w.Beside(c.scratch)
		run := func(b block) {
			for k := range c.steps {
				c.step(&w.Args, &c.steps[k], &b, scratch, mem, nil)
			}
		}
		if c.rows == 1 && cols == n { // one row of all elements
			row, rows, col, cols = 0, 1, row*n, rows*n
		}
		if c.rows > 1 && cols == c.cols {
			for r := row; r < row+rows; r += c.blockRows {
				for at := 0; at < cols; at += c.blockCols {
					run(block{row: r, col: at, rows: min(c.blockRows, row+rows-r), cols: min(c.blockCols, cols-at)})
				}
			}
			return
		}
		for r := row; r < row+rows; r++ {
			first, inRow := col, r
			if c.rows == 1 {
				first, inRow = r*n+col, 0
			}
			for at := 0; at < cols; at += c.blockCols {
				run(block{row: inRow, col: first + at, rows: 1, cols: min(c.blockCols, cols-at)})
			}
		}
	}
}
