// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package epl

import (
	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/gomlx/core/graph"
	"github.com/gomlx/gomlx/ml/model"
	"github.com/gomlx/gomlx/ml/train"
	"github.com/gomlx/gomlx/ml/train/optimizer"
	"github.com/pkg/errors"

	"github.com/easyparallel/epl/record"
)

// ClipByGlobalNorm makes an optimizer that scales gradients down before it uses them, so that the norm over all of them
// is at most maxNorm. It also works on other backends.
//
// On EPL each instance (model replica and micro-batch) clips its own gradients, which are then reduced; with
// communication.clip_after_allreduce the reduced ones are clipped. Clipping that an optimizer does by itself, as GoMLX's
// do by the clip_step_by_value hyperparameter, always works on reduced gradients.
//
//	opt := epl.Optimizer(epl.ClipByGlobalNorm(optimizer.Adam().Done(), 1))
func ClipByGlobalNorm(inner optimizer.Interface, maxNorm float64) optimizer.Interface {
	return newClipped("ClipByGlobalNorm", inner, maxNorm, func(gradients []*graph.Node) []*graph.Node {
		if len(gradients) == 0 {
			return gradients
		}
		var sum *graph.Node
		for _, g := range gradients {
			s := graph.ConvertDType(graph.ReduceAllSum(graph.Square(g)), dtypes.Float32)
			if sum == nil {
				sum = s
			} else {
				sum = graph.Add(sum, s)
			}
		}
		norm := graph.Sqrt(sum)
		limit := graph.Scalar(norm.Graph(), dtypes.Float32, maxNorm)
		scale := graph.Div(limit, graph.Max(norm, limit))
		out := make([]*graph.Node, len(gradients))
		for i, g := range gradients {
			out[i] = graph.Mul(g, graph.ConvertDType(scale, g.DType()))
		}
		return out
	})
}

// ClipByValue makes an optimizer that clips every element of the gradients to [-limit, limit] before it uses them. On
// EPL, when that happens is said as for [ClipByGlobalNorm].
//
//	opt := epl.Optimizer(epl.ClipByValue(optimizer.Adam().Done(), 0.5))
func ClipByValue(inner optimizer.Interface, limit float64) optimizer.Interface {
	return newClipped("ClipByValue", inner, limit, func(gradients []*graph.Node) []*graph.Node {
		out := make([]*graph.Node, len(gradients))
		for i, g := range gradients {
			out[i] = graph.ClipScalar(g, -limit, limit)
		}
		return out
	})
}

// clipped is an optimizer that changes gradients before another one uses them.
type clipped struct {
	optimizer.Interface // the inner one, for Clear
	inner               train.OptimizeWithGradients
	clip                func([]*graph.Node) []*graph.Node
}

func newClipped(name string, inner optimizer.Interface, limit float64, clip func([]*graph.Node) []*graph.Node) optimizer.Interface {
	if inner == nil {
		panic(errors.Errorf("epl: %s(nil) at %s: there is no optimizer whose gradients are to be clipped", name, record.Here()))
	}
	withGradients, ok := inner.(train.OptimizeWithGradients)
	if !ok {
		panic(errors.Errorf("epl: %s cannot wrap the optimizer %T, since it only starts from a loss: give it the method "+
			"UpdateGraphWithGradients(scope, gradients, lossDType) of train.OptimizeWithGradients", name, inner))
	}
	if !(limit > 0) {
		panic(errors.Errorf("epl: %s: the limit must be positive, not %v", name, limit))
	}
	return &clipped{inner, withGradients, clip}
}

// UpdateGraph implements optimizer.Interface.
func (c *clipped) UpdateGraph(scope *model.Scope, _ *graph.Graph, loss *graph.Node) {
	c.UpdateGraphWithGradients(scope, scope.BuildTrainableVariablesGradientsGraph(loss), loss.DType())
}

// UpdateGraphWithGradients implements train.OptimizeWithGradients.
func (c *clipped) UpdateGraphWithGradients(scope *model.Scope, gradients []*graph.Node, lossDType dtypes.DType) {
	c.inner.UpdateGraphWithGradients(scope, c.clip(gradients), lossDType)
}
