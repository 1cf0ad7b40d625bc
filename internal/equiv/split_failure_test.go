// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package equiv

import (
	"errors"
	"testing"

	. "github.com/gomlx/gomlx/core/graph"
	"github.com/gomlx/gomlx/core/tensors"
	"github.com/gomlx/gomlx/ml/layers"
	"github.com/gomlx/gomlx/ml/model"
	"github.com/gomlx/gomlx/ml/train"

	"github.com/easyparallel/epl"
)

// under is a model of one dense layer for each strategy.
func under(s ...epl.Strategy) func(scope *model.Scope, x *Node) *Node {
	return func(scope *model.Scope, x *Node) *Node {
		for i := range s {
			epl.With(x, s[i], func() { x = Tanh(layers.Dense(scope.In("part_%d", i), x, true, 6)) })
		}
		return layers.Dense(scope.In("out"), x, true, 1)
	}
}

func TestSplitsThatCannotBeAreRefused(t *testing.T) {
	colocated := map[string]any{"cluster.colocate_split_and_replicate": true}
	for _, c := range []struct {
		name    string
		devices int
		params  map[string]any
		build   func(scope *model.Scope, x *Node) *Node
		words   []string
	}{
		{"more devices than any dim", 9, nil, under(epl.Split(9, "head")),
			[]string{"head", "equiv/split_failure_test.go", "9 devices", "use fewer devices"}},
		{"too few devices", 2, nil, under(epl.Replicate(2, "trunk"), epl.Split(2, "head")),
			[]string{"a replica needs 4 devices", "trunk: 2, head: 2", "the cluster has 2", "use 4 devices", "cluster.colocate_split_and_replicate"}},
		{"devices that do not divide", 5, nil, under(epl.Replicate(1, "trunk"), epl.Split(2, "head")),
			[]string{"5 devices do not divide into replicas of 3", "trunk: 1, head: 2", "use 3 or 6 devices"}},
		{"groups of different size", 4, colocated, under(epl.Replicate(2, "trunk"), epl.Split(4, "head")),
			[]string{"cluster.colocate_split_and_replicate", "trunk", "2", "head", "4"}},
		{"colocated with too few devices", 2, colocated, under(epl.Replicate(4, "trunk"), epl.Split(4, "head")),
			[]string{"4 devices", "the cluster has 2"}},
		{"a pinned dim that does not exist", 2, nil, under(epl.Split(2, "head").Shard("weights", 2)),
			[]string{`Shard("weights", 2)`, "head", "equiv/split_failure_test.go", "/part_0/dense/weights", "dim"}},
		{"a pinned dim that is too small", 7, nil, under(epl.Split(7, "head").Shard("weights", 1)),
			[]string{`"weights"`, "head", "equiv/split_failure_test.go", "/part_0/dense/weights", "7"}},
		{"a pinned variable that does not exist", 2, nil, under(epl.Split(2, "head").Shard("wieghts", 1)),
			[]string{`Shard("wieghts", 1)`, "head", "equiv/split_failure_test.go", "no variable"}},
		{"a pinned variable of another TaskGraph", 3, nil, under(epl.Split(2, "first"), epl.Split(1, "second").Shard("part_0/dense/weights", 1)),
			[]string{`Shard("part_0/dense/weights", 1)`, "second", "equiv/split_failure_test.go", "no variable"}},
	} {
		t.Run(c.name, func(t *testing.T) { refused(t, c.devices, c.params, c.build, c.words...) })
	}
}

func TestPinsThatMakeNoSenseAreRefused(t *testing.T) {
	for name, c := range map[string]struct {
		strategy epl.Strategy
		words    []string
	}{
		"of replicate":   {epl.Replicate(2, "head").Shard("weights", 1), []string{`Shard("weights", 1)`, "needs Split"}},
		"negative":       {epl.Split(2, "head").Shard("weights", -1), []string{`Shard("weights", -1)`, "a dim from 0"}},
		"without a name": {epl.Split(2, "head").Shard("", 0), []string{`Shard("", 0)`, "the name of a variable"}},
		"no devices":     {epl.Split(0, "head"), []string{"Split(0)", "at least one device"}},
	} {
		t.Run(name, func(t *testing.T) { refused(t, 2, nil, under(c.strategy), c.words...) })
	}
}

// A device of a split runs out of memory while the others wait for it.
func TestADeviceOfASplitWithTooLittleMemorySaysWhatItNeedsItFor(t *testing.T) {
	noLeak(t)
	p := splitPlan{parts: []int{3}, replicas: 1, micro: 2}
	m := head(4, 16, 3000)
	env := p.env(t, map[string]any{"cluster.device_memory": "100KB"})
	_, err := m.under(p).train(env.Backend(), 0, env.Dataset(Dataset{m.Batch}), epl.Optimizer(sgd()), 2)
	mustFail(t, err, "epl: device ", "cluster.device_memory", "weights ")
}

// brokenOff is a dataset that breaks off.
func brokenOff(batch func(int) (in, labels []*tensors.Tensor), at int) train.Dataset {
	return custom(func(yield func(train.Batch, error) bool) {
		for i := 0; i < at; i++ {
			if !yield(oneBatch(batch, i), nil) {
				return
			}
		}
		yield(train.Batch{}, errors.New("disk on fire"))
	})
}

func TestAnErrorOfTheDatasetEndsAStepOnAllDevicesOfASplit(t *testing.T) {
	for _, p := range fewSplits() {
		t.Run(p.String(), func(t *testing.T) {
			noLeak(t)
			m := partedModel("mlp")
			for _, at := range []int{1, p.batches(), 2*p.batches() - 1} {
				env := p.env(t, nil)
				_, err := m.under(p).train(env.Backend(), 0, env.Dataset(brokenOff(m.Batch, at)), epl.Optimizer(sgd()), 4)
				mustFail(t, err, "disk on fire")
			}
		})
	}
}
