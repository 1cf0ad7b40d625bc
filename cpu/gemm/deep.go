// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package gemm

import (
	"unsafe"

	"github.com/easyparallel/epl/cpu/pool"
)

// deep is a contraction whose depth is long and whose result is small, such as the gradient of a convolution by its weights:
// its depth are pixels. Parts of the depth are summed side by side, and the parts are then added up in order, so that the
// result does not depend on threads.
type deep struct {
	pack     bool // B must be packed
	parts    int
	steps    int // of the innermost dim in a block
	segments int // of the dim around it in a block
}

// isDeep tells whether the rows of A are contiguous, its depth is not, and all regions have the same depth.
func isDeep(regions []Region) bool {
	last := func(list []Dim) Dim {
		if list = join(sorted(list)); len(list) == 0 {
			return Dim{}
		}
		return list[len(list)-1]
	}
	if last(regions[0].Rows).A != 1 {
		return false
	}
	for _, r := range regions {
		for i, d := range r.Depth {
			if d.Size == 0 || d.A == 1 && d.Size > 1 || d != regions[0].Depth[i] {
				return false
			}
		}
	}
	return true
}

// deepSteps is how many steps of depth are taken at a time: packed panels of A and B then stay in the caches.
const deepSteps = 256

// plan decides how the depth is cut. That depends on shapes alone.
func (d *deep) plan(p *Contraction) {
	r := &p.regions[0]
	n := len(r.depth)
	inner, seg, outer := r.depth[n-1], r.depth[n-2], r.depth[0]
	d.steps = min(inner.Size, deepSteps)
	d.segments = max(1, min(seg.Size, deepSteps/inner.Size))
	if len(p.panels) > 1 {
		d.pack = true
	}
	// The partial sums must cost little beside the operands.
	const most = 16
	size := outer.Size
	if n == 2 && outer.Size == 1 {
		size = inner.Size / deepSteps
	}
	d.parts = max(1, min(size, most, p.rows*p.Cols.Size/(4*p.Size)))
	if p.Groups.Size > 1 {
		d.parts = 1
	}
}

func runDeep[T element](p *Contraction, team *pool.Pool, a, b, c, scratch unsafe.Pointer) error {
	size := int(unsafe.Sizeof(*new(T)))
	d := p.deep
	lines := 0
	for i := range p.regions {
		lines += p.regions[i].lines
	}
	split := max(1, min(lines, 4*team.Threads()/d.parts))
	err := team.Run(d.parts*split, func(w *pool.Worker, t int) {
		part, s := t%d.parts, t/d.parts
		to := c
		if part > 0 {
			to = unsafe.Add(scratch, (part-1)*p.Size*size)
		}
		deepPart[T](p, w, a, b, to, part, s*lines/split, (s+1)*lines/split)
	})
	if err != nil || d.parts == 1 {
		return err
	}
	const many = 1 << 12
	return team.Run((p.Size+many-1)/many, func(_ *pool.Worker, t int) {
		from, end := t*many, min(p.Size, (t+1)*many)
		sum := unsafe.Slice((*T)(unsafe.Add(c, from*size)), end-from)
		for part := range d.parts - 1 {
			for i, v := range unsafe.Slice((*T)(unsafe.Add(scratch, (part*p.Size+from)*size)), end-from) {
				sum[i] += v
			}
		}
	})
}

