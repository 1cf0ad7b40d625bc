// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package gemm

import (
	"slices"
	"unsafe"

	"github.com/gomlx/compute/dtypes"

	"github.com/easyparallel/epl/cpu/pool"
)

// Contraction is a sum of products over several dims, such as a convolution. Its operands are read in place, by
// microkernels that know strides: nothing is copied for the taps of a kernel, and no zeros of a border are multiplied,
// because the result is cut into regions whose elements have the same taps. It may be run by several pools at a time.
type Contraction struct {
	DType dtypes.DType
	// Depth are the dims that are summed over: their sizes and the strides of B.
	Depth []Dim
	// Cols is the dim of the columns: its size, and the strides of B and C.
	Cols Dim
	// Groups are contractions alike: how many, and the distances of their operands.
	Groups Dim
	// Size is the number of elements of C, where some may belong to no region: they become zero.
	Size int

	regions []region
	blank   bool // some elements of C belong to no region
	work    int  // of a group, in multiplications
	mode    packing
	rows    int // of B, if it is packed
	packed  int // elements of B, packed
	panels  []columns
	deep    *deep // if the sum is shared out, too
}

// Dim is a loop: how often, and the distances in A, B and C from one time to the next, in elements.
type Dim struct{ Size, A, B, C int }

// Range is what a region uses of a dim of depth: Size indices from From, Step apart, and the distance in A from one to the next.
type Range struct{ Size, From, Step, A int }

// Region is a part of C: element (outer, row, column) is the sum over depth of A's and B's.
type Region struct {
	A, B, C int // where it begins
	// Rows are dims of A and C.
	Rows []Dim
	// Outer are dims of B and C, and maybe A.
	Outer []Dim
	// Depth has a range for every dim of the contraction's depth.
	Depth []Range
}

// packing says how B is read.
type packing uint8

const (
	inPlace packing = iota
	packOnce
	packLines // B's elements depend on the region's outer dims
)

// columns are some of the columns, a panel, computed by microkernels of one width.
type columns struct {
	from, cols int
	kernels    *direct
	packed     int // where it begins in packed B
}

// region is a Region, ready to run.
type region struct {
	a, b, c int
	row     Dim
	outer   []Dim
	lines   int
	work    int     // of a line
	depth   []Dim   // joined, the innermost last; at least two
	ranges  []Range // as given
	tiles   [][]directKernel
	near    int // lines whose part of A stays in the second cache
}

// Compile prepares to compute these regions. All fields of the contraction are set before.
func (p *Contraction) Compile(regions []Region) {
	p.plan(regions)
	for _, r := range regions {
		p.add(r)
	}
	if p.deep != nil {
		p.deep.plan(p)
	}
}

func (p *Contraction) add(r Region) {
	size := p.DType.Size()
	for _, d := range r.Depth {
		if d.Size == 0 {
			p.blank = true
			return
		}
	}
	rows := join(sorted(r.Rows))
	if len(rows) == 0 {
		rows = []Dim{{Size: 1}}
	}
	best := p.tileDim(rows)
	const long = 112 // rows of a line: a multiple of the rows of many kernels
	if d := rows[best]; d.Size > 2*long {
		if rest := d.Size % long; rest > 0 {
			end := r
			end.Rows = slices.Clone(rows)
			end.Rows[best].Size = rest
			end.A, end.C = r.A+(d.Size-rest)*d.A, r.C+(d.Size-rest)*d.C
			p.add(end)
		}
		rows[best] = Dim{Size: long, A: d.A, C: d.C}
		rows = append(rows, Dim{Size: d.Size / long, A: d.A * long, C: d.C * long})
		rows[best], rows[len(rows)-1] = rows[len(rows)-1], rows[best]
		best = len(rows) - 1
	}
	n := region{a: r.A, c: r.C, row: rows[best], ranges: r.Depth}
	if p.mode != packOnce {
		n.b = r.B
	}
	n.outer = append(append(n.outer, r.Outer...), slices.Delete(slices.Clone(rows), best, best+1)...)
	n.lines = 1
	for _, d := range n.outer {
		n.lines *= d.Size
	}
	n.work = n.row.Size * p.Cols.Size
	var depth []Dim
	stride := p.rows
	for i, d := range r.Depth {
		b := p.Depth[i].B
		if p.mode == packOnce {
			stride /= p.Depth[i].Size
			b = stride
		}
		n.b += d.From * b
		depth = append(depth, Dim{Size: d.Size, A: d.A, B: d.Step * b})
		n.work *= d.Size
	}
	if p.mode == packLines { // packed in the order of the ranges
		stride = 1
		for i := len(depth) - 1; i >= 0; i-- {
			depth[i].B = stride
			stride *= depth[i].Size
		}
	}
	depth = join(sorted(depth))
	for len(depth) < 2 {
		depth = append([]Dim{{Size: 1}}, depth...)
	}
	n.depth = depth
	for _, q := range p.panels {
		n.tiles = append(n.tiles, q.kernels.tileRows(n.row.Size, n.row.A*size))
	}
	n.near = max(1, (1<<18)/max(1, n.row.Size*abs(n.row.A)*size))
	p.work += n.lines * n.work
	p.regions = append(p.regions, n)
}

