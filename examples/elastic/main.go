// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

// Command elastic is a training program for a job that survives its workers: it is the same at every start, goes on from its newest
// checkpoint, and ends at a global step.
//
//	epl-launch -n 2:4 --restart_delay 5s go run ./examples/elastic -dir out/elastic
//
// Kill a worker (its number is printed), and see the others go on. docs/elastic.md is the guide.
package main

import (
	"errors"
	"flag"
	"fmt"
	"iter"
	"log"
	"math/rand/v2"
	"os"
	"time"

	"github.com/gomlx/gomlx/core/tensors"
	"github.com/gomlx/gomlx/ml/layers"
	"github.com/gomlx/gomlx/ml/model"
	"github.com/gomlx/gomlx/ml/train"
	"github.com/gomlx/gomlx/ml/train/loss"
	"github.com/gomlx/gomlx/ml/train/optimizer"

	. "github.com/gomlx/gomlx/core/graph" //nolint:all // the way GoMLX models are written

	"github.com/easyparallel/epl"
)

func main() {
	dir := flag.String("dir", "out/elastic", "folder of checkpoints, which all workers see")
	steps := flag.Int("steps", 200, "global step to end at")
	pause := flag.Duration("pause", 100*time.Millisecond, "in each step, to have time to kill somebody")
	flag.Parse()
	if err := run(*dir, *steps, *pause); err != nil {
		log.Fatal(err)
	}
}

func run(dir string, steps int, pause time.Duration) error {
	env, err := epl.Init(nil)
	if err != nil {
		return err
	}
	defer env.Close()
	fmt.Println("process", os.Getpid())
	store := model.NewStore()
	store.SetParam(model.ParamInitialSeed, int64(1))                                       // every run begins with the same weights
	saver, err := env.Checkpoints(store).Dir(dir).Keep(2).EverySteps(10).OnSignal().Done() // loads the newest
	if err != nil {
		return err
	}
	trainer := train.NewTrainer(env.Backend(), store, network, loss.MeanSquaredError, epl.Optimizer(optimizer.Adam().Done()), nil, nil)
	loop := train.NewLoop(trainer)
	loop.OnStep("print", 0, func(loop *train.Loop, metrics []*tensors.Tensor) error {
		time.Sleep(pause)
		if step := loop.LoopStep + 1; env.IsMain() && step%10 == 0 {
			fmt.Printf("step %d: loss %.4f\n", step, metrics[0].Value())
		}
		return nil
	})
	loop.OnStep("checkpoints", 100, saver.OnStep)
	if _, err := loop.RunToGlobalStep(env.Dataset(numbers{}), steps); errors.Is(err, epl.ErrInterrupted) { // not RunSteps
		log.Print(epl.ErrInterrupted)
		return nil
	} else if err != nil {
		return err
	}
	return saver.Save()
}

func network(scope *model.Scope, x *Node) *Node {
	hidden := Tanh(layers.Dense(scope.In("hidden"), x, true, 16))
	return layers.Dense(scope.In("sum"), hidden, true, 1)
}

// numbers are batches of points, with the sum of their coordinates. They are the same in every run.
type numbers struct{}

// Name implements train.Dataset.
func (numbers) Name() string { return "numbers" }

// Iter implements train.Dataset.
func (numbers) Iter() iter.Seq2[train.Batch, error] {
	return func(yield func(train.Batch, error) bool) {
		const points, coordinates = 8, 4
		for r := rand.New(rand.NewPCG(1, 2)); ; {
			x, y := make([]float32, points*coordinates), make([]float32, points)
			for i := range x {
				x[i] = r.Float32() - 0.5
				y[i/coordinates] += x[i]
			}
			if !yield(train.Batch{Inputs: []*tensors.Tensor{tensors.FromFlatDataAndDimensions(x, points, coordinates)},
				Labels: []*tensors.Tensor{tensors.FromFlatDataAndDimensions(y, points, 1)}}, nil) {
				return
			}
		}
	}
}
