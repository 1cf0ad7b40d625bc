package main

import (
	_ "embed"
	"os/exec"
	"strconv"
	"time"

	"github.com/gomlx/gomlx/ml/train/loss"

	"github.com/easyparallel/epl/cluster"
)

//go:embed torch_ddp.py
var torchDDP string

// trainPath is the path of workers that train.
const trainPath = "train"

// scalingBatch is the samples of a step, of all workers together.
const scalingBatch = 64

// wideMLP has 25M parameters.
func wideMLP(batch int) problem {
	return problem{mlp(4096, 4096, 1024), loss.MeanSquaredError, vectors(batch, 1024)}
}

// scalingRows tell what is left of a machine's speed when its cores go to processes, one each, that train in data
// parallel: 1 if communication costs nothing.
func scalingRows() []Row {
	const workers = 2
	ours := func() (side, error) { return steps(ourTraining(workers)) }
	theirs := func() (side, error) { return steps(torchTraining(workers)) }
	return []Row{
		{Name: "scaling/mlp-25M/EPL", Peer: "EPL, 1 process on all cores", Pairs: 15, Warm: 2, Target: 0.92,
			Ours: ours, Theirs: func() (side, error) { return wideMLP(scalingBatch).onEPL("all") }},
		{Name: "scaling/mlp-25M/PyTorch-DDP", Peer: "PyTorch, 1 process on all cores", Pairs: 15, Warm: 2,
			Ours: theirs, Theirs: func() (side, error) { return torch(scalingBatch) }},
		{Name: "scaling/mlp-25M/2-workers", Peer: "PyTorch DDP over Gloo", Pairs: 15, Warm: 2, Ours: ours, Theirs: theirs},
	}
}

// steps measures the train steps of a fleet.
func steps(f *fleet, err error) (side, error) {
	return side{once: func() (time.Duration, error) { return f.measure("train", 0, 1) }}, err
}

// ourTraining is workers with one core each.
func ourTraining(workers int) (*fleet, error) {
	return ourFleet(workers, trainPath, "GOMAXPROCS=1", cluster.EnvNumWorkers+"="+strconv.Itoa(workers))
}

// trainWorker trains when it is told.
func trainWorker(index int) error {
	s, err := wideMLP(scalingBatch/2).onDevices(1, "all")
	if err != nil {
		return err
	}
	defer s.close()
	return obey(index, func(_ string, _, repeats int) (times []time.Duration, err error) {
		for range repeats {
			d, err := s.once()
			if err != nil {
				return nil, err
			}
			times = append(times, d)
		}
		return times, nil
	})
}

// torchTraining is processes of PyTorch with one thread each.
func torchTraining(workers int) (*fleet, error) {
	python, err := pythonWithTorch()
	if err != nil {
		return nil, err
	}
	return theFleet("PyTorch DDP", workers, func(string) ([]*exec.Cmd, error) {
		return torchProcesses(python, torchDDP, workers, strconv.Itoa(scalingBatch/workers))
	})
}