// deepPart adds up a part of the depth, for some of the lines of all regions.
func deepPart[T element](p *Contraction, w *pool.Worker, a, b, c unsafe.Pointer, part, first, last int) {
	size := int(unsafe.Sizeof(*new(T)))
	d := p.deep
	depth := p.regions[0].depth // all regions have the same
	n := len(depth)
	from, count := make([]int, n), make([]int, n) // the part
	for i, x := range depth {
		count[i] = x.Size
	}
	cutDim := 0
	if n == 2 && depth[0].Size == 1 {
		cutDim = 1
	}
	from[cutDim], count[cutDim] = part*depth[cutDim].Size/d.parts, (part+1)*depth[cutDim].Size/d.parts-part*depth[cutDim].Size/d.parts
	inner, seg := depth[n-1], depth[n-2]
	width := 0 // of all panels
	for i := range p.panels {
		width += p.panels[i].kernels.cols
	}
	const rows = 32
	pa := w.Scratch((rows*deepSteps + width*deepSteps) * size)
	pb := unsafe.Add(pa, rows*deepSteps*size)
	x := new(directArgs)
	outer := 1
	for _, k := range count[:n-2] {
		outer *= k
	}
	begun := false
	for o := range outer {
		oa, ob, rest := 0, p.regions[0].b, o
		for i := n - 3; i >= 0; i-- {
			at := from[i] + rest%count[i]
			rest /= count[i]
			oa, ob = oa+at*depth[i].A, ob+at*depth[i].B
		}
		for s0 := 0; s0 < count[n-2]; s0 += d.segments {
			segments := min(d.segments, count[n-2]-s0)
			for k0 := 0; k0 < count[n-1]; k0 += d.steps {
				steps := min(d.steps, count[n-1]-k0)
				ka := oa + (from[n-2]+s0)*seg.A + (from[n-1]+k0)*inner.A
				kb := ob + (from[n-2]+s0)*seg.B + (from[n-1]+k0)*inner.B
				deepBlock[T](p, x, a, b, c, pa, pb, ka, kb, segments, steps, first, last, begun)
				begun = true
			}
		}
	}
}

// deepBlock adds up a block of the depth.
func deepBlock[T element](p *Contraction, x *directArgs, a, b, c, pa, pb unsafe.Pointer, ka, kb, segments, steps, first, last int, add bool) {
	size := int(unsafe.Sizeof(*new(T)))
	d := p.deep
	n := len(p.regions[0].depth)
	inner, seg := p.regions[0].depth[n-1], p.regions[0].depth[n-2]
	x.k, x.segments, x.add = steps, segments, 0
	if add {
		x.add = 1
	}
	if d.pack {
		at := 0
		for i := range p.panels {
			q := &p.panels[i]
			for s := range segments {
				packColumns[T](unsafe.Add(pb, (at+s*steps*q.kernels.cols)*size), unsafe.Add(b, (kb+s*seg.B+q.from*p.Cols.B)*size), steps, inner.B, q.cols, p.Cols.B, q.kernels.cols)
			}
			at += segments * steps * q.kernels.cols
		}
	}
	packA := len(p.panels) > 1
	begin := 0
	for i := range p.regions {
		r := &p.regions[i]
		x.crow = r.row.C * size
		for line := max(0, first-begin); line < min(r.lines, last-begin); line++ {
			oa, oc, rest := r.a+ka, r.c, line
			for i := len(r.outer) - 1; i >= 0; i-- {
				d := &r.outer[i]
				oa, oc = oa+rest%d.Size*d.A, oc+rest%d.Size*d.C
				rest /= d.Size
			}
			// Panels of one width have the same tiles.
			for i := 0; i < len(p.panels); {
				k := p.panels[i].kernels
				end := i
				for end < len(p.panels) && p.panels[end].kernels == k {
					end++
				}
				row := 0
				for _, tile := range r.tiles[i] {
					x.a, x.row, x.step, x.jump = unsafe.Add(a, (oa+row*r.row.A)*size), r.row.A*size, inner.A*size, (seg.A-steps*inner.A)*size
					if packA {
						for s := range segments {
							copyLines(unsafe.Add(pa, s*steps*tile.rows*size), unsafe.Add(x.a, s*seg.A*size), tile.rows*size, inner.A*size, steps, tile.rows, tile.rows, size)
						}
						x.a, x.row, x.step, x.jump = pa, size, tile.rows*size, 0
					}
					for j := i; j < end; j++ {
						q := &p.panels[j]
						x.cols, x.mask = q.cols, k.mask(q.cols, size)
						if d.pack {
							at := 0
							for l := range j {
								at += segments * steps * p.panels[l].kernels.cols
							}
							x.b, x.bstep, x.bjump = unsafe.Add(pb, at*size), k.cols*size, 0
						} else {
							x.b, x.bstep, x.bjump = unsafe.Add(b, (kb+q.from)*size), inner.B*size, (seg.B-steps*inner.B)*size
						}
						x.c = unsafe.Add(c, (oc+row*r.row.C+q.from)*size)
						tile.run(x)
					}
					row += tile.rows
				}
				i = end
			}
		}
		begin += r.lines
	}
}
