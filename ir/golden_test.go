// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package ir_test

import (
	"testing"

	"github.com/gomlx/gomlx/core/graph"
	"github.com/gomlx/gomlx/ml/layers"
	"github.com/gomlx/gomlx/ml/model"
	"github.com/gomlx/gomlx/ml/train/loss"
	"github.com/gomlx/gomlx/ml/train/optimizer"

	"github.com/easyparallel/epl"
	"github.com/easyparallel/epl/internal/equiv"
	"github.com/easyparallel/epl/ir"
)

// The lines of this file are in testdata/train.txt.

// twoStages has two annotated layers, and a collection.
func twoStages(scope *model.Scope, x *graph.Node) *graph.Node {
	epl.With(x, epl.Replicate(1, "hidden"), func() {
		x = graph.Tanh(layers.Dense(scope.In("hidden"), x, true, 3))
	})
	epl.With(x, epl.Split(2, "head").Shard("weights", 1), func() {
		x = layers.Dense(scope.In("head"), x, false, 1)
	})
	epl.AddToCollection(epl.GlobalConcat, x)
	return x
}

// trainStep is the program that trains it, as recorded.
func trainStep(t testing.TB) *ir.Program {
	t.Helper()
	backend, recorder := equiv.NewRecorder(nil)
	defer backend.Finalize()
	m := equiv.Model{Name: "two stages", Build: twoStages, Loss: loss.MeanSquaredError, Batch: equiv.Regression(4, 3)}
	sgd := epl.Optimizer(optimizer.StochasticGradientDescent().WithDecay(false))
	if _, err := equiv.Train(backend, m, sgd, 1); err != nil {
		t.Fatalf("%+v", err)
	}
	for _, p := range recorder.Programs {
		if p.IsTraining() {
			return p
		}
	}
	t.Fatal("no program was recorded that trains")
	return nil
}
