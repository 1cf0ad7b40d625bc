// Command quickstart is the first program to run and to read: a small classifier, trained with EPL.
//
//	go run ./examples/quickstart             train
//	go run ./examples/quickstart -explain    and print how EPL understood the program
//	go run ./examples/quickstart -plain      the same without EPL, to compare
//
// Lines that a GoMLX program without EPL does not have are marked "+ epl". Features and labels are random, so that
// there is little to learn but how often each label occurs: the loss falls to about 2.3, the logarithm of 10.
package main

import (
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"

	"github.com/gomlx/compute"
	. "github.com/gomlx/gomlx/core/graph" //nolint:all // the way GoMLX models are written
	"github.com/gomlx/gomlx/core/tensors"
	"github.com/gomlx/gomlx/ml/dataset"
	"github.com/gomlx/gomlx/ml/layers"
	"github.com/gomlx/gomlx/ml/model"
	"github.com/gomlx/gomlx/ml/train"
	"github.com/gomlx/gomlx/ml/train/loss"
	"github.com/gomlx/gomlx/support/exceptions"
	"github.com/gomlx/gomlx/ui/commandline"

	"github.com/easyparallel/epl"
)

const (
	samples  = 500
	features = 20
	classes  = 10
)

// Model is two dense layers. Its annotation does nothing where the backend is not EPL's.
func Model(scope *model.Scope, x *Node) *Node {
	epl.SetDefaultStrategy(x, epl.Replicate(1)) // + epl
	hidden := layers.Dense(scope.In("hidden"), x, true, 2)
	return layers.Dense(scope.In("logits"), hidden, true, classes)
}

func main() {
	f, err := parseFlags(os.Args[1:], os.Stderr)
	if errors.Is(err, flag.ErrHelp) {
		return
	}
	if err == nil {
		f.bar = isTerminal(os.Stdout)
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
	h, err := fit(env.Backend(), env.Dataset, f)
	if err != nil {
		return err
	}
	h.print()
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
	h, err := fit(backend, func(ds train.Dataset) train.Dataset { return ds }, f)
	if err != nil {
		return err
	}
	h.print()
	return nil
}

// newBackend makes a backend by its name. Where there is none of that name GoMLX panics, which becomes an error here.
func newBackend(name string) (backend compute.Backend, err error) {
	panicked := exceptions.TryCatch[error](func() { backend, err = compute.NewWithConfig(name) })
	if err = errors.Join(panicked, err); err != nil {
		return nil, fmt.Errorf("quickstart: the backend %q cannot be made: %w", name, err)
	}
	return backend, nil
}

// history is what a training leaves: the loss of every step, and the variables.
type history struct {
	losses []float32
	store  *model.Store
}

// fit trains the model. deal is env.Dataset, which deals batches to devices; without EPL it returns what it is given.
func fit(backend compute.Backend, deal func(train.Dataset) train.Dataset, f flags) (*history, error) {
	ds, err := randomData(backend, f.batch)
	if err != nil {
		return nil, err
	}
	h := &history{store: model.NewStore()}
	h.store.SetParam(model.ParamInitialSeed, int64(1)) // the same numbers every time
	trainer := train.NewTrainer(backend, h.store, Model, loss.SparseCategoricalCrossEntropyLogits,
		epl.Optimizer(Momentum{Rate: 0.001, Momentum: 0.9}), nil, nil) // + epl
	loop := train.NewLoop(trainer)
	if f.bar {
		commandline.AttachProgressBar(loop)
	}
	loop.OnStep("losses", 0, func(_ *train.Loop, metrics []*tensors.Tensor) error {
		h.losses = append(h.losses, tensors.ToScalar[float32](metrics[0]))
		return nil
	})
	if _, err := loop.RunSteps(deal(ds), f.steps); err != nil { // + epl
		return nil, err
	}
	return h, nil
}

// print shows some of the losses: the first, the last and eight between them.
func (h *history) print() {
	const lines = 10
	n, shown := len(h.losses), -1
	for i := range lines {
		if step := i * (n - 1) / (lines - 1); step > shown {
			fmt.Printf("Iteration %d, Loss: %f\n", step+1, h.losses[step])
			shown = step
		}
	}
	fmt.Println("Train finished.")
}

// isTerminal tells whether someone looks at the file: a progress bar in a log is only noise.
func isTerminal(f *os.File) bool {
	info, err := f.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}

// randomData makes batches of the same random samples, again and again.
func randomData(backend compute.Backend, batch int) (train.Dataset, error) {
	random := rand.New(rand.NewPCG(1, 2))
	x, y := make([]float32, samples*features), make([]int64, samples)
	for i := range x {
		x[i] = float32(random.IntN(10))
	}
	for i := range y {
		y[i] = random.Int64N(classes)
	}
	ds, err := dataset.InMemoryFromData(backend, "random",
		[]any{tensors.FromFlatDataAndDimensions(x, samples, features)},
		[]any{tensors.FromFlatDataAndDimensions(y, samples, 1)})
	if err != nil {
		return nil, err
	}
	return ds.BatchSize(batch, true).Infinite(true), nil
}
