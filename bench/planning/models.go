// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"iter"
	"os"
	"strings"

	. "github.com/gomlx/gomlx/core/graph" //nolint:all // the way GoMLX models are written
	"github.com/gomlx/gomlx/core/tensors"
	"github.com/gomlx/gomlx/ml/layers"
	"github.com/gomlx/gomlx/ml/layers/activation"
	"github.com/gomlx/gomlx/ml/layers/norm"
	"github.com/gomlx/gomlx/ml/model"
	"github.com/gomlx/gomlx/ml/model/initializer"
	"github.com/gomlx/gomlx/ml/train"
	"github.com/gomlx/gomlx/ml/train/loss"
	"github.com/gomlx/gomlx/ml/train/optimizer"

	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/shapes"

	"github.com/easyparallel/epl"
	"github.com/easyparallel/epl/cost"
	"github.com/easyparallel/epl/internal/equiv"
)

// The models.
const (
	bert    = "BERT"    // BERT-large has 24 layers
	m6      = "M6"      // M6-T: experts in every layer, two for each device
	split   = "split"   // a transformer, every stage split over devices
	experts = "experts" // one for every device of a stage; each word goes to all of them
)

// Annotated models have four stages. Every dim of them that may be sharded has as many rows as the largest stage has devices, at least.
const stages = 4

// network is a transformer.
type network struct {
	layers, width, hidden, heads int
	vocabulary                   int
	words, samples               int // of a batch
	experts, groups              int // of a layer; and of words, each of which has some room with each expert
	split                        int // devices of a stage; 0: nothing is annotated
}

// network is what a row plans, and how it is configured.
func (r *row) network() (network, map[string]any, error) {
	if r.Split > 0 {
		return network{layers: r.Layers, width: 1024, hidden: 4096, heads: 128, vocabulary: 1024, words: 128, samples: 2, split: r.Split},
			map[string]any{"pipeline.num_micro_batch": 2 * stages}, nil
	}
	config := map[string]any{"auto.auto_parallel": true}
	if r.Model == bert {
		return network{layers: r.Layers, width: 1024, hidden: 4096, heads: 16, vocabulary: 30522, words: 384, samples: 4}, config, nil
	}
	said, err := cost.Describe(r.Cluster)
	if err != nil {
		return network{}, nil, err
	}
	devices := 0
	said.Each(func(w cost.Workers) { devices += w.Devices })
	n := network{layers: r.Layers, width: 1024, hidden: 21248, heads: 16, vocabulary: 21128, words: 128, samples: 8 * devices, experts: 2 * devices, groups: devices}
	config["auto.global_batch"] = n.samples // a batch is for all devices
	return n, config, nil
}

// plan makes the plan.
func (r *row) plan() error {
	n, settings, err := r.network()
	if err != nil {
		return err
	}
	cfg, err := epl.NewConfig(settings)
	if err != nil {
		return err
	}
	env, err := epl.Init(cfg)
	if err != nil {
		return err
	}
	defer env.Close()
	layer := n.dense
	switch r.Model {
	case m6:
		layer = n.mixture
	case experts:
		layer = n.all
	}
	// Without state of an optimizer 10^12 parameters fit into 512 devices of 32 GiB, with their gradients.
	rule := epl.Optimizer(optimizer.StochasticGradientDescent().WithDecay(false).Done())
	if r.Model == bert {
		rule = epl.Optimizer(optimizer.Adam().Done())
	}
	trainer := train.NewTrainer(env.Backend(), model.NewStore(), func(scope *model.Scope, inputs []*Node) []*Node { return n.build(scope, inputs[0], layer) },
		loss.SparseCategoricalCrossEntropyLogits, rule, nil, nil)
	_, err = train.NewLoop(trainer).RunSteps(env.Dataset(sentences(n)), 1)
	if err == nil || !strings.Contains(err.Error(), os.Getenv(epl.EnvPlanOut)) {
		return fmt.Errorf("the plan was not made: %w", err)
	}
	return nil
}

// sentences are words, and for each the next.
type sentences network

func (sentences) Name() string { return "sentences" }

func (n sentences) Iter() iter.Seq2[train.Batch, error] {
	return func(yield func(train.Batch, error) bool) {
		for {
			ids, next := tensors.FromShape(shapes.Make(dtypes.Int32, n.samples, n.words)), tensors.FromShape(shapes.Make(dtypes.Int32, n.samples, n.words, 1))
			if !yield(train.Batch{Inputs: []*tensors.Tensor{ids}, Labels: []*tensors.Tensor{next}}, nil) {
				return
			}
		}
	}
}

