// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

// Package gemm multiplies matrices on a CPU: strided operands in, so that no transpose is ever executed, and batches of
// them, as attention needs.
//
// A product is cut into blocks of the result, which the threads of a pool share out. Whoever computes a block packs the
// panels of A and B that it needs into the order in which the microkernel reads them, and so absorbs their strides; panels
// that are used only a few times are read where they lie, if the microkernel can; products of few rows are computed as their transposes where that saves more. Every
// element of the result is added up along K in the same order, whatever the blocks and threads.
package gemm

import (
	"unsafe"

	"github.com/gomlx/compute/dtypes"

	"github.com/easyparallel/epl/cpu/kernel"
	"github.com/easyparallel/epl/cpu/pool"
)

// Product is C = A·B for every entry of a batch: A has M×K elements, B K×N and C M×N.
type Product struct {
	DType dtypes.DType
	// In is the type of the elements of A and B, if it is another: half precision, which is converted to float32 while it is
	// packed.
	In      dtypes.DType
	M, N, K int
	A, B    Matrix
	// CRow is the distance of the rows of C; its columns are contiguous.
	CRow  int
	Batch []Batch
	// Add: the product is added to what C is, C = C + A·B, once it is complete: the sum is that of an addition of its own. Only a product that CanAdd has it.
	Add bool
	// WholeRows: no row of C is shared by threads, because what is done Then needs it whole.
	WholeRows bool
}

// Then is called with a part of C as soon as it is computed, while it is in the fastest caches, by the thread that computed it: the first
// row, how many rows, the first column, how many columns. Only products of one entry have it.
type Then func(w *pool.Worker, row, rows, col, cols int)

// Matrix are the strides of an operand, in elements.
type Matrix struct{ Row, Col int }

// Batch is a dim that A, B and C have in common: its size, and the distance of its entries in elements.
type Batch struct{ Size, A, B, C int }

// Supports tells whether there are products and contractions of elements of this type.
func Supports(d dtypes.DType) bool { return d == dtypes.Float32 || d == dtypes.Float64 }

// SupportsIntegers tells whether there are products of elements of this type, which is one of integers.
func SupportsIntegers(d dtypes.DType) bool { return integers[d] != nil }

// SupportsIn tells whether there are products of elements of type in that are added up in type d.
func SupportsIn(in, d dtypes.DType) bool {
	return in == d && Supports(d) || d == dtypes.Float32 && (in == dtypes.BFloat16 || in == dtypes.Float16)
}

// CanAdd tells whether the product can be added to C: its elements are complete in registers, before C is written.
func (p *Product) CanAdd() bool { return p.K > 0 && depthOf(p.K) == p.K && !p.mayTurn() }

// Entries is the number of products in the batch.
func (p *Product) Entries() int {
	n := 1
	for _, b := range p.Batch {
		n *= b.Size
	}
	return n
}

// offsets are where the matrices of an entry begin, in elements.
func (p *Product) offsets(e int) (a, b, c int) {
	for i := len(p.Batch) - 1; i >= 0; i-- {
		d := &p.Batch[i]
		a, b, c = a+e%d.Size*d.A, b+e%d.Size*d.B, c+e%d.Size*d.C
		e /= d.Size
	}
	return a, b, c
}

// Flops counts multiplications and additions.
func (p *Product) Flops() int64 {
	return 2 * int64(p.Entries()) * int64(p.M) * int64(p.N) * int64(p.K)
}

// depth is how many steps along K are packed at a time: panels of A and B then stay in the fastest caches.
const depth = 256

// A panel of A that is used at most directPanels times, and one of B that is used for at most directRows rows, is read where
// it lies: packing it would take longer than it saves.
const (
	directPanels = 2
	directRows   = 64
	directBytes  = 4096 // from row to row of B: beyond it, they fall into the same sets of a cache
)

// packRun is how many rows of B are packed before the next panel's: memory is then read along its rows.
const packRun = 16

// narrowBytes are the packed panels of B of a block at most.
const narrowBytes = 1 << 20

// small is the work, in multiplications, below which a product is not worth sharing out.
const small = 1 << 16

// Run computes the product. then may be nil.
func (p *Product) Run(team *pool.Pool, a, b, c unsafe.Pointer, then Then) error {
	switch p.DType {
	case dtypes.Float64:
		return run(p, &micro64, team, a, b, c, then)
	case dtypes.Float32:
		return run(p, &micro32, team, a, b, c, then)
	}
	return integers[p.DType](p, team, a, b, c, then)
}

