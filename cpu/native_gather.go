// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package cpu

import (
	"fmt"
	"slices"
	"unsafe"

	"github.com/gomlx/compute/dtypes"

	"github.com/easyparallel/epl/cpu/kernel"
	"github.com/easyparallel/epl/cpu/pool"
	"github.com/easyparallel/epl/ir"
)

func init() {
	natives[ir.OpGather] = gatherSlices
	natives[ir.OpScatterSum] = func(op *ir.Op) nativeFunc {
		a := op.Attrs.(*ir.ScatterSum)
		return scatterWindows(op, "Add", a.IndexVectorAxis, a.UpdateWindowAxes, a.InsertedWindowAxes, a.ScatterAxesToOperandAxes)
	}
	natives[ir.OpScatterMax] = func(op *ir.Op) nativeFunc {
		a := op.Attrs.(*ir.ScatterMax)
		return scatterWindows(op, "Max", a.IndexVectorAxis, a.UpdateWindowAxes, a.InsertedWindowAxes, a.ScatterAxesToOperandAxes)
	}
	natives[ir.OpScatterMin] = func(op *ir.Op) nativeFunc {
		a := op.Attrs.(*ir.ScatterMin)
		return scatterWindows(op, "Min", a.IndexVectorAxis, a.UpdateWindowAxes, a.InsertedWindowAxes, a.ScatterAxesToOperandAxes)
	}
}

// indexReader reads index i of memory.
func indexReader(d dtypes.DType) func(p unsafe.Pointer, i int) int {
	switch d {
	case dtypes.Int8:
		return readIndex[int8]
	case dtypes.Int16:
		return readIndex[int16]
	case dtypes.Int32:
		return readIndex[int32]
	case dtypes.Int64:
		return readIndex[int64]
	case dtypes.Uint8:
		return readIndex[uint8]
	case dtypes.Uint16:
		return readIndex[uint16]
	case dtypes.Uint32:
		return readIndex[uint32]
	case dtypes.Uint64:
		return readIndex[uint64]
	}
	return nil
}

func readIndex[T int8 | int16 | int32 | int64 | uint8 | uint16 | uint32 | uint64](p unsafe.Pointer, i int) int {
	return int(*(*T)(unsafe.Add(p, uintptr(i)*unsafe.Sizeof(T(0)))))
}

// vectors says where the indices of an op lie: one vector of them for every slice or window.
type vectors struct {
	read           func(p unsafe.Pointer, i int) int
	count          int // vectors
	length, suffix int // elements of a vector, and how far they are apart
}

func newVectors(indices *ir.Value, axis int) (v vectors, ok bool) {
	v = vectors{read: indexReader(indices.Shape.DType), length: 1, suffix: 1}
	dims := dimsOf(indices)
	if axis < len(dims) {
		v.length, v.suffix = dims[axis], product(dims[axis+1:])
	}
	if v.length == 0 || v.read == nil {
		return v, false
	}
	v.count = product(dims) / v.length
	return v, true
}

// at is the place of element k of vector i.
func (v *vectors) at(i, k int) int { return i/v.suffix*v.length*v.suffix + k*v.suffix + i%v.suffix }

// runs are the contiguous pieces of a block that lies in two tensors, with strides of its own in each. Offsets are in bytes.
type runs struct {
	dims  []int
	steps [2][]int
	n     int // runs of a block
	bytes int // of a run
}

// newRuns divides a block of these dims; strides are those of its elements in both tensors.
func newRuns(dims, a, b []int, size int) *runs {
	r := &runs{bytes: size}
	var d, x, y []int
	for i := range dims {
		if dims[i] == 1 {
			continue
		}
		if k := len(d) - 1; k >= 0 && x[k] == a[i]*dims[i] && y[k] == b[i]*dims[i] {
			d[k], x[k], y[k] = d[k]*dims[i], a[i], b[i]
			continue
		}
		d, x, y = append(d, dims[i]), append(x, a[i]), append(y, b[i])
	}
	if k := len(d) - 1; k >= 0 && x[k] == 1 && y[k] == 1 {
		r.bytes *= d[k]
		d, x, y = d[:k], x[:k], y[:k]
	}
	for i := range x {
		x[i] *= size
		y[i] *= size
	}
	r.dims, r.steps, r.n = d, [2][]int{x, y}, product(d)
	return r
}

// each calls f with the offsets of runs from … to-1 in both tensors.
func (r *runs) each(from, to int, f func(a, b int)) {
	var where [16]int
	at := where[:0]
	if len(r.dims) > len(where) {
		at = make([]int, 0, len(r.dims))
	}
	at = at[:len(r.dims)]
	a, b, rest := 0, 0, from
	for i := len(r.dims) - 1; i >= 0; i-- {
		at[i] = rest % r.dims[i]
		rest /= r.dims[i]
		a += at[i] * r.steps[0][i]
		b += at[i] * r.steps[1][i]
	}
	for range to - from {
		f(a, b)
		for i := len(r.dims) - 1; i >= 0; i-- {
			at[i]++
			a += r.steps[0][i]
			b += r.steps[1][i]
			if at[i] < r.dims[i] {
				break
			}
			a -= r.dims[i] * r.steps[0][i]
			b -= r.dims[i] * r.steps[1][i]
			at[i] = 0
		}
	}
}

// offsets are where the elements of a tensor begin whose index is 0 but for some axes, in order.
func offsets(dims, strides, axes []int) []int {
	list := make([]int, 0, product(pickDims(dims, axes)))
	each(pickDims(dims, axes), func(at []int) {
		o := 0
		for i, t := range at {
			o += t * strides[axes[i]]
		}
		list = append(list, o)
	})
	return list
}

