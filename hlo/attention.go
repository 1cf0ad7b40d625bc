// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package hlo

import (
	"math"

	"github.com/gomlx/compute"
	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/shapes"

	"github.com/easyparallel/epl/ir"
)

func init() {
	add(map[ir.OpType]rule{
		ir.OpFusedScaledDotProductAttention:    attention,
		ir.OpFusedScaledDotProductAttentionVJP: attentionGradient,
	})
}

// attending is an attention: queries are [sample, head of keys, head that shares it, position, feature], keys and values
// [sample, head, position, feature], scores [sample, head of keys, head that shares it, position, key].
type attending struct {
	*Writer
	layout  compute.AttentionAxesLayout
	q, k, v Value
	scale   float64
	causal  bool
	// Operands of options. Absent ones are zero.
	queryLen, keyLen, bias, mask Value
	scores                       shapes.Shape // their shape
}

func newAttending(w *Writer, in []Value, layout compute.AttentionAxesLayout, o *compute.ScaledDotProductAttentionConfig) *attending {
	a := &attending{Writer: w, layout: layout, k: in[1], v: in[2]}
	a.scale = scaleOf(in[0], o)
	if o != nil {
		a.causal = o.Causal
		a.queryLen, a.keyLen, a.bias, a.mask = in[3], in[4], in[5], in[6]
	}
	a.k, a.v = a.headsFirst(in[1]), a.headsFirst(in[2])
	a.q = a.grouped(in[0])
	d := dtypes.Float32
	if a.q.Shape.DType == dtypes.Float64 {
		d = dtypes.Float64
	}
	a.scores = shapes.Make(d, append(a.q.Shape.Clone().Dimensions[:4], a.k.dims()[2])...)
	return a
}

// scaleOf is what products of queries and keys are multiplied by.
func scaleOf(q Value, o *compute.ScaledDotProductAttentionConfig) float64 {
	if o == nil || o.Scale == 0 {
		return 1 / math.Sqrt(float64(q.dims()[3]))
	}
	return o.Scale
}

// headsFirst brings [sample, position, head, …] and [sample, head, position, …] into each other.
func (a *attending) headsFirst(x Value) Value {
	if a.layout == compute.AttentionAxesLayoutBSHD {
		return a.transpose(x, 0, 2, 1, 3)
	}
	return x
}

// grouped brings a value with the dims of the query to those inside.
func (a *attending) grouped(x Value) Value {
	x = a.headsFirst(x)
	d, heads := x.dims(), a.k.dims()[1]
	return a.reshape(x, d[0], heads, d[1]/heads, d[2], d[3])
}

// outside is the opposite of grouped.
func (a *attending) outside(x Value) Value {
	d := x.dims()
	return a.headsFirst(a.reshape(x, d[0], d[1]*d[2], d[3], d[4]))
}

// product is one of samples and heads, with the other axes that are contracted.
func (a *attending) product(x, y Value, xContract, yContract []int, to dtypes.DType) Value {
	return a.dot(x, y, []int{0, 1}, []int{0, 1}, xContract, yContract, to)
}

// toScores repeats a value of [sample, head, position, key] for all that it has one row for; what it lacks in front, too.
func (a *attending) toScores(x Value) Value {
	s := a.scores.Dimensions
	heads := []int{s[0], s[1] * s[2], s[3], s[4]}
	axes := upTo(4)[4-x.rank():]
	return a.reshape(a.broadcast(x, heads, axes...), s...)
}

// score is q·k, scaled and masked with -∞.
func (a *attending) score() Value {
	s := a.Writer.scale(a.product(a.q, a.k, []int{4}, []int{3}, a.scores.DType), a.scale)
	if a.bias.ok() {
		s = a.binary("add", s, a.toScores(a.convert(a.bias, a.scores.DType)))
	}
	hide := func(shown Value) { s = a.selects(shown, s, a.hidden()) }
	if m := a.mask; m.ok() {
		switch m.rank() {
		case 4:
			m = a.headsFirst(m)
		case 3:
			refuse("the first dim of a mask of rank 3 may be that of samples or that of heads")
		}
		if m.Shape.DType == dtypes.Bool {
			hide(a.toScores(m))
		} else {
			s = a.binary("add", s, a.toScores(a.convert(m, a.scores.DType)))
		}
	}
	if a.causal {
		hide(a.compare("GE", a.number(3), a.number(4), false))
	}
	if a.keyLen.ok() {
		hide(a.compare("LT", a.number(4), a.broadcast(a.convert(a.keyLen, dtypes.Int32), a.scores.Dimensions, 0), false))
	}
	return s
}

