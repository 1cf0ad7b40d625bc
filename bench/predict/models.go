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
	"github.com/gomlx/gomlx/ml/model/initializer"
	"github.com/gomlx/gomlx/ml/train"
	"github.com/gomlx/gomlx/ml/train/loss"

	"github.com/easyparallel/epl"
	"github.com/easyparallel/epl/internal/equiv"
)

// network is a model that is trained, as parts that follow each other: ways to run it annotate them.
type network struct {
	batch int // samples of a micro-batch
	parts []part
	loss  train.LossFn
	data  func(step int) (inputs, labels []*tensors.Tensor)
}

// part is a piece of a network. Heavy ones have most of the weights: a way may split them alone.
type part struct {
	heavy bool
	build func(scope *model.Scope, x *Node) *Node
}

// networks are what is trained. A step of each takes 20 to 400 ms on two cores.
var networks = map[string]network{
	"mlp":        perceptron(7, 1024, 128),
	"gpt":        languageModel(4, 256, 8, 64, 512),
	"cnn":        convolutions(16),
	"moe":        mixture(2, 8, 8),
	"classifier": classifier(16384, 64),
}

// stages are the parts by stage, about as many in each.
func (n network) stages(stages int) (all [][]part) {
	for s := range stages {
		all = append(all, n.parts[s*len(n.parts)/stages:(s+1)*len(n.parts)/stages])
	}
	return all
}

// build builds the network as a way says.
func (n network) build(w way, scope *model.Scope, x *Node) *Node {
	run := func(parts []part) {
		for _, p := range parts {
			x = p.build(scope, x)
		}
	}
	switch {
	case w.Stages > 1 || w.Split > 1 && !w.Heavy:
		for _, parts := range n.stages(max(w.Stages, 1)) {
			s := epl.Replicate(1)
			if w.Split > 1 {
				s = epl.Split(w.Split)
			}
			epl.With(x, s, func() { run(parts) })
		}
	case w.Heavy:
		for i := 0; i < len(n.parts); {
			j := i
			for j < len(n.parts) && n.parts[j].heavy == n.parts[i].heavy {
				j++
			}
			s := epl.Replicate(w.Split)
			if n.parts[i].heavy {
				s = epl.Split(w.Split)
			}
			epl.With(x, s, func() { run(n.parts[i:j]) })
			i = j
		}
	default:
		run(n.parts)
	}
	return x
}

// numbers are a tensor of them.
func numbers(seed int, dims ...int) *tensors.Tensor {
	flat := make([]float32, shapes.Make(dtypes.Float32, dims...).Size())
	r := rand.New(rand.NewSource(int64(seed)))
	for i := range flat {
		flat[i] = r.Float32()*2 - 1
	}
	return tensors.FromFlatDataAndDimensions(flat, dims...)
}

// perceptron has layers that are equally wide.
func perceptron(depth, width, batch int) network {
	n := network{batch: batch, loss: loss.MeanSquaredError, data: func(step int) (in, labels []*tensors.Tensor) {
		return []*tensors.Tensor{numbers(2*step, batch, width)}, []*tensors.Tensor{numbers(2*step+1, batch, width)}
	}}
	for i := range depth {
		n.parts = append(n.parts, part{build: func(scope *model.Scope, x *Node) *Node {
			x = layers.Dense(scope.In("layer_%d", i), x, true, width)
			if i < depth-1 {
				x = activation.Relu(x)
			}
			return x
		}})
	}
	return n
}

// languageModel is a transformer.
func languageModel(depth, width, batch, length, vocabulary int) network {
	n := network{batch: batch, loss: loss.SparseCategoricalCrossEntropyLogits, data: equiv.Tokens(batch, length, vocabulary)}
	for i := range depth {
		n.parts = append(n.parts, part{build: func(scope *model.Scope, x *Node) *Node {
			if i == 0 {
				x = layers.Embedding(scope.In("words"), x, dtypes.Float32, vocabulary, width)
			}
			layer := scope.In("layer_%d", i)
			x = Add(x, attend(layer, norm.LayerNorm(layer.In("norm_1"), x, -1).Done(), width/32))
			y := layers.Dense(layer.In("hidden"), norm.LayerNorm(layer.In("norm_2"), x, -1).Done(), true, 4*width)
			x = Add(x, layers.Dense(layer.In("out"), activation.Gelu(y), true, width))
			if i == depth-1 {
				x = layers.Dense(scope.In("head"), x, false, vocabulary)
			}
			return x
		}})
	}
	return n
}

// attend is attention of some heads.
func attend(scope *model.Scope, x *Node, heads int) *Node {
	width := x.Shape().Dim(-1)
	weights := func(name string, dims ...int) *Node {
		return normal(scope, name, width, dims...).NodeValue(x.Graph())
	}
	project := func(name string) *Node { return Einsum("btd,dhe->bthe", x, weights(name, width, heads, width/heads)) }
	q, k, v := project("query"), project("key"), project("value")
	scores := Softmax(MulScalar(Einsum("bqhe,bkhe->bhqk", q, k), 1/math.Sqrt(float64(width/heads))), -1)
	return Einsum("bthe,hed->btd", Einsum("bhqk,bkhe->bqhe", scores, v), weights("output", heads, width/heads, width))
}

