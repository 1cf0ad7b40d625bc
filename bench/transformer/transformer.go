// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

// Package transformer is the small model of the benchmarks that compare commits, and the ways to train it.
package transformer

import (
	"fmt"
	"iter"

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
)

// Sentences are words, and for each the next; always the same.
type Sentences struct{}

// Name implements train.Dataset.
func (Sentences) Name() string { return "sentences" }

// Iter implements train.Dataset.
func (Sentences) Iter() iter.Seq2[train.Batch, error] {
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

// Mode is a way to train the model, in equal stages.
type Mode struct {
	Devices, Stages int
	Params          map[string]any
	Strategy        func(name string) epl.Strategy
}

func alone(name string) epl.Strategy { return epl.Replicate(1, name) }

// Modes are the ways, by name.
var Modes = map[string]Mode{
	"one":        {1, 1, nil, alone},
	"replicas":   {2, 1, nil, alone},
	"zero":       {2, 1, map[string]any{"zero.level": "v2"}, alone},
	"pipeline":   {2, 2, map[string]any{"pipeline.num_micro_batch": 4}, alone},
	"pipeline-4": {4, 4, map[string]any{"pipeline.num_micro_batch": 4}, alone},
	"split":      {2, 1, nil, func(name string) epl.Strategy { return epl.Split(2, name) }},
	"replicated": {2, 1, nil, func(name string) epl.Strategy { return epl.Replicate(2, name) }},
}

// Init sets EPL up for the mode.
func (m Mode) Init() (*epl.Env, error) {
	cfg, err := epl.NewConfig(m.Params)
	if err != nil {
		return nil, err
	}
	return epl.Init(cfg, epl.WithLocalDevices(m.Devices))
}

// Trainer trains a model of so many layers.
func (m Mode) Trainer(env *epl.Env, depth int) *train.Trainer {
	build := func(scope *model.Scope, inputs []*Node) []*Node { return m.build(scope, inputs[0], depth) }
	return train.NewTrainer(env.Backend(), model.NewStore(), build, loss.SparseCategoricalCrossEntropyLogits, epl.Optimizer(optimizer.Adam().Done()), nil, nil)
}

// build is the model, in stages.
func (m Mode) build(scope *model.Scope, ids *Node, depth int) []*Node {
	x := ids
	for s := range m.Stages {
		epl.With(ids, m.Strategy(fmt.Sprintf("stage %d", s)), func() {
			if s == 0 {
				x = layers.Embedding(scope.In("words"), x, dtypes.Float32, vocabulary, width)
			}
			for i := s * depth / m.Stages; i < (s+1)*depth/m.Stages; i++ {
				scope := scope.In("layer_%d", i)
				x = Add(x, attend(scope, norm.LayerNorm(scope.In("norm_1"), x, -1).Done()))
				y := layers.Dense(scope.In("hidden"), norm.LayerNorm(scope.In("norm_2"), x, -1).Done(), true, 4*width)
				x = Add(x, layers.Dense(scope.In("out"), activation.Gelu(y), true, width))
			}
			if s == m.Stages-1 {
				x = layers.Dense(scope.In("head"), x, false, vocabulary)
			}
		})
	}
	return []*Node{x}
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
