// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package epl_test

import (
	"fmt"
	"log"

	"github.com/gomlx/gomlx/core/tensors"
	"github.com/gomlx/gomlx/ml/dataset"
	"github.com/gomlx/gomlx/ml/model"
	"github.com/gomlx/gomlx/ml/train"
	"github.com/gomlx/gomlx/ml/train/loss"
	"github.com/gomlx/gomlx/ml/train/optimizer"

	"github.com/easyparallel/epl"
)

// The model is written in float32, and its matrix products are computed in float16.
func Example_mixedPrecision() {
	cfg, err := epl.NewConfig(map[string]any{"amp.level": "O1", "amp.dtype": "float16"})
	if err != nil {
		log.Fatal(err)
	}
	env, err := epl.Init(cfg, epl.WithLocalDevices(1))
	if err != nil {
		log.Fatal(err)
	}
	defer env.Close()
	store := model.NewStore()
	store.SetParam(model.ParamInitialSeed, int64(42))
	trainer := train.NewTrainer(env.Backend(), store, tower, loss.MeanSquaredError, epl.Optimizer(optimizer.Adam().Done()), nil, nil)
	ds := dataset.Const(train.Batch{
		Inputs: []*tensors.Tensor{tensors.FromValue([][]float32{{1, 0, 1, 0}, {0, 1, 0, 1}})},
		Labels: []*tensors.Tensor{tensors.FromValue([][]float32{{0.1}, {0.2}})},
	})
	if _, err := train.NewLoop(trainer).RunSteps(env.Dataset(ds), 5); err != nil {
		log.Fatal(err)
	}
	weights := store.GetVariable("/layer_0/dense/weights")
	scale := store.GetVariable(epl.LossScaleVariable).MustValue()
	fmt.Println(weights.DType(), scale.Value())
	// Output: Float32 32768
}
