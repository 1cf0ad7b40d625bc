// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

// Command auto trains a classifier that has no annotations: EPL chooses how it runs on the devices.
//
//	go run ./examples/auto                                                  on four devices of this machine
//	go run ./cmd/epl plan --cluster 1x4xV100-32 -- go run ./examples/auto   what it would be on four GPUs
//
// docs/auto.md is the tutorial. It is a GoMLX program for one device. Lines that it would not have without EPL are marked "+ epl".
package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"

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

// Model is a few dense layers and a wide classifier.
func (f flags) Model(scope *model.Scope, x *Node) *Node {
	for i := range f.layers {
		x = activation.Relu(layers.Dense(scope.In("hidden_%d", i), x, true, f.width))
	}
	return layers.Dense(scope.In("classes"), x, true, f.classes)
}

type flags struct {
	layers, width, classes, batch int
	devices, steps                int
	explain                       bool
}

func parseFlags(args []string, help io.Writer) (f flags, err error) {
	set := flag.NewFlagSet("auto", flag.ContinueOnError)
	set.SetOutput(io.Discard)
	set.IntVar(&f.layers, "layers", 4, "hidden `layers`")
	set.IntVar(&f.width, "width", 256, "`neurons` of a hidden layer")
	set.IntVar(&f.classes, "classes", 1000, "`classes` to tell apart")
	set.IntVar(&f.batch, "batch", 64, "`samples` of a batch")
	set.IntVar(&f.devices, "devices", 4, "`devices` of this machine")
	set.IntVar(&f.steps, "steps", 20, "train for this many `steps`")
	set.BoolVar(&f.explain, "explain", false, "print all that EPL has to say of the program")
	switch err := set.Parse(args); {
	case errors.Is(err, flag.ErrHelp):
		set.SetOutput(help)
		set.Usage()
		return f, err
	case err != nil:
		return f, fmt.Errorf("auto: %w; see -help", err)
	case set.NArg() > 0:
		return f, fmt.Errorf("auto: there are no arguments, only flags: remove %q, or see -help", set.Arg(0))
	case min(f.layers, f.width, f.classes, f.batch, f.devices, f.steps) < 1:
		return f, errors.New("auto: numbers are at least 1; see -help")
	}
	return f, nil
}

func main() {
	f, err := parseFlags(os.Args[1:], os.Stderr)
	if errors.Is(err, flag.ErrHelp) {
		return
	}
	if err == nil {
		_, err = f.run(os.Stdout)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// run trains, prints the loss and what EPL chose, and returns the last loss.
func (f flags) run(out io.Writer) (last float32, err error) {
	cfg, err := epl.NewConfig(map[string]any{"auto.auto_parallel": true}) // + epl
	if err != nil {
		return 0, err
	}
	env, err := epl.Init(cfg, epl.WithLocalDevices(f.devices)) // + epl
	if err != nil {
		return 0, err
	}
	defer env.Close() // + epl
	store := model.NewStore()
	store.SetParam(model.ParamInitialSeed, int64(1)) // the same numbers every time
	trainer := train.NewTrainer(env.Backend(), store, f.Model, loss.SparseCategoricalCrossEntropyLogits,
		epl.Optimizer(optimizer.Adam().LearningRate(1e-3).Done()), nil, nil) // + epl
	metrics, err := train.NewLoop(trainer).RunSteps(env.Dataset(f.samples()), f.steps) // + epl
	if err != nil {
		return 0, err
	}
	last = tensors.ToScalar[float32](metrics[0])
	fmt.Fprintf(out, "step %d: loss %.4f\n", f.steps, last)
	if f.explain {
		return last, env.Explain(out)
	}
	fmt.Fprintln(out, "EPL chose:", &env.Plan().Ways[0])
	return last, nil
}
