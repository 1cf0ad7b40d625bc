// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package hlo

import (
	"slices"

	"github.com/gomlx/compute"
	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/shapes"

	"github.com/easyparallel/epl/ir"
)

// reduction is a way to make one number of two, and what changes nothing then.
type reduction struct {
	name string
	init func(w *Writer, d dtypes.DType) Value
}

func filled(x float64) func(*Writer, dtypes.DType) Value {
	return func(w *Writer, d dtypes.DType) Value { return w.fill(shapes.Make(d), x) }
}

var (
	sum     = reduction{"add", filled(0)}
	product = reduction{"multiply", filled(1)}
	most    = reduction{"maximum", func(w *Writer, d dtypes.DType) Value { return w.extreme(d, true) }}
	least   = reduction{"minimum", func(w *Writer, d dtypes.DType) Value { return w.extreme(d, false) }}
	or      = reduction{"or", filled(0)}
	xor     = reduction{"xor", filled(0)}
	and     = reduction{"and", func(w *Writer, d dtypes.DType) Value { // all bits
		if d == dtypes.Bool {
			return w.fill(shapes.Make(d), 1)
		}
		return w.unary("not", w.fill(shapes.Make(d), 0))
	}}
)

// reductions are those that attributes name.
var reductions = map[compute.ReduceOpType]reduction{
	compute.ReduceOpSum: sum, compute.ReduceOpProduct: product, compute.ReduceOpMax: most, compute.ReduceOpMin: least,
}

func reductionOf(t compute.ReduceOpType) reduction {
	r, ok := reductions[t]
	if !ok {
		refuse("there is no reduction %s", t)
	}
	return r
}

func init() {
	reduce := func(r reduction, axes func(ir.Attrs) []int) rule {
		return func(w *Writer, op *ir.Op, in []Value) []Value { return []Value{w.reduce(r, in[0], axes(op.Attrs)...)} }
	}
	add(map[ir.OpType]rule{
		ir.OpReduceSum:           reduce(sum, func(a ir.Attrs) []int { return a.(*ir.ReduceSum).Axes }),
		ir.OpReduceProduct:       reduce(product, func(a ir.Attrs) []int { return a.(*ir.ReduceProduct).Axes }),
		ir.OpReduceMax:           reduce(most, func(a ir.Attrs) []int { return a.(*ir.ReduceMax).Axes }),
		ir.OpReduceMin:           reduce(least, func(a ir.Attrs) []int { return a.(*ir.ReduceMin).Axes }),
		ir.OpReduceBitwiseAnd:    reduce(and, func(a ir.Attrs) []int { return a.(*ir.ReduceBitwiseAnd).Axes }),
		ir.OpReduceBitwiseOr:     reduce(or, func(a ir.Attrs) []int { return a.(*ir.ReduceBitwiseOr).Axes }),
		ir.OpReduceBitwiseXor:    reduce(xor, func(a ir.Attrs) []int { return a.(*ir.ReduceBitwiseXor).Axes }),
		ir.OpReduceLogicalAnd:    reduce(and, func(a ir.Attrs) []int { return a.(*ir.ReduceLogicalAnd).Axes }),
		ir.OpReduceLogicalOr:     reduce(or, func(a ir.Attrs) []int { return a.(*ir.ReduceLogicalOr).Axes }),
		ir.OpReduceLogicalXor:    reduce(xor, func(a ir.Attrs) []int { return a.(*ir.ReduceLogicalXor).Axes }),
		ir.OpArgMinMax:           argMinMax,
		ir.OpCumSum:              cumSum,
		ir.OpReduceWindow:        reduceWindow,
		ir.OpSelectAndScatterMax: selectAndScatter("GE"),
		ir.OpSelectAndScatterMin: selectAndScatter("LE"),
	})
}

// pairwise is the function of a reduction.
func (w *Writer) pairwise(r reduction, d dtypes.DType) region {
	return region{[]shapes.Shape{shapes.Make(d), shapes.Make(d)}, func(args []Value) []Value {
		return []Value{w.binary(r.name, args[0], args[1])}
	}}
}

// reduce reduces over axes; over all, if there are none.
func (w *Writer) reduce(r reduction, x Value, axes ...int) Value {
	if len(axes) == 0 {
		axes = upTo(x.rank())
	}
	var dims []int
	positives := make([]int, len(axes))
	for i, a := range axes {
		positives[i] = positive(a, x.rank())
	}
	slices.Sort(positives)
	for i, d := range x.dims() {
		if !slices.Contains(positives, i) {
			dims = append(dims, d)
		}
	}
	d := x.Shape.DType
	return w.emit("stablehlo.reduce", []Value{x, r.init(w, d)}, []string{array("dimensions", positives)},
		[]region{w.pairwise(r, d)}, shapes.Make(d, dims...))[0]
}

