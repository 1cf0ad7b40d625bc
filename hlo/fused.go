// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package hlo

import (
	"math"
	"slices"

	"github.com/gomlx/compute"
	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/shapes"

	"github.com/easyparallel/epl/ir"
)

func init() {
	add(map[ir.OpType]rule{
		ir.OpFusedSoftmax: func(w *Writer, op *ir.Op, in []Value) []Value {
			return []Value{w.wide(in[0], func(x Value) Value { return w.softmax(x, positive(op.Attrs.(*ir.FusedSoftmax).Axis, x.rank())) })}
		},
		ir.OpFusedGelu: func(w *Writer, op *ir.Op, in []Value) []Value {
			return []Value{w.wide(in[0], func(x Value) Value { return w.gelu(x, op.Attrs.(*ir.FusedGelu).Exact) })}
		},
		ir.OpFusedLayerNorm:              layerNorm,
		ir.OpFusedDense:                  dense,
		ir.OpFusedAttentionQKVProjection: qkvProjection,
	})
}

// wide computes in float32 what is given in half precision.
func (w *Writer) wide(x Value, f func(Value) Value) Value {
	return w.convert(f(w.widened(x)), x.Shape.DType)
}

func (w *Writer) widened(x Value) Value {
	if x.ok() && x.Shape.DType.IsHalfPrecision() {
		return w.convert(x, dtypes.Float32)
	}
	return x
}

// along repeats what was reduced over an axis of x.
func (w *Writer) along(x, reduced Value, axes ...int) Value {
	return w.broadcast(reduced, x.dims(), without(x.rank(), axes)...)
}

// without are the axes of a rank but some.
func without(rank int, axes []int) (rest []int) {
	gone := make([]bool, rank)
	for _, a := range axes {
		gone[a] = true
	}
	for i := range rank {
		if !gone[i] {
			rest = append(rest, i)
		}
	}
	return rest
}

func (w *Writer) softmax(x Value, axis int) Value {
	e := w.unary("exponential", w.binary("subtract", x, w.along(x, w.reduce(most, x, axis), axis)))
	return w.binary("divide", e, w.along(e, w.reduce(sum, e, axis), axis))
}

// gelu is x·Φ(x), by the error function or by its approximation with tanh.
func (w *Writer) gelu(x Value, exact bool) Value {
	one := w.fill(x.Shape, 1)
	var phi Value
	if exact {
		phi = w.erf(w.scale(x, 1/math.Sqrt2))
	} else {
		cube := w.binary("multiply", w.binary("multiply", x, x), x)
		phi = w.unary("tanh", w.scale(w.binary("add", x, w.scale(cube, 0.044715)), math.Sqrt(2/math.Pi)))
	}
	return w.binary("multiply", w.scale(x, 0.5), w.binary("add", one, phi))
}

// mean is over some axes, repeated along them.
func (w *Writer) mean(x Value, axes []int) Value {
	n := 1
	for _, a := range axes {
		n *= x.dims()[a]
	}
	s := w.reduce(sum, x, axes...)
	return w.along(x, w.binary("divide", s, w.fill(s.Shape, float64(n))), axes...)
}

func layerNorm(w *Writer, op *ir.Op, in []Value) []Value {
	a := op.Attrs.(*ir.FusedLayerNorm)
	axes, dims := make([]int, len(a.Axes)), make([]int, len(a.Axes))
	for i := range axes {
		axes[i] = positive(a.Axes[i], in[0].rank())
		dims[i] = in[0].dims()[axes[i]]
	}
	// Gamma and beta have the dims of the axes as these are given; a broadcast keeps the order.
	order := upTo(len(axes))
	slices.SortFunc(order, func(i, j int) int { return axes[i] - axes[j] })
	affine := func(x, v Value) Value {
		v = w.reshape(v, dims...)
		if !slices.IsSorted(axes) {
			v = w.transpose(v, order...)
		}
		return w.broadcast(v, x.dims(), slices.Sorted(slices.Values(axes))...)
	}
	return []Value{w.wide(in[0], func(x Value) Value {
		centered := w.binary("subtract", x, w.mean(x, axes))
		variance := w.mean(w.binary("multiply", centered, centered), axes)
		y := w.binary("multiply", centered, w.unary("rsqrt", w.binary("add", variance, w.fill(x.Shape, a.Epsilon))))
		for i, name := range []string{"multiply", "add"} { // by gamma, beta
			if v := w.widened(in[1+i]); v.ok() {
				y = w.binary(name, y, affine(x, v))
			}
		}
		return y
	})}
}

// bias adds a value with the last dims of another, if there is one.
func (w *Writer) bias(x, b Value) Value {
	if !b.ok() {
		return x
	}
	return w.binary("add", x, w.broadcast(b, x.dims(), upTo(x.rank())[x.rank()-b.rank():]...))
}

func dense(w *Writer, op *ir.Op, in []Value) []Value {
	o := op.Attrs.(*ir.FusedDense).Options
	contract := 0
	if o.WeightLayout == compute.DenseLayoutOutputsInput {
		contract = in[1].rank() - 1
	}
	y := w.dot(in[0], in[1], nil, nil, []int{in[0].rank() - 1}, []int{contract}, in[0].Shape.DType)
	return []Value{w.activation(w.bias(y, in[2]), o.Activation)}
}

func (w *Writer) activation(x Value, a compute.ActivationType) Value {
	return w.wide(x, func(x Value) Value {
		switch a {
		case compute.ActivationNone:
			return x
		case compute.ActivationGelu:
			return w.gelu(x, true)
		case compute.ActivationRelu:
			return w.binary("maximum", x, w.fill(x.Shape, 0))
		case compute.ActivationSilu:
			return w.binary("multiply", x, w.unary("logistic", x))
		case compute.ActivationHardSwish:
			part := w.binary("add", w.scale(x, 1.0/6), w.fill(x.Shape, 0.5))
			return w.binary("multiply", x, w.one("clamp", x.Shape, []Value{w.fill(shapes.Make(x.Shape.DType), 0), part, w.fill(shapes.Make(x.Shape.DType), 1)}))
		case compute.ActivationTanh:
			return w.unary("tanh", x)
		}
		refuse("there is no activation %s", a)
		return x
	})
}

func qkvProjection(w *Writer, op *ir.Op, in []Value) []Value {
	a := op.Attrs.(*ir.FusedAttentionQKVProjection)
	last := in[0].rank() - 1
	y := w.dot(in[0], in[1], nil, nil, []int{last}, []int{0}, in[0].Shape.DType)
	var out []Value
	from := 0
	for i, n := range []int{a.QueryDim, a.KeyValueDim, a.KeyValueDim} {
		out = append(out, w.bias(w.cut(y, last, from, from+n), in[2+i]))
		from += n
	}
	return out
}
