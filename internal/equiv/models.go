// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

// Package equiv is the central test of EPL: whatever is done to a program, it computes what plain GoMLX computes on
// one device.
//
// It has models to train (this file), random programs (random.go), and functions that run either on any backend and
// compare. Every feature of EPL joins its tests here.
package equiv

import (
	"fmt"
	"math/rand"

	"github.com/gomlx/compute/dtypes"
	. "github.com/gomlx/gomlx/core/graph" //nolint:all // the way GoMLX models are written
	"github.com/gomlx/gomlx/core/tensors"
	"github.com/gomlx/gomlx/ml/layers"
	"github.com/gomlx/gomlx/ml/layers/activation"
	"github.com/gomlx/gomlx/ml/layers/norm"
	"github.com/gomlx/gomlx/ml/model"
	"github.com/gomlx/gomlx/ml/train"
	"github.com/gomlx/gomlx/ml/train/loss"
	"github.com/gomlx/gomlx/ml/zoo/transformer"

	"github.com/easyparallel/epl"
)

// Model is something to train.
type Model struct {
	Name  string
	Build func(scope *model.Scope, x *Node) *Node
	Loss  train.LossFn
	// Batch makes the batch of a step; the same step gives the same batch.
	Batch func(step int) (inputs, labels []*tensors.Tensor)
}

// Models are small, and each has something that goes wrong easily.
func Models() []Model {
	return []Model{
		{"mlp-batchnorm", MLP(3, 32, true), loss.MeanSquaredError, Regression(16, 8)},
		{"transformer-dropout", Transformer(false), loss.SparseCategoricalCrossEntropyLogits, Tokens(4, 16, 32)},
		{"transformer-checkpoint", Transformer(true), loss.SparseCategoricalCrossEntropyLogits, Tokens(4, 16, 32)},
		{"skip", Skip, loss.MeanSquaredError, Regression(16, 8)},
		{"own-gradient", OwnGradient, loss.MeanSquaredError, Regression(16, 8)},
		{"custom-gradient", CustomGradient, loss.MeanSquaredError, Regression(16, 8)},
	}
}

// MLP has one annotated layer after the other, and an output layer outside every scope.
func MLP(depth, width int, batchNorm bool) func(scope *model.Scope, x *Node) *Node {
	return func(scope *model.Scope, x *Node) *Node {
		for i := range depth {
			epl.With(x, epl.Replicate(1, fmt.Sprintf("layer_%d", i)), func() {
				s := scope.In("layer_%d", i)
				x = layers.Dense(s, x, true, width)
				if batchNorm {
					x = norm.BatchNorm(s, x, -1).UseBackendInference(false).Done()
				}
				x = activation.Gelu(x)
			})
		}
		return layers.Dense(scope.In("out"), x, true, 1)
	}
}

// Transformer is GoMLX's language model, with dropout, in one scope; with checkpoints, the embedding is marked so
// that all of it is computed again in backward.
func Transformer(checkpoint bool) func(scope *model.Scope, x *Node) *Node {
	return func(scope *model.Scope, x *Node) *Node {
		epl.With(x, epl.Replicate(1, "all"), func() {
			m := transformer.New(scope).WithVocabSize(32).WithEmbedDim(16).WithNumLayers(2).WithNumHeads(2).WithHeadDim(8).
				WithMaxPosEmbed(16).WithDropout(0.1).WithCausalMask(true)
			if checkpoint {
				h := layers.Embedding(scope.In("before"), x, dtypes.Float32, 32, 16, false).Checkpoint()
				s := scope.In("between")
				h = layers.DropoutStatic(s, activation.Gelu(layers.Dense(s, h, true, 16)), 0.1)
				h = h.Checkpoint()
				h = activation.Gelu(layers.Dense(scope.In("after"), h, true, 32)).StopCheckpoint()
				x = Add(m.Logits(x, transformer.CallOptions{}), h)
				return
			}
			x = m.Logits(x, transformer.CallOptions{})
		})
		return x
	}
}

// Transformer0 is GoMLX's language model without dropout, which would make one large batch differ from several small
// ones.
func Transformer0(scope *model.Scope, x *Node) *Node {
	epl.With(x, epl.Replicate(1, "all"), func() {
		x = transformer.New(scope).WithVocabSize(32).WithEmbedDim(16).WithNumLayers(1).WithNumHeads(2).WithHeadDim(8).
			WithMaxPosEmbed(16).WithCausalMask(true).Logits(x, transformer.CallOptions{})
	})
	return x
}

