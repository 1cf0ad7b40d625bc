// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"math"

	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/shapes"
	. "github.com/gomlx/gomlx/core/graph" //nolint:all // the way GoMLX models are written
	"github.com/gomlx/gomlx/core/tensors"
	"github.com/gomlx/gomlx/ml/layers"
	"github.com/gomlx/gomlx/ml/layers/activation"
	"github.com/gomlx/gomlx/ml/layers/norm"
	"github.com/gomlx/gomlx/ml/model"
	"github.com/gomlx/gomlx/ml/train/loss"

	"github.com/easyparallel/epl"
	"github.com/easyparallel/epl/internal/equiv"
)

// network is a model of the paper, with the annotations of a strategy.
type network struct {
	equiv.Model
	batch int // samples of a micro-batch of a model replica
	cut   int // the stages that EPL cuts it into; 0: it has annotations
}

// empty are batches of which only the shapes count.
func empty(in, labels shapes.Shape) func(int) (inputs, labels []*tensors.Tensor) {
	return func(int) ([]*tensors.Tensor, []*tensors.Tensor) {
		return []*tensors.Tensor{tensors.FromShape(in)}, []*tensors.Tensor{tensors.FromShape(labels)}
	}
}

// head says how the classifier is parallelised.
type head int

const (
	whole    head = iota // with the rest of the model
	byColumn             // split by classes
	byRow                // split by features, as are the features: devices add up their logits
)

// resnet is ResNet50 with a number of classes. If its head is split, as many devices have a model replica, and share its batch.
func resnet(classes, batch int, h head, devices int) network {
	name := fmt.Sprintf("ResNet50 with %d classes, %d samples, head %d on %d", classes, batch, h, devices)
	logits := func(scope *model.Scope, x *Node) *Node { return layers.Dense(scope.In("head"), x, false, classes) }
	return network{equiv.Model{
		Name: name,
		Build: func(scope *model.Scope, x *Node) *Node {
			if h == whole {
				epl.SetDefaultStrategy(x, epl.Replicate(1))
				return logits(scope, features(scope, x))
			}
			images := x
			epl.With(images, epl.Replicate(devices, "features"), func() { x = features(scope, images) })
			split := epl.Split(devices, "head").Shard("weights", 1)
			if h == byRow {
				split = epl.Split(devices, "head").Shard("weights", 0)
			}
			epl.With(images, split, func() { x = logits(scope, x) })
			return x
		},
		Loss:  loss.SparseCategoricalCrossEntropyLogits,
		Batch: empty(shapes.Make(dtypes.Int32, batch, 1, 1, 1), shapes.Make(dtypes.Int32, batch, 1)),
	}, batch, 0}
}

// features are those of ResNet50. Its pictures are made where they are used, as if each worker had read its own.
func features(scope *model.Scope, x *Node) *Node {
	convolution := func(name string, x *Node, channels, kernel, stride int) *Node {
		s := scope.In("%s", name)
		x = layers.Convolution(s, x).Channels(channels).KernelSize(kernel).Strides(stride).PadSame().UseBias(false).Done()
		return normalized(s, x)
	}
	pictures := BroadcastToDims(ConvertDType(x, dtypes.Float32), x.Shape().Dimensions[0], 224, 224, 3)
	x = activation.Relu(convolution("stem", pictures, 64, 7, 2))
	x = MaxPool(x).Window(3).Strides(2).PadSame().Done()
	for stage, blocks := range []int{3, 4, 6, 3} {
		channels := 64 << stage
		for block := range blocks {
			name, stride := fmt.Sprintf("block_%d_%d_", stage, block), 1
			if stage > 0 && block == 0 {
				stride = 2
			}
			y := activation.Relu(convolution(name+"reduce", x, channels, 1, 1))
			y = activation.Relu(convolution(name+"conv", y, channels, 3, stride))
			y = convolution(name+"expand", y, 4*channels, 1, 1)
			if block == 0 {
				x = convolution(name+"shortcut", x, 4*channels, 1, stride)
			}
			x = activation.Relu(Add(x, y))
		}
	}
	return ReduceMean(x, 1, 2)
}

