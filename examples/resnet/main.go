// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

// Command resnet trains a residual network on images, data parallel.
//
//	go run ./examples/resnet                      a small network on generated images: a minute on a CPU
//	go run ./examples/resnet -data FOLDER         images from FOLDER/train/CLASS and FOLDER/val/CLASS
//	go run ./examples/resnet -model resnet50      ResNet-50, which wants a GPU
//
// It is a GoMLX program for one device. Lines that it would not have without EPL are marked "+ epl"; the number of
// devices and of workers is not in the code.
package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"

	. "github.com/gomlx/gomlx/core/graph" //nolint:all // the way GoMLX models are written
	"github.com/gomlx/gomlx/core/tensors"
	"github.com/gomlx/gomlx/ml/model"
	"github.com/gomlx/gomlx/ml/train"
	"github.com/gomlx/gomlx/ml/train/loss"
	"github.com/gomlx/gomlx/ml/train/metric"
	"github.com/gomlx/gomlx/ml/train/optimizer"

	"github.com/easyparallel/epl"
	"github.com/easyparallel/epl/data"
	"github.com/easyparallel/epl/examples/internal/pictures"
	"github.com/easyparallel/epl/examples/internal/residual"
)

func main() {
	f, err := parseFlags(os.Args[1:], os.Stderr)
	if errors.Is(err, flag.ErrHelp) {
		return
	}
	if err == nil {
		err = run(f, os.Stdout)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(f flags, out io.Writer) error {
	network := residual.Networks[f.model]
	p, err := f.pictures(network.Size)
	if err != nil {
		return err
	}
	env, err := epl.Init(nil, epl.WithInner(f.backend)) // + epl
	if err != nil {
		return err
	}
	defer env.Close()  // + epl
	if !env.IsMain() { // + epl
		out = io.Discard
	}
	fmt.Fprintf(out, "%s on %d images of %d classes\n", f.model, len(p.Train), len(p.Classes))
	if _, err := fit(env, network, p, f, out); err != nil {
		return err
	}
	if f.explain {
		return env.Explain(out)
	}
	return nil
}

// fit trains the network, prints how it goes, and returns the accuracy at the end.
func fit(env *epl.Env, network residual.Network, p *pictures.Set, f flags, out io.Writer) (accuracy float32, err error) {
	own, err := env.Files(p.Train) // + epl
	if err != nil {
		return 0, err
	}
	images, err := data.FromFiles("train", own, p.Reader(true),
		data.FileOptions{Batch: f.batch, Epochs: data.Endless, Shuffle: 1, Seed: 1})
	if err != nil {
		return 0, err
	}
	validation, err := data.FromFiles("val", data.Slice{Files: p.Val}, p.Reader(false), data.FileOptions{Batch: f.batch})
	if err != nil {
		return 0, err
	}
	store := model.NewStore()
	store.SetParam(model.ParamInitialSeed, int64(1)) // the same numbers every time
	classify := func(scope *model.Scope, images *Node) *Node { return logits(scope, network, images, len(p.Classes)) }
	trainer := train.NewTrainer(env.Backend(), store, classify, loss.SparseCategoricalCrossEntropyLogits,
		epl.Optimizer(optimizer.Adam().LearningRate(f.rate).Done()), // + epl
		nil, []metric.Interface{metric.NewSparseCategoricalAccuracy("accuracy", "acc")})

	evaluate := func(step int, metrics []*tensors.Tensor) error {
		results, err := trainer.Eval(validation)
		if err != nil {
			return err
		}
		accuracy = tensors.ToScalar[float32](results[1]) // after the loss
		fmt.Fprintf(out, "step %4d  loss %.3f  accuracy %5.1f%% of %d\n",
			step, tensors.ToScalar[float32](metrics[1]), 100*accuracy, len(p.Val))
		return nil
	}
	loop := train.NewLoop(trainer)
	train.EveryNSteps(loop, f.eval, "evaluate", 0, func(loop *train.Loop, metrics []*tensors.Tensor) error {
		return evaluate(loop.LoopStep+1, metrics)
	})
	metrics, err := loop.RunSteps(env.Dataset(images), f.steps) // + epl
	if err == nil && f.steps%f.eval != 0 {
		err = evaluate(f.steps, metrics)
	}
	return accuracy, err
}
