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

// The learning rate was found with 4 samples in a step. It is scaled to the samples that there are, after a warm-up.
func ExampleEnv_GlobalBatch() {
	const rate, samples, warmUp = 0.01, 4, 5
	cfg, err := epl.NewConfig(map[string]any{"pipeline.num_micro_batch": 2})
	if err != nil {
		log.Fatal(err)
	}
	env, err := epl.Init(cfg, epl.WithLocalDevices(2))
	if err != nil {
		log.Fatal(err)
	}
	defer env.Close()
	fmt.Println("before the first step:", env.Replicas(), env.GlobalBatch())

	store := model.NewStore()
	linear := func(scope *model.Scope, x *Node) *Node { return layers.Dense(scope, x, true, 1) }
	trainer := train.NewTrainer(env.Backend(), store, linear, loss.MeanSquaredError,
		epl.Optimizer(optimizer.StochasticGradientDescent().WithDecay(false).WithLearningRate(rate/warmUp)), nil, nil)
	loop := train.NewLoop(trainer)
	loop.OnStep("learning rate", 0, func(loop *train.Loop, _ []*tensors.Tensor) error {
		next := loop.LoopStep + 2 // steps count from 1
		if next > warmUp && loop.LoopStep > loop.StartStep {
			return nil
		}
		scaled := rate * float64(env.GlobalBatch()) / samples
		scaled *= min(1, float64(next)/warmUp)
		return store.GetVariable("/optimizers/learning_rate").SetValue(tensors.FromValue(float32(scaled)))
	})
	loop.OnStep("print", 1, func(loop *train.Loop, _ []*tensors.Tensor) error {
		next, err := store.GetVariable("/optimizers/learning_rate").Value()
		if err == nil && env.IsMain() {
			fmt.Printf("after step %d: learning rate %.3f\n", loop.LoopStep+1, next.Value())
		}
		return err
	})
	ds := dataset.Const(train.Batch{
		Inputs: []*tensors.Tensor{tensors.FromValue([][]float32{{0, 0}, {0, 1}, {1, 0}, {1, 1}})},
		Labels: []*tensors.Tensor{tensors.FromValue([][]float32{{0}, {1}, {1}, {2}})},
	})
	if _, err := loop.RunSteps(env.Dataset(ds), 6); err != nil {
		log.Fatal(err)
	}
	fmt.Println(env.Replicas(), "model replicas,", env.GlobalBatch(), "samples in a step")
	// Output:
	// before the first step: 0 0
	// after step 1: learning rate 0.016
	// after step 2: learning rate 0.024
	// after step 3: learning rate 0.032
	// after step 4: learning rate 0.040
	// after step 5: learning rate 0.040
	// after step 6: learning rate 0.040
	// 2 model replicas, 16 samples in a step
}
