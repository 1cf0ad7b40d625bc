// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package epl_test

import (
	"fmt"
	"log"

	. "github.com/gomlx/gomlx/core/graph" //nolint:all // the way GoMLX models are written
	"github.com/gomlx/gomlx/core/tensors"
	"github.com/gomlx/gomlx/ml/dataset"
	"github.com/gomlx/gomlx/ml/layers"
	"github.com/gomlx/gomlx/ml/model"
	"github.com/gomlx/gomlx/ml/train"
	"github.com/gomlx/gomlx/ml/train/loss"
	"github.com/gomlx/gomlx/ml/train/optimizer"

	"github.com/easyparallel/epl"
)

// Checkpoints that the model chooses: backward computes what comes before them again, and learns the same.
func Example_recompute() {
	Model := func(scope *model.Scope, x *Node) *Node {
		x = Tanh(layers.Dense(scope.In("dense1"), x, true, 64))
		x = Tanh(layers.Dense(scope.In("dense2"), x, true, 64))
		epl.AddToCollection(epl.Checkpoints, x)
		x = Tanh(layers.Dense(scope.In("dense3"), x, true, 64))
		return layers.Dense(scope.In("out"), x, true, 1)
	}
	learn := func(params map[string]any) float32 {
		cfg, err := epl.NewConfig(params)
		if err != nil {
			log.Fatal(err)
		}
		env, err := epl.Init(cfg)
		if err != nil {
			log.Fatal(err)
		}
		defer env.Close()
		store := model.NewStore()
		store.SetParam(model.ParamInitialSeed, int64(1))
		trainer := train.NewTrainer(env.Backend(), store, Model, loss.MeanSquaredError,
			epl.Optimizer(optimizer.Adam().LearningRate(0.01).Done()), nil, nil)
		batch := train.Batch{
			Inputs: []*tensors.Tensor{tensors.FromValue([][]float32{{0, 0}, {0, 1}, {1, 0}, {1, 1}})},
			Labels: []*tensors.Tensor{tensors.FromValue([][]float32{{0}, {1}, {1}, {0}})},
		}
		metrics, err := train.NewLoop(trainer).RunSteps(env.Dataset(dataset.Const(batch)), 20)
		if err != nil {
			log.Fatal(err)
		}
		return tensors.ToScalar[float32](metrics[0])
	}
	plain := learn(nil)
	fmt.Println(learn(map[string]any{"gradient_checkpoint.type": "collection"}) == plain)
	fmt.Println(learn(map[string]any{"gradient_checkpoint.type": "auto"}) == plain)
	// Output:
	// true
	// true
}
