// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package epl_test

import (
	"fmt"
	"log"
	"os"
	"path/filepath"

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

// The plan of one run is written down, and another run goes by it: its micro-batches are those of the plan, whatever the
// configuration says.
func ExampleWithPlan() {
	Model := func(scope *model.Scope, x *Node) *Node { return layers.Dense(scope, x, false, 1) }
	ds := dataset.Const(train.Batch{
		Inputs: []*tensors.Tensor{tensors.FromValue([][]float32{{1, 2}})},
		Labels: []*tensors.Tensor{tensors.FromValue([][]float32{{1}})},
	})
	run := func(cfg *epl.Config, opts ...epl.Option) *epl.Env {
		env, err := epl.Init(cfg, append(opts, epl.WithLocalDevices(2))...)
		if err != nil {
			log.Fatal(err)
		}
		trainer := train.NewTrainer(env.Backend(), model.NewStore(), Model, loss.MeanSquaredError,
			epl.Optimizer(optimizer.StochasticGradientDescent()), nil, nil)
		if _, err := train.NewLoop(trainer).RunSteps(env.Dataset(ds), 2); err != nil {
			log.Fatal(err)
		}
		return env
	}
	cfg, err := epl.NewConfig(map[string]any{"pipeline.num_micro_batch": 3})
	if err != nil {
		log.Fatal(err)
	}
	first := run(cfg)
	defer first.Close()
	name := filepath.Join(os.TempDir(), "epl-example-plan.json")
	file, err := os.Create(name)
	if err != nil {
		log.Fatal(err)
	}
	defer os.Remove(name)
	if err := first.Plan().Encode(file); err != nil {
		log.Fatal(err)
	}
	if err := file.Close(); err != nil {
		log.Fatal(err)
	}

	second := run(nil, epl.WithPlan(name))
	defer second.Close()
	fmt.Println(second.Plan().Replicas, second.Plan().MicroBatches, second.Config().Pipeline.NumMicroBatch)
	// Output: 2 3 3
}
