// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

// Command steps prints how long a training step of a small transformer takes in one of several modes, in milliseconds: the
// quantile of 10 % of the steps, and their median. Built from two commits and run in turn, it compares them:
//
//	go build -o /tmp/before ./bench/steps && git checkout other && go build -o /tmp/after ./bench/steps
//	for i in 1 2 3 4 5; do /tmp/before -mode split; /tmp/after -mode split; done
package main

import (
	"flag"
	"fmt"
	"iter"
	"maps"
	"os"
	"slices"
	"strings"
	"time"

	. "github.com/gomlx/gomlx/core/graph" //nolint:all // the way GoMLX models are written
	"github.com/gomlx/gomlx/core/tensors"
	"github.com/gomlx/gomlx/ml/layers"
	"github.com/gomlx/gomlx/ml/layers/activation"
	"github.com/gomlx/gomlx/ml/layers/norm"
	"github.com/gomlx/gomlx/ml/model"
	"github.com/gomlx/gomlx/ml/train"
	"github.com/gomlx/gomlx/ml/train/loss"
	"github.com/gomlx/gomlx/ml/train/optimizer"

	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/shapes"

	"github.com/easyparallel/epl"
)

const (
	heads      = 8
	width      = 128
	vocabulary = 512
	words      = 64
	samples    = 8
	depth      = 4
)

// sentences are words, and for each the next; always the same.
type sentences struct{}

func (sentences) Name() string { return "sentences" }

func (sentences) Iter() iter.Seq2[train.Batch, error] {
	return func(yield func(train.Batch, error) bool) {
		ids, next := make([]int32, samples*words), make([]int32, samples*words)
		for i := range ids {
			ids[i], next[i] = int32(i*7%vocabulary), int32(i*11%vocabulary)
		}
		for {
			if !yield(train.Batch{Inputs: []*tensors.Tensor{tensors.FromFlatDataAndDimensions(ids, samples, words)},
				Labels: []*tensors.Tensor{tensors.FromFlatDataAndDimensions(next, samples, words, 1)}}, nil) {
				return
			}
		}
	}
}

// mode is a way to train.
type mode struct {
	devices, stages int
	params          map[string]any
	strategy        func(name string) epl.Strategy
}

func alone(name string) epl.Strategy { return epl.Replicate(1, name) }

var modes = map[string]mode{
	"one":        {1, 1, nil, alone},
	"replicas":   {2, 1, nil, alone},
	"pipeline":   {2, 2, map[string]any{"pipeline.num_micro_batch": 4}, alone},
	"split":      {2, 1, nil, func(name string) epl.Strategy { return epl.Split(2, name) }},
	"replicated": {2, 1, nil, func(name string) epl.Strategy { return epl.Replicate(2, name) }},
}

// attend is attention of many heads.
func attend(scope *model.Scope, x *Node) *Node {
	g := x.Graph()
	project := func(name string) *Node {
		w := scope.VariableWithShape(name, shapes.Make(dtypes.Float32, width, heads, width/heads)).NodeValue(g)
		return Einsum("btd,dhe->bthe", x, w)
	}
	q, k, v := project("query"), project("key"), project("value")
	scores := Softmax(Einsum("bqhe,bkhe->bhqk", q, k), -1)
	out := scope.VariableWithShape("output", shapes.Make(dtypes.Float32, heads, width/heads, width)).NodeValue(g)
	return Einsum("bthe,hed->btd", Einsum("bhqk,bkhe->bqhe", scores, v), out)
}

func main() {
	which := flag.String("mode", "one", "one, replicas, pipeline, split or replicated")
	set := flag.String("set", "", "a configuration `key=value`, besides those of the mode")
	steps := flag.Int("steps", 30, "steps to train, of which the first three do not count")
	flag.Parse()
	m, ok := modes[*which]
	if !ok || *steps < 4 {
		fmt.Fprintf(os.Stderr, "steps: there is no mode %q, or fewer than 4 steps\n", *which)
		os.Exit(2)
	}
	params := maps.Clone(m.params)
	if key, value, given := strings.Cut(*set, "="); given {
		if params == nil {
			params = map[string]any{}
		}
		params[key] = value
	}
	m.params = params
	times, err := m.train(*steps)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	times = times[3:]
	slices.Sort(times)
	fmt.Printf("%.2f %.2f\n", times[len(times)/10], times[len(times)/2])
}

// train returns how long each step took, in milliseconds.
func (m mode) train(steps int) (times []float64, err error) {
	cfg, err := epl.NewConfig(m.params)
	if err != nil {
		return nil, err
	}
	env, err := epl.Init(cfg, epl.WithLocalDevices(m.devices))
	if err != nil {
		return nil, err
	}
	defer env.Close()
	trainer := train.NewTrainer(env.Backend(), model.NewStore(), m.build, loss.SparseCategoricalCrossEntropyLogits, epl.Optimizer(optimizer.Adam().Done()), nil, nil)
	loop := train.NewLoop(trainer)
	last := time.Now()
	loop.OnStep("clock", 0, func(*train.Loop, []*tensors.Tensor) error {
		now := time.Now()
		times = append(times, float64(now.Sub(last).Microseconds())/1000)
		last = now
		return nil
	})
	_, err = loop.RunSteps(env.Dataset(sentences{}), steps)
	return times, err
}

// build is the model, in stages.
func (m mode) build(scope *model.Scope, inputs []*Node) []*Node {
	x := inputs[0]
	for s := range m.stages {
		epl.With(inputs[0], m.strategy(fmt.Sprintf("stage %d", s)), func() {
			if s == 0 {
				x = layers.Embedding(scope.In("words"), x, dtypes.Float32, vocabulary, width)
			}
			for i := s * depth / m.stages; i < (s+1)*depth/m.stages; i++ {
				scope := scope.In("layer_%d", i)
				x = Add(x, attend(scope, norm.LayerNorm(scope.In("norm_1"), x, -1).Done()))
				y := layers.Dense(scope.In("hidden"), norm.LayerNorm(scope.In("norm_2"), x, -1).Done(), true, 4*width)
				x = Add(x, layers.Dense(scope.In("out"), activation.Gelu(y), true, width))
			}
			if s == m.stages-1 {
				x = layers.Dense(scope.In("head"), x, false, vocabulary)
			}
		})
	}
	return []*Node{x}
}
