// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package hlo

import (
	"fmt"
	"slices"
	"strings"

	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/shapes"

	"github.com/easyparallel/epl/ir"
)

func init() {
	add(map[ir.OpType]rule{ir.OpDotGeneral: dotGeneral, ir.OpConvGeneral: convGeneral})
}

// precision asks for full precision of float32, which XLA gives up for speed by default.
func (w *Writer) precision(d dtypes.DType) string {
	p := "DEFAULT"
	if (d == dtypes.Float32 || d == dtypes.Complex64) && !w.options.TF32 {
		p = "HIGHEST"
	}
	return fmt.Sprintf("precision_config = [#stablehlo<precision %s>, #stablehlo<precision %s>]", p, p)
}

func dotGeneral(w *Writer, op *ir.Op, in []Value) []Value {
	a := op.Attrs.(*ir.DotGeneral)
	x, y, out := in[0], in[1], op.Outputs[0].Shape.DType
	to := out
	// XLA adds up in float32 at least, whatever the operands are: other types have to be asked for.
	if acc := a.Config.AccumulatorDType; acc != dtypes.InvalidDType && acc != x.Shape.DType && (acc != dtypes.Float32 || !x.Shape.DType.IsHalfPrecision()) {
		x, y, to = w.convert(x, acc), w.convert(y, acc), acc
	}
	return []Value{w.convert(w.dot(x, y, a.LHSBatchAxes, a.RHSBatchAxes, a.LHSContractingAxes, a.RHSContractingAxes, to), out)}
}

// dot is a product, with the axes in the order: batch, others of x, others of y.
func (w *Writer) dot(x, y Value, xBatch, yBatch, xContract, yContract []int, to dtypes.DType) Value {
	var dims []int
	for _, a := range xBatch {
		dims = append(dims, x.dims()[a])
	}
	others := func(v Value, batch, contract []int) {
		for i, d := range v.dims() {
			if !slices.Contains(batch, i) && !slices.Contains(contract, i) {
				dims = append(dims, d)
			}
		}
	}
	others(x, xBatch, xContract)
	others(y, yBatch, yContract)
	return w.one("dot_general", shapes.Make(to, dims...), []Value{x, y}, fmt.Sprintf(
		"dot_dimension_numbers = #stablehlo.dot<lhs_batching_dimensions = %s, rhs_batching_dimensions = %s, lhs_contracting_dimensions = %s, rhs_contracting_dimensions = %s>",
		list(xBatch), list(yBatch), list(xContract), list(yContract)), w.precision(x.Shape.DType))
}

func convGeneral(w *Writer, op *ir.Op, in []Value) []Value {
	a := op.Attrs.(*ir.ConvGeneral)
	x := a.Axes
	n := len(x.InputSpatial)
	return []Value{w.one("convolution", op.Outputs[0].Shape, in,
		integer("batch_group_count", max(a.BatchGroupCount, 1)),
		fmt.Sprintf("dimension_numbers = #stablehlo.conv<%sx%s->%s>", axes("b", x.InputBatch, "f", x.InputChannels, x.InputSpatial),
			axes("i", x.KernelInputChannels, "o", x.KernelOutputChannels, x.KernelSpatial), axes("b", x.OutputBatch, "f", x.OutputChannels, x.OutputSpatial)),
		integer("feature_group_count", max(a.ChannelGroupCount, 1)),
		array("lhs_dilation", orAll(a.InputDilations, n, 1)), paddingOf(a.Paddings, n), w.precision(in[0].Shape.DType),
		array("rhs_dilation", orAll(a.KernelDilations, n, 1)), array("window_strides", orAll(a.Strides, n, 1)))}
}

// axes names those of an operand of a convolution, as "[b, 0, 1, f]".
func axes(first string, firstAt int, second string, secondAt int, spatial []int) string {
	names := make([]string, len(spatial)+2)
	names[firstAt], names[secondAt] = first, second
	for i, at := range spatial {
		names[at] = fmt.Sprint(i)
	}
	return "[" + strings.Join(names, ", ") + "]"
}