// without are the axes of a tensor that a list does not name.
func without(rank int, axes []int) []int {
	return slices.DeleteFunc(seq(0, rank), func(i int) bool { return slices.Contains(axes, i) })
}

// gatherSlices copies slices of a tensor that indices name: rows of a table, most often. An index that is too small or too
// large is moved inside.
func gatherSlices(op *ir.Op) nativeFunc {
	a, table, indices, out := op.Attrs.(*ir.Gather), op.Inputs[0], op.Inputs[1], op.Outputs[0]
	vs, ok := newVectors(indices, a.IndexVectorAxis)
	if !ok || len(a.StartIndexMap) != vs.length {
		return nil
	}
	rank, size := table.Shape.Rank(), table.Shape.DType.Size()
	ts, os := rowMajor(dimsOf(table)), rowMajor(dimsOf(out))
	kept := without(rank, a.CollapsedSliceAxes)
	if len(kept) != len(a.OffsetOutputAxes) {
		return nil
	}
	to := make([]int, rank)
	for i, k := range kept {
		to[k] = os[a.OffsetOutputAxes[i]]
	}
	slice := newRuns(a.SliceSizes, ts, to, size)
	starts := offsets(dimsOf(out), os, without(out.Shape.Rank(), a.OffsetOutputAxes))
	if len(starts) != vs.count {
		return nil
	}
	last, step := make([]int, vs.length), make([]int, vs.length)
	for k, axis := range a.StartIndexMap {
		last[k], step[k] = max(0, dimsOf(table)[axis]-a.SliceSizes[axis]), ts[axis]*size
	}
	all := vs.count * slice.n
	tasks := max(1, min(all, all*slice.bytes/moved))
	return func(team *pool.Pool, in, out []unsafe.Pointer) error {
		return team.Run(tasks, func(_ *pool.Worker, t int) {
			for at, end := t*all/tasks, (t+1)*all/tasks; at < end; {
				i, first := at/slice.n, at%slice.n
				n := min(end-at, slice.n-first)
				from := 0
				for k := range last {
					from += max(0, min(last[k], vs.read(in[1], vs.at(i, k)))) * step[k]
				}
				src, dst := unsafe.Add(in[0], from), unsafe.Add(out[0], starts[i]*size)
				slice.each(first, first+n, func(a, b int) {
					copyStrided(unsafe.Add(dst, b), unsafe.Add(src, a), slice.bytes, 1, 1)
				})
				at += n
			}
		})
	}
}

// scatterWindows combines windows of updates with places of a tensor that indices name: the gradient of an embedding, most
// often. Every element is combined in the order of the indices, whoever does it: threads share out the columns of a window,
// or the places where windows begin. An index that is outside is an error.
func scatterWindows(op *ir.Op, combine kernel.Op, vectorAxis int, window, inserted, to []int) nativeFunc {
	table, indices, updates := op.Inputs[0], op.Inputs[1], op.Inputs[2]
	d := table.Shape.DType
	f := kernel.Binary(combine, d, 0)
	vs, ok := newVectors(indices, vectorAxis)
	rank, size := table.Shape.Rank(), d.Size()
	axes := without(rank, inserted) // of the window
	if !ok || f == nil || updates.Shape.DType != d || len(to) != vs.length || len(axes) != len(window) {
		return nil
	}
	ts, us := rowMajor(dimsOf(table)), rowMajor(dimsOf(updates))
	dims := pickDims(dimsOf(updates), window)
	starts := offsets(dimsOf(updates), us, without(updates.Shape.Rank(), window))
	if len(starts) != vs.count {
		return nil
	}
	win := newRuns(dims, pickDims(ts, axes), pickDims(us, window), size)
	// How far an index may go, and whether windows that begin at different places have different elements.
	last, step, apart := make([]int, vs.length), make([]int, vs.length), true
	for k, axis := range to {
		n := 1
		if i := slices.Index(axes, axis); i >= 0 {
			n = dims[i]
		}
		last[k], step[k], apart = dimsOf(table)[axis]-n, ts[axis]*size, apart && n == 1
	}
	bytes := table.Shape.Size() * size
	copies := max(1, min(64, bytes/moved))
	cols, tasks, byPlace := win.bytes/size, 1, false
	if work := vs.count * win.n * win.bytes / moved; apart && work > 0 {
		if tasks = min(cols/16, work); tasks <= 1 {
			tasks, byPlace = min(16, work), true
		}
	}
	return func(team *pool.Pool, in, out []unsafe.Pointer) error {
		if in[0] != out[0] {
			err := team.Run(copies, func(_ *pool.Worker, t int) {
				from, to := t*bytes/copies, (t+1)*bytes/copies
				copyStrided(unsafe.Add(out[0], from), unsafe.Add(in[0], from), to-from, 1, 1)
			})
			if err != nil {
				return err
			}
		}
		return team.Run(tasks, func(w *pool.Worker, t int) {
			from, n := 0, cols
			if tasks > 1 && !byPlace {
				from = t * cols / tasks
				n = (t+1)*cols/tasks - from
			}
			x := &w.Args
			x.Rows, x.Cols = 1, n
			for i := range vs.count {
				place := 0
				for k := range last {
					index := vs.read(in[1], vs.at(i, k))
					if index < 0 || index > last[k] {
						panic(fmt.Sprintf("index %d of %s is outside 0…%d", index, op, last[k]))
					}
					place += index * step[k]
				}
				if byPlace && place/size%tasks != t {
					continue
				}
				dst, src := unsafe.Add(out[0], place+from*size), unsafe.Add(in[2], (starts[i]+from)*size)
				win.each(0, win.n, func(a, b int) {
					x.D = unsafe.Add(dst, a)
					x.A, x.B = x.D, unsafe.Add(src, b)
					f(x)
				})
			}
		})
	}
}
