// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package epl

import (
	"math"

	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/gomlx/core/graph"
	"github.com/gomlx/gomlx/ml/model"
	"github.com/gomlx/gomlx/ml/train/optimizer"
	"github.com/pkg/errors"

	"github.com/easyparallel/epl/config"
	"github.com/easyparallel/epl/record"
)

// The state of a loss scale of mixed precision: variables beside those of the optimizer, so that a checkpoint holds them.
// The paths are those of a trainer at the root of a store; one in another scope has them below that.
const (
	// LossScaleVariable is the path of the scale that the next step multiplies its loss by, a float32, if it is dynamic.
	LossScaleVariable = "/" + optimizer.Scope + "/" + lossScaleName
	// GoodStepsVariable is the path of the number of steps since the scale changed, an int32, if it is dynamic.
	GoodStepsVariable = "/" + optimizer.Scope + "/" + goodStepsName
	// SkippedStepsVariable is the path of the number of steps in a row that were skipped in vain, an int32: by a scale that is fixed, or
	// cannot become smaller. EPL warns when they become many.
	SkippedStepsVariable = "/" + optimizer.Scope + "/" + record.SkippedSteps

	lossScaleName = "epl_loss_scale"
	goodStepsName = "epl_good_steps"
)

// ParamLossScaleSteps is the hyperparameter of a model for the number of good steps after which a dynamic loss scale doubles:
// an int of at least 1, 2000 by default.
const ParamLossScaleSteps = "epl_loss_scale_steps"

// startOfLossScale is the first scale of a dynamic one.
const startOfLossScale = 1 << 15

// lossScaleOf reads the configuration. bfloat16 has the range of float32, and needs none unless the user wants it.
func lossScaleOf(a config.AMP) *record.LossScale {
	switch {
	case a.Level == "":
		return nil
	case !a.LossScale.Dynamic:
		return &record.LossScale{Start: a.LossScale.Value}
	case a.DType == config.BFloat16:
		return nil
	}
	return &record.LossScale{Start: startOfLossScale, Dynamic: true}
}

// lossScale is the loss scale in a training program: the loss is multiplied by it, so that small gradients do not vanish in
// float16, and gradients are divided by it. A step whose gradients are not all finite changes nothing but the scale.
//
// All of it is ordinary ops on reduced gradients, so that model replicas, micro-batches and stages agree. A nil one does nothing.
type lossScale struct {
	record.LossScale
	scale, good *model.Variable // if it is dynamic
	skipped     *model.Variable
	steps       int
	now         *graph.Node // the scale of this step
}

// newLossScale returns nil if the program needs none.
func newLossScale(b *record.Builder, scope *model.Scope, g *graph.Graph) *lossScale {
	o := b.LossScale()
	if o == nil {
		return nil
	}
	s := &lossScale{LossScale: *o, steps: model.GetParamOr(scope, ParamLossScaleSteps, 2000)}
	if s.steps < 1 || s.steps > math.MaxInt32 {
		panic(errors.Errorf("epl: the hyperparameter %s must be from 1 to 2^31-1, not %d", ParamLossScaleSteps, s.steps))
	}
	at := scope.At("%s", optimizer.Scope)
	s.skipped = at.VariableWithValue(record.SkippedSteps, int32(0)).SetTrainable(false)
	if !o.Dynamic {
		s.now = graph.Scalar(g, dtypes.Float32, o.Start)
		return s
	}
	s.scale = at.VariableWithValue(lossScaleName, float32(o.Start)).SetTrainable(false)
	s.good = at.VariableWithValue(goodStepsName, int32(0)).SetTrainable(false)
	s.now = s.scale.NodeValue(g)
	return s
}

// up multiplies the loss.
func (s *lossScale) up(loss *graph.Node) *graph.Node {
	if s == nil {
		return loss
	}
	return graph.Mul(loss, graph.ConvertDType(s.now, loss.DType()))
}

// down divides gradients.
func (s *lossScale) down(gradients []*graph.Node) []*graph.Node {
	if s == nil {
		return gradients
	}
	inverse := graph.Reciprocal(s.now)
	out := make([]*graph.Node, len(gradients))
	for i, g := range gradients {
		if g.DType().IsHalfPrecision() { // it may not have the inverse
			out[i] = graph.ConvertDType(graph.Mul(graph.ConvertDType(g, dtypes.Float32), inverse), g.DType())
		} else {
			out[i] = graph.Mul(g, graph.ConvertDType(inverse, g.DType()))
		}
	}
	return out
}

// smallestLossScale is how far a dynamic scale goes down.
const smallestLossScale = 1

// shrinks tells whether a smaller scale may save a step that this one does not.
func (s *lossScale) shrinks(g *graph.Graph) *graph.Node {
	if !s.Dynamic {
		return graph.Const(g, false)
	}
	return graph.GreaterThan(s.now, graph.Scalar(g, dtypes.Float32, smallestLossScale))
}

// update sets the next scale, if gradients are finite or not, and returns the paths of what it sets.
func (s *lossScale) update(ok *graph.Node) (paths []string) {
	if s == nil {
		return nil
	}
	s.count(ok.Graph(), ok)
	if s.Dynamic {
		s.next(ok.Graph(), ok)
		paths = append(paths, s.scale.Path(), s.good.Path())
	}
	return append(paths, s.skipped.Path())
}

// count counts the steps that were skipped in a row, but for those after which the scale is smaller.
func (s *lossScale) count(g *graph.Graph, ok *graph.Node) {
	before := s.skipped.NodeValue(g)
	more := graph.Where(s.shrinks(g), before, graph.OnePlus(before))
	s.skipped.SetNodeValue(graph.Where(ok, graph.ScalarZero(g, dtypes.Int32), more))
}

// next doubles the scale after enough good steps, and halves it after a bad one.
func (s *lossScale) next(g *graph.Graph, ok *graph.Node) {
	good := graph.OnePlus(s.good.NodeValue(g))
	grows := graph.GreaterOrEqual(good, graph.Scalar(g, dtypes.Int32, s.steps))
	doubled := graph.MulScalar(s.now, 2)
	doubled = graph.Where(graph.IsFinite(doubled), doubled, s.now)
	halved := graph.MaxScalar(graph.MulScalar(s.now, 0.5), smallestLossScale)
	s.scale.SetNodeValue(graph.Where(ok, graph.Where(grows, doubled, s.now), halved))
	zero := graph.ScalarZero(g, dtypes.Int32)
	s.good.SetNodeValue(graph.Where(graph.LogicalAnd(ok, graph.LogicalNot(grows)), good, zero))
}
