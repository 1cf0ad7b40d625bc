// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package cpu

import (
	"unsafe"

	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/dtypes/bfloat16"
	"github.com/gomlx/compute/dtypes/float16"

	"github.com/easyparallel/epl/cpu/pool"
	"github.com/easyparallel/epl/ir"
)

func init() {
	natives[ir.OpArgMinMax] = argMinMax
	natives[ir.OpCumSum] = cumSum
}

// Numbers of Go, and those of 16 bits, which are computed with as float32.
type (
	integer interface {
		int8 | int16 | int32 | int64 | uint8 | uint16 | uint32 | uint64
	}
	number interface{ integer | float32 | float64 }
	half   interface {
		bfloat16.BFloat16 | float16.Float16
		Float32() float32
	}
)

// along divides a tensor at an axis: what is before it, the axis, and what is behind.
func along(dims []int, axis int) (outer, n, inner int) {
	return product(dims[:axis]), dims[axis], product(dims[axis+1:])
}

// columns is how many elements behind an axis a task goes through together.
const columns = 64

// scan calls f for every piece of a tensor that is divided at an axis: base is the index of its first element, and it has so
// many columns, which lie inner elements apart along the axis.
func scan(team *pool.Pool, outer, n, inner int, f func(base, cols int)) error {
	per := (inner + columns - 1) / columns
	pieces := outer * per
	tasks := max(1, min(pieces, outer*n*inner/(1<<13)))
	return team.Run(tasks, func(_ *pool.Worker, t int) {
		for p := t * pieces / tasks; p < (t+1)*pieces/tasks; p++ {
			first := p % per * columns
			f(p/per*n*inner+first, min(columns, inner-first))
		}
	})
}

// argMinMax finds where the smallest or largest element along an axis is: the first one, or the last that is not a number.
func argMinMax(op *ir.Op) nativeFunc {
	a := op.Attrs.(*ir.ArgMinMax)
	switch op.Inputs[0].Shape.DType {
	case dtypes.Float32:
		return argOf(op, a, less[float32], isNaN[float32])
	case dtypes.Float64:
		return argOf(op, a, less[float64], isNaN[float64])
	case dtypes.Int8:
		return argOf(op, a, less[int8], nil)
	case dtypes.Int16:
		return argOf(op, a, less[int16], nil)
	case dtypes.Int32:
		return argOf(op, a, less[int32], nil)
	case dtypes.Int64:
		return argOf(op, a, less[int64], nil)
	case dtypes.Uint8:
		return argOf(op, a, less[uint8], nil)
	case dtypes.Uint16:
		return argOf(op, a, less[uint16], nil)
	case dtypes.Uint32:
		return argOf(op, a, less[uint32], nil)
	case dtypes.Uint64:
		return argOf(op, a, less[uint64], nil)
	// As on GoMLX's backend: half precision has no rule for what is not a number.
	case dtypes.BFloat16:
		return argOf(op, a, lessHalf[bfloat16.BFloat16], nil)
	case dtypes.Float16:
		return argOf(op, a, lessHalf[float16.Float16], nil)
	}
	return nil
}

func less[T number](a, b T) bool { return a < b }

func isNaN[T float32 | float64](a T) bool { return a != a }

func lessHalf[T half](a, b T) bool { return a.Float32() < b.Float32() }

// indexWriter writes index i of memory.
func indexWriter(d dtypes.DType) func(p unsafe.Pointer, i, v int) {
	switch d {
	case dtypes.Int8, dtypes.Uint8:
		return func(p unsafe.Pointer, i, v int) { *(*int8)(unsafe.Add(p, i)) = int8(v) }
	case dtypes.Int16, dtypes.Uint16:
		return func(p unsafe.Pointer, i, v int) { *(*int16)(unsafe.Add(p, i*2)) = int16(v) }
	case dtypes.Int32, dtypes.Uint32:
		return func(p unsafe.Pointer, i, v int) { *(*int32)(unsafe.Add(p, i*4)) = int32(v) }
	case dtypes.Int64, dtypes.Uint64:
		return func(p unsafe.Pointer, i, v int) { *(*int64)(unsafe.Add(p, i*8)) = int64(v) }
	}
	return nil
}

func argOf[T any](op *ir.Op, a *ir.ArgMinMax, less func(a, b T) bool, nan func(T) bool) nativeFunc {
	write := indexWriter(a.OutputDType)
	if write == nil {
		return nil
	}
	size := op.Inputs[0].Shape.Size()
	outer, n, inner := along(dimsOf(op.Inputs[0]), a.Axis)
	better := less
	if !a.IsMin {
		better = func(a, b T) bool { return less(b, a) }
	}
	return func(team *pool.Pool, in, out []unsafe.Pointer) error {
		x := unsafe.Slice((*T)(in[0]), size)
		return scan(team, outer, n, inner, func(base, cols int) {
			var best [columns]T
			var where [columns]int
			copy(best[:cols], x[base:base+cols])
			for i := 1; i < n; i++ {
				for c, v := range x[base+i*inner : base+i*inner+cols] {
					if better(v, best[c]) || nan != nil && nan(v) {
						best[c], where[c] = v, i
					}
				}
			}
			first := base/(n*inner)*inner + base%inner
			for c := range cols {
				write(out[0], first+c, where[c])
			}
		})
	}
}

// cumSum adds up along an axis, in its order or from behind; half precision in float32.
func cumSum(op *ir.Op) nativeFunc {
	switch op.Inputs[0].Shape.DType {
	case dtypes.Float32:
		return sumAlong(op, self[float32], self[float32])
	case dtypes.Float64:
		return sumAlong(op, self[float64], self[float64])
	case dtypes.Int8:
		return sumAlong(op, self[int8], self[int8])
	case dtypes.Int16:
		return sumAlong(op, self[int16], self[int16])
	case dtypes.Int32:
		return sumAlong(op, self[int32], self[int32])
	case dtypes.Int64:
		return sumAlong(op, self[int64], self[int64])
	case dtypes.Uint8:
		return sumAlong(op, self[uint8], self[uint8])
	case dtypes.Uint16:
		return sumAlong(op, self[uint16], self[uint16])
	case dtypes.Uint32:
		return sumAlong(op, self[uint32], self[uint32])
	case dtypes.Uint64:
		return sumAlong(op, self[uint64], self[uint64])
	case dtypes.BFloat16:
		return sumAlong(op, bfloat16.BFloat16.Float32, bfloat16.FromFloat32)
	case dtypes.Float16:
		return sumAlong(op, float16.Float16.Float32, float16.FromFloat32)
	}
	return nil
}

func self[T any](v T) T { return v }

func sumAlong[T any, S number](op *ir.Op, from func(T) S, to func(S) T) nativeFunc {
	a, size := op.Attrs.(*ir.CumSum), op.Inputs[0].Shape.Size()
	outer, n, inner := along(dimsOf(op.Inputs[0]), a.Axis)
	return func(team *pool.Pool, in, out []unsafe.Pointer) error {
		x, y := unsafe.Slice((*T)(in[0]), size), unsafe.Slice((*T)(out[0]), size)
		return scan(team, outer, n, inner, func(base, cols int) {
			var sums [columns]S
			for i := range n {
				if a.Options.Reverse {
					i = n - 1 - i
				}
				at := base + i*inner
				for c, v := range x[at : at+cols] {
					before := sums[c]
					sums[c] += from(v)
					if a.Options.Exclusive {
						y[at+c] = to(before)
					} else {
						y[at+c] = to(sums[c])
					}
				}
			}
		})
	}
}
