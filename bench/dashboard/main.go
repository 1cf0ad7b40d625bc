// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

// Command dashboard prints what the dashboard costs: how much longer a training step of a small network takes with it, and with a browser that looks at it, than without. The
// three train in one process, in turns of some steps, so that whatever else the machine does is the same for all:
//
//	go run ./bench/dashboard
package main

import (
	"flag"
	"fmt"
	"io"
	"iter"
	"net/http"
	"os"
	"slices"
	"time"

	"github.com/gomlx/compute/shapes"
	. "github.com/gomlx/gomlx/core/graph" //nolint:all // the way GoMLX models are written
	"github.com/gomlx/gomlx/core/tensors"
	"github.com/gomlx/gomlx/ml/model"
	"github.com/gomlx/gomlx/ml/train"
	"github.com/gomlx/gomlx/ml/train/loss"
	"github.com/gomlx/gomlx/ml/train/optimizer"

	"github.com/easyparallel/epl"
)

const samples = 64

// noise is always the same batch.
type noise struct{ width int }

func (noise) Name() string { return "noise" }

func (n noise) Iter() iter.Seq2[train.Batch, error] {
	return func(yield func(train.Batch, error) bool) {
		x := make([]float32, samples*n.width)
		for i := range x {
			x[i] = float32(i%17)/17 - 0.5
		}
		for yield(train.Batch{Inputs: []*tensors.Tensor{tensors.FromFlatDataAndDimensions(x, samples, n.width)},
			Labels: []*tensors.Tensor{tensors.FromFlatDataAndDimensions(x, samples, n.width)}}, nil) {
		}
	}
}

// way is one of those that are compared.
type way struct {
	name  string
	env   *epl.Env
	loop  *train.Loop
	data  train.Dataset
	means []float64 // of a step, by turn, in seconds
}

// start makes a training.
func start(name string, devices, depth, width int, options ...epl.Option) (*way, error) {
	env, err := epl.Init(nil, append(options, epl.WithLocalDevices(devices))...)
	if err != nil {
		return nil, err
	}
	network := func(scope *model.Scope, x *Node) *Node {
		for i := range depth {
			w := scope.VariableWithShape(fmt.Sprint("weights ", i), shapes.Make(x.DType(), width, width))
			x = Tanh(MatMul(x, w.NodeValue(x.Graph())))
		}
		return x
	}
	trainer := train.NewTrainer(env.Backend(), model.NewStore(), network, loss.MeanSquaredError, epl.Optimizer(optimizer.Adam().Done()), nil, nil)
	return &way{name: name, env: env, loop: train.NewLoop(trainer), data: env.Dataset(noise{width})}, nil
}

// turn trains for some steps.
func (w *way) turn(steps int) (seconds float64, err error) {
	begin := time.Now()
	_, err = w.loop.RunSteps(w.data, steps)
	return time.Since(begin).Seconds() / float64(steps), err
}

func run(devices, depth, width, turns int, length time.Duration) error {
	var ways []*way
	for _, c := range []struct {
		name    string
		options []epl.Option
	}{{"without", nil}, {"with", []epl.Option{epl.WithDashboard("127.0.0.1:0")}}, {"with, and a browser", []epl.Option{epl.WithDashboard("127.0.0.1:0")}}} {
		w, err := start(c.name, devices, depth, width, c.options...)
		if err != nil {
			return err
		}
		defer w.env.Close()
		ways = append(ways, w)
	}
	steps := 0
	for _, w := range ways { // compile, and find out how many steps a turn has
		if _, err := w.turn(3); err != nil {
			return err
		}
		mean, err := w.turn(20)
		if err != nil {
			return err
		}
		if steps == 0 {
			steps = max(int(length.Seconds()/mean), 10)
		}
	}
	answer, err := http.Get(ways[2].env.Dashboard() + "events")
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	go io.Copy(io.Discard, answer.Body) //nolint:errcheck // it ends with the server
	for turn := range turns {
		for i := range ways {
			w := ways[(i+turn)%len(ways)]
			mean, err := w.turn(steps)
			if err != nil {
				return err
			}
			w.means = append(w.means, mean)
		}
	}
	fmt.Printf("%d devices, %d turns of %d steps each\n", devices, turns, steps)
	for _, w := range ways {
		ratios := make([]float64, turns) // in a turn the machine is the same for all, more or less
		for i := range ratios {
			ratios[i] = 100 * (w.means[i]/ways[0].means[i] - 1)
		}
		slices.Sort(ratios)
		fmt.Printf("%-20s %8.3f ms a step; in the same turn %5.2f %% more than without (median; half of the turns: %.2f to %.2f)\n", w.name, 1e3*median(w.means),
			median(ratios), ratios[turns/4], ratios[3*turns/4])
	}
	return nil
}

func median(all []float64) float64 {
	sorted := slices.Sorted(slices.Values(all))
	return sorted[len(sorted)/2]
}

func main() {
	devices := flag.Int("devices", 2, "devices")
	depth := flag.Int("depth", 8, "layers")
	width := flag.Int("width", 256, "width of a layer")
	turns := flag.Int("turns", 45, "turns of each way")
	length := flag.Duration("length", time.Second, "of a turn")
	flag.Parse()
	if err := run(*devices, *depth, *width, *turns, *length); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