// sorted puts dims in the order in which they lie in A.
func sorted(dims []Dim) []Dim {
	s := slices.Clone(dims)
	slices.SortStableFunc(s, func(x, y Dim) int { return abs(y.A) - abs(x.A) })
	return s
}

func abs(n int) int { return max(n, -n) }

// tileDim chooses the dim of rows that is cut into tiles. Neighbours in memory are better, unless they are too few.
func (p *Contraction) tileDim(rows []Dim) int {
	k := p.panels[0].kernels
	best := len(rows) - 1
	least := k.time(rows[best].Size) / float64(rows[best].Size)
	for i := best - 1; i >= 0; i-- {
		const farther = 1.3
		if t := k.time(rows[i].Size) / float64(rows[i].Size); t*farther < least {
			best, least = i, t
		}
	}
	return best
}

// plan chooses the panels of columns, and whether B is packed.
func (p *Contraction) plan(regions []Region) {
	list := direct32
	if p.DType == dtypes.Float64 {
		list = direct64
	}
	p.rows = 1
	for _, d := range p.Depth {
		p.rows *= d.Size
	}
	for at := 0; at < p.Cols.Size; {
		k := 0
		for k+1 < len(list) && p.Cols.Size-at <= list[k+1].cols {
			k++
		}
		q := columns{from: at, cols: min(list[k].cols, p.Cols.Size-at), kernels: &list[k], packed: p.packed}
		if q.kernels.whole && q.cols < q.kernels.cols {
			p.mode = packOnce
		}
		p.packed += p.rows * q.kernels.cols
		p.panels = append(p.panels, q)
		at += q.cols
	}
	if p.Cols.B != 1 || len(p.panels) > 1 {
		p.mode = packOnce
	}
	outer := slices.ContainsFunc(regions[0].Outer, func(d Dim) bool { return d.B != 0 })
	if !outer && p.Cols.C == 1 && p.rows >= 128 && isDeep(regions) {
		p.deep, p.mode = &deep{pack: p.mode == packOnce}, inPlace
		return
	}
	if outer && p.mode == packOnce {
		p.mode = packLines
	}
	if p.Cols.B == 1 && p.mode == packLines && !p.panels[len(p.panels)-1].kernels.whole {
		p.mode = inPlace
	}
}

// join leaves out dims of one element, and makes one dim of neighbours that are one in all operands.
func join(dims []Dim) (joined []Dim) {
	for _, d := range dims {
		if d.Size == 1 {
			continue
		}
		if n := len(joined) - 1; n >= 0 {
			if o := joined[n]; o.A == d.A*d.Size && o.B == d.B*d.Size && o.C == d.C*d.Size {
				joined[n] = Dim{Size: o.Size * d.Size, A: d.A, B: d.B, C: d.C}
				continue
			}
		}
		joined = append(joined, d)
	}
	return joined
}

// Scratch is how many bytes Run needs beside its operands.
func (p *Contraction) Scratch() int {
	switch {
	case p.deep != nil:
		return (p.deep.parts - 1) * p.Size * p.DType.Size()
	case p.mode == packOnce:
		return p.packed * p.DType.Size()
	}
	return 0
}

// Run computes the contraction.
func (p *Contraction) Run(team *pool.Pool, a, b, c, scratch unsafe.Pointer) error {
	if p.DType == dtypes.Float64 {
		return runContraction[float64](p, team, a, b, c, scratch)
	}
	return runContraction[float32](p, team, a, b, c, scratch)
}

