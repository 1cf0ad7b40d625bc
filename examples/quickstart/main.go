// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

// Command quickstart is the first program to run and to read. It learns to read handwritten digits, says how many it reads right that it has not seen, and
// goes on where it ended if it has a folder for checkpoints.
//
//	go run ./examples/quickstart                       train, and evaluate
//	go run ./examples/quickstart -dir out/quickstart   save checkpoints, and go on from the newest
//	go run ./examples/quickstart -explain              and print how EPL understood the program
//	go run ./examples/quickstart -plain                the same without EPL, to compare
//
// Lines that a GoMLX program without EPL does not have are marked "+ epl".
package main

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"time"

	"github.com/gomlx/compute"
	. "github.com/gomlx/gomlx/core/graph" //nolint:all // the way GoMLX models are written
	"github.com/gomlx/gomlx/core/tensors"
	"github.com/gomlx/gomlx/ml/layers"
	"github.com/gomlx/gomlx/ml/layers/activation"
	"github.com/gomlx/gomlx/ml/model"
	"github.com/gomlx/gomlx/ml/train"
	"github.com/gomlx/gomlx/ml/train/loss"
	"github.com/gomlx/gomlx/ml/train/metric"
	"github.com/gomlx/gomlx/ml/train/optimizer"
	"github.com/gomlx/gomlx/support/exceptions"

	"github.com/easyparallel/epl"
)

// Model is two dense layers. Its annotation does nothing where the backend is not EPL's.
func Model(scope *model.Scope, pixels *Node) *Node {
	epl.SetDefaultStrategy(pixels, epl.Replicate(1)) // + epl
	hidden := activation.Relu(layers.Dense(scope.In("hidden"), pixels, true, 32))
	return layers.Dense(scope.In("logits"), hidden, true, classes)
}

func main() {
	f, err := parseFlags(os.Args[1:], os.Stderr)
	if errors.Is(err, flag.ErrHelp) {
		return
	}
	if err == nil {
		err = run(f)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(f flags) error {
	if f.plain {
		return runPlain(f)
	}
	env, err := epl.Init(nil, epl.WithInner(f.backend)) // + epl
	if err != nil {
		return err
	}
	defer env.Close() // + epl
	t := newTraining(env.Backend())
	t.deal, t.print = env.Dataset, env.IsMain() // + epl
	if f.dir != "" {
		t.saver, err = env.Checkpoints(t.store).Dir(f.dir).Every(10 * time.Second).Done() // loads the newest
		if err != nil {
			return err
		}
	}
	if err := t.run(f); err != nil {
		return err
	}
	if f.explain {
		fmt.Println()
		return env.Explain(os.Stdout)
	}
	return nil
}

// runPlain is run without EPL: the model and its training stay as they are.
func runPlain(f flags) error {
	backend, err := newBackend(f.plainBackend())
	if err != nil {
		return err
	}
	defer backend.Finalize()
	return newTraining(backend).run(f)
}

// newBackend makes a backend by its name. Where there is none of that name GoMLX panics, which becomes an error here.
func newBackend(name string) (backend compute.Backend, err error) {
	panicked := exceptions.TryCatch[error](func() { backend, err = compute.NewWithConfig(name) })
	if err = errors.Join(panicked, err); err != nil {
		return nil, fmt.Errorf("quickstart: the backend %q cannot be made: %w", name, err)
	}
	return backend, nil
}

// training is what a run needs, and what it leaves.
type training struct {
	backend compute.Backend
	store   *model.Store
	deal    func(train.Dataset) train.Dataset // env.Dataset, which deals batches to devices; without EPL it returns what it is given
	saver   *epl.Checkpoint
	print   bool // one worker of a job is enough

	losses   []float32 // of every step
	accuracy float32   // on digits that it has not seen
}

func newTraining(backend compute.Backend) *training {
	t := &training{backend: backend, store: model.NewStore(), deal: func(ds train.Dataset) train.Dataset { return ds }, print: true}
	t.store.SetParam(model.ParamInitialSeed, int64(1)) // the same numbers every time
	return t
}

// run trains the model and evaluates it.
func (t *training) run(f flags) error {
	known, unknown, err := digits(t.backend, f.batch)
	if err != nil {
		return err
	}
	trainer := train.NewTrainer(t.backend, t.store, Model, loss.SparseCategoricalCrossEntropyLogits,
		epl.Optimizer(optimizer.Adam().LearningRate(0.003).Done()), // + epl
		nil, []metric.Interface{metric.NewSparseCategoricalAccuracy("accuracy", "accuracy")})
	loop := train.NewLoop(trainer)
	loop.OnStep("losses", 0, func(loop *train.Loop, metrics []*tensors.Tensor) error {
		t.losses = append(t.losses, tensors.ToScalar[float32](metrics[0]))
		if step := loop.LoopStep + 1; t.print && (step == 1 || step%200 == 0) {
			fmt.Printf("step %d: loss %.4f\n", step, t.losses[len(t.losses)-1])
		}
		return nil
	})
	if t.saver != nil {
		if step := t.saver.Step(); step > 0 && t.print {
			fmt.Printf("the checkpoint in %s is of step %d; training ends at step %d\n", f.dir, step, max(int(step), f.steps))
		}
		loop.OnStep("checkpoints", 100, t.saver.OnStep)
	}
	if _, err := loop.RunToGlobalStep(t.deal(known), f.steps); err != nil { // + epl
		return err
	}
	if t.saver != nil {
		if err := t.saver.Save(); err != nil {
			return err
		}
	}
	metrics, err := trainer.Eval(t.deal(unknown)) // + epl
	if err != nil {
		return err
	}
	t.accuracy = tensors.ToScalar[float32](metrics[len(metrics)-1])
	if t.print {
		fmt.Printf("of %d digits that it has not seen, it reads %.1f %% right\n", unseen, 100*t.accuracy)
	}
	return nil
}
