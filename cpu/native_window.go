// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package cpu

import (
	"unsafe"

	"github.com/gomlx/compute"
	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/dtypes/bfloat16"
	"github.com/gomlx/compute/dtypes/float16"
	"github.com/gomlx/compute/shapes"

	"github.com/easyparallel/epl/cpu/kernel"
	"github.com/easyparallel/epl/cpu/pool"
	"github.com/easyparallel/epl/ir"
)

func init() {
	natives[ir.OpReduceWindow] = reduceWindow
	natives[ir.OpSelectAndScatterMax] = func(op *ir.Op) nativeFunc {
		a := op.Attrs.(*ir.SelectAndScatterMax)
		return selectAndScatter(op, a.WindowDimensions, a.WindowStrides, a.Paddings, false)
	}
	natives[ir.OpSelectAndScatterMin] = func(op *ir.Op) nativeFunc {
		a := op.Attrs.(*ir.SelectAndScatterMin)
		return selectAndScatter(op, a.WindowDimensions, a.WindowStrides, a.Paddings, true)
	}
}

// windowOps are what a window does with its elements, and what it gives if it has none.
var windowOps = map[compute.ReduceOpType]struct {
	kernel kernel.Op
	init   func(dtypes.DType) any
}{
	compute.ReduceOpMax: {"Max", dtypes.DType.LowestValue}, compute.ReduceOpMin: {"Min", dtypes.DType.HighestValue},
	compute.ReduceOpSum:     {"Add", func(d dtypes.DType) any { return shapes.CastAsDType(0, d) }},
	compute.ReduceOpProduct: {"Mul", func(d dtypes.DType) any { return shapes.CastAsDType(1, d) }},
}

// or gives one number for every axis: those given, else the same for all.
func or(list []int, rank, other int) []int {
	if len(list) > 0 {
		return list
	}
	all := make([]int, rank)
	for i := range all {
		all[i] = other
	}
	return all
}

// reduceWindow is pooling. A copy of the input with its borders, which hold what changes nothing, makes every element of every
// window a place in memory; rows along the last axis are reduced tap by tap.
func reduceWindow(op *ir.Op) nativeFunc {
	a := op.Attrs.(*ir.ReduceWindow)
	x, out := op.Inputs[0], op.Outputs[0]
	d, rank := out.Shape.DType, out.Shape.Rank()
	does, ok := windowOps[a.ReductionType]
	f := kernel.Binary(does.kernel, d, 0)
	if !ok || rank == 0 || f == nil {
		return nil
	}
	window := or(a.WindowDimensions, rank, 1)
	strides := a.Strides
	if len(strides) == 0 {
		strides = window
	}
	inner, dilations := or(a.InputDilations, rank, 1), or(a.WindowDilations, rank, 1)
	config := make([]compute.PadAxis, rank)
	padded := append([]int(nil), dimsOf(x)...)
	copied := false
	for i := range rank {
		c := compute.PadAxis{Interior: inner[i] - 1}
		if len(a.Paddings) > 0 {
			c.Start, c.End = a.Paddings[i][0], a.Paddings[i][1]
		}
		config[i] = c
		padded[i] += c.Start + c.End + (padded[i]-1)*c.Interior
		copied = copied || c != compute.PadAxis{}
		if padded[i] <= 0 {
			return nil
		}
	}
	xs := rowMajor(padded)
	var taps []int
	each(window, func(at []int) {
		o := 0
		for i, t := range at {
			o += t * dilations[i] * xs[i]
		}
		taps = append(taps, o)
	})
	last := rank - 1
	length, step, size := dimsOf(out)[last], strides[last], d.Size()
	var rows []int // where the window of a row's first element begins
	each(dimsOf(out)[:last], func(at []int) {
		o := 0
		for i, t := range at {
			o += t * strides[i] * xs[i]
		}
		rows = append(rows, o)
	})
	border := bordered(dimsOf(x), padded, config, size)
	init := make([]byte, size)
	fill(d, unsafe.Pointer(unsafe.SliceData(init)), 1, does.init(d))
	tasks := max(1, min(len(rows), len(rows)*length*len(taps)/(1<<14)))
	return func(team *pool.Pool, in, out []unsafe.Pointer) error {
		img, nothing := in[0], unsafe.Pointer(unsafe.SliceData(init))
		if copied {
			img = team.Shared(product(padded) * size)
			if err := border(team, in[0], nothing, img); err != nil {
				return err
			}
		}
		return team.Run(tasks, func(w *pool.Worker, t int) {
			k := &w.Args
			k.Rows, k.Cols = 1, length
			row := w.Scratch(length * size)
			for r := t * len(rows) / tasks; r < (t+1)*len(rows)/tasks; r++ {
				k.D = unsafe.Add(out[0], r*length*size)
				k.A = k.D
				copyStrided(k.D, nothing, length, 0, size)
				for _, tap := range taps {
					k.B = unsafe.Add(img, (rows[r]+tap)*size)
					if step != 1 {
						copyStrided(row, k.B, length, step*size, size)
						k.B = row
					}
					f(k)
				}
			}
		})
	}
}