// build builds the layers: in stages, each split over the devices of its own, or without annotation.
func (n network) build(scope *model.Scope, ids *Node, layer func(scope *model.Scope, x *Node) *Node) []*Node {
	scope = scope.WithInitializer(initializer.Zero)
	x := ids
	part := func(s, stages int) {
		if s == 0 {
			x = layers.Embedding(scope.In("words"), ids, dtypes.Float32, n.vocabulary, n.width)
		}
		for i := s * n.layers / stages; i < (s+1)*n.layers/stages; i++ {
			x = layer(scope.In("layer_%d", i), x)
		}
		if s == stages-1 {
			x = layers.Dense(scope.In("head"), x, false, n.vocabulary)
		}
	}
	if n.split == 0 {
		part(0, 1)
		return []*Node{x}
	}
	for s := range stages {
		epl.With(ids, epl.Split(n.split, fmt.Sprintf("stage %d", s)), func() { part(s, stages) })
	}
	return []*Node{x}
}

// dense has attention and a hidden layer.
func (n network) dense(scope *model.Scope, x *Node) *Node {
	x = n.attend(scope, x)
	y := layers.Dense(scope.In("hidden"), norm.LayerNorm(scope.In("norm_2"), x, -1).Done(), true, n.hidden)
	return Add(x, layers.Dense(scope.In("out"), activation.Gelu(y), true, n.width))
}

// attend is attention of many heads.
func (n network) attend(scope *model.Scope, x *Node) *Node {
	g, y := x.Graph(), norm.LayerNorm(scope.In("norm_1"), x, -1).Done()
	project := func(name string) *Node {
		w := scope.VariableWithShape(name, shapes.Make(dtypes.Float32, n.width, n.heads, n.width/n.heads)).NodeValue(g)
		return Einsum("btd,dhe->bthe", y, w)
	}
	q, k, v := project("query"), project("key"), project("value")
	scores := Softmax(Einsum("bqhe,bkhe->bhqk", q, k), -1)
	out := scope.VariableWithShape("output", shapes.Make(dtypes.Float32, n.heads, n.width/n.heads, n.width)).NodeValue(g)
	return Add(x, Einsum("bthe,hed->btd", Einsum("bhqk,bkhe->bqhe", scores, v), out))
}

// all has an expert for each device; each word goes to all of them, weighted by a gate.
func (n network) all(scope *model.Scope, x *Node) *Node {
	const hidden = 256
	g := x.Graph()
	gate := Softmax(layers.Dense(scope.In("gate"), x, false, n.split), -1)
	in := scope.VariableWithShape("in", shapes.Make(dtypes.Float32, n.split, n.width, hidden)).NodeValue(g)
	out := scope.VariableWithShape("out", shapes.Make(dtypes.Float32, n.split, hidden, n.width)).NodeValue(g)
	y := activation.Gelu(Einsum("btd,edf->btef", x, in))
	y = Einsum("btef,efd->bted", y, out)
	return Add(x, Einsum("bted,bte->btd", y, gate))
}

// mixture has attention, and experts. A word goes to one of them, if that has room.
func (n network) mixture(scope *model.Scope, x *Node) *Node {
	x = n.attend(scope, x)
	g := x.Graph()
	variable := func(name string, dims ...int) *Node {
		return scope.VariableWithShape(name, shapes.Make(dtypes.Float32, dims...)).NodeValue(g)
	}
	of := n.samples * n.words / n.groups // words of a group
	room := max(2*of/n.experts, 1)
	words := Reshape(norm.LayerNorm(scope.In("norm_2"), x, -1).Done(), n.groups, of, n.width)
	dispatch, combine := equiv.Route(words, variable("gate", n.width, n.experts), room)
	y := Einsum("gsec,gsd->egcd", StopGradient(dispatch), words)
	y = activation.Gelu(Einsum("egcd,edf->egcf", y, variable("up", n.experts, n.width, n.hidden)))
	y = Einsum("egcf,efd->egcd", y, variable("down", n.experts, n.hidden, n.width))
	return Add(x, Reshape(Einsum("gsec,egcd->gsd", combine, y), x.Shape().Dimensions...))
}
