// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package main

import (
	"math"
	"testing"

	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/shapes"
	. "github.com/gomlx/gomlx/core/graph" //nolint:all // the way GoMLX models are written
	"github.com/gomlx/gomlx/core/tensors"
	"github.com/gomlx/gomlx/ml/model"
	"github.com/gomlx/gomlx/ml/model/initializer"

	"github.com/easyparallel/epl"
)

func TestTheLearningRateRisesAndFalls(t *testing.T) {
	for _, c := range []struct {
		warmup, steps int
		want          map[float32]float32
	}{
		{10, 100, map[float32]float32{1: 0.1, 5: 0.5, 10: 1, 55: 46. / 91, 100: 1. / 91, 101: 0, 150: 0}},
		{0, 4, map[float32]float32{1: 0.8, 4: 0.2}},
		{3, 3, map[float32]float32{1: 1. / 3, 3: 1}},
		{0, 1, map[float32]float32{1: 0.5}},
	} {
		exec := MustNewExec(newEnv(t).Backend(), func(step *Node) *Node { return adamW{2, c.warmup, c.steps}.schedule(step) })
		for step, want := range c.want {
			if got := tensors.ToScalar[float32](exec.MustCall(step)[0]); math.Abs(float64(got-2*want)) > 1e-6 {
				t.Errorf("warm-up %d of %d, step %v: got %v, want %v", c.warmup, c.steps, step, got, 2*want)
			}
		}
	}
}

func TestWeightsDecayAndBiasesDoNot(t *testing.T) {
	store := model.NewStore()
	optimizer := epl.Optimizer(adamW{rate: 0.1, warmup: 0, steps: 3})
	exec := model.MustNewExec(newEnv(t).Backend(), store, func(scope *model.Scope, x *Node) *Node {
		scope = scope.WithInitializer(initializer.One)
		w := scope.VariableWithShape("weights", shapes.Make(dtypes.Float32)).NodeValue(x)
		b := scope.VariableWithShape("biases", shapes.Make(dtypes.Float32)).NodeValue(x)
		loss := Square(Sub(Add(Mul(w, x), b), Const(x.Graph(), float32(5))))
		optimizer.UpdateGraph(scope, x.Graph(), loss)
		return loss
	})
	w, b := 1.0, 1.0
	var first, second [2]float64
	for step := 1; step <= 3; step++ {
		exec.MustCall(float32(2))
		slope := 2 * (2*w + b - 5)
		rate := 0.1 * float64(4-step) / 4
		for i, g := range []float64{2 * slope, slope} {
			first[i], second[i] = 0.9*first[i]+0.1*g, 0.999*second[i]+0.001*g*g
		}
		w -= rate * (first[0]/(math.Sqrt(second[0])+1e-6) + 0.01*w)
		b -= rate * (first[1] / (math.Sqrt(second[1]) + 1e-6))
		for name, want := range map[string]float64{"/weights": w, "/biases": b} {
			if got := tensors.ToScalar[float32](store.GetVariable(name).MustValue()); math.Abs(float64(got)-want) > 1e-5 {
				t.Errorf("step %d: %s is %v, want %v", step, name, got, want)
			}
		}
	}
}
