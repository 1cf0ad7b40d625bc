// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"time"

	"github.com/gomlx/gomlx/ml/train/loss"

	"github.com/easyparallel/epl/cluster"
	"github.com/easyparallel/epl/rendezvous"
)

// The paths of workers that train.
const (
	trainPath = "train"
	alonePath = "train-alone" // without each other
)

// What a worker trains: a model of scalingModels, and the samples that it takes in a step.
const (
	envScaled = "EPL_BENCH_SCALED"
	envBatch  = "EPL_BENCH_BATCH"
)

// scalingModels are the models by name, of a batch.
var scalingModels = map[string]func(batch int) problem{
	"mlp-25M": wideMLP,
	"gpt-256": func(batch int) problem { return gpt(256, batch) },
	"gpt-64":  func(batch int) problem { return gpt(64, batch) },
}

// wideMLP has 25M parameters.
func wideMLP(batch int) problem {
	return problem{mlp(4096, 4096, 1024), loss.MeanSquaredError, vectors(batch, 1024)}
}

// scalingRows tell what is left of a machine's speed when its cores go to processes, one each, that train in data
// parallel: 1 if nothing is lost. What is lost without communication, too, is what each process has to do for all
// variables, and that its steps are smaller.
func scalingRows() (rows []Row) {
	const workers = 2
	for _, x := range []struct {
		model  string
		batch  int // of all workers together: in small steps what every worker has to do for all variables weighs more
		target float64
		torch  torchModelOf
	}{{"mlp-25M", 64, 0.92, wideTorchMLP}, {"mlp-25M", 256, 1.05, wideTorchMLP}, {"gpt-256", 8, 0.95, torchGPT}} {
		batch := x.batch
		name := fmt.Sprintf("scaling/%s/%d/", x.model, batch)
		ours := func() (side, error) { return steps(ourTraining(workers, x.model, batch, trainPath)) }
		alone := func() (side, error) { return steps(ourTraining(workers, x.model, batch, alonePath)) }
		theirs := func() (side, error) { return steps(torchTraining(workers, "ddp", "sgd", x.torch, batch)) }
		single := func() (side, error) { return inARow(scalingModels[x.model](batch).onEPL("all")) }
		rows = append(rows,
			Row{Name: name + "EPL", Peer: "EPL, 1 process on all cores", Pairs: 15, Warm: 2, Target: x.target, Ours: ours, Theirs: single},
			Row{Name: name + "EPL-without-communication", Peer: "EPL, 1 process on all cores", Pairs: 15, Warm: 2, Ours: alone, Theirs: single},
			Row{Name: name + "PyTorch-DDP", Peer: "PyTorch, 1 process on all cores", Pairs: 15, Warm: 2, Ours: theirs,
				Theirs: func() (side, error) { return inARow(x.torch.alone("sgd", batch)) }},
			Row{Name: name + "2-workers", Peer: "PyTorch DDP over Gloo", Pairs: 15, Warm: 2, Ours: ours, Theirs: theirs})
	}
	return rows
}

// stepsInARow is how many steps a measurement takes: training does not stop after each.
const stepsInARow = 5

// steps measures the train steps of a fleet.
func steps(f *fleet, err error) (side, error) {
	return side{once: func() (time.Duration, error) { return f.measure("train", 0, stepsInARow) }}, err
}

// inARow is the median of as many measurements.
func inARow(s side, err error) (side, error) {
	once := s.once
	s.once = func() (time.Duration, error) {
		var times []time.Duration
		for range stepsInARow {
			d, err := once()
			if err != nil {
				return 0, err
			}
			times = append(times, d)
		}
		slices.Sort(times)
		return times[len(times)/2], nil
	}
	return s, err
}

// ourTraining is workers with one core each. The Go runtime gets two threads to run: one waits for other workers while the
// other computes. more are variables of their environment.
func ourTraining(workers int, model string, batch int, path string, more ...string) (*fleet, error) {
	vars := append(more, "GOMAXPROCS=2", envScaled+"="+model, envBatch+"="+strconv.Itoa(batch/workers))
	if path == trainPath {
		vars = append(vars, cluster.EnvNumWorkers+"="+strconv.Itoa(workers))
	}
	return ourFleet(workers, path, vars...)
}

// trainWorker trains when it is told.
func trainWorker(index int, path string) error {
	batch, err := strconv.Atoi(os.Getenv(envBatch))
	if err != nil {
		return err
	}
	p := scalingModels[os.Getenv(envScaled)](batch)
	train := func() (side, error) { return p.onDevices(1, "all") }
	if path == alonePath {
		for _, name := range []string{cluster.EnvWorkerIndex, rendezvous.EnvURL, rendezvous.EnvToken} {
			if err := os.Unsetenv(name); err != nil {
				return err
			}
		}
		train = func() (side, error) { return p.onEPL("all") }
	}
	s, err := train()
	if err != nil {
		return err
	}
	return obeying(index, s)
}

// torchModelOf is a model of torch_models.py and its numbers, of a batch.
type torchModelOf func(batch int) (name string, numbers []int)

func wideTorchMLP(batch int) (string, []int)  { return "mlp", []int{batch, 4096} }
func smallTorchMLP(batch int) (string, []int) { return "mlp", []int{batch, 2048} }
func torchGPT(batch int) (string, []int)      { return "gpt", []int{256, batch} }

// alone trains it in one process on all cores.
func (m torchModelOf) alone(optimizer string, batch int) (side, error) {
	name, numbers := m(batch)
	return torch(name+":"+optimizer, numbers...)
}

// torchTraining is processes of PyTorch with one thread each, which train a model in a way of torch_parallel.py.
func torchTraining(workers int, way, optimizer string, m torchModelOf, batch int) (*fleet, error) {
	python, err := pythonWithTorch()
	if err != nil {
		return nil, err
	}
	name, numbers := m(batch / workers)
	args := []string{way, optimizer, name}
	for _, n := range numbers {
		args = append(args, strconv.Itoa(n))
	}
	f, err := theFleet(fmt.Sprint("PyTorch ", args), workers, func(string) ([]*exec.Cmd, error) {
		return torchProcesses(python, torchModels+torchParallel, workers, args...)
	})
	if err == nil {
		_, err = f.measure("train", 0, 1) // it may say that it cannot
	}
	return f, err
}
