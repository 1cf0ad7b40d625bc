// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

// Package momentum is an optimizer of one's own: gradient descent with momentum, which GoMLX does not have.
package momentum

import (
	"path"

	"github.com/gomlx/compute/dtypes"
	. "github.com/gomlx/gomlx/core/graph" //nolint:staticcheck // the way GoMLX models are written
	"github.com/gomlx/gomlx/ml/model"
	"github.com/gomlx/gomlx/ml/model/initializer"
	"github.com/gomlx/gomlx/ml/train"
	"github.com/gomlx/gomlx/ml/train/optimizer"
	"github.com/gomlx/gomlx/support/exceptions"
)

// Optimizer is gradient descent with momentum:
//
//	velocity = momentum·velocity + gradient
//	variable = variable - rate·velocity
//
// It shows what an optimizer of your own needs in order to run on EPL: UpdateGraphWithGradients, so that EPL can have
// the gradients first, and state in variables that are not trainable.
type Optimizer struct {
	Rate, Momentum float64
}

var (
	_ optimizer.Interface         = Optimizer{}
	_ train.OptimizeWithGradients = Optimizer{}
)

// velocities is the scope of the optimizer's own variables.
const velocities = "momentum"

// UpdateGraph implements optimizer.Interface.
func (m Optimizer) UpdateGraph(scope *model.Scope, g *Graph, loss *Node) {
	m.UpdateGraphWithGradients(scope, scope.BuildTrainableVariablesGradientsGraph(loss), loss.DType())
}

// UpdateGraphWithGradients implements train.OptimizeWithGradients.
func (m Optimizer) UpdateGraphWithGradients(scope *model.Scope, gradients []*Node, lossDType dtypes.DType) {
	if len(gradients) == 0 {
		exceptions.Panicf("momentum: there is no trainable variable")
	}
	g := gradients[0].Graph()
	optimizer.IncrementGlobalStep(g, lossDType)
	var variables []*model.Variable // those of the gradients, in the same order
	for v := range scope.IterVariables() {
		if v.Trainable && v.InUseByGraph(g) {
			variables = append(variables, v)
		}
	}
	if len(variables) != len(gradients) {
		exceptions.Panicf("momentum: %d gradients for %d trainable variables", len(gradients), len(variables))
	}
	for i, v := range variables {
		velocity := scope.Store().Scope(path.Join("/", velocities, v.Scope())).WithInitializer(initializer.Zero).
			VariableWithShape(v.Name(), v.Shape()).SetTrainable(false)
		next := Add(MulScalar(velocity.NodeValue(g), m.Momentum), gradients[i])
		velocity.SetNodeValue(next)
		v.SetNodeValue(Sub(v.NodeValue(g), MulScalar(next, m.Rate)))
	}
}

// Clear implements optimizer.Interface.
func (m Optimizer) Clear(scope *model.Scope) error {
	return scope.Store().Scope("/" + velocities).DeleteVariablesInScope()
}
