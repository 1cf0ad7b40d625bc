// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

// Command line is the program in the README: it fits a line to four points.
package main

import (
	"fmt"
	"log"

	. "github.com/gomlx/gomlx/core/graph" //nolint:all // the way GoMLX models are written
	"github.com/gomlx/gomlx/ml/dataset"
	"github.com/gomlx/gomlx/ml/layers"
	"github.com/gomlx/gomlx/ml/model"
	"github.com/gomlx/gomlx/ml/train"
	"github.com/gomlx/gomlx/ml/train/loss"
	"github.com/gomlx/gomlx/ml/train/optimizer"

	"github.com/easyparallel/epl"
)

func main() {
	env, err := epl.Init(nil)
	if err != nil {
		log.Fatal(err)
	}
	defer env.Close()
	x, y := [][]float32{{0}, {1}, {2}, {3}}, [][]float32{{1}, {3}, {5}, {7}}
	points, err := dataset.InMemoryFromData(env.Backend(), "points", []any{x}, []any{y})
	if err != nil {
		log.Fatal(err)
	}
	line := func(scope *model.Scope, x *Node) *Node {
		epl.SetDefaultStrategy(x, epl.Replicate(1))
		return layers.Dense(scope, x, true, 1)
	}
	trainer := train.NewTrainer(env.Backend(), model.NewStore(), line, loss.MeanSquaredError,
		epl.Optimizer(optimizer.Adam().LearningRate(0.1).Done()), nil, nil)
	metrics, err := train.NewLoop(trainer).RunSteps(env.Dataset(points.BatchSize(2, true).Infinite(true)), 500)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("%d model replicas, loss %.6f\n", env.Replicas(), metrics[0].Value())
}
