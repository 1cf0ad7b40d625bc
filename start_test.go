// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package epl_test

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/shapes"
	. "github.com/gomlx/gomlx/core/graph" //nolint:all // the way GoMLX models are written
	"github.com/gomlx/gomlx/ml/model"
	"github.com/gomlx/gomlx/ml/train/optimizer"

	"github.com/easyparallel/epl"
	"github.com/easyparallel/epl/compile"
	"github.com/easyparallel/epl/ir"
	"github.com/easyparallel/epl/plan"
)

func TestFirstValuesAreComputedOnceAndWhileTheStepIsCompiled(t *testing.T) {
	begun, calls := make(chan struct{}), atomic.Int32{}
	compile.Decided = func(*ir.Program, *plan.Plan, plan.Target) {
		select {
		case <-begun:
		case <-time.After(time.Minute):
			t.Error("they wait for the plan")
		}
	}
	defer func() { compile.Decided = nil }()
	env, err := epl.Init(nil, epl.WithLocalDevices(1))
	if err != nil {
		t.Fatal(err)
	}
	defer env.Close()
	store := model.NewStore()
	exec, err := model.NewExec(env.Backend(), store, func(scope *model.Scope, x *Node) *Node {
		w := scope.WithInitializer(func(g *Graph, shape shapes.Shape) *Node {
			if calls.Add(1) == 1 {
				close(begun)
			}
			return Ones(g, shape)
		}).VariableWithShape("w", shapes.Make(dtypes.Float32, 4, 3))
		loss := ReduceAllMean(Square(MatMul(x, w.NodeValue(x.Graph()))))
		epl.Optimizer(optimizer.StochasticGradientDescent().WithDecay(false).Done()).UpdateGraph(scope, x.Graph(), loss)
		return loss
	})
	if err != nil {
		t.Fatal(err)
	}
	loss, err := exec.Call1([][]float32{{1, 2, 3, 4}, {1, 2, 3, 4}})
	if err != nil {
		t.Fatal(err)
	}
	if got := loss.Value(); got != float32(100) || calls.Load() != 1 {
		t.Errorf("loss %v; the initializer was called %d times", got, calls.Load())
	}
}
