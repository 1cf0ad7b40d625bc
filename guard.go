// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package epl

import (
	"math"

	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/gomlx/core/graph"
	"github.com/gomlx/gomlx/ml/model"
	"github.com/gomlx/gomlx/ml/train/optimizer"

	"github.com/easyparallel/epl/config"
	"github.com/easyparallel/epl/ir"
	"github.com/easyparallel/epl/record"
)

// LastLossVariable is the path of the loss of the last step that counted, with reliability.nan = skip: a step that is skipped reports it. It is that of a trainer at
// the root of a store; one in another scope has it below that.
const LastLossVariable = "/" + optimizer.Scope + "/" + lastLossName

const lastLossName = "epl_last_loss"

// guard decides inside a training program whether a step counts: with a loss scale if its gradients are finite, with reliability.nan also if its loss is. The
// pass guard lets variables keep their values otherwise.
//
// The verdict is computed by ordinary ops on the reduced loss and gradients, so that model replicas, micro-batches and stages agree.
type guard struct {
	b     *record.Builder
	scale *lossScale // nil: there is none
}

// looks tells whether the loss counts.
func (g guard) looks() bool { return g.b.NaN() == config.NaNSkip || g.b.NaN() == config.NaNStop }

// finite tells, as a scalar, whether every element of the gradients is a number. It counts those that are not: a sum is what
// devices that have a part each can add up.
func finite(gradients []*graph.Node) *graph.Node {
	var bad *graph.Node
	for _, g := range gradients {
		n := graph.ReduceAllSum(graph.ConvertDType(graph.LogicalNot(graph.IsFinite(g)), dtypes.Float32))
		if bad == nil {
			bad = n
		} else {
			bad = graph.Add(bad, n)
		}
	}
	return graph.Equal(bad, graph.ScalarZero(bad.Graph(), dtypes.Float32))
}

// poison makes clipped gradients NaN if one of them was not finite before: clipping may hide that.
func (g guard) poison(clipped, gradients []*graph.Node) []*graph.Node {
	if g.scale == nil && !g.looks() || len(clipped) == 0 {
		return clipped
	}
	ok := finite(gradients)
	out := make([]*graph.Node, len(clipped))
	for i, c := range clipped {
		nan := graph.Scalar(c.Graph(), c.DType(), math.NaN())
		out[i] = graph.Where(ok, c, graph.BroadcastToShape(nan, c.Shape()))
	}
	return out
}

// judge says whether the step counts, by its reduced gradients, and sets the next loss scale. Variables of the paths in always change in any case.
func (g guard) judge(scope *model.Scope, loss *graph.Node, gradients []*graph.Node, always []string) {
	if g.scale == nil && !g.looks() || len(gradients) == 0 {
		return
	}
	verdict := func(ok *graph.Node, no *graph.Node) *graph.Node {
		return graph.Where(ok, graph.Scalar(loss.Graph(), dtypes.Int32, ir.Counts), no)
	}
	overflows, notFinite := graph.Scalar(loss.Graph(), dtypes.Int32, ir.Overflows), graph.Scalar(loss.Graph(), dtypes.Int32, ir.NotFinite)
	ok := finite(gradients)
	if !g.looks() {
		g.b.Guard(valueOf(verdict(ok, overflows)), nil, append(always, g.scale.update(ok)...)...)
		return
	}
	known := graph.IsFinite(loss)
	both := graph.LogicalAnd(ok, known)
	no := notFinite
	if g.scale != nil {
		no = graph.Where(graph.LogicalAnd(known, g.scale.shrinks(loss.Graph())), overflows, notFinite)
	}
	v := verdict(both, no)
	always = append(always, g.scale.update(graph.LogicalOr(ok, graph.LogicalNot(known)))...) // a loss that is not finite is no reason for a smaller scale
	var reported *ir.Value
	if g.b.NaN() == config.NaNSkip {
		last := scope.At("%s", optimizer.Scope).VariableWithValue(lastLossName, float32(largestLoss)).SetTrainable(false)
		now := graph.Where(both, graph.ConvertDType(loss, dtypes.Float32), last.NodeValue(loss.Graph()))
		last.SetNodeValue(now)
		reported, always = valueOf(graph.ConvertDType(now, loss.DType())), append(always, last.Path())
	}
	g.b.Guard(valueOf(v), reported, always...)
}

// largestLoss is what is reported before a step has counted: finite in every type, and larger than any loss.
const largestLoss = 65504

func valueOf(n *graph.Node) *ir.Value { return record.ValueOf(n).Value }
