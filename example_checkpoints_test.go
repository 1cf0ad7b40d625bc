// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package epl_test

import (
	"fmt"
	"os"

	"github.com/gomlx/gomlx/ml/model"
	"github.com/gomlx/gomlx/ml/train"
	"github.com/gomlx/gomlx/ml/train/loss"
	"github.com/gomlx/gomlx/ml/train/optimizer"

	"github.com/easyparallel/epl"
)

// trainTo trains up to a global step, from where the checkpoints in dir are.
func trainTo(step int, dir string, opts ...epl.Option) (from int64, err error) {
	env, err := epl.Init(nil, opts...)
	if err != nil {
		return 0, err
	}
	defer env.Close()
	store := model.NewStore()
	saver, err := env.Checkpoints(store).Dir(dir).Keep(3).EverySteps(2).Done() // loads the newest, before the trainer is made
	if err != nil {
		return 0, err
	}
	trainer := train.NewTrainer(env.Backend(), store, savedPlans["replicas"].model, loss.MeanSquaredError,
		epl.Optimizer(optimizer.Adam().Done()), nil, nil)
	loop := train.NewLoop(trainer)
	loop.OnStep("checkpoints", 100, saver.OnStep)
	if _, err := loop.RunToGlobalStep(env.Dataset(savedBatches{}), step); err != nil {
		return 0, err
	}
	return saver.Step(), saver.Save() // the last step, too
}

// The same program begins, and goes on where it was: here with another number of devices.
func ExampleEnv_Checkpoints() {
	dir, err := os.MkdirTemp("", "checkpoints")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer os.RemoveAll(dir)
	for _, devices := range []int{4, 2} {
		from, err := trainTo(3*(5-devices), dir, epl.WithLocalDevices(devices))
		fmt.Println("from step", from, err)
	}
	// Output:
	// from step 0 <nil>
	// from step 3 <nil>
}
