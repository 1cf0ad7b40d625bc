// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

// Command unequal measures what unequal devices gain if work is dealt by their speed: they train with equal shares, and with what cluster.description or cluster.measure
// makes of the same devices: as model replicas, which take whole micro-batches, and together as one, which divide each of them (Replicate), or the layers (Split).
// Weights are compared with those of one device.
//
//	go run ./bench/unequal
//
// First they are virtual devices of one process, which are slowed down on purpose (EPL_SLOW): they sleep most of the time, so that two cores do for all of them. Then they
// are workers, of which one has a core to itself and two share another.
package main

import (
	"cmp"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/gomlx/gomlx/core/graph"
	"github.com/gomlx/gomlx/core/tensors"
	"github.com/gomlx/gomlx/ml/layers"
	"github.com/gomlx/gomlx/ml/layers/activation"
	"github.com/gomlx/gomlx/ml/model"
	"github.com/gomlx/gomlx/ml/train"
	"github.com/gomlx/gomlx/ml/train/loss"
	"github.com/gomlx/gomlx/ml/train/optimizer"

	"github.com/easyparallel/epl"
	"github.com/easyparallel/epl/internal/equiv"
)

const (
	width = 384
	depth = 4
	// least is how many times as long as a usual core the fastest device takes: it sleeps most of that.
	least = 6
	// warm are the first steps, in which programs are compiled. They are not counted.
	warm = 2
)

// devices are those of a cluster, of different speeds.
type devices struct {
	speeds []float64
	micro  int // micro-batches of a model replica, if shares are equal
	// cores are those of workers with a device each; nil: the devices are one worker's, and are slowed down.
	cores   []int
	samples int // of a micro-batch
	as      string
}

// What devices are together; "": each is a model replica.
const (
	replicate = "Replicate"
	split     = "Split"
)

var clusters = []devices{
	{speeds: []float64{2, 1}, micro: 3, samples: 64},
	{speeds: []float64{3, 2, 1}, micro: 2, samples: 64},
	{speeds: []float64{2, 1, 1}, micro: 4, samples: 512, cores: []int{0, 1, 1}},
	{speeds: []float64{2, 1}, micro: 1, samples: 64, as: replicate},
	{speeds: []float64{3, 2, 1}, micro: 1, samples: 64, as: replicate},
	{speeds: []float64{2, 1}, micro: 1, samples: 64, as: split},
	{speeds: []float64{3, 2, 1}, micro: 1, samples: 64, as: split},
}