func runContraction[T element](p *Contraction, team *pool.Pool, a, b, c, scratch unsafe.Pointer) error {
	size := int(unsafe.Sizeof(*new(T)))
	if p.blank {
		const many = 1 << 14
		all := unsafe.Slice((*T)(c), p.Size)
		if err := team.Run((p.Size+many-1)/many, func(_ *pool.Worker, t int) { clear(all[t*many : min(p.Size, (t+1)*many)]) }); err != nil {
			return err
		}
	}
	tasks := max(1, min(p.work/(1<<16), 4*team.Threads()))
	wide := p.panelParts(tasks)
	tasks = (tasks + wide - 1) / wide
	for g := range max(1, p.Groups.Size) {
		from, to := unsafe.Add(a, g*p.Groups.A*size), unsafe.Add(c, g*p.Groups.C*size)
		by := unsafe.Add(b, g*p.Groups.B*size)
		if p.deep != nil {
			if err := runDeep[T](p, team, from, by, to, scratch); err != nil {
				return err
			}
			continue
		}
		if p.mode == packOnce {
			if err := packAll[T](p, team, by, scratch); err != nil {
				return err
			}
			by = scratch
		}
		err := team.Run(tasks*wide, func(w *pool.Worker, t int) {
			n := t / tasks
			panels := [2]int{n * len(p.panels) / wide, (n + 1) * len(p.panels) / wide}
			t %= tasks
			lo, hi := t*p.work/tasks, (t+1)*p.work/tasks
			x := new(directArgs)
			begin := 0
			for i := range p.regions {
				r := &p.regions[i]
				// The lines whose work begins within the task's.
				first, last := (lo-begin+r.work-1)/r.work, (hi-begin+r.work-1)/r.work
				first, last = max(0, first), min(r.lines, last)
				if begin < hi && first < last {
					regionLines[T](p, r, w, x, from, by, to, first, last, panels)
				}
				begin += r.lines * r.work
			}
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// panelParts is into how many parts the panels are cut, for so many tasks: so that the tasks together read the least of A and B.
func (p *Contraction) panelParts(tasks int) int {
	elements := 0 // of A, about
	for i := range p.regions {
		r := &p.regions[i]
		elements += r.lines * r.row.Size * abs(r.row.A)
	}
	best, least := 1, 0
	for n := 1; n <= min(tasks, len(p.panels)); n++ {
		if read := n*elements + (tasks+n-1)/n*p.packed; n == 1 || read < least {
			best, least = n, read
		}
	}
	return best
}

// packAll packs B: for every panel, all of its rows.
func packAll[T element](p *Contraction, team *pool.Pool, b, to unsafe.Pointer) error {
	size := int(unsafe.Sizeof(*new(T)))
	inner := p.Depth[len(p.Depth)-1]
	outer := p.rows / inner.Size
	parts := max(1, min(outer, p.rows*p.Cols.Size>>13))
	return team.Run(parts, func(_ *pool.Worker, t int) {
		for o := t * outer / parts; o < (t+1)*outer/parts; o++ {
			at, rest := 0, o
			for i := len(p.Depth) - 2; i >= 0; i-- {
				at += rest % p.Depth[i].Size * p.Depth[i].B
				rest /= p.Depth[i].Size
			}
			for _, q := range p.panels {
				packColumns[T](unsafe.Add(to, (q.packed+o*inner.Size*q.kernels.cols)*size), unsafe.Add(b, (at+q.from*p.Cols.B)*size),
					inner.Size, inner.B, q.cols, p.Cols.B, q.kernels.cols)
			}
		}
	})
}

// packColumns writes rows of some columns, with zeros behind them.
func packColumns[T element](dst, src unsafe.Pointer, rows, rowStride, cols, colStride, width int) {
	if colStride == 1 {
		copyLines(dst, src, width*int(unsafe.Sizeof(*new(T))), rowStride*int(unsafe.Sizeof(*new(T))), rows, cols, width, int(unsafe.Sizeof(*new(T))))
		return
	}
	if unsafe.Sizeof(*new(T)) == 4 {
		micro32.pack(dst, src, colStride, rowStride, cols, width, rows)
		return
	}
	pack[T](dst, src, colStride, rowStride, cols, width, rows)
}

// regionLines computes some lines of a region.
func regionLines[T element](p *Contraction, r *region, w *pool.Worker, x *directArgs, a, b, c unsafe.Pointer, first, last int, panels [2]int) {
	size := int(unsafe.Sizeof(*new(T)))
	n := len(r.depth)
	inner, seg := r.depth[n-1], r.depth[n-2]
	outer := r.depth[:n-2]
	more := 1
	for _, d := range outer {
		more *= d.Size
	}
	x.row, x.step, x.jump = r.row.A*size, inner.A*size, (seg.A-inner.Size*inner.A)*size
	x.k, x.segments = inner.Size, seg.Size
	x.crow = r.row.C * size
	var beside, packed unsafe.Pointer
	if p.Cols.C != 1 || p.mode == packLines {
		const tile = 28 * 32
		beside = w.Scratch((tile + p.rows*32) * size)
		packed = unsafe.Add(beside, tile*size)
	}
	for l0 := first; l0 < last; l0 += r.near {
		for i := panels[0]; i < panels[1]; i++ {
			q := &p.panels[i]
			unit := 1 // elements of B from one index to the next
			if p.mode != inPlace {
				unit = q.kernels.cols
			}
			x.bstep, x.bjump = inner.B*unit*size, (seg.B-inner.Size*inner.B)*unit*size
			x.cols, x.mask = q.cols, q.kernels.mask(q.cols, size)
			for line := l0; line < min(last, l0+r.near); line++ {
				oa, ob, oc, rest := r.a, r.b, r.c+q.from*p.Cols.C, line
				for i := len(r.outer) - 1; i >= 0; i-- {
					d := &r.outer[i]
					at := rest % d.Size
					rest /= d.Size
					oa, ob, oc = oa+at*d.A, ob+at*d.B, oc+at*d.C
				}
				from := b
				switch p.mode {
				case inPlace:
					ob += q.from * p.Cols.B
				case packOnce:
					ob = ob*unit + q.packed
				case packLines:
					packLine[T](p, r, q, unsafe.Add(b, ob*size), packed)
					from, ob = packed, 0
				}
				for _, k := range r.tiles[i] {
					for m := range more {
						ea, eb, rest := oa, ob, m
						for i := len(outer) - 1; i >= 0; i-- {
							d := &outer[i]
							at := rest % d.Size
							rest /= d.Size
							ea, eb = ea+at*d.A, eb+at*d.B*unit
						}
						x.a, x.b, x.c = unsafe.Add(a, ea*size), unsafe.Add(from, eb*size), unsafe.Add(c, oc*size)
						if p.Cols.C == 1 {
							x.add = min(m, 1)
							k.run(x)
							continue
						}
						x.c, x.crow = beside, q.kernels.cols*size
						k.run(x)
						spread[T](x, unsafe.Add(c, oc*size), k.rows, r.row.C, p.Cols.C, m > 0)
					}
					oa, oc = oa+k.rows*r.row.A, oc+k.rows*r.row.C
				}
			}
		}
	}
}

// packLine packs what a line reads of B, in the order of the region's ranges.
func packLine[T element](p *Contraction, r *region, q *columns, b, to unsafe.Pointer) {
	size := int(unsafe.Sizeof(*new(T)))
	width := q.kernels.cols
	last := len(r.ranges) - 1
	inner := r.ranges[last]
	outer := 1
	for _, d := range r.ranges[:last] {
		outer *= d.Size
	}
	for o := range outer {
		at, rest := q.from*p.Cols.B, o
		for i := last - 1; i >= 0; i-- {
			d := &r.ranges[i]
			at += rest % d.Size * d.Step * p.Depth[i].B
			rest /= d.Size
		}
		packColumns[T](unsafe.Add(to, o*inner.Size*width*size), unsafe.Add(b, at*size), inner.Size, inner.Step*p.Depth[last].B, q.cols, p.Cols.B, width)
	}
}

// spread writes a tile to columns that are not contiguous.
func spread[T element](x *directArgs, c unsafe.Pointer, rows, crow, ccol int, add bool) {
	size := int(unsafe.Sizeof(*new(T)))
	for i := range rows {
		for j, v := range unsafe.Slice((*T)(unsafe.Add(x.c, i*x.crow)), x.cols) {
			to := (*T)(unsafe.Add(c, (i*crow+j*ccol)*size))
			if add {
				v += *to
			}
			*to = v
		}
	}
}
