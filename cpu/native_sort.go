// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package cpu

import (
	"slices"
	"sort"
	"unsafe"

	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/dtypes/bfloat16"
	"github.com/gomlx/compute/dtypes/float16"

	"github.com/easyparallel/epl/cpu/pool"
	"github.com/easyparallel/epl/ir"
)

func init() { natives[ir.OpSort] = sortTensors }

// sortTensors sorts along an axis, if the comparator is one comparison of elements of one of the tensors: what Sort, TopK
// and BottomK of GoMLX write. It calls the sorting functions that GoMLX's backend calls, so that elements that are equal, or
// not numbers, end where they do there.
func sortTensors(op *ir.Op) nativeFunc {
	f := op.Funcs[0]
	if len(f.Outputs) != 1 || f.Outputs[0].Op == nil || len(f.Outputs[0].Op.Inputs) != 2 {
		return nil
	}
	compare := f.Outputs[0].Op
	l, r := slices.Index(f.Params, compare.Inputs[0]), slices.Index(f.Params, compare.Inputs[1])
	if l < 0 || r < 0 || l/2 != r/2 || l == r {
		return nil
	}
	before := sorter(op.Inputs[l/2].Shape.DType, compare.Type())
	if before == nil {
		return nil
	}
	a := op.Attrs.(*ir.Sort)
	outer, n, inner := along(dimsOf(op.Inputs[0]), a.Axis)
	sizes := make([]int, len(op.Inputs))
	for i, v := range op.Inputs {
		sizes[i] = v.Shape.DType.Size()
	}
	rows := outer * inner
	tasks := max(1, min(rows, rows*n/(1<<11)))
	return func(team *pool.Pool, in, out []unsafe.Pointer) error {
		return team.Run(tasks, func(_ *pool.Worker, t int) {
			order := make([]int, n)
			for row := t * rows / tasks; row < (t+1)*rows/tasks; row++ {
				base := row/inner*n*inner + row%inner
				for i := range order {
					order[i] = i
				}
				less := func(i, j int) bool {
					x, y := base+order[i]*inner, base+order[j]*inner
					if l > r {
						x, y = y, x
					}
					return before(in[l/2], x, y)
				}
				if a.IsStable {
					sort.SliceStable(order, less)
				} else {
					sort.Slice(order, less)
				}
				for k, size := range sizes {
					for i, from := range order {
						copyStrided(unsafe.Add(out[k], (base+i*inner)*size), unsafe.Add(in[k], (base+from*inner)*size), size, 1, 1)
					}
				}
			}
		})
	}
}

// sorter compares elements i and j of memory; nil: it is no comparison of that type.
func sorter(d dtypes.DType, op ir.OpType) func(p unsafe.Pointer, i, j int) bool {
	switch d {
	case dtypes.Float32:
		return comparing(op, self[float32])
	case dtypes.Float64:
		return comparing(op, self[float64])
	case dtypes.Int8:
		return comparing(op, self[int8])
	case dtypes.Int16:
		return comparing(op, self[int16])
	case dtypes.Int32:
		return comparing(op, self[int32])
	case dtypes.Int64:
		return comparing(op, self[int64])
	case dtypes.Uint8:
		return comparing(op, self[uint8])
	case dtypes.Uint16:
		return comparing(op, self[uint16])
	case dtypes.Uint32:
		return comparing(op, self[uint32])
	case dtypes.Uint64:
		return comparing(op, self[uint64])
	case dtypes.BFloat16:
		return comparing(op, bfloat16.BFloat16.Float32)
	case dtypes.Float16:
		return comparing(op, float16.Float16.Float32)
	}
	return nil
}

func comparing[T any, S number](op ir.OpType, of func(T) S) func(p unsafe.Pointer, i, j int) bool {
	at := func(p unsafe.Pointer, i int) S { return of(*(*T)(unsafe.Add(p, uintptr(i)*unsafe.Sizeof(*new(T))))) }
	switch op {
	case ir.OpLessThan:
		return func(p unsafe.Pointer, i, j int) bool { return at(p, i) < at(p, j) }
	case ir.OpLessOrEqual:
		return func(p unsafe.Pointer, i, j int) bool { return at(p, i) <= at(p, j) }
	case ir.OpGreaterThan:
		return func(p unsafe.Pointer, i, j int) bool { return at(p, i) > at(p, j) }
	case ir.OpGreaterOrEqual:
		return func(p unsafe.Pointer, i, j int) bool { return at(p, i) >= at(p, j) }
	}
	return nil
}
