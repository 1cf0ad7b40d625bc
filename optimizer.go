// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package epl

import (
	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/gomlx/core/graph"
	"github.com/gomlx/gomlx/ml/model"
	"github.com/gomlx/gomlx/ml/train"
	"github.com/gomlx/gomlx/ml/train/optimizer"
	"github.com/pkg/errors"

	"github.com/easyparallel/epl/ir"
	"github.com/easyparallel/epl/record"
)

// Optimizer wraps an optimizer, so that EPL knows which values are gradients, of which variables, and which ops apply
// them. On other backends it is the inner optimizer.
//
// On EPL the inner optimizer must be able to start from gradients: it must have the method UpdateGraphWithGradients of
// train.OptimizeWithGradients, as all of GoMLX's do.
//
//	opt := epl.Optimizer(optimizer.Adam().LearningRate(1e-3).Done())
func Optimizer(inner optimizer.Interface) optimizer.Interface {
	switch inner.(type) {
	case nil:
		return missing{record.Here()}
	case wrapped, wrappedWithGradients, missing:
		return inner
	}
	w := wrapped{inner}
	if withGradients, ok := inner.(train.OptimizeWithGradients); ok {
		return wrappedWithGradients{w, withGradients}
	}
	return w
}

// missing stands for an optimizer that was forgotten. Programs that do not train need none.
type missing struct{ at ir.Source }

func (m missing) err() error {
	return errors.Errorf("epl: Optimizer(nil) at %s: there is no optimizer to train with", m.at)
}

// Clear implements optimizer.Interface.
func (m missing) Clear(*model.Scope) error { return m.err() }

// UpdateGraph implements optimizer.Interface.
func (m missing) UpdateGraph(*model.Scope, *graph.Graph, *graph.Node) { panic(m.err()) }

type wrapped struct{ inner optimizer.Interface }

// Clear implements optimizer.Interface.
func (w wrapped) Clear(scope *model.Scope) error { return w.inner.Clear(scope) }

// UpdateGraph implements optimizer.Interface.
func (w wrapped) UpdateGraph(scope *model.Scope, g *graph.Graph, loss *graph.Node) {
	if record.Of(g) != nil {
		panic(errors.Errorf("epl: the optimizer %T cannot be used on EPL, since it only starts from a loss: "+
			"give it the method UpdateGraphWithGradients(scope, gradients, lossDType) of train.OptimizeWithGradients", w.inner))
	}
	w.inner.UpdateGraph(scope, g, loss)
}

type wrappedWithGradients struct {
	wrapped
	gradients train.OptimizeWithGradients
}

// UpdateGraph implements optimizer.Interface.
func (w wrappedWithGradients) UpdateGraph(scope *model.Scope, g *graph.Graph, loss *graph.Node) {
	b := record.Of(g)
	if b == nil {
		w.inner.UpdateGraph(scope, g, loss)
		return
	}
	scale := newLossScale(b, scope, g)
	watch := guard{b: b, scale: scale}
	scaled := scale.up(loss)
	if err := b.BeginBackward(record.ValueOf(loss).Value); err != nil {
		panic(err)
	}
	nodes := scope.BuildTrainableVariablesGradientsGraph(scaled)
	apply := w.gradients
	clip, clips := w.inner.(*clipped)
	clips = clips && !b.ClipsAfterReduction() // each instance clips its own
	if clips {
		nodes = watch.poison(clip.clip(scale.down(nodes)), nodes)
		apply = clip.inner
	}
	for i, n := range nodes {
		if n.Type() == graph.NodeTypeParameter { // merging gradients overwrites them: a variable is no gradient itself
			nodes[i] = graph.Identity(n)
		}
	}
	var paths []string
	var values []*ir.Value
	for v := range scope.IterVariables() { // the order of nodes
		if v.Trainable && v.InUseByGraph(g) {
			values = append(values, record.ValueOf(nodes[len(paths)]).Value)
			paths = append(paths, v.Path())
		}
	}
	b.BeginApply(paths, values)
	if !clips {
		nodes = scale.down(nodes)
	}
	watch.judge(scope, loss, nodes, keepGradients(b, scope, paths, nodes))
	apply.UpdateGraphWithGradients(scope, nodes, loss.DType())
	b.EndApply()
	// GoMLX computes first values after compilation, unless there are any. It also says what is wrong with those that cannot be computed.
	b.Beside(func() { _ = scope.Store().InitializeVariables(g.Backend(), nil) })
}

// UpdateGraphWithGradients implements train.OptimizeWithGradients, for Trainer.AccumulateGradients on other backends.
func (w wrappedWithGradients) UpdateGraphWithGradients(scope *model.Scope, gradients []*graph.Node, lossDType dtypes.DType) {
	if len(gradients) > 0 && record.Of(gradients[0]) != nil {
		panic(errors.New(record.AccumulateGradients))
	}
	w.gradients.UpdateGraphWithGradients(scope, gradients, lossDType)
}