// Skip has a connection from the first stage to the third, past the second.
func Skip(scope *model.Scope, x *Node) *Node {
	var first, second *Node
	epl.With(x, epl.Replicate(1, "first"), func() {
		first = Tanh(layers.Dense(scope.In("first"), x, true, 16))
	})
	epl.With(x, epl.Replicate(1, "second"), func() {
		s := scope.In("second")
		second = Tanh(norm.LayerNorm(s, layers.Dense(s, first, true, 16), -1).Done())
	})
	var out *Node
	epl.With(x, epl.Replicate(1, "third"), func() {
		out = layers.Dense(scope.In("third"), Add(second, first), true, 1)
	})
	return out
}

// OwnGradient uses a gradient inside the model, as a gradient penalty does.
func OwnGradient(scope *model.Scope, x *Node) *Node {
	var y *Node
	epl.With(x, epl.Replicate(1, "first"), func() {
		y = layers.Dense(scope.In("first"), x, true, 16)
		g := Gradient(ReduceAllSum(Square(Tanh(y))), y)[0]
		y = Add(Tanh(y), MulScalar(g, 0.1))
	})
	epl.With(x, epl.Replicate(1, "second"), func() {
		y = layers.Dense(scope.In("second"), y, true, 1)
	})
	return y
}

// CustomGradient starts each stage with ops whose gradient the user wrote, on checkpointed values.
func CustomGradient(scope *model.Scope, x *Node) *Node {
	for i := range 4 {
		epl.With(x, epl.Replicate(1, fmt.Sprintf("stage_%d", i)), func() {
			s := scope.In("stage_%d", i)
			x = x.Checkpoint()
			x = IdentityWithCustomGradient(x, func(x, v *Node) *Node { return MulScalar(v, 2) })
			x = IdentityWithCustomGradient(x, func(x, v *Node) *Node { return Mul(v, OnePlus(Abs(x))) })
			x = activation.Gelu(norm.LayerNorm(s, layers.Dense(s, x, true, 16), -1).Done())
			if i == 3 {
				x = layers.Dense(scope.In("out"), x.StopCheckpoint(), true, 1)
			}
		})
	}
	return x
}

// Regression makes batches of a smooth function of random features.
func Regression(batch, dim int) func(step int) (inputs, labels []*tensors.Tensor) {
	return func(step int) (inputs, labels []*tensors.Tensor) {
		r := rand.New(rand.NewSource(int64(step)))
		x, y := make([]float32, batch*dim), make([]float32, batch)
		for i := range x {
			x[i] = r.Float32()*2 - 1
		}
		for i := range y {
			y[i] = x[i*dim] - x[i*dim+1]*x[i*dim+2]
		}
		return []*tensors.Tensor{tensors.FromFlatDataAndDimensions(x, batch, dim)},
			[]*tensors.Tensor{tensors.FromFlatDataAndDimensions(y, batch, 1)}
	}
}

// Tokens makes sequences in which each token determines the next.
func Tokens(batch, length, vocabulary int) func(step int) (inputs, labels []*tensors.Tensor) {
	return func(step int) (inputs, labels []*tensors.Tensor) {
		r := rand.New(rand.NewSource(int64(step)))
		x, y := make([]int32, batch*length), make([]int32, batch*length)
		for b := range batch {
			t := r.Intn(vocabulary)
			for s := range length {
				x[b*length+s] = int32(t)
				t = (t*3 + 1) % vocabulary
				y[b*length+s] = int32(t)
			}
		}
		return []*tensors.Tensor{tensors.FromFlatDataAndDimensions(x, batch, length)},
			[]*tensors.Tensor{tensors.FromFlatDataAndDimensions(y, batch, length, 1)}
	}
}

// Classes makes points with a class each.
func Classes(batch, dim, classes int) func(step int) (inputs, labels []*tensors.Tensor) {
	return func(step int) (inputs, labels []*tensors.Tensor) {
		r := rand.New(rand.NewSource(int64(step)))
		x, y := make([]float32, batch*dim), make([]int32, batch)
		for i := range x {
			x[i] = r.Float32()*2 - 1
		}
		for i := range y {
			y[i] = int32(r.Intn(classes))
		}
		return []*tensors.Tensor{tensors.FromFlatDataAndDimensions(x, batch, dim)},
			[]*tensors.Tensor{tensors.FromFlatDataAndDimensions(y, batch, 1)}
	}
}