// integers multiply by the portable microkernel, and wrap around: the order of sums does not matter, nor does the sign.
var integers = map[dtypes.DType]func(p *Product, team *pool.Pool, a, b, c unsafe.Pointer, then Then) error{
	dtypes.Int8: runIntegers[uint8], dtypes.Int16: runIntegers[uint16], dtypes.Int32: runIntegers[uint32], dtypes.Int64: runIntegers[uint64],
	dtypes.Uint8: runIntegers[uint8], dtypes.Uint16: runIntegers[uint16], dtypes.Uint32: runIntegers[uint32], dtypes.Uint64: runIntegers[uint64],
}

func runIntegers[T element](p *Product, team *pool.Pool, a, b, c unsafe.Pointer, then Then) error {
	return run(p, &micro[T]{rows: portableRows, cols: portableCols, tile: tile[T], pack: pack[T]}, team, a, b, c, then)
}

// parts is into how many rows and columns of blocks the result of one entry is cut, for so many threads.
func (p *Product) parts(threads int) (rows, cols int) {
	work := p.M * p.N * p.K
	entries := p.Entries()
	rows, cols = 1, p.narrow()
	if work <= small || threads == 1 || entries >= 2*threads {
		return rows, cols
	}
	blocks := 3 * threads // a thread that is slow leaves blocks to others
	if max(p.M, p.N) <= 1024 {
		blocks = threads // every block packs its own panels, which costs more than waiting for a thread
	}
	want := min(blocks, work/small+1)
	if p.WholeRows {
		return max(min(want, p.M/24), 1), 1
	}
	for rows*cols < want {
		// The longer side of a block is cut, so that what is packed is used as often as possible.
		m, n := p.M/(rows+1), p.N/(cols+1)
		switch {
		case m >= n && m >= 48:
			rows++
		case n >= 64:
			cols++
		case m >= 24:
			rows++
		default:
			return rows, cols
		}
	}
	return rows, cols
}

// narrow is into how many columns of blocks the result is cut at least, so that the packed panels of a block stay in the caches of a core.
func (p *Product) narrow() int {
	if p.WholeRows || p.mayTurn() && p.M <= turnedRows && p.K*p.M*p.DType.Size() <= turnedBytes {
		return 1
	}
	return max((p.N*depthOf(p.K)*p.DType.Size()+narrowBytes-1)/narrowBytes, 1)
}

func run[T element](p *Product, k *micro[T], team *pool.Pool, a, b, c unsafe.Pointer, then Then) error {
	rows, cols := p.parts(team.Threads())
	size := int(unsafe.Sizeof(*new(T)))
	from := newSource(p, k)
	perEntry := rows * cols
	return team.Run(p.Entries()*perEntry, func(w *pool.Worker, task int) {
		e, t := task/perEntry, task%perEntry
		oa, ob, oc := p.offsets(e)
		m0, m1 := cut(p.M, rows, t%rows, k.rows)
		n0, n1 := cut(p.N, cols, t/rows, k.cols)
		if m0 == m1 || n0 == n1 {
			return
		}
		var done func(row, rows int)
		if then != nil {
			done = func(row, rows int) { then(w, m0+row, rows, n0, n1-n0) }
		}
		block(p, k, from, w,
			unsafe.Add(a, (oa+m0*p.A.Row)*from.size), unsafe.Add(b, (ob+n0*p.B.Col)*from.size), unsafe.Add(c, (oc+m0*p.CRow+n0)*size), m1-m0, n1-n0, done)
	})
}

// cut is part i of n elements in so many parts, at multiples of unit.
func cut(n, parts, i, unit int) (from, to int) {
	units := (n + unit - 1) / unit
	return min(n, i*units/parts*unit), min(n, (i+1)*units/parts*unit)
}

