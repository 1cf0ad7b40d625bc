// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package equiv

import (
	"math"
	"testing"

	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/shapes"
	. "github.com/gomlx/gomlx/core/graph"
	"github.com/gomlx/gomlx/core/tensors"
	"github.com/gomlx/gomlx/ml/layers"
	"github.com/gomlx/gomlx/ml/layers/activation"
	"github.com/gomlx/gomlx/ml/model"
	"github.com/gomlx/gomlx/ml/train/loss"
	"github.com/gomlx/gomlx/ml/train/optimizer"
)

// fixed gives the same small batch again and again.
func fixed(data, labels func(i int) float32) func(int) (in, out []*tensors.Tensor) {
	return func(int) (in, out []*tensors.Tensor) {
		x, y := make([]float32, 32), make([]float32, 8)
		for i := range x {
			x[i] = data(i)
		}
		for i := range y {
			y[i] = labels(i)
		}
		return []*tensors.Tensor{tensors.FromFlatDataAndDimensions(x, 8, 4)}, []*tensors.Tensor{tensors.FromFlatDataAndDimensions(y, 8, 1)}
	}
}

func sevenths(i int) float32 { return float32(i%7) / 7 }
func eighths(i int) float32  { return float32(i) / 8 }

func quickly() optimizer.Interface { return optimizer.Adam().LearningRate(0.01).Done() }

// mustLearn compares where a training ends, as a part of what the loss falls by in float32.
func mustLearn(t *testing.T, m Model, params map[string]any, part float64) {
	t.Helper()
	const steps = 60
	want := trainParallel(t, newCluster(t, 1, 1, nil), m, quickly(), steps).Losses
	got := trainParallel(t, newCluster(t, 1, 1, params), m, quickly(), steps).Losses
	first, a, b := float64(want[0]), float64(want[steps-1]), float64(got[steps-1])
	if !(a < first) || !(math.Abs(a-b) <= part*(first-a)) {
		t.Errorf("from %v the loss falls to %v, in float32 to %v", first, b, a)
	}
}

// Numbers that half precision does not have, or not exactly, must not stop a training that works in float32.
func TestMixedPrecisionLearnsFromNumbersThatItLacks(t *testing.T) {
	for _, m := range []Model{
		{"exponentials beyond float16", func(s *model.Scope, x *Node) *Node {
			return Log1P(Exp(AddScalar(layers.Dense(s, x, true, 1), 13)))
		}, loss.MeanSquaredError, fixed(sevenths, eighths)},
		{"divisors below float16", func(s *model.Scope, x *Node) *Node {
			y := MulScalar(Logistic(layers.Dense(s, x, true, 4)), 1e-9)
			return ReduceAndKeep(Div(y, Exp(AddScalar(layers.Dense(s.In("z"), x, true, 4), -20))), ReduceSum, -1)
		}, loss.MeanSquaredError, fixed(sevenths, eighths)},
		{"constants below float16", func(s *model.Scope, x *Node) *Node {
			y := activation.Relu(layers.Dense(s, x, true, 4))
			return ReduceAndKeep(Log(AddScalar(y, 1e-8)), ReduceSum, -1)
		}, loss.MeanSquaredError, fixed(func(i int) float32 { return sevenths(i) - 0.5 }, func(int) float32 { return -5 })},
		{"targets with more digits", func(s *model.Scope, x *Node) *Node {
			return layers.Dense(s.In("o"), activation.Relu(layers.Dense(s, x, true, 16)), true, 1)
		}, loss.MeanSquaredError, fixed(sevenths, func(i int) float32 { return 1e4 + float32(i) })},
	} {
		for _, h := range halves {
			t.Run(m.Name+"/"+h.name, func(t *testing.T) {
				t.Parallel()
				part := 0.1
				if h.name == "float16" {
					part = 0.6 // steps are skipped until the scale is small enough
				}
				mustLearn(t, m, map[string]any{"amp.level": "O1", "amp.dtype": h.name}, part)
			})
		}
	}
}

// The pure-Go backend has no float16 below 2^-14, as the inverse of the scale is.
func TestAModelOfItsOwnHalfPrecisionLearnsWithALossScale(t *testing.T) {
	m := Model{"half", func(s *model.Scope, x *Node) *Node {
		y := layers.Dense(s, ConvertDType(x, dtypes.Float16), false, 8)
		return layers.Dense(s.In("o"), Tanh(y), false, 1)
	}, func(labels, predictions []*Node) *Node {
		return ReduceAllMean(Square(Sub(ConvertDType(predictions[0], dtypes.Float32), labels[0])))
	}, fixed(sevenths, func(int) float32 { return 0.5 })}
	mustLearn(t, m, float16, 0.1)
}

// A variable that forward moves by small steps moves, though the rest of the model reads its new value in half precision.
func TestVariablesThatForwardSetsAreNotRounded(t *testing.T) {
	m := Model{"codebook", func(s *model.Scope, x *Node) *Node {
		y := layers.Dense(s, x, true, 8)
		v := s.WithInitializer(func(g *Graph, shape shapes.Shape) *Node { return Ones(g, shape) }).VariableWithShape("code", y.Shape()).SetTrainable(false)
		now := Add(v.NodeValue(x.Graph()), MulScalar(StopGradient(y), 0.001))
		v.SetNodeValue(now)
		return layers.Dense(s.In("o"), Add(y, StopGradient(now)), true, 1)
	}, loss.MeanSquaredError, fixed(func(i int) float32 { return float32(1+i%7) / 7 }, func(int) float32 { return 0 })}
	opt := func() optimizer.Interface { return optimizer.StochasticGradientDescent().WithLearningRate(1e-6).Done() }
	code := func(params map[string]any) []float64 {
		run := trainParallel(t, newCluster(t, 1, 1, params), m, opt(), 40)
		return numbers(run.Store.GetVariable("/code").MustValue())
	}
	want := code(nil)
	for i := range want {
		want[i]-- // how far it moved
	}
	for _, h := range halves {
		t.Run(h.name, func(t *testing.T) {
			got := code(map[string]any{"amp.level": "O1", "amp.dtype": h.name})
			for i := range got {
				got[i]--
			}
			if diff, norm := distance(want, got); norm == 0 || diff > h.weights*norm {
				t.Errorf("in float32 it moves by %v, and here it differs from that by %v", norm, diff)
			}
		})
	}
}
