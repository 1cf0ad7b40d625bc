package cpu

import (
	"unsafe"

	"github.com/gomlx/compute"
	"github.com/gomlx/compute/dtypes"

	"github.com/easyparallel/epl/cpu/kernel"
	"github.com/easyparallel/epl/cpu/pool"
	"github.com/easyparallel/epl/ir"
)

func init() {
	natives[ir.OpReduceWindow] = reduceWindow
	natives[ir.OpSelectAndScatterMax] = func(op *ir.Op) nativeFunc {
		a := op.Attrs.(*ir.SelectAndScatterMax)
		return selectAndScatter(op, a.WindowDimensions, a.WindowStrides, a.Paddings, func(v, best float64) bool { return v > best })
	}
	natives[ir.OpSelectAndScatterMin] = func(op *ir.Op) nativeFunc {
		a := op.Attrs.(*ir.SelectAndScatterMin)
		return selectAndScatter(op, a.WindowDimensions, a.WindowStrides, a.Paddings, func(v, best float64) bool { return v < best })
	}
}

// windowOps are the kernels of pooling: what a window does with its elements.
var windowOps = map[compute.ReduceOpType][2]kernel.Op{
	compute.ReduceOpMax: {"Max", "ReduceMax"}, compute.ReduceOpMin: {"Min", "ReduceMin"},
	compute.ReduceOpSum: {"Add", "ReduceSum"}, compute.ReduceOpProduct: {"Mul", "ReduceProduct"},
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
	names, ok := windowOps[a.ReductionType]
	if !ok || rank == 0 || d != dtypes.Float32 && d != dtypes.Float64 {
		return nil
	}
	f, red := kernel.Binary(names[0], d, 0), kernel.Reduce(names[1], d)
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
	border := padder(dimsOf(x), padded, config, size)
	init := make([]byte, size)
	fill(d, unsafe.Pointer(unsafe.SliceData(init)), 1, red.Init)
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
// largest elements of its window.
func selectAndScatter(op *ir.Op, window, strides []int, paddings [][2]int, better func(v, best float64) bool) nativeFunc {
	switch op.Outputs[0].Shape.DType {
	case dtypes.Float32:
		return scatterSelected[float32](op, window, strides, paddings, better)
	case dtypes.Float64:
		return scatterSelected[float64](op, window, strides, paddings, better)
	}
	return nil
}

func scatterSelected[T float32 | float64](op *ir.Op, window, strides []int, paddings [][2]int, better func(v, best float64) bool) nativeFunc {
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
					if inside {
						for c, v := range values[o : o+length] {
							if !found || better(float64(v), float64(best[c])) || v != v {
								best[c], where[c] = v, o+c
							}
						}
						found = true
					}
					for i := axes - 1; i >= 0; i-- {
						if tap[i]++; tap[i] < window[i] {
							break
						}
						tap[i] = 0
					}
				}
				if found {
					for c, o := range where {
						to[o] += from[s*length+c]
					}
				}
			}
		})
	}
}