// block computes m×n elements of the result on one thread. done, if it is not nil, is told which of its rows are.
func block[T element](p *Product, k *micro[T], from source[T], w *pool.Worker, a, b, c unsafe.Pointer, m, n int, done func(row, rows int)) {
	if turns(p, k, from, m) {
		turned(p, k, w, a, b, c, m, n, done)
		return
	}
	size := int(unsafe.Sizeof(*new(T)))
	steps := depthOf(p.K)
	panels := (n + k.cols - 1) / k.cols
	direct := k.direct && from.convert == nil
	directA := direct && panels <= directPanels
	directB := direct && p.B.Col == 1 && m <= directRows && p.B.Row*size < directBytes
	wide := 0 // floats of a panel that is not yet transposed
	if from.convert != nil {
		wide = max(k.rows, k.cols) * steps
	}
	pa := w.Scratch(((k.rows+panels*k.cols)*steps + wide) * size)
	pb := unsafe.Add(pa, k.rows*steps*size)
	beside := unsafe.Add(pb, panels*k.cols*steps*size)
	for k0 := 0; k0 < p.K; k0 += steps {
		kl := min(steps, p.K-k0)
		if !directB {
			run := kl
			if p.B.Col == 1 {
				run = packRun
			}
			for s := 0; s < kl; s += run {
				for j := range panels {
					from.pack(w, unsafe.Add(pb, (j*kl+s)*k.cols*size), unsafe.Add(b, ((k0+s)*p.B.Row+j*k.cols*p.B.Col)*from.size), beside, p.B.Col, p.B.Row,
						min(k.cols, n-j*k.cols), k.cols, min(run, kl-s))
				}
			}
		}
		for i := 0; i < m; i += k.rows {
			rows := min(k.rows, m-i)
			panelA := panel{unsafe.Add(a, (i*p.A.Row+k0*p.A.Col)*from.size), p.A.Row, p.A.Col}
			if !directA {
				from.pack(w, pa, panelA.at, beside, p.A.Row, p.A.Col, rows, k.rows, kl)
				panelA = panel{pa, 1, k.rows}
			}
			for j := range panels {
				panelB := panel{unsafe.Add(pb, j*k.cols*kl*size), 1, k.cols}
				if directB {
					panelB = panel{unsafe.Add(b, (k0*p.B.Row+j*k.cols)*size), 1, p.B.Row}
				}
				k.tile(kl, panelA, panelB, unsafe.Add(c, (i*p.CRow+j*k.cols)*size), p.CRow, rows, min(k.cols, n-j*k.cols), k0 > 0 || p.Add, asking{})
			}
			if done != nil && k0+kl == p.K {
				done(i, rows)
			}
		}
	}
	if p.K == 0 {
		for i := range m {
			clear(unsafe.Slice((*T)(unsafe.Add(c, i*p.CRow*size)), n))
		}
		if done != nil {
			done(0, m)
		}
	}
}

// depthOf is how many steps of k are packed at a time: as equal parts as can be.
func depthOf(k int) int {
	parts := max((k+depth-1)/depth, 1)
	return (k + parts - 1) / parts
}

// source are the elements of the operands: of the product's type, or converted to it.
type source[T element] struct {
	size    int // of an element
	convert kernel.Func
	packed  func(dst, src unsafe.Pointer, stride, step, n, width, k int)
}

func newSource[T element](p *Product, k *micro[T]) source[T] {
	if p.In == dtypes.InvalidDType || p.In == p.DType {
		return source[T]{size: p.DType.Size(), packed: k.pack}
	}
	return source[T]{size: p.In.Size(), convert: kernel.Convert(p.In, p.DType, 0), packed: k.pack}
}

// pack packs a panel as a microkernel's pack does. A panel whose steps are contiguous is converted to beside first, and then
// transposed.
func (s *source[T]) pack(w *pool.Worker, dst, src, beside unsafe.Pointer, stride, step, n, width, k int) {
	if s.convert == nil {
		s.packed(dst, src, stride, step, n, width, k)
		return
	}
	size := int(unsafe.Sizeof(*new(T)))
	x := &w.Args
	switch {
	case stride == 1:
		x.D, x.SD, x.A, x.SA, x.Rows, x.Cols = dst, width*size, src, step*s.size, k, n
		s.convert(x)
	case step == 1:
		x.D, x.SD, x.A, x.SA, x.Rows, x.Cols = beside, k*size, src, stride*s.size, n, k
		s.convert(x)
		s.packed(dst, beside, k, 1, n, width, k)
	default:
		for i := range n {
			x.D, x.SD, x.A, x.SA, x.Rows, x.Cols = unsafe.Add(dst, i*size), width*size, unsafe.Add(src, i*stride*s.size), step*s.size, k, 1
			s.convert(x)
		}
	}
}
