// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

// Command pipeline trains a small network in stages, each on a device of its own, and shows how EPL runs a step.
//
//	go run ./examples/pipeline                                    two stages on two devices, four micro-batches
//	go run ./examples/pipeline -stages 4 -strategy PreferForward  four stages, in another order
//	go run ./examples/pipeline -devices 4                         two model replicas of two stages
//	go run ./examples/pipeline -auto                              EPL cuts the network itself
//
// It is a GoMLX program for one device. Lines that it would not have without EPL are marked "+ epl".
package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"strings"

	. "github.com/gomlx/gomlx/core/graph" //nolint:all // the way GoMLX models are written
	"github.com/gomlx/gomlx/core/tensors"
	"github.com/gomlx/gomlx/ml/layers"
	"github.com/gomlx/gomlx/ml/layers/activation"
	"github.com/gomlx/gomlx/ml/model"
	"github.com/gomlx/gomlx/ml/train"
	"github.com/gomlx/gomlx/ml/train/loss"
	"github.com/gomlx/gomlx/ml/train/optimizer"

	"github.com/easyparallel/epl"
)

const (
	blocks = 8   // of the network, dealt evenly to the stages
	width  = 256 // of a block, and of a sample
)

// Model is a stack of equal blocks. With -auto there is no annotation, and EPL finds the stages.
func (f flags) Model(scope *model.Scope, x *Node) *Node {
	stages := f.stages
	if f.auto {
		stages = 1
	}
	for stage := range stages {
		f.annotate(x, stage, func() {
			for i := stage * blocks / stages; i < (stage+1)*blocks/stages; i++ {
				x = activation.Relu(layers.Dense(scope.In("block_%d", i), x, true, width))
			}
			if stage == stages-1 {
				x = layers.Dense(scope.In("out"), x, true, 1)
			}
		})
	}
	return x
}

// annotate makes a TaskGraph of what body builds.
func (f flags) annotate(at *Node, stage int, body func()) {
	if f.auto {
		body()
		return
	}
	epl.With(at, epl.Replicate(f.perStage, fmt.Sprintf("stage_%d", stage)), body) // + epl
}

func main() {
	f, err := parseFlags(os.Args[1:], os.Stderr)
	if errors.Is(err, flag.ErrHelp) {
		return
	}
	if err == nil {
		_, err = run(f, os.Stdout)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// run trains, and prints the loss and how a step runs. It returns the losses.
func run(f flags, out io.Writer) (losses []float32, err error) {
	env, err := f.init() // + epl
	if err != nil {
		return nil, err
	}
	defer env.Close()  // + epl
	if !env.IsMain() { // + epl
		out = io.Discard
	}
	store := model.NewStore()
	store.SetParam(model.ParamInitialSeed, int64(1)) // the same numbers every time
	trainer := train.NewTrainer(env.Backend(), store, f.Model, loss.MeanSquaredError,
		epl.Optimizer(optimizer.Adam().LearningRate(1e-3).Done()), nil, nil) // + epl
	loop := train.NewLoop(trainer)
	loop.OnStep("loss", 0, func(loop *train.Loop, metrics []*tensors.Tensor) error {
		losses = append(losses, tensors.ToScalar[float32](metrics[0]))
		if loop.LoopStep%10 == 9 || loop.LoopStep == 0 {
			fmt.Fprintf(out, "step %3d: loss %.4f\n", loop.LoopStep+1, losses[loop.LoopStep])
		}
		return nil
	})
	if _, err := loop.RunSteps(env.Dataset(waves{}), f.steps); err != nil { // + epl
		return nil, err
	}
	var all strings.Builder
	if err := env.Explain(&all); err != nil { // + epl
		return nil, err
	}
	if f.explain {
		fmt.Fprintf(out, "\n%s", &all)
	} else {
		fmt.Fprintf(out, "%s%s", section(all.String(), "stages, cut by EPL"), section(all.String(), "a step"))
	}
	return losses, nil
}

// section finds a part of what Explain prints, by its title.
func section(text, title string) string {
	_, after, found := strings.Cut(text, "\n  "+title)
	if !found {
		return ""
	}
	after, _, _ = strings.Cut(after, "\n\n")
	return "\n" + title + strings.ReplaceAll(strings.TrimRight(after, "\n"), "\n    ", "\n  ") + "\n"
}
