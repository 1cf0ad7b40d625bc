// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package record

import (
	"github.com/gomlx/compute"
	"github.com/gomlx/compute/shapes"

	"github.com/easyparallel/epl/ir"
)

// lowered are the operations that are recorded written out in simpler ones: no engine has kernels for them that would be better.
var lowered = []compute.OpType{compute.OpTypeBatchNormForInference, compute.OpTypeBatchNormForTraining, compute.OpTypeBatchNormGradient}

// lower writes out an op that the shadow does not implement; ok is false if it cannot either.
func (f *Func) lower(attrs ir.Attrs, in opInputs) (_ []compute.Value, ok bool, err error) {
	switch a := attrs.(type) {
	case *ir.BatchNormForInference:
		vs, err := f.batchNormForInference(a, in.vals)
		return vs, true, err
	case *ir.BatchNormForTraining:
		vs, err := f.batchNormForTraining(a, in.vals)
		return vs, true, err
	case *ir.BatchNormGradient:
		vs, err := f.batchNormGradient(a, in.vals)
		return vs, true, err
	case *ir.FusedScaledDotProductAttention:
		if f.halves(a.AxesLayout, a.Options, in.vals) {
			vs, err := f.halfAttention(a, in.vals)
			return vs, true, err
		}
	case *ir.FusedScaledDotProductAttentionVJP:
		if f.halves(a.AxesLayout, a.Options, in.vals) {
			vs, err := f.halfGradient(a, in.vals)
			return vs, true, err
		}
	}
	return nil, false, nil
}

// arithmetic records a formula; after the first error it records nothing more.
type arithmetic struct {
	f   *Func
	err error
}

func (m *arithmetic) op(v compute.Value, err error) compute.Value {
	if m.err == nil {
		m.err = err
	}
	return v
}

func (m *arithmetic) binary(op func(a, b compute.Value) (compute.Value, error), a, b compute.Value) compute.Value {
	if m.err != nil {
		return nil
	}
	return m.op(op(a, b))
}

func (m *arithmetic) add(a, b compute.Value) compute.Value { return m.binary(m.f.Add, a, b) }
func (m *arithmetic) sub(a, b compute.Value) compute.Value { return m.binary(m.f.Sub, a, b) }
func (m *arithmetic) mul(a, b compute.Value) compute.Value { return m.binary(m.f.Mul, a, b) }

// features relates an operand to the vectors of its feature axis.
type features struct {
	arithmetic
	shape  shapes.Shape
	axis   int
	others []int // the other axes
}

func (f *Func) features(x compute.Value, axis int) *features {
	m := &features{arithmetic: arithmetic{f: f}}
	m.shape, m.err = f.Shape(x)
	if axis < 0 {
		axis += m.shape.Rank()
	}
	m.axis = axis
	for i := range m.shape.Rank() {
		if i != axis {
			m.others = append(m.others, i)
		}
	}
	return m
}

// scalar is a number of the operand's dtype.
func (m *features) scalar(x float64) compute.Value {
	if m.err != nil {
		return nil
	}
	c := m.op(m.f.Constant([]float64{x}))
	if m.err != nil {
		return nil
	}
	return m.op(m.f.ConvertDType(c, m.shape.DType))
}

// spread repeats a vector of features over the other axes.
func (m *features) spread(v compute.Value) compute.Value {
	if m.err != nil {
		return nil
	}
	return m.op(m.f.BroadcastInDim(v, m.shape, []int{m.axis}))
}

// sum adds up over the other axes.
func (m *features) sum(x compute.Value) compute.Value {
	if m.err != nil {
		return nil
	}
	return m.op(m.f.ReduceSum(x, m.others...))
}

func (m *features) count() float64 {
	return float64(m.shape.Size()) / float64(m.shape.Dimensions[m.axis])
}

func (m *features) mean(x compute.Value) compute.Value {
	if m.err != nil {
		return nil
	}
	return m.mul(m.sum(x), m.scalar(1/m.count()))
}

// invDeviation is 1/sqrt(variance+epsilon), per feature.
func (m *features) invDeviation(variance compute.Value, epsilon float32) compute.Value {
	v := m.add(variance, m.scalar(float64(epsilon)))
	if m.err != nil {
		return nil
	}
	return m.op(m.f.Rsqrt(v))
}

// normalise is (x-mean)·scale/deviation + offset.
func (m *features) normalise(x, mean, variance, scale, offset compute.Value, epsilon float32) compute.Value {
	centered := m.sub(x, m.spread(mean))
	return m.add(m.mul(centered, m.spread(m.mul(scale, m.invDeviation(variance, epsilon)))), m.spread(offset))
}

func (f *Func) batchNormForInference(a *ir.BatchNormForInference, in []compute.Value) ([]compute.Value, error) {
	m := f.features(in[0], a.FeatureAxis)
	y := m.normalise(in[0], in[3], in[4], in[1], in[2], a.Epsilon)
	return []compute.Value{y}, m.err
}

func (f *Func) batchNormForTraining(a *ir.BatchNormForTraining, in []compute.Value) ([]compute.Value, error) {
	m := f.features(in[0], a.FeatureAxis)
	mean := m.mean(in[0])
	centered := m.sub(in[0], m.spread(mean))
	variance := m.mean(m.mul(centered, centered))
	y := m.normalise(in[0], mean, variance, in[1], in[2], a.Epsilon)
	return []compute.Value{y, mean, variance}, m.err
}

func (f *Func) batchNormGradient(a *ir.BatchNormGradient, in []compute.Value) ([]compute.Value, error) {
	x, scale, mean, variance, dy := in[0], in[1], in[2], in[3], in[4]
	m := f.features(x, a.FeatureAxis)
	inv := m.invDeviation(variance, a.Epsilon)
	unit := m.mul(m.sub(x, m.spread(mean)), m.spread(inv)) // x normalised, before scale and offset
	dOffset := m.sum(dy)
	dScale := m.sum(m.mul(dy, unit))
	if m.err != nil {
		return nil, m.err
	}
	n := m.scalar(1 / m.count())
	dx := m.sub(m.sub(dy, m.spread(m.mul(dOffset, n))), m.mul(unit, m.spread(m.mul(dScale, n))))
	dx = m.mul(dx, m.spread(m.mul(scale, inv)))
	return []compute.Value{dx, dScale, dOffset}, m.err
}
