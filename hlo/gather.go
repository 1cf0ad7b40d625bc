// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package hlo

import (
	"fmt"

	"github.com/easyparallel/epl/ir"
)

func init() {
	add(map[ir.OpType]rule{
		ir.OpGather:     gather,
		ir.OpScatterSum: func(w *Writer, op *ir.Op, in []Value) []Value { return w.scatter(sum, *op.Attrs.(*ir.ScatterSum), in) },
		ir.OpScatterMax: func(w *Writer, op *ir.Op, in []Value) []Value {
			return w.scatter(most, ir.ScatterSum(*op.Attrs.(*ir.ScatterMax)), in)
		},
		ir.OpScatterMin: func(w *Writer, op *ir.Op, in []Value) []Value {
			return w.scatter(least, ir.ScatterSum(*op.Attrs.(*ir.ScatterMin)), in)
		},
	})
}

// gather takes slices at indices; those beyond the end are moved inside.
func gather(w *Writer, op *ir.Op, in []Value) []Value {
	a := op.Attrs.(*ir.Gather)
	return []Value{w.one("gather", op.Outputs[0].Shape, in, fmt.Sprintf(
		"dimension_numbers = #stablehlo.gather<offset_dims = %s, collapsed_slice_dims = %s, start_index_map = %s, index_vector_dim = %d>",
		list(a.OffsetOutputAxes), list(a.CollapsedSliceAxes), list(a.StartIndexMap), a.IndexVectorAxis),
		boolean("indices_are_sorted", a.IndicesAreSorted), array("slice_sizes", a.SliceSizes))}
}

// scatter updates slices at indices; those beyond the end are left out.
func (w *Writer) scatter(r reduction, a ir.ScatterSum, in []Value) []Value {
	return w.emit("stablehlo.scatter", in, []string{
		boolean("indices_are_sorted", a.IndicesAreSorted),
		fmt.Sprintf("scatter_dimension_numbers = #stablehlo.scatter<update_window_dims = %s, inserted_window_dims = %s, scatter_dims_to_operand_dims = %s, index_vector_dim = %d>",
			list(a.UpdateWindowAxes), list(a.InsertedWindowAxes), list(a.ScatterAxesToOperandAxes), a.IndexVectorAxis),
		boolean("unique_indices", a.UniqueIndices),
	}, []region{w.pairwise(r, in[0].Shape.DType)}, in[0].Shape)
}
