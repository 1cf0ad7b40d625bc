// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package shard_test

import (
	"math"
	"slices"

	"github.com/gomlx/compute"

	"github.com/easyparallel/epl/ir"
)

// references compute the operations that the pure-Go backend lacks, in the simplest way. Inputs that are absent have no shape.
var references = map[ir.OpType]func(op *ir.Op, in []tensor) []tensor{
	ir.OpDynamicSlice: func(op *ir.Op, in []tensor) []tensor {
		x := in[0]
		for d, n := range op.Attrs.(*ir.DynamicSlice).SliceDims {
			from := min(max(0, int(in[1+d].at())), x.shape.Dimensions[d]-n)
			x = part(x, d, from, from+n)
		}
		return []tensor{x}
	},
	ir.OpDynamicUpdateSlice: func(_ *ir.Op, in []tensor) []tensor {
		x, update := concat(in[:1], 0), in[1]
		each(update.shape.Dimensions, func(at []int) {
			to := make([]int, len(at))
			for d := range at {
				n := x.shape.Dimensions[d] - update.shape.Dimensions[d]
				to[d] = at[d] + min(max(0, int(in[2+d].at())), n)
			}
			x.set(update.at(at...), to...)
		})
		return []tensor{x}
	},
	ir.OpBatchNormForInference: func(op *ir.Op, in []tensor) []tensor {
		a := op.Attrs.(*ir.BatchNormForInference)
		y := newTensor(in[0].shape)
		each(y.shape.Dimensions, func(at []int) {
			c := at[a.FeatureAxis]
			y.set((in[0].at(at...)-in[3].at(c))/math.Sqrt(in[4].at(c)+float64(a.Epsilon))*in[1].at(c)+in[2].at(c), at...)
		})
		return []tensor{y}
	},
	ir.OpBatchNormForTraining: func(op *ir.Op, in []tensor) []tensor {
		a := op.Attrs.(*ir.BatchNormForTraining)
		y, mean, variance := newTensor(in[0].shape), newTensor(in[1].shape), newTensor(in[1].shape)
		n := float64(y.shape.Size() / y.shape.Dimensions[a.FeatureAxis])
		each(y.shape.Dimensions, func(at []int) { mean.add(in[0].at(at...)/n, at[a.FeatureAxis]) })
		each(y.shape.Dimensions, func(at []int) {
			c := at[a.FeatureAxis]
			variance.add(math.Pow(in[0].at(at...)-mean.at(c), 2)/n, c)
		})
		each(y.shape.Dimensions, func(at []int) {
			c := at[a.FeatureAxis]
			y.set((in[0].at(at...)-mean.at(c))/math.Sqrt(variance.at(c)+float64(a.Epsilon))*in[1].at(c)+in[2].at(c), at...)
		})
		return []tensor{y, mean, variance}
	},
	ir.OpBatchNormGradient: func(op *ir.Op, in []tensor) []tensor {
		a := op.Attrs.(*ir.BatchNormGradient)
		x, scale, mean, variance, dy := in[0], in[1], in[2], in[3], in[4]
		dx, dscale, doffset := newTensor(x.shape), newTensor(scale.shape), newTensor(scale.shape)
		n := float64(x.shape.Size() / x.shape.Dimensions[a.FeatureAxis])
		unit := func(at []int) float64 {
			c := at[a.FeatureAxis]
			return (x.at(at...) - mean.at(c)) / math.Sqrt(variance.at(c)+float64(a.Epsilon))
		}
		each(x.shape.Dimensions, func(at []int) {
			dscale.add(dy.at(at...)*unit(at), at[a.FeatureAxis])
			doffset.add(dy.at(at...), at[a.FeatureAxis])
		})
		each(x.shape.Dimensions, func(at []int) {
			c := at[a.FeatureAxis]
			dx.set(scale.at(c)/math.Sqrt(variance.at(c)+float64(a.Epsilon))*(dy.at(at...)-doffset.at(c)/n-unit(at)*dscale.at(c)/n), at...)
		})
		return []tensor{dx, dscale, doffset}
	},
	ir.OpFFT: func(_ *ir.Op, in []tensor) []tensor { // of complex numbers the backend has none: the real part
		y := newTensor(in[0].shape)
		n := y.shape.Dimensions[y.shape.Rank()-1]
		each(y.shape.Dimensions, func(at []int) {
			from, k := slices.Clone(at), at[len(at)-1]
			for j := range n {
				from[len(at)-1] = j
				y.add(in[0].at(from...)*math.Cos(2*math.Pi*float64(j*k)/float64(n)), at...)
			}
		})
		return []tensor{y}
	},
	ir.OpFusedScaledDotProductAttention: func(op *ir.Op, in []tensor) []tensor {
		a := op.Attrs.(*ir.FusedScaledDotProductAttention)
		x := newAttending(in, a.AxesLayout, a.Options)
		out, state := newTensor(in[0].shape), newTensor(op.Outputs[1].Shape)
		each(state.shape.Dimensions, func(at []int) {
			var sum float64
			for t := range x.keys {
				sum += math.Exp(x.score(at, t))
			}
			state.set(math.Log(sum), at...)
			for t := range x.keys {
				for i := range x.features {
					out.add(math.Exp(x.score(at, t))/sum*in[2].at(x.key(at, t, i)...), x.query(at, i)...)
				}
			}
		})
		return []tensor{out, state}
	},
	ir.OpFusedScaledDotProductAttentionVJP: func(op *ir.Op, in []tensor) []tensor {
		a := op.Attrs.(*ir.FusedScaledDotProductAttentionVJP)
		x := newAttending(in, a.AxesLayout, a.Options)
		result, state, gradient := in[len(in)-3], in[len(in)-2], in[len(in)-1]
		dq, dk, dv := newTensor(in[0].shape), newTensor(in[1].shape), newTensor(in[2].shape)
		each(state.shape.Dimensions, func(at []int) {
			var mean float64
			for i := range x.features {
				mean += gradient.at(x.query(at, i)...) * result.at(x.query(at, i)...)
			}
			for t := range x.keys {
				p := math.Exp(x.score(at, t) - state.at(at...))
				var dp float64
				for i := range x.features {
					dp += gradient.at(x.query(at, i)...) * in[2].at(x.key(at, t, i)...)
				}
				ds := p * (dp - mean) * x.scale
				for i := range x.features {
					dv.add(p*gradient.at(x.query(at, i)...), x.key(at, t, i)...)
					dq.add(ds*in[1].at(x.key(at, t, i)...), x.query(at, i)...)
					dk.add(ds*in[0].at(x.query(at, i)...), x.key(at, t, i)...)
				}
			}
		})
		return []tensor{dq, dk, dv}
	},
}