// normalized is x with the mean and variance of a sample, where ResNet50 has those of a batch: EPL exchanges batch statistics between the devices of
// Replicate(k), and the original did not. The work is the same.
func normalized(scope *model.Scope, x *Node) *Node {
	of := func(name string) *Node {
		return scope.VariableWithShape(name, shapes.Make(dtypes.Float32, 1, 1, 1, x.Shape().Dimensions[3])).NodeValue(x.Graph())
	}
	mean := ReduceAndKeep(x, ReduceMean, 1, 2)
	variance := Sub(ReduceAndKeep(Square(x), ReduceMean, 1, 2), Square(mean))
	scale := Div(of("gain"), Sqrt(AddScalar(variance, 1e-5)))
	return Add(Mul(x, scale), Sub(of("offset"), Mul(mean, scale))) // one multiplication and one addition, as kernels have it
}

// transformer is BERT, or what is like it.
type transformer struct {
	layers, width, length, vocabulary int
}

var bertLarge = transformer{layers: 24, width: 1024, length: 384, vocabulary: 30522}

// staged is the model in equally many layers a stage, with the head of the original's example, which finds where an answer starts and ends. 0 stages: it has no
// annotations.
func (m transformer) staged(batch, stages int) network {
	return network{equiv.Model{
		Name: fmt.Sprintf("%+v, %d samples, %d stages", m, batch, stages),
		Build: func(scope *model.Scope, x *Node) *Node {
			g := x.Graph()
			if stages > 0 {
				epl.SetDefaultStrategy(x, epl.Replicate(1))
			}
			positions := scope.In("positions").VariableWithShape("embeddings", shapes.Make(dtypes.Float32, 1, m.length, m.width)).NodeValue(g)
			x = Add(layers.Embedding(scope.In("words"), x, dtypes.Float32, m.vocabulary, m.width), positions)
			x = norm.LayerNorm(scope.In("norm"), x, -1).Done()
			for i := range m.layers {
				if i > 0 && stages > 0 && i*stages%m.layers == 0 {
					epl.SetDefaultStrategy(x, epl.Replicate(1))
				}
				epl.AddToCollection(epl.Checkpoints, x)
				x = m.layer(scope.In("layer_%d", i), x)
			}
			return Transpose(layers.Dense(scope.In("answer"), x, true, 2), 1, 2)
		},
		Loss:  loss.SparseCategoricalCrossEntropyLogits,
		Batch: empty(shapes.Make(dtypes.Int32, batch, m.length), shapes.Make(dtypes.Int32, batch, 2, 1)),
	}, batch, 0}
}

// plain is the model without annotations, which EPL cuts into stages.
func (m transformer) plain(batch, cut int) network {
	n := m.staged(batch, 0)
	n.cut = cut
	return n
}

// layer is attention and a hidden layer.
func (m transformer) layer(scope *model.Scope, x *Node) *Node {
	const head = 64
	heads := func(name string) *Node {
		return Reshape(layers.Dense(scope.In("%s", name), x, true, m.width), -1, m.length, m.width/head, head)
	}
	scores := Einsum("bqhe,bkhe->bhqk", heads("query"), heads("key"))
	y := Einsum("bhqk,bkhe->bqhe", Softmax(MulScalar(scores, 1/math.Sqrt(head)), -1), heads("value"))
	y = layers.Dense(scope.In("output"), Reshape(y, -1, m.length, m.width), true, m.width)
	x = norm.LayerNorm(scope.In("norm_1"), Add(x, y), -1).Done()
	y = activation.Gelu(layers.Dense(scope.In("up"), x, true, 4*m.width))
	y = layers.Dense(scope.In("down"), y, true, m.width)
	return norm.LayerNorm(scope.In("norm_2"), Add(x, y), -1).Done()
}