// selectAndScatter is the gradient of maximum or minimum pooling: each element of the source is added to the first of the
// largest elements of its window, or to the last that is not a number.
func selectAndScatter(op *ir.Op, window, strides []int, paddings [][2]int, isMin bool) nativeFunc {
	switch op.Outputs[0].Shape.DType {
	case dtypes.Float32:
		return scatterSelected(op, window, strides, paddings, chooser[float32](isMin), addTo[float32])
	case dtypes.Float64:
		return scatterSelected(op, window, strides, paddings, chooser[float64](isMin), addTo[float64])
	case dtypes.Int8:
		return scatterSelected(op, window, strides, paddings, chooser[int8](isMin), addTo[int8])
	case dtypes.Int16:
		return scatterSelected(op, window, strides, paddings, chooser[int16](isMin), addTo[int16])
	case dtypes.Int32:
		return scatterSelected(op, window, strides, paddings, chooser[int32](isMin), addTo[int32])
	case dtypes.Int64:
		return scatterSelected(op, window, strides, paddings, chooser[int64](isMin), addTo[int64])
	case dtypes.Uint8:
		return scatterSelected(op, window, strides, paddings, chooser[uint8](isMin), addTo[uint8])
	case dtypes.Uint16:
		return scatterSelected(op, window, strides, paddings, chooser[uint16](isMin), addTo[uint16])
	case dtypes.Uint32:
		return scatterSelected(op, window, strides, paddings, chooser[uint32](isMin), addTo[uint32])
	case dtypes.Uint64:
		return scatterSelected(op, window, strides, paddings, chooser[uint64](isMin), addTo[uint64])
	case dtypes.BFloat16:
		return scatterSelected(op, window, strides, paddings, halfChooser[bfloat16.BFloat16](isMin), addHalf(bfloat16.FromFloat32))
	case dtypes.Float16:
		return scatterSelected(op, window, strides, paddings, halfChooser[float16.Float16](isMin), addHalf(float16.FromFloat32))
	}
	return nil
}

// choice compares a row of elements, which begins at an index, with the best so far.
type choice[T any] func(row, best []T, where []int, index int)

func chooser[T number](isMin bool) choice[T] {
	if isMin {
		return func(row, best []T, where []int, index int) {
			for c, v := range row {
				if v < best[c] || v != v {
					best[c], where[c] = v, index+c
				}
			}
		}
	}
	return func(row, best []T, where []int, index int) {
		for c, v := range row {
			if v > best[c] || v != v {
				best[c], where[c] = v, index+c
			}
		}
	}
}

func halfChooser[T half](isMin bool) choice[T] {
	return func(row, best []T, where []int, index int) {
		for c, v := range row {
			a, b := v.Float32(), best[c].Float32()
			if isMin && a < b || !isMin && a > b || a != a {
				best[c], where[c] = v, index+c
			}
		}
	}
}

// addTo adds a row to the elements that were chosen.
func addTo[T number](to []T, where []int, row []T) {
	for c, o := range where {
		to[o] += row[c]
	}
}

func addHalf[T half](of func(float32) T) func(to []T, where []int, row []T) {
	return func(to []T, where []int, row []T) {
		for c, o := range where {
			to[o] = of(to[o].Float32() + row[c].Float32())
		}
	}
}

func scatterSelected[T any](op *ir.Op, window, strides []int, paddings [][2]int, choose choice[T], add func(to []T, where []int, row []T)) nativeFunc {
	x, source := op.Inputs[0], op.Inputs[1]
	rank := x.Shape.Rank()
	if rank == 0 {
		return nil
	}
	window = or(window, rank, 1)
	if len(strides) == 0 {
		strides = window
	}
	if len(paddings) == 0 {
		paddings = make([][2]int, rank)
	}
	trivial := func(i int) bool { return window[i] == 1 && strides[i] == 1 && paddings[i] == [2]int{} }
	// Elements of the last axis have windows alike if it is not divided into windows.
	axes, length := rank, 1
	if trivial(rank - 1) {
		axes, length = rank-1, dimsOf(x)[rank-1]
	}
	// Batches share nothing, and are shared out.
	batches := 1
	if axes > 0 && trivial(0) {
		batches = dimsOf(x)[0]
	}
	dims, xs := dimsOf(x), rowMajor(dimsOf(x))
	sourceDims := dimsOf(source)[:axes]
	perBatch := product(sourceDims) / batches
	size := x.Shape.Size()
	return func(team *pool.Pool, in, out []unsafe.Pointer) error {
		values, from, to := unsafe.Slice((*T)(in[0]), size), unsafe.Slice((*T)(in[1]), source.Shape.Size()), unsafe.Slice((*T)(out[0]), size)
		return team.Run(batches, func(_ *pool.Worker, b int) {
			clear(to[b*size/batches : (b+1)*size/batches])
			best, where := make([]T, length), make([]int, length)
			at, tap := make([]int, axes), make([]int, axes)
			for s := b * perBatch; s < (b+1)*perBatch; s++ {
				for i, rest := axes-1, s; i >= 0; i-- {
					at[i] = rest % sourceDims[i]
					rest /= sourceDims[i]
				}
				found := false
				clear(tap)
				for range product(window[:axes]) {
					o, inside := 0, true
					for i := range axes {
						y := at[i]*strides[i] - paddings[i][0] + tap[i]
						inside = inside && y >= 0 && y < dims[i]
						o += y * xs[i]
					}
					switch {
					case !inside:
					case !found:
						copy(best, values[o:o+length])
						for c := range where {
							where[c] = o + c
						}
						found = true
					default:
						choose(values[o:o+length], best, where, o)
					}
					for i := axes - 1; i >= 0; i-- {
						if tap[i]++; tap[i] < window[i] {
							break
						}
						tap[i] = 0
					}
				}
				if found {
					add(to, where, from[s*length:(s+1)*length])
				}
			}
		})
	}
}