// attending finds the operands of attention for a sample, head and position.
type attending struct {
	in             []tensor
	layout         compute.AttentionAxesLayout
	options        *compute.ScaledDotProductAttentionConfig
	group          int // heads that share keys
	keys, features int
	scale          float64
}

func newAttending(in []tensor, layout compute.AttentionAxesLayout, o *compute.ScaledDotProductAttentionConfig) *attending {
	q, k := in[0].shape.Dimensions, in[1].shape.Dimensions
	return &attending{in, layout, o, q[layout.HeadsAxis()] / k[layout.HeadsAxis()], k[layout.SeqAxis()], q[3], 1 / math.Sqrt(float64(q[3]))}
}

func (x *attending) place(sample, head, position, feature int) []int {
	if x.layout == compute.AttentionAxesLayoutBSHD {
		return []int{sample, position, head, feature}
	}
	return []int{sample, head, position, feature}
}

func (x *attending) query(at []int, feature int) []int { return x.place(at[0], at[1], at[2], feature) }

func (x *attending) key(at []int, position, feature int) []int {
	return x.place(at[0], at[1]/x.group, position, feature)
}

func (x *attending) score(at []int, t int) (s float64) {
	for i := range x.features {
		s += x.in[0].at(x.query(at, i)...) * x.in[1].at(x.key(at, t, i)...) * x.scale
	}
	if x.options == nil {
		return s
	}
	for i, v := range x.in[5:7] { // bias and mask
		if !v.shape.Ok() {
			continue
		}
		all := []int{at[0], at[1], at[2], t}
		if i == 1 && v.shape.Rank() == 4 {
			all = x.place(at[0], at[1], at[2], t)
		}
		all = all[4-v.shape.Rank():]
		for d, n := range v.shape.Dimensions {
			all[d] %= n
		}
		s += v.at(all...)
	}
	if x.options.Causal && t > at[2] || x.in[4].shape.Ok() && t >= int(x.in[4].at(at[0])) {
		return math.Inf(-1)
	}
	return s
}

// each goes over all positions.
func each(dims []int, do func(at []int)) {
	at := make([]int, len(dims))
	for {
		do(at)
		d := len(dims) - 1
		for ; d >= 0; d-- {
			if at[d]++; at[d] < dims[d] {
				break
			}
			at[d] = 0
		}
		if d < 0 {
			return
		}
	}
}

func (x tensor) index(at []int) (i int) {
	for d, n := range x.shape.Dimensions {
		i = i*n + at[d]
	}
	return i
}

func (x tensor) at(at ...int) float64     { return number(x.flat.Index(x.index(at))) }
func (x tensor) add(v float64, at ...int) { x.set(x.at(at...)+v, at...) }
func (x tensor) set(v float64, at ...int) { setFloat(x.flat.Index(x.index(at)), v) }
