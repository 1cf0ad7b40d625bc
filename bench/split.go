// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"os"
	"strconv"

	. "github.com/gomlx/gomlx/core/graph" //nolint:all // the way GoMLX models are written
	"github.com/gomlx/gomlx/ml/layers"
	"github.com/gomlx/gomlx/ml/layers/activation"
	"github.com/gomlx/gomlx/ml/model"
	"github.com/gomlx/gomlx/ml/train"
	"github.com/gomlx/gomlx/ml/train/loss"

	"github.com/easyparallel/epl"
	"github.com/easyparallel/epl/cluster"
	"github.com/easyparallel/epl/internal/equiv"
)

// splitRows compare a classifier whose head is split over two devices, and whose trunk is data parallel on the same devices,
// with one that is data parallel as a whole, on the same samples.
func splitRows() []Row {
	const peer = "EPL, 2 workers in data parallel"
	workers := func(split bool) func() (side, error) {
		return func() (side, error) { return steps(classifier{split}.workers()) }
	}
	return []Row{
		{Name: "split/sent/100000-classes", Peer: "EPL, 2 devices in data parallel", Pairs: 1, Custom: func(int) (Result, error) {
			ours, err := classifier{true}.sent()
			if err != nil {
				return Result{}, err
			}
			theirs, err := classifier{false}.sent()
			if err != nil {
				return Result{}, err
			}
			fmt.Fprintf(os.Stderr, "  the bytes that devices send fall by %.1f%%\n", 100*(1-float64(ours)/float64(theirs)))
			r := float64(theirs) / float64(ours)
			return Result{Ratio: r, Low: r, High: r}, nil
		}},
		{Name: "split/step/100000-classes/2-workers", Peer: peer, Pairs: 7, Warm: 2, Ours: workers(true), Theirs: workers(false)},
	}
}

// classifier has 100,000 classes, and a trunk with as many weights beside its head as ResNet-50 has: 2.9 to 25.6 million.
type classifier struct{ split bool }

const (
	classes    = 100_000
	features   = 256
	trunkWidth = 1710
	samples    = 32 // of a device
)

func (c classifier) build(scope *model.Scope, x *Node) *Node {
	trunk, head := epl.Replicate(1, "trunk"), epl.Replicate(1, "head")
	if c.split {
		trunk, head = epl.Replicate(2, "trunk"), epl.Split(2, "head")
	}
	epl.With(x, trunk, func() {
		x = activation.Relu(layers.Dense(scope.In("0"), x, true, trunkWidth))
		x = activation.Relu(layers.Dense(scope.In("1"), x, true, trunkWidth*84/100))
		x = layers.Dense(scope.In("2"), x, true, features)
	})
	epl.With(x, head, func() { x = layers.Dense(scope.In("head"), x, false, classes) })
	return x
}

// steps measures what the environment makes of the model. A micro-batch of the split model is for both devices.
func (c classifier) steps(env *epl.Env) side {
	n := samples
	if c.split {
		n *= 2
	}
	batch := equiv.Classes(n, narrow, classes)
	return trained(env, train.NewTrainer(env.Backend(), newStore(), c.build, loss.SparseCategoricalCrossEntropyLogits, epl.Optimizer(sgd()), nil, nil), batch)
}

// sent is how many bytes two devices of a process send in a step.
func (c classifier) sent() (total int64, err error) {
	env, err := together(1).init(epl.WithLocalDevices(2))
	if err != nil {
		return 0, err
	}
	return sentBy(fmt.Sprintf("split %v", c.split), env, c.steps(env))
}

const (
	splitPath = "split" // of workers that train a classifier
	envSplit  = "EPL_BENCH_SPLIT"
)

// workers is two processes with one core each.
func (c classifier) workers() (*fleet, error) {
	return ourFleet(2, splitPath, append(together(1).environment(), "GOMAXPROCS=2", cluster.EnvNumWorkers+"=2", envSplit+"="+strconv.FormatBool(c.split))...)
}

// splitWorker trains when it is told.
func splitWorker(index int) error {
	env, err := settings(nil).init()
	if err != nil {
		return err
	}
	return obeying(index, classifier{os.Getenv(envSplit) == "true"}.steps(env))
}
