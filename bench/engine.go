// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"slices"
	"time"

	"github.com/gomlx/compute"
	"github.com/gomlx/gomlx/core/tensors"
	"github.com/gomlx/gomlx/ml/train"
	"github.com/gomlx/gomlx/ml/train/optimizer"

	"github.com/easyparallel/epl"
	"github.com/easyparallel/epl/internal/equiv"
)

const torchPeer = "PyTorch"

// engineRows compare the CPU engine with plain GoMLX and with PyTorch. What both run is the same: model, batch, loss and
// optimizer.
func engineRows() (rows []Row) {
	for _, m := range engineModels() {
		var peers []Peer
		switch {
		case m.endless:
		case m.batchNorm:
			peers = append(peers, Peer{"EPL on GoMLX's backend", 1, func() (side, error) { return inTurns(m.onEPL("go")) }})
		default:
			peers = append(peers, Peer{plainPeer, 1, func() (side, error) { return inTurns(m.onPlain()) }})
		}
		if m.torch != nil {
			peers = append(peers, Peer{torchPeer, m.target, func() (side, error) { return inTurns(m.torch()) }})
		}
		rows = append(rows, Row{Name: "engine/" + m.name, Pairs: 7, Warm: 1,
			Ours: func() (side, error) { return inTurns(m.onEPL("cpu")) },
			Peer: peers[0].Name, Target: peers[0].Target, Theirs: peers[0].Make, Also: peers[1:]})
	}
	rows = append(rows, engineDeviceRows()...)
	return append(append(rows, engineMemoryRows()...), engineAllocationRows()...)
}

// engineModel is what a row trains.
type engineModel struct {
	name   string
	target float64 // over PyTorch
	torch  func() (side, error)
	start  training
	// batchNorm is in the model, which GoMLX's backend does not have. endless models take it many seconds.
	batchNorm, endless bool
}

// training starts on a backend, and returns what takes a step. On EPL the optimizer is wrapped.
type training func(b compute.Backend, wrap func(optimizer.Interface) optimizer.Interface) (once func() (time.Duration, error), err error)

func (m engineModel) onEPL(inner string) (side, error) {
	env, err := epl.Init(nil, epl.WithInner(inner))
	if err != nil {
		return side{}, err
	}
	once, err := m.start(env.Backend(), epl.Optimizer)
	return side{once, func() { _ = env.Close() }}, err
}

func (m engineModel) onPlain() (side, error) {
	b := equiv.Plain()
	once, err := m.start(b, func(o optimizer.Interface) optimizer.Interface { return o })
	return side{once, b.Finalize}, err
}

// A turn is so long, or has so many steps.
const (
	turn      = 300 * time.Millisecond
	turnSteps = 300
)

// inTurns takes several steps in a turn, and tells their median. Before, the threads of the side before fall asleep.
func inTurns(s side, err error) (side, error) {
	once := s.once
	s.once = func() (time.Duration, error) {
		time.Sleep(50 * time.Millisecond)
		var steps []time.Duration
		for total := time.Duration(0); total < turn && len(steps) < turnSteps; {
			d, err := once()
			if err != nil {
				return 0, err
			}
			steps, total = append(steps, d), total+d
		}
		slices.Sort(steps)
		return steps[len(steps)/2], nil
	}
	return s, err
}

// with trains the problem. Batches are on the device before the clock starts, as they are in PyTorch.
func (p problem) with(opt func() optimizer.Interface) training {
	return func(b compute.Backend, wrap func(optimizer.Interface) optimizer.Interface) (func() (time.Duration, error), error) {
		trainer := train.NewTrainer(b, newStore(), p.build, p.loss, wrap(opt()), nil, nil)
		batches := kept(p.batch)
		step := 0
		return func() (time.Duration, error) {
			in, labels, err := batches(step, b)
			if err != nil {
				return 0, err
			}
			step++
			start := time.Now()
			_, err = trainer.TrainStep(train.Batch{Inputs: in, Labels: labels})
			return time.Since(start), err
		}, nil
	}
}

// kept makes few batches, and hands out copies of them, on the device.
func kept(batch func(step int) (inputs, labels []*tensors.Tensor)) func(step int, b compute.Backend) (inputs, labels []*tensors.Tensor, err error) {
	var made [2][2][]*tensors.Tensor
	for i := range made {
		made[i][0], made[i][1] = batch(i)
	}
	return func(step int, b compute.Backend) (inputs, labels []*tensors.Tensor, err error) {
		var copies [2][]*tensors.Tensor
		for i, all := range made[step%len(made)] {
			for _, t := range all {
				c, err := t.OnDeviceClone(b, 0)
				if err != nil {
					return nil, nil, err
				}
				copies[i] = append(copies[i], c)
			}
		}
		return copies[0], copies[1], nil
	}
}

func torchModel(model string, numbers ...int) func() (side, error) {
	return func() (side, error) { return torch(model, numbers...) }
}

func adam() optimizer.Interface { return optimizer.Adam().LearningRate(1e-3).Done() }

// engineModels are in the order of the table.
func engineModels() (all []engineModel) {
	add := func(name string, target float64, p problem, opt func() optimizer.Interface, torch func() (side, error)) {
		all = append(all, engineModel{name: name, target: target, torch: torch, start: p.with(opt)})
	}
	for _, width := range []int{64, 128, 256} {
		add(fmt.Sprint("gpt-", width), 1.5, gpt(width, 8), adam, torchModel("gpt", width, 8))
	}
	for _, batch := range []int{64, 256} {
		add(fmt.Sprint("mlp-25M/", batch), 1.3, wideMLP(batch), sgd, torchModel("mlp", batch))
	}
	add("resnet", 1, smallResNet(16), adam, torchModel("resnet", 16))
	all[len(all)-1].batchNorm = true
	add("resnet50-block", 0.8, bottleneck(8), sgd, torchModel("bottleneck", 8))
	all[len(all)-1].endless = true
	add("bert-layer", 1.2, bertLayer(4), adam, torchModel("bert", 4))
	for _, x := range []updated{{"adam-3M", 12, 256, 1024}, {"adam-25M", 24, 1024, 1024}} {
		all = append(all, engineModel{name: x.name, target: 3, torch: torchModel("update", x.count, x.rows, x.columns), start: x.start})
	}
	add("lstm", 1, lstmOf(32, 32, 128), adam, torchModel("lstm", 32, 32, 128))
	add("moe", 1, experts(8), adam, torchModel("moe", 8))
	for _, x := range []struct {
		name string
		p    problem
	}{
		{"tiny-8", tinyMLP(8, 8)}, {"tiny-64", tinyMLP(32, 64)}, {"tiny-256", tinyMLP(64, 256)},
	} {
		add(x.name, 0, x.p, sgd, nil)
	}
	return all
}
