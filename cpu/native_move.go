// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package cpu

import (
	"unsafe"

	"github.com/gomlx/compute"

	"github.com/easyparallel/epl/cpu/pool"
	"github.com/easyparallel/epl/ir"
)

func init() {
	natives[ir.OpConcatenate] = concatenate
	natives[ir.OpPad] = pad
}

// moved is the number of bytes of a task that only copies.
const moved = 1 << 16

// concatenate puts tensors one after the other along an axis.
func concatenate(op *ir.Op) nativeFunc {
	axis := op.Attrs.(*ir.Concatenate).Axis
	out := op.Outputs[0]
	size := out.Shape.DType.Size()
	outer := product(dimsOf(out)[:axis])
	inner := product(dimsOf(out)[axis+1:]) * size
	row := dimsOf(out)[axis] * inner
	lengths := make([]int, len(op.Inputs))
	for i, in := range op.Inputs {
		lengths[i] = dimsOf(in)[axis] * inner
	}
	tasks := max(1, min(outer, outer*row/moved))
	return func(team *pool.Pool, in, out []unsafe.Pointer) error {
		return team.Run(tasks, func(_ *pool.Worker, t int) {
			for r := t * outer / tasks; r < (t+1)*outer/tasks; r++ {
				at := r * row
				for i, n := range lengths {
					copyStrided(unsafe.Add(out[0], at), unsafe.Add(in[i], r*n), n, 1, 1)
					at += n
				}
			}
		})
	}
}

// pad writes a tensor into a larger one that is filled with a value.
func pad(op *ir.Op) nativeFunc {
	x, out := op.Inputs[0], op.Outputs[0]
	config := op.Attrs.(*ir.Pad).AxesConfig
	if len(config) != x.Shape.Rank() || len(config) == 0 {
		return nil
	}
	f := padder(dimsOf(x), dimsOf(out), config, out.Shape.DType.Size())
	return func(team *pool.Pool, in, out []unsafe.Pointer) error { return f(team, in[0], in[1], out[0]) }
}

// padder makes a function that writes a tensor of some dims into a larger one, which is filled with a value. Where padding is
// negative, what would lie outside is left away.
func padder(dims, to []int, config []compute.PadAxis, size int) func(team *pool.Pool, x, value, out unsafe.Pointer) error {
	k := len(dims) - 1
	strides := rowMajor(to)
	rows := product(dims[:k])
	step := 1 + config[k].Interior
	// The columns of a row that land inside.
	first, last := 0, dims[k]
	for first < last && config[k].Start+first*step < 0 {
		first++
	}
	for last > first && config[k].Start+(last-1)*step >= to[k] {
		last--
	}
	n := product(to)
	tasks := max(1, min(64, n*size/moved))
	return func(team *pool.Pool, x, value, out unsafe.Pointer) error {
		err := team.Run(tasks, func(_ *pool.Worker, t int) {
			from, end := t*n/tasks, (t+1)*n/tasks
			copyStrided(unsafe.Add(out, from*size), value, end-from, 0, size)
		})
		if err != nil || first == last {
			return err
		}
		parts := max(1, min(rows, tasks))
		return team.Run(parts, func(_ *pool.Worker, t int) {
			for r := t * rows / parts; r < (t+1)*rows/parts; r++ {
				at, rest, inside := config[k].Start, r, true
				for i := k - 1; i >= 0 && inside; i-- {
					c := config[i].Start + rest%dims[i]*(1+config[i].Interior)
					rest /= dims[i]
					inside = c >= 0 && c < to[i]
					at += c * strides[i]
				}
				if !inside {
					continue
				}
				src := unsafe.Add(x, (r*dims[k]+first)*size)
				if step == 1 {
					copyStrided(unsafe.Add(out, (at+first)*size), src, (last-first)*size, 1, 1)
					continue
				}
				for i := first; i < last; i++ {
					copyStrided(unsafe.Add(out, (at+i*step)*size), unsafe.Add(src, (i-first)*size), size, 1, 1)
				}
			}
		})
	}
}
