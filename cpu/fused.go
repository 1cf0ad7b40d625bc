// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package cpu

import (
	"math"

	"github.com/gomlx/compute"
	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/shapes"

	"github.com/easyparallel/epl/ir"
)

// written adds an op that GoMLX has for several as those several: they become part of groups. It returns false if the op is
// none that the engine can write out.
func (b *builder) written(op *ir.Op, other fallbackCompiler) (bool, error) {
	w := &formula{b: b, other: other}
	var outs []*ir.Value
	for _, v := range op.Inputs {
		if v != nil && !plain(v) {
			return false, nil
		}
	}
	switch a := op.Attrs.(type) {
	case *ir.FusedSoftmax:
		if w.is(op.Inputs[0]) {
			outs = []*ir.Value{w.softmax(op.Inputs[0], a.Axis)}
		}
	case *ir.FusedGelu:
		x := op.Inputs[0]
		switch d := x.Shape.DType; {
		case w.is(x):
			outs = []*ir.Value{w.gelu(x, a.Exact)}
		case d == dtypes.BFloat16 || d == dtypes.Float16:
			outs = []*ir.Value{w.convert(w.gelu(w.convert(x, dtypes.Float32), a.Exact), d)}
		}
	case *ir.FusedLayerNorm:
		if x, gamma, beta := op.Inputs[0], op.Inputs[1], op.Inputs[2]; w.is(x) && w.ofAxes(gamma, a.Axes) && w.ofAxes(beta, a.Axes) {
			outs = []*ir.Value{w.layerNorm(x, a, gamma, beta)}
		}
	case *ir.FusedDense:
		plainly := a.Options
		plainly.Activation = compute.ActivationNone
		if d := synthetic(&ir.FusedDense{Options: plainly}, op.Outputs[0].Shape, op.Inputs...); w.is(op.Outputs[0]) && a.Options.Activation != compute.ActivationNone && b.dense(d) {
			outs = []*ir.Value{w.activation(d.Outputs[0], a.Options.Activation)}
		}
	case *ir.FusedAttentionQKVProjection:
		if x := op.Inputs[0]; w.is(x) && x.Shape.Rank() == 2 {
			outs = w.projections(op, a)
		}
	}
	for i, v := range outs {
		b.views[op.Outputs[i]] = b.views.of(v)
	}
	return len(outs) > 0, w.err
}

// formula adds ops one by one; after the first error it adds nothing more.
type formula struct {
	b     *builder
	other fallbackCompiler
	err   error
}

// is tells whether a value has a type that the engine computes with as it is.
func (w *formula) is(v *ir.Value) bool {
	return v.Shape.DType == dtypes.Float32 || v.Shape.DType == dtypes.Float64
}

// ofAxes tells whether a value is nothing, or has a dim for each of these axes.
func (w *formula) ofAxes(v *ir.Value, axes []int) bool {
	return v == nil || w.is(v) && v.Shape.Rank() == len(axes)
}

func (w *formula) op(a ir.Attrs, s shapes.Shape, in ...*ir.Value) *ir.Value {
	op := synthetic(a, s, in...)
	if w.err == nil {
		w.err = w.b.op(op, w.other)
	}
	return op.Outputs[0]
}

// like adds an op whose result has the shape of its first operand.
func (w *formula) like(a ir.Attrs, x *ir.Value, more ...*ir.Value) *ir.Value {
	return w.op(a, x.Shape, append([]*ir.Value{x}, more...)...)
}

// number is a scalar of the type of a value.
func (w *formula) number(x *ir.Value, f float64) *ir.Value {
	s := shapes.Make(x.Shape.DType)
	if s.DType == dtypes.Float64 {
		return w.op(&ir.Constant{Value: ir.Literal{Shape: s, Flat: []float64{f}}}, s)
	}
	return w.op(&ir.Constant{Value: ir.Literal{Shape: s, Flat: []float32{float32(f)}}}, s)
}

func (w *formula) convert(x *ir.Value, d dtypes.DType) *ir.Value {
	return w.op(&ir.ConvertDType{DType: d}, shapes.Make(d, dimsOf(x)...), x)
}

// spread repeats a value that has some of the axes of x along the others.
func (w *formula) spread(v, x *ir.Value, axes []int) *ir.Value {
	return w.op(&ir.BroadcastInDim{OutputShape: x.Shape, BroadcastAxes: axes}, x.Shape, v)
}