// number is where a score is along an axis.
func (a *attending) number(axis int) Value {
	return a.iota(shapes.Make(dtypes.Int32, a.scores.Dimensions...), axis)
}

// hidden is -∞ of the shape of scores.
func (a *attending) hidden() Value {
	return a.broadcast(a.extreme(a.scores.DType, true), a.scores.Dimensions)
}

// finite replaces -∞, of a row in which all is masked, by 0.
func (a *attending) finite(x Value) Value {
	return a.selects(a.one("is_finite", shapes.Make(dtypes.Bool, x.dims()...), []Value{x}), x, a.fill(x.Shape, 0))
}

// shown sets the rows of queries that are padding to zero.
func (a *attending) shown(weights Value) Value {
	if !a.queryLen.ok() {
		return weights
	}
	n := a.broadcast(a.convert(a.queryLen, dtypes.Int32), a.scores.Dimensions, 0)
	return a.selects(a.compare("LT", a.number(3), n, false), weights, a.fill(weights.Shape, 0))
}

// weights gives the softmax of the scores, and the logarithm of the sum of exponentials. A row in which all is masked has weights 0.
func (a *attending) weights() (weights, logSum Value) {
	s := a.score()
	top := a.reduce(most, s, 4)
	e := a.unary("exponential", a.binary("subtract", s, a.along(s, a.finite(top), 4)))
	total := a.reduce(sum, e, 4)
	none := a.compare("EQ", total, a.fill(total.Shape, 0), false)
	weights = a.binary("divide", e, a.along(e, a.selects(none, a.fill(total.Shape, 1), total), 4))
	return a.shown(weights), a.binary("add", a.finite(top), a.unary("log", total))
}

func attention(w *Writer, op *ir.Op, in []Value) []Value {
	at := op.Attrs.(*ir.FusedScaledDotProductAttention)
	if c := newCUDNN(w, in, at.AxesLayout, at.Options); c != nil {
		return c.forward(len(op.Outputs) == 2)
	}
	a := newAttending(w, in, at.AxesLayout, at.Options)
	weights, logSum := a.weights()
	d := a.v.Shape.DType
	out := []Value{a.outside(a.product(a.convert(weights, d), a.v, []int{4}, []int{2}, d))}
	if len(op.Outputs) == 2 { // what the gradient uses
		s := op.Outputs[1].Shape
		out = append(out, a.convert(a.reshape(logSum, s.Dimensions...), s.DType))
	}
	return out
}

// attentionGradient computes the weights again, from the logarithm of the sum that forward kept, if it did.
func attentionGradient(w *Writer, op *ir.Op, in []Value) []Value {
	at := op.Attrs.(*ir.FusedScaledDotProductAttentionVJP)
	n := 3
	if at.Options != nil {
		n = 7
	}
	if len(in) == n+3 { // with a state: cuDNN has to have it
		if c := newCUDNN(w, in, at.AxesLayout, at.Options); c != nil {
			return c.backward(in[n], in[n+1], in[n+2])
		}
	}
	a := newAttending(w, in, at.AxesLayout, at.Options)
	result, states, gradient := a.grouped(in[n]), in[n+1:len(in)-1], a.grouped(in[len(in)-1])
	var p Value
	if len(states) == 1 {
		s := a.score()
		logSum := a.convert(a.reshape(states[0], a.scores.Dimensions[:4]...), a.scores.DType)
		p = a.shown(a.unary("exponential", a.binary("subtract", s, a.along(s, a.finite(logSum), 4))))
	} else {
		p, _ = a.weights()
	}
	d, wide := a.q.Shape.DType, a.scores.DType
	mean := a.reduce(sum, a.binary("multiply", a.convert(gradient, wide), a.convert(result, wide)), 4)
	dp := a.product(gradient, a.v, []int{4}, []int{3}, wide)
	ds := a.Writer.scale(a.binary("multiply", p, a.binary("subtract", dp, a.along(p, mean, 4))), a.scale)
	p, ds = a.convert(p, d), a.convert(ds, d)
	dq := a.product(ds, a.k, []int{4}, []int{2}, d)
	dk := a.product(ds, a.q, []int{2, 3}, []int{2, 3}, d)
	dv := a.product(p, gradient, []int{2, 3}, []int{2, 3}, d)
	return []Value{a.outside(dq), a.headsFirst(dk), a.headsFirst(dv)}
}
