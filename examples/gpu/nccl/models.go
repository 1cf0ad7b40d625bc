// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package main

import (
	"math"
	"math/rand"

	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/shapes"
	. "github.com/gomlx/gomlx/core/graph" //nolint:all // the way GoMLX models are written
	"github.com/gomlx/gomlx/core/tensors"
	"github.com/gomlx/gomlx/ml/layers"
	"github.com/gomlx/gomlx/ml/layers/activation"
	"github.com/gomlx/gomlx/ml/layers/norm"
	"github.com/gomlx/gomlx/ml/model"
	"github.com/gomlx/gomlx/ml/train"
	"github.com/gomlx/gomlx/ml/train/loss"

	"github.com/easyparallel/epl"
	"github.com/easyparallel/epl/examples/internal/moe"
	"github.com/easyparallel/epl/internal/equiv"
)

// network is something to train. No network has dropout, which would make one large batch differ from several small ones.
type network interface {
	build(s []epl.Strategy) func(scope *model.Scope, inputs []*Node) []*Node
	loss() train.LossFn
	batches(step int) (inputs, labels []*tensors.Tensor)
	alone() network // on one device
}

const (
	batch  = 8 // of an instance
	length = 8
)

// even has sizes that divide among 4 devices, uneven has not.
var (
	even   = bert{layers: 2, width: 16, heads: 4, hidden: 32, vocabulary: 32}
	uneven = bert{layers: 2, width: 16, heads: 4, hidden: 32, vocabulary: 31}
)

// bert is a small BERT. Its layers are dealt to stages, which have a strategy each.
type bert struct{ layers, width, heads, hidden, vocabulary int }

func (b bert) loss() train.LossFn { return loss.SparseCategoricalCrossEntropyLogits }
func (b bert) alone() network     { return b }

func (b bert) batches(step int) (inputs, labels []*tensors.Tensor) {
	return equiv.Tokens(batch, length, b.vocabulary)(step)
}

func (b bert) build(s []epl.Strategy) func(scope *model.Scope, inputs []*Node) []*Node {
	return func(scope *model.Scope, inputs []*Node) []*Node {
		ids := inputs[0]
		table := scope.In("words").VariableWithShape("embeddings", shapes.Make(dtypes.Float32, b.vocabulary, b.width))
		var x *Node
		for stage, strategy := range s {
			epl.With(ids, strategy, func() {
				if stage == 0 {
					x = b.embed(scope, ids, table)
				}
				for i := stage * b.layers / len(s); i < (stage+1)*b.layers/len(s); i++ {
					x = b.layer(scope.In("layer_%d", i), x)
				}
				if stage == len(s)-1 {
					x = b.logits(scope, x, table)
				}
			})
		}
		return []*Node{x}
	}
}

func (b bert) embed(scope *model.Scope, ids *Node, table *model.Variable) *Node {
	positions := scope.In("positions").VariableWithShape("embeddings", shapes.Make(dtypes.Float32, length, b.width)).NodeValue(ids)
	return layerNorm(scope.In("first"), Add(Gather(table.NodeValue(ids), InsertAxes(ids, -1)), InsertAxes(positions, 0)))
}

// layer is attention and two dense layers.
func (b bert) layer(scope *model.Scope, x *Node) *Node {
	rows := x.Shape().Dimensions[0]
	project := func(name string) *Node {
		return Reshape(layers.Dense(scope.In("%s", name), x, true, b.width), rows, length, b.heads, b.width/b.heads)
	}
	query, key, value := project("query"), project("key"), project("value")
	scores := MulScalar(Einsum("bqhd,bkhd->bhqk", query, key), 1/math.Sqrt(float64(b.width/b.heads)))
	y := Reshape(Einsum("bhqk,bkhd->bqhd", Softmax(scores, -1), value), rows, length, b.width)
	x = layerNorm(scope.In("attention"), Add(x, layers.Dense(scope.In("output"), y, true, b.width)))
	y = layers.Dense(scope.In("down"), activation.Gelu(layers.Dense(scope.In("up"), x, true, b.hidden)), true, b.width)
	return layerNorm(scope, Add(x, y))
}

// logits uses the table of the embedding again.
func (b bert) logits(scope *model.Scope, x *Node, table *model.Variable) *Node {
	bias := scope.In("logits").VariableWithValue("biases", make([]float32, b.vocabulary)).NodeValue(x)
	return Add(Einsum("btd,vd->btv", x, table.NodeValue(x)), InsertAxes(bias, 0, 0))
}

func layerNorm(scope *model.Scope, x *Node) *Node {
	return norm.LayerNorm(scope.In("norm"), x, -1).Done()
}

// translator is the network of the example moe. It has strategies of its own: its experts are split over devices, which share the sentences.
type translator struct{ moe.T5 }

func newTranslator(experts, devices int) translator {
	return translator{moe.T5{Layers: 2, Width: 16, FF: 32, Heads: 4, Vocabulary: 32, Devices: devices, Form: moe.FormScope,
		Gate: moe.Gate{Experts: experts, TopK: 2, CapacityFactor: 1.5}}}
}

func (t translator) loss() train.LossFn { return moe.Loss(0.01) }

func (t translator) alone() network {
	t.Devices = 1
	return t
}

func (t translator) build([]epl.Strategy) func(scope *model.Scope, inputs []*Node) []*Node {
	return t.Logits
}

// batches have sentences of different lengths, so that micro-batches count differently.
func (t translator) batches(step int) (inputs, labels []*tensors.Tensor) {
	r := rand.New(rand.NewSource(int64(step)))
	source, target, next := make([]int32, batch*length), make([]int32, batch*length), make([]int32, batch*length)
	for b := range batch {
		before := int32(1)
		for i := range 3 + r.Intn(length-2) {
			word := int32(2 + r.Intn(t.Vocabulary-2))
			at := b*length + i
			source[at], target[at], next[at] = word, before, 2+(word*5)%int32(t.Vocabulary-2)
			before = next[at]
		}
	}
	tensor := tensors.FromFlatDataAndDimensions[int32]
	return []*tensors.Tensor{tensor(source, batch, length), tensor(target, batch, length)}, []*tensors.Tensor{tensor(next, batch, length, 1)}
}
