// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package hlo

import (
	"slices"

	"github.com/gomlx/compute/shapes"

	"github.com/easyparallel/epl/ir"
)

func init() {
	add(map[ir.OpType]rule{
		ir.OpConstant: func(w *Writer, op *ir.Op, _ []Value) []Value {
			return []Value{w.constant(op.Attrs.(*ir.Constant).Value)}
		},
		ir.OpReshape: func(w *Writer, op *ir.Op, in []Value) []Value {
			return []Value{w.reshape(in[0], op.Outputs[0].Shape.Dimensions...)}
		},
		ir.OpBroadcastInDim: func(w *Writer, op *ir.Op, in []Value) []Value {
			return []Value{w.broadcast(in[0], op.Outputs[0].Shape.Dimensions, op.Attrs.(*ir.BroadcastInDim).BroadcastAxes...)}
		},
		ir.OpTranspose: func(w *Writer, op *ir.Op, in []Value) []Value {
			return []Value{w.transpose(in[0], op.Attrs.(*ir.Transpose).Permutation...)}
		},
		ir.OpBitcast: func(w *Writer, op *ir.Op, in []Value) []Value {
			return []Value{w.one("bitcast_convert", op.Outputs[0].Shape, in)}
		},
		ir.OpIota: func(w *Writer, op *ir.Op, _ []Value) []Value {
			return []Value{w.iota(op.Outputs[0].Shape, op.Attrs.(*ir.Iota).IotaAxis)}
		},
		ir.OpSlice:              slice,
		ir.OpConcatenate:        concatenate,
		ir.OpReverse:            reverse,
		ir.OpPad:                pad,
		ir.OpDynamicSlice:       dynamicSlice,
		ir.OpDynamicUpdateSlice: dynamicUpdateSlice,
	})
}

func (w *Writer) reshape(x Value, dims ...int) Value {
	if slices.Equal(x.dims(), dims) {
		return x
	}
	return w.one("reshape", shapes.Make(x.Shape.DType, dims...), []Value{x})
}

func (w *Writer) transpose(x Value, permutation ...int) Value {
	dims := make([]int, len(permutation))
	for i, p := range permutation {
		dims[i] = x.dims()[p]
	}
	return w.one("transpose", shapes.Make(x.Shape.DType, dims...), []Value{x}, array("permutation", permutation))
}

func (w *Writer) iota(s shapes.Shape, axis int) Value {
	return w.one("iota", s, nil, integer("iota_dimension", positive(axis, s.Rank())))
}

// cut takes the rows between two along an axis.
func (w *Writer) cut(x Value, axis, from, to int) Value {
	starts, limits := make([]int, x.rank()), slices.Clone(x.dims())
	starts[axis], limits[axis] = from, to
	return w.slice(x, starts, limits, nil)
}

func (w *Writer) slice(x Value, starts, limits, strides []int) Value {
	limits, strides = slices.Clone(limits), orAll(strides, x.rank(), 1)
	dims := make([]int, x.rank())
	for i := range dims {
		if limits[i] < 0 { // to the end
			limits[i] = x.dims()[i]
		}
		dims[i] = (limits[i] - starts[i] + strides[i] - 1) / strides[i]
	}
	return w.one("slice", shapes.Make(x.Shape.DType, dims...), []Value{x},
		array("limit_indices", limits), array("start_indices", starts), array("strides", strides))
}

func slice(w *Writer, op *ir.Op, in []Value) []Value {
	a := op.Attrs.(*ir.Slice)
	return []Value{w.slice(in[0], a.Starts, a.Limits, a.Strides)}
}

func concatenate(w *Writer, op *ir.Op, in []Value) []Value {
	if len(in) == 1 {
		return in
	}
	s := op.Outputs[0].Shape
	return []Value{w.one("concatenate", s, in, integer("dimension", positive(op.Attrs.(*ir.Concatenate).Axis, s.Rank())))}
}

func reverse(w *Writer, op *ir.Op, in []Value) []Value {
	axes := slices.Clone(op.Attrs.(*ir.Reverse).Axes)
	for i := range axes {
		axes[i] = positive(axes[i], in[0].rank())
	}
	return []Value{w.one("reverse", in[0].Shape, in, array("dimensions", axes))}
}

func pad(w *Writer, op *ir.Op, in []Value) []Value {
	rank := in[0].rank()
	low, high, interior := make([]int, rank), make([]int, rank), make([]int, rank)
	for i, a := range op.Attrs.(*ir.Pad).AxesConfig {
		low[i], high[i], interior[i] = a.Start, a.End, a.Interior
	}
	return []Value{w.pad(in[0], in[1], op.Outputs[0].Shape, low, high, interior)}
}

func (w *Writer) pad(x, with Value, out shapes.Shape, low, high, interior []int) Value {
	if x.rank() == 0 {
		return x
	}
	return w.one("pad", out, []Value{x, with},
		array("edge_padding_high", high), array("edge_padding_low", low), array("interior_padding", interior))
}

func dynamicSlice(w *Writer, op *ir.Op, in []Value) []Value {
	in = append(in[:1:1], w.starts(in[1:], in[0].rank())...)
	return []Value{w.one("dynamic_slice", op.Outputs[0].Shape, in, array("slice_sizes", op.Attrs.(*ir.DynamicSlice).SliceDims))}
}

func dynamicUpdateSlice(w *Writer, op *ir.Op, in []Value) []Value {
	in = append(in[:2:2], w.starts(in[2:], in[0].rank())...)
	return []Value{w.one("dynamic_update_slice", op.Outputs[0].Shape, in)}
}

// starts are where a slice starts, one scalar for each axis, given so or as one vector.
func (w *Writer) starts(in []Value, rank int) []Value {
	if len(in) != 1 || in[0].rank() != 1 {
		return in
	}
	r := make([]Value, rank)
	for i := range r {
		r[i] = w.reshape(w.cut(in[0], 0, i, i+1))
	}
	return r
}

// positive counts an axis from the first one.
func positive(axis, rank int) int {
	if axis < 0 {
		return axis + rank
	}
	return axis
}

// orAll is a list of one number for each axis, or, if there is none, the same number for all.
func orAll(xs []int, n, all int) []int {
	if len(xs) > 0 {
		return xs
	}
	return slices.Repeat([]int{all}, n)
}