// argMinMax reduces pairs of a value and its number. A NaN is chosen before all others, and of equal ones the first.
func argMinMax(w *Writer, op *ir.Op, in []Value) []Value {
	a := op.Attrs.(*ir.ArgMinMax)
	x, out := in[0], op.Outputs[0].Shape
	axis, d, n := positive(a.Axis, x.rank()), x.Shape.DType, out.DType
	better := "GT"
	if a.IsMin {
		better = "LT"
	}
	indices := w.iota(shapes.Make(n, x.dims()...), axis)
	choose := func(args []Value) []Value {
		x, i, y, j := args[0], args[1], args[2], args[3]
		first, equal := w.compare(better, x, y, false), w.compare("EQ", x, y, false)
		if d.IsFloat() {
			xNaN, yNaN := w.isNaN(x), w.isNaN(y)
			first = w.binary("or", first, w.binary("and", xNaN, w.unary("not", yNaN)))
			equal = w.binary("or", equal, w.binary("and", xNaN, yNaN))
		}
		index := w.selects(first, i, w.selects(equal, w.binary("minimum", i, j), j))
		return []Value{w.selects(w.binary("or", first, equal), x, y), index}
	}
	results := w.emit("stablehlo.reduce", []Value{x, indices, w.extreme(d, !a.IsMin), w.fill(shapes.Make(n), 0)},
		[]string{array("dimensions", []int{axis})},
		[]region{{[]shapes.Shape{shapes.Make(d), shapes.Make(n), shapes.Make(d), shapes.Make(n)}, choose}},
		shapes.Make(d, out.Dimensions...), out)
	return results[1:]
}

// cumSum is a sum over windows that end, or start, at each element.
func cumSum(w *Writer, op *ir.Op, in []Value) []Value {
	a := op.Attrs.(*ir.CumSum)
	x := in[0]
	n := x.dims()[a.Axis]
	if x.Shape.Size() == 0 {
		return in
	}
	zeros := make([]int, x.rank())
	if a.Options.Exclusive { // that of what is one place further
		low, high := slices.Clone(zeros), slices.Clone(zeros)
		low[a.Axis], high[a.Axis] = 1, -1
		if a.Options.Reverse {
			low, high = high, low
		}
		x = w.pad(x, sum.init(w, x.Shape.DType), x.Shape, low, high, zeros)
	}
	window, padding := slices.Repeat([]int{1}, x.rank()), make([][2]int, x.rank())
	window[a.Axis], padding[a.Axis] = n, [2]int{n - 1, 0}
	if a.Options.Reverse {
		padding[a.Axis] = [2]int{0, n - 1}
	}
	return []Value{w.window(sum, x, x.Shape, window, orAll(nil, x.rank(), 1), nil, nil, padding)}
}

func reduceWindow(w *Writer, op *ir.Op, in []Value) []Value {
	a := op.Attrs.(*ir.ReduceWindow)
	return []Value{w.window(reductionOf(a.ReductionType), in[0], op.Outputs[0].Shape, a.WindowDimensions, a.Strides, a.InputDilations, a.WindowDilations, a.Paddings)}
}

// window reduces windows. Without strides they stand side by side.
func (w *Writer) window(r reduction, x Value, out shapes.Shape, size, strides, inputDilations, windowDilations []int, padding [][2]int) Value {
	if len(strides) == 0 {
		strides = size
	}
	d := x.Shape.DType
	return w.emit("stablehlo.reduce_window", []Value{x, r.init(w, d)}, []string{
		array("base_dilations", orAll(inputDilations, x.rank(), 1)), paddingOf(padding, x.rank()),
		array("window_dilations", orAll(windowDilations, x.rank(), 1)), array("window_dimensions", size), array("window_strides", strides),
	}, []region{w.pairwise(r, d)}, out)[0]
}

// paddingOf is the attribute of the padding of windows; none is 0.
func paddingOf(padding [][2]int, n int) string {
	if len(padding) == 0 {
		padding = make([][2]int, n)
	}
	return pairs("padding", padding)
}

// selectAndScatter adds a value for each window to the element that a comparison selects in it.
func selectAndScatter(direction string) rule {
	return func(w *Writer, op *ir.Op, in []Value) []Value {
		var size, strides []int
		var padding [][2]int
		switch a := op.Attrs.(type) {
		case *ir.SelectAndScatterMax:
			size, strides, padding = a.WindowDimensions, a.WindowStrides, a.Paddings
		case *ir.SelectAndScatterMin:
			size, strides, padding = a.WindowDimensions, a.WindowStrides, a.Paddings
		}
		if len(strides) == 0 {
			strides = size
		}
		d := in[0].Shape.DType
		selected := region{[]shapes.Shape{shapes.Make(d), shapes.Make(d)}, func(args []Value) []Value {
			return []Value{w.compare(direction, args[0], args[1], false)}
		}}
		return w.emit("stablehlo.select_and_scatter", append(in[:2:2], sum.init(w, d)),
			[]string{paddingOf(padding, in[0].rank()), array("window_dimensions", size), array("window_strides", strides)},
			[]region{selected, w.pairwise(sum, d)}, op.Outputs[0].Shape)
	}
}