// normal is a variable that begins with random numbers, for sums of so many products.
func normal(scope *model.Scope, name string, inputs int, dims ...int) *model.Variable {
	return scope.WithInitializer(initializer.RandomNormalFn(scope, 1/math.Sqrt(float64(inputs)))).VariableWithShape(name, shapes.Make(dtypes.Float32, dims...))
}

// convolutions is a residual network on images.
func convolutions(batch int) network {
	const classes, size = 16, 32
	n := network{batch: batch, loss: loss.SparseCategoricalCrossEntropyLogits, data: func(step int) (in, labels []*tensors.Tensor) {
		_, labels = equiv.Classes(batch, 2, classes)(step)
		return []*tensors.Tensor{numbers(step, batch, size, size, 3)}, labels
	}}
	conv := func(scope *model.Scope, x *Node, channels, kernel, stride int) *Node {
		x = layers.Convolution(scope.WithInitializer(initializer.HeFn(scope)), x).Channels(channels).KernelSize(kernel).Strides(stride).PadSame().UseBias(false).Done()
		return norm.BatchNorm(scope, x, -1).Momentum(0.9).Epsilon(1e-5).Done()
	}
	for i, channels := range []int{32, 32, 64, 64, 128, 128} {
		n.parts = append(n.parts, part{build: func(scope *model.Scope, x *Node) *Node {
			if i == 0 {
				x = activation.Relu(conv(scope.In("stem"), x, channels, 3, 1))
			}
			block, stride := scope.In("block_%d", i), 1
			if x.Shape().Dim(-1) != channels {
				stride = 2
			}
			y := activation.Relu(conv(block.In("first"), x, channels, 3, stride))
			y = conv(block.In("second"), y, channels, 3, 1)
			if stride > 1 {
				x = conv(block.In("shortcut"), x, channels, 1, stride)
			}
			x = activation.Relu(Add(x, y))
			if i == 5 {
				x = layers.Dense(scope.In("logits"), ReduceMean(x, 1, 2), true, classes)
			}
			return x
		}})
	}
	return n
}

// mixture has layers of experts, each token going to two of them: see examples/moe.
func mixture(depth, experts, batch int) network {
	const length, width, hidden = 64, 128, 1024
	capacity := 3 * length / experts
	n := network{batch: batch, loss: loss.MeanSquaredError, data: func(step int) (in, labels []*tensors.Tensor) {
		return []*tensors.Tensor{numbers(2*step, batch, length, width)}, []*tensors.Tensor{numbers(2*step+1, batch, length, width)}
	}}
	for i := range depth {
		var x, dispatch, combine, tokens *Node
		dense := func(scope *model.Scope, in *Node) *Node {
			layer := scope.In("layer_%d", i)
			x = activation.Relu(layers.Dense(layer.In("dense"), in, true, width))
			probabilities := Softmax(Einsum("gtd,de->gte", x, normal(layer, "gate", width, width, experts).NodeValue(x.Graph())), -1)
			first := OneHot(ArgMax(probabilities, -1, dtypes.Int32), experts, x.DType())
			taken := Add(first, OneHot(ArgMax(Sub(probabilities, MulScalar(first, 2)), -1, dtypes.Int32), experts, x.DType()))
			weighted := Mul(probabilities, taken)
			weighted = Div(weighted, ReduceAndKeep(weighted, ReduceSum, -1))
			before := ConvertDType(Sub(CumSum(taken, 1), taken), dtypes.Int32) // at each expert, when a token comes
			room := OneHot(before, capacity, x.DType())                        // none, if it comes too late
			dispatch, combine = Mul(room, InsertAxes(taken, -1)), Mul(room, InsertAxes(weighted, -1))
			tokens = Einsum("gtec,gtd->egcd", dispatch, x)
			return tokens
		}
		expert := func(scope *model.Scope, tokens *Node) *Node {
			layer := scope.In("experts_%d", i)
			inside := activation.Relu(Einsum("egcd,edf->egcf", tokens, normal(layer, "up", width, experts, width, hidden).NodeValue(x.Graph())))
			return Einsum("egcf,efd->egcd", inside, normal(layer, "down", hidden, experts, hidden, width).NodeValue(x.Graph()))
		}
		gather := func(_ *model.Scope, answers *Node) *Node { return Add(x, Einsum("gtec,egcd->gtd", combine, answers)) }
		n.parts = append(n.parts, part{build: dense}, part{heavy: true, build: expert}, part{build: gather})
	}
	return n
}

// classifier has most of its weights in the head.
func classifier(classes, batch int) network {
	const width = 512
	n := perceptron(4, width, batch)
	n.loss = loss.SparseCategoricalCrossEntropyLogits
	n.data = equiv.Classes(batch, width, classes)
	n.parts[len(n.parts)-1] = part{heavy: true, build: func(scope *model.Scope, x *Node) *Node {
		return layers.Dense(scope.In("head"), x, true, classes)
	}}
	return n
}
