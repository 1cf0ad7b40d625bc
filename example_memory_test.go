// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package epl_test

import (
	"fmt"
	"log"

	. "github.com/gomlx/gomlx/core/graph" //nolint:all // the way GoMLX models are written
	"github.com/gomlx/gomlx/core/tensors"
	"github.com/gomlx/gomlx/ml/dataset"
	"github.com/gomlx/gomlx/ml/layers"
	"github.com/gomlx/gomlx/ml/layers/activation"
	"github.com/gomlx/gomlx/ml/model"
	"github.com/gomlx/gomlx/ml/train"
	"github.com/gomlx/gomlx/ml/train/loss"
	"github.com/gomlx/gomlx/ml/train/optimizer"

	"github.com/easyparallel/epl"
)

// tower is a model of equal layers, for samples as wide as they are.
func tower(scope *model.Scope, x *Node) *Node {
	for i := range 12 {
		x = activation.Relu(layers.Dense(scope.In("layer_%d", i), x, true, x.Shape().Dim(-1)))
	}
	return layers.Dense(scope.In("out"), x, true, 1)
}

// trainTower trains a model for two steps by Adam.
func trainTower(env *epl.Env, fn func(scope *model.Scope, x *Node) *Node, width int) error {
	trainer := train.NewTrainer(env.Backend(), model.NewStore(), fn, loss.MeanSquaredError,
		epl.Optimizer(optimizer.Adam().Done()), nil, nil)
	ds := dataset.Const(train.Batch{
		Inputs: []*tensors.Tensor{tensors.FromValue([][]float32{make([]float32, width), make([]float32, width)})},
		Labels: []*tensors.Tensor{tensors.FromValue([][]float32{{1}, {2}})},
	})
	_, err := train.NewLoop(trainer).RunSteps(env.Dataset(ds), 2)
	return err
}

// Four model replicas share what Adam keeps: each has a quarter of it.
func Example_zero() {
	cfg, err := epl.NewConfig(map[string]any{"zero.level": "v0"})
	if err != nil {
		log.Fatal(err)
	}
	env, err := epl.Init(cfg, epl.WithLocalDevices(4))
	if err != nil {
		log.Fatal(err)
	}
	defer env.Close()
	if err := trainTower(env, tower, 64); err != nil {
		log.Fatal(err)
	}
	device := env.Predicted().Devices[0]
	fmt.Printf("%.1f\n", float64(device.Most["optimizer state"])/float64(device.Most["weights"]))
	// Output: 0.5
}

// Weights and what Adam keeps for them wait on the host, and come to the device a few at a time.
func Example_offload() {
	cfg, err := epl.NewConfig(map[string]any{"offload.level": "v0"})
	if err != nil {
		log.Fatal(err)
	}
	env, err := epl.Init(cfg)
	if err != nil {
		log.Fatal(err)
	}
	defer env.Close()
	if err := trainTower(env, tower, 64); err != nil {
		log.Fatal(err)
	}
	device := env.Predicted().Devices[0]
	weights := int64(12*64*64*4 + 13*64*4) // and biases, and the last layer
	fmt.Println(device.Most["weights"] < weights/2)
	// Output: true
}
