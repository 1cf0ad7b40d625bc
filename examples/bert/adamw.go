// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package main

import (
	"path"

	"github.com/gomlx/compute/dtypes"
	. "github.com/gomlx/gomlx/core/graph" //nolint:all // the way GoMLX models are written
	"github.com/gomlx/gomlx/ml/model"
	"github.com/gomlx/gomlx/ml/model/initializer"
	"github.com/gomlx/gomlx/ml/train"
	"github.com/gomlx/gomlx/ml/train/optimizer"
	"github.com/gomlx/gomlx/support/exceptions"
)

// adamW is the optimizer that BERT is trained with: Adam with weight decay, without correction of its first averages,
// and with a learning rate that rises over the warm-up steps and then falls to zero at the last one.
type adamW struct {
	rate          float64
	warmup, steps int
}

var (
	_ optimizer.Interface         = adamW{}
	_ train.OptimizeWithGradients = adamW{}
)

const (
	inAdamW     = "adamw" // scope of its variables
	beta1       = 0.9
	beta2       = 0.999
	adamEpsilon = 1e-6
	weightDecay = 0.01
)

// UpdateGraph implements optimizer.Interface.
func (a adamW) UpdateGraph(scope *model.Scope, g *Graph, loss *Node) {
	a.UpdateGraphWithGradients(scope, scope.BuildTrainableVariablesGradientsGraph(loss), loss.DType())
}

// UpdateGraphWithGradients implements train.OptimizeWithGradients.
func (a adamW) UpdateGraphWithGradients(scope *model.Scope, gradients []*Node, lossDType dtypes.DType) {
	g := gradients[0].Graph()
	rate := a.schedule(optimizer.IncrementGlobalStep(g, lossDType))
	var variables []*model.Variable // those of the gradients, in the same order
	for v := range scope.IterVariables() {
		if v.Trainable && v.InUseByGraph(g) {
			variables = append(variables, v)
		}
	}
	if len(variables) != len(gradients) {
		exceptions.Panicf("bert: %d gradients for %d trainable variables", len(gradients), len(variables))
	}
	for i, v := range variables {
		average := func(name string, of *Node, decay float64) *Node {
			m := scope.Store().Scope(path.Join("/", inAdamW, v.Path())).WithInitializer(initializer.Zero).
				VariableWithShape(name, v.Shape()).SetTrainable(false)
			next := Add(MulScalar(m.NodeValue(g), decay), MulScalar(of, 1-decay))
			m.SetNodeValue(next)
			return next
		}
		first := average("first", gradients[i], beta1)
		second := average("second", Square(gradients[i]), beta2)
		step := Div(first, AddScalar(Sqrt(second), adamEpsilon))
		if decays(v) {
			step = Add(step, MulScalar(v.NodeValue(g), weightDecay))
		}
		v.SetNodeValue(Sub(v.NodeValue(g), Mul(step, rate)))
	}
}

// schedule returns the learning rate of a step, which counts from 1.
func (a adamW) schedule(step *Node) *Node {
	rising := MulScalar(step, 1/float64(max(a.warmup, 1)))
	falling := MulScalar(AddScalar(Neg(step), float64(a.steps+1)), 1/float64(a.steps+1-min(a.warmup, a.steps)))
	return MulScalar(MaxScalar(Min(rising, MinScalar(falling, 1)), 0), a.rate)
}

// decays tells whether weight decay applies: it does not to biases and to layer normalisation.
func decays(v *model.Variable) bool {
	return v.Name() == "weights" || v.Name() == "embeddings"
}

// Clear implements optimizer.Interface.
func (a adamW) Clear(scope *model.Scope) error {
	return scope.Store().Scope("/" + inAdamW).DeleteVariablesInScope()
}