func main() {
	steps := flag.Int("steps", 8, "how many steps are measured of each; the median counts")
	worker := flag.String("worker", "", "what the command starts itself")
	flag.Parse()
	err := error(nil)
	if *worker != "" {
		err = work(*worker)
	} else {
		err = run(*steps)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(steps int) error {
	folder, err := os.MkdirTemp("", "unequal")
	if err != nil {
		return err
	}
	defer os.RemoveAll(folder)
	w := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "speeds\tshares\tsamples/s\tover equal shares\tweights of one device")
	for _, c := range clusters {
		if n := runtime.NumCPU(); c.cores != nil && n <= slices.Max(c.cores) {
			fmt.Fprintf(w, "%s\tnot measured: there are %d cores\n", c, n)
			continue
		}
		file, err := c.describe(folder)
		if err != nil {
			return err
		}
		equal := 0.0
		for _, setting := range []map[string]any{nil, {"cluster.description": file}, {"cluster.measure": true}} {
			r, err := c.start(job{setting, len(c.speeds), c.micro, c.samples, steps, c.as})
			if err != nil {
				return err
			}
			equal = cmp.Or(equal, r.Throughput)
			fmt.Fprintf(w, "%s\t%s\t%.0f\t%.2f\t%s\n", c, r.Shares, r.Throughput, r.Throughput/equal, r.Weights)
		}
	}
	return w.Flush()
}

func (c devices) String() string {
	text := strings.Join(texts(c.speeds), ":")
	if c.cores != nil {
		text += fmt.Sprintf(", workers on cores %d", c.cores)
	}
	if c.as != "" {
		text += ", " + c.as
	}
	return text
}

func texts(list []float64) (all []string) {
	for _, x := range list {
		all = append(all, strconv.FormatFloat(x, 'g', 3, 64))
	}
	return all
}

// describe writes the description of the cluster.
func (c devices) describe(folder string) (string, error) {
	file := filepath.Join(folder, strings.Join(texts(c.speeds), "-")+".yaml")
	text := fmt.Sprintf("workers:\n  - {devices: %d, speed: [%s]}\n", len(c.speeds), strings.Join(texts(c.speeds), ", "))
	if c.cores != nil {
		text = "workers:\n"
		for _, speed := range texts(c.speeds) {
			text += fmt.Sprintf("  - {host: here, devices: 1, speed: [%s]}\n", speed)
		}
	}
	return file, os.WriteFile(file, []byte(text), 0o600)
}

// job is a training on a cluster.
type job struct {
	Settings map[string]any
	Devices  int
	Micro    int
	Samples  int // of a micro-batch
	Steps    int
	As       string
}

type result struct {
	Shares     string
	Throughput float64
	Weights    string // how they compare with those of one device
}

// start trains on the cluster.
func (c devices) start(j job) (result, error) {
	if c.cores != nil {
		return onWorkers(j, c.cores)
	}
	var slow []float64
	for _, s := range c.speeds {
		slow = append(slow, least*slices.Max(c.speeds)/s)
	}
	if err := os.Setenv(epl.EnvSlow, strings.Join(texts(slow), ",")); err != nil {
		return result{}, err
	}
	defer os.Unsetenv(epl.EnvSlow)
	return j.train(len(c.speeds))
}

// train trains with so many devices of this process, and on one device.
func (j job) train(local int) (r result, err error) {
	params := map[string]any{"pipeline.num_micro_batch": j.Micro}
	r.Shares = "equal"
	for key, value := range j.Settings {
		params[key], r.Shares = value, "by "+key
	}
	cfg, err := epl.NewConfig(params)
	if err != nil {
		return r, err
	}
	env, err := epl.Init(cfg, epl.WithLocalDevices(local))
	if err != nil {
		return r, err
	}
	defer env.Close()
	m := equiv.Model{Name: "perceptron", Build: j.perceptron, Loss: loss.MeanSquaredError, Batch: equiv.Regression(j.Samples, width)}
	sgd := func() optimizer.Interface { return optimizer.StochasticGradientDescent().WithDecay(false) }
	store := newStore()
	loop := train.NewLoop(train.NewTrainer(env.Backend(), store, m.Build, m.Loss, epl.Optimizer(sgd()), nil, nil))
	var took []time.Duration
	last := time.Now()
	loop.OnStep("time", 0, func(*train.Loop, []*tensors.Tensor) error {
		took, last = append(took, time.Since(last)), time.Now()
		return nil
	})
	if _, err := loop.RunSteps(env.Dataset(equiv.Dataset{Batch: m.Batch}), warm+j.Steps); err != nil {
		return r, err
	}
	took = took[warm:]
	slices.Sort(took)
	batches := env.Plan().Batches()
	r.Throughput = float64(batches*j.Samples) / took[len(took)/2].Seconds()
	if s := env.Plan().Shares; s != nil {
		r.Shares += ": " + s.String()
	}
	if w := env.Plan().Weights; w != nil {
		r.Shares += ": " + strings.Trim(fmt.Sprint(w.Of[0]), "[]")
	}
	one := m
	one.Batch = equiv.Joined(m.Batch, batches)
	want, err := equiv.TrainFrom(newStore(), equiv.Plain(), equiv.Dataset{Batch: one.Batch}, one, sgd(), warm+j.Steps)
	if err != nil {
		return r, err
	}
	r.Weights = "the same, within 1e-5"
	if err := equiv.CloseWeights(want, &equiv.Run{Store: store}, 1e-5); err != nil {
		return r, err
	}
	return r, nil
}

// newStore makes every training start from the same weights.
func newStore() *model.Store {
	store := model.NewStore()
	store.SetParam(model.ParamInitialSeed, int64(42))
	store.SetParam(optimizer.ParamLearningRate, 1e-4)
	return store
}

func (j job) perceptron(scope *model.Scope, x *graph.Node) *graph.Node {
	layered := func() {
		for i := range depth {
			x = activation.Relu(layers.Dense(scope.In("layer_%d", i), x, true, width))
		}
		x = layers.Dense(scope.In("out"), x, true, 1)
	}
	switch j.As {
	case replicate:
		epl.With(x, epl.Replicate(j.Devices), layered)
	case split:
		epl.With(x, epl.Split(j.Devices), layered)
	default:
		layered()
	}
	return x
}
