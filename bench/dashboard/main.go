// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

// Command dashboard prints what it costs to watch a training: how much longer a step of a small network takes with the dashboard, with a browser that looks at it, and with
// metrics that go to sinks, than without any. "nothing, again" is as the first, and tells how much two of the same differ. All train in one process, in turns of some steps,
// so that whatever else the machine does is the same for all:
//
//	go run ./bench/dashboard
//	go run ./bench/dashboard -rows metrics
package main

import (
	"flag"
	"fmt"
	"io"
	"iter"
	"math"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
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
	"github.com/easyparallel/epl/metrics"
	"github.com/easyparallel/epl/metrics/prometheus"
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

// watching is how a training is watched, and what was measured of it.
type watching struct {
	name    string
	options []epl.Option
	sinks   func() []metrics.Sink

	means []float64     // of a step, by turn, in seconds
	hook  time.Duration // in the hook of the loop that tells sinks
	all   time.Duration
}

const (
	nothing = "nothing"
	browser = "dashboard and a browser"
)

func watched(folder string) []*watching {
	dashboard := []epl.Option{epl.WithDashboard("127.0.0.1:0")}
	sinks := func(name string, sinks ...func() metrics.Sink) *watching {
		return &watching{name: "metrics: " + name, sinks: func() (all []metrics.Sink) {
			for _, s := range sinks {
				all = append(all, s())
			}
			return all
		}}
	}
	jsonl := func() metrics.Sink { return metrics.JSONL(filepath.Join(folder, "metrics.jsonl")) }
	prom := func() metrics.Sink { return prometheus.Sink("127.0.0.1:0") }
	board := func() metrics.Sink { return metrics.TensorBoard(folder) }
	return []*watching{
		{name: nothing},
		{name: nothing + ", again"},
		{name: "dashboard", options: dashboard},
		{name: browser, options: dashboard},
		sinks("JSONL", jsonl),
		sinks("Prometheus", prom),
		sinks("TensorBoard", board),
		sinks("all three", jsonl, prom, board),
	}
}

// training is one that runs.
type training struct {
	*watching
	env     *epl.Env
	loop    *train.Loop
	data    train.Dataset
	metrics *epl.Metrics
}

// start makes a training, and compiles it.
func (w *watching) start(o options) (*training, error) {
	env, err := epl.Init(nil, append(w.options, epl.WithLocalDevices(o.devices))...)
	if err != nil {
		return nil, err
	}
	network := func(scope *model.Scope, x *Node) *Node {
		for i := range o.depth {
			w := scope.VariableWithShape(fmt.Sprint("weights ", i), shapes.Make(x.DType(), o.width, o.width))
			x = Tanh(MatMul(x, w.NodeValue(x.Graph())))
		}
		return x
	}
	trainer := train.NewTrainer(env.Backend(), model.NewStore(), network, loss.MeanSquaredError, epl.Optimizer(optimizer.Adam().Done()), nil, nil)
	t := &training{watching: w, env: env, loop: train.NewLoop(trainer), data: env.Dataset(noise{o.width})}
	if w.sinks != nil {
		t.metrics = env.Metrics(w.sinks()...)
		t.loop.OnStep("metrics", 100, func(loop *train.Loop, values []*tensors.Tensor) error {
			begin := time.Now()
			defer func() { w.hook += time.Since(begin) }()
			return t.metrics.OnStep(loop, values)
		})
	}
	if w.name == browser {
		answer, err := http.Get(env.Dashboard() + "events")
		if err != nil {
			return nil, err
		}
		go io.Copy(io.Discard, answer.Body) //nolint:errcheck // it ends with the server
	}
	hook := w.hook
	_, err = t.loop.RunSteps(t.data, 10)
	w.hook = hook
	return t, err
}

// turn trains for some steps.
func (t *training) turn(steps int) error {
	begin := time.Now()
	_, err := t.loop.RunSteps(t.data, steps)
	t.all += time.Since(begin)
	t.means = append(t.means, time.Since(begin).Seconds()/float64(steps))
	return err
}

func (t *training) close() {
	t.env.Close()
	if t.metrics != nil {
		_ = t.metrics.Close()
	}
}

// round starts all trainings, lets them train in turns, and ends them.
func round(ways []*watching, o options) error {
	var all []*training
	for _, w := range ways {
		t, err := w.start(o)
		if err != nil {
			return err
		}
		defer t.close()
		all = append(all, t)
	}
	for turn := range o.turns {
		for i := range all {
			if err := all[(i+turn)%len(all)].turn(o.steps); err != nil {
				return err
			}
		}
	}
	return nil
}

// run compares. Where the memory of a training lies makes a difference, too: each round starts them anew, in another order.
func run(o options) error {
	folder, err := os.MkdirTemp("", "epl-bench-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(folder)
	ways := slices.DeleteFunc(watched(folder), func(w *watching) bool { return w.name != nothing && !o.rows.MatchString(w.name) })
	for i := range o.rounds {
		k := i % len(ways)
		if err := round(slices.Concat(ways[k:], ways[:k]), o); err != nil {
			return err
		}
	}
	fmt.Printf("%d devices, %d rounds with %d turns of %d steps each\n", o.devices, o.rounds, o.turns, o.steps)
	for _, w := range ways {
		ratios := make([]float64, len(w.means)) // in a turn the machine is the same for all, more or less
		for i := range ratios {
			ratios[i] = 100 * (w.means[i]/ways[0].means[i] - 1)
		}
		slices.Sort(ratios)
		low, high := around(len(ratios))
		fmt.Printf("%-24s %7.3f ms a step, %5.2f %% more than with nothing in the same turn (median; 95 %%: %.2f to %.2f)", w.name, 1e3*median(w.means),
			median(ratios), ratios[low], ratios[high])
		if w.sinks != nil {
			fmt.Printf("; %.3f %% in the hook", 100*w.hook.Seconds()/w.all.Seconds())
		}
		fmt.Println()
	}
	return nil
}

// around are the places, in n sorted values, between which the median of all that could be measured is with a probability of 95 %.
func around(n int) (low, high int) {
	half := 0.98 * math.Sqrt(float64(n))
	return max(int(float64(n)/2-half), 0), min(int(math.Ceil(float64(n)/2+half)), n-1)
}

func median(all []float64) float64 {
	sorted := slices.Sorted(slices.Values(all))
	return sorted[len(sorted)/2]
}

type options struct {
	rows                                        *regexp.Regexp
	devices, depth, width, rounds, turns, steps int
}

func main() {
	var o options
	flag.IntVar(&o.devices, "devices", 2, "devices")
	flag.IntVar(&o.depth, "depth", 8, "layers")
	flag.IntVar(&o.width, "width", 256, "width of a layer")
	flag.IntVar(&o.rounds, "rounds", 16, "rounds, in each of which all trainings start anew")
	flag.IntVar(&o.turns, "turns", 4, "turns of each training in a round")
	flag.IntVar(&o.steps, "steps", 50, "steps of a turn")
	rows := flag.String("rows", "", "only rows that match this regular `expression`, and the first")
	flag.Parse()
	var err error
	if o.rows, err = regexp.Compile(*rows); err == nil {
		err = run(o)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