// reduced is a reduction of x along axes.
func (w *formula) reduced(a ir.Attrs, x *ir.Value, axes []int) *ir.Value {
	return w.op(a, shapes.Make(x.Shape.DType, pickDims(dimsOf(x), without(x.Shape.Rank(), axes))...), x)
}

func (w *formula) softmax(x *ir.Value, axis int) *ir.Value {
	axes := []int{axis}
	kept := without(x.Shape.Rank(), axes)
	e := w.like(&ir.Exp{}, w.like(&ir.Sub{}, x, w.spread(w.reduced(&ir.ReduceMax{Axes: axes}, x, axes), x, kept)))
	return w.like(&ir.Div{}, e, w.spread(w.reduced(&ir.ReduceSum{Axes: axes}, e, axes), x, kept))
}

func (w *formula) gelu(x *ir.Value, exact bool) *ir.Value {
	var f *ir.Value
	if exact {
		f = w.like(&ir.Erf{}, w.like(&ir.Mul{}, x, w.number(x, 1/math.Sqrt2)))
	} else {
		cube := w.like(&ir.Mul{}, w.like(&ir.Mul{}, w.like(&ir.Mul{}, x, w.number(x, 0.044715)), x), x)
		f = w.like(&ir.Tanh{}, w.like(&ir.Mul{}, w.like(&ir.Add{}, x, cube), w.number(x, math.Sqrt(2/math.Pi))))
	}
	return w.like(&ir.Mul{}, w.like(&ir.Mul{}, x, w.number(x, 0.5)), w.like(&ir.Add{}, f, w.number(x, 1)))
}

func (w *formula) layerNorm(x *ir.Value, a *ir.FusedLayerNorm, gamma, beta *ir.Value) *ir.Value {
	n, kept := w.number(x, float64(product(pickDims(dimsOf(x), a.Axes)))), without(x.Shape.Rank(), a.Axes)
	mean := func(v *ir.Value) *ir.Value {
		return w.like(&ir.Div{}, w.reduced(&ir.ReduceSum{Axes: a.Axes}, v, a.Axes), n)
	}
	c := w.like(&ir.Sub{}, x, w.spread(mean(x), x, kept))
	scale := w.like(&ir.Rsqrt{}, w.like(&ir.Add{}, mean(w.like(&ir.Mul{}, c, c)), w.number(x, a.Epsilon)))
	y := w.like(&ir.Mul{}, c, w.spread(scale, x, kept))
	if gamma != nil {
		y = w.like(&ir.Mul{}, y, w.spread(gamma, x, a.Axes))
	}
	if beta != nil {
		y = w.like(&ir.Add{}, y, w.spread(beta, x, a.Axes))
	}
	return y
}

func (w *formula) activation(x *ir.Value, a compute.ActivationType) *ir.Value {
	switch a {
	case compute.ActivationGelu:
		return w.gelu(x, true)
	case compute.ActivationRelu:
		return w.like(&ir.Max{}, x, w.number(x, 0))
	case compute.ActivationSilu:
		return w.like(&ir.Div{}, x, w.like(&ir.Add{}, w.like(&ir.Exp{}, w.like(&ir.Neg{}, x)), w.number(x, 1)))
	case compute.ActivationHardSwish:
		y := w.like(&ir.Add{}, w.like(&ir.Mul{}, x, w.number(x, 1.0/6)), w.number(x, 0.5))
		return w.like(&ir.Mul{}, x, w.like(&ir.Min{}, w.like(&ir.Max{}, y, w.number(x, 0)), w.number(x, 1)))
	}
	return w.like(&ir.Tanh{}, x)
}

// projections are a product, three ranges of its columns, and a bias for each.
func (w *formula) projections(op *ir.Op, a *ir.FusedAttentionQKVProjection) (outs []*ir.Value) {
	x, weights := op.Inputs[0], op.Inputs[1]
	rows, all := dimsOf(x)[0], dimsOf(weights)[1]
	y := w.op(&ir.DotGeneral{LHSContractingAxes: []int{1}, RHSContractingAxes: []int{0}}, shapes.Make(x.Shape.DType, rows, all), x, weights)
	at := 0
	for i, out := range op.Outputs {
		n := dimsOf(out)[1]
		v := w.op(&ir.Slice{Starts: []int{0, at}, Limits: []int{rows, at + n}, Strides: []int{1, 1}}, out.Shape, y)
		if bias := op.Inputs[2+i]; bias != nil {
			v = w.like(&ir.Add{}, v, w.spread(bias, out, []int{1}))
		}
		outs = append(outs, v)
		at += n
	}
	return outs
}
