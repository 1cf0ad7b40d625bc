// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package shard_test

import (
	"math/rand"

	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/shapes"
	. "github.com/gomlx/gomlx/core/graph"
	"github.com/gomlx/gomlx/core/tensors"
	"github.com/gomlx/gomlx/ml/layers"
	"github.com/gomlx/gomlx/ml/layers/activation"
	"github.com/gomlx/gomlx/ml/layers/attention"
	"github.com/gomlx/gomlx/ml/layers/norm"
	"github.com/gomlx/gomlx/ml/model"
	"github.com/gomlx/gomlx/ml/train/loss"

	"github.com/easyparallel/epl"
	"github.com/easyparallel/epl/internal/equiv"
)

// splitModels have split TaskGraphs. Hardly a size of theirs divides.
func splitModels() []equiv.Model {
	entropy := loss.SparseCategoricalCrossEntropyLogits
	return []equiv.Model{
		{Name: "classifier", Build: classifier(11), Loss: entropy, Batch: samples(7, 11, 6)},
		{Name: "mlp", Build: columnsAndRows(13), Loss: loss.MeanSquaredError, Batch: equiv.Regression(7, 10)},
		{Name: "transformer block", Build: transformerBlock(10, 5, 2, 19), Loss: entropy, Batch: equiv.Tokens(3, 5, 19)},
		{Name: "zoo transformer", Build: equiv.Transformer0, Loss: entropy, Batch: equiv.Tokens(3, 5, 32)},
		{Name: "zoo transformer with dropout", Build: equiv.Transformer(true), Loss: entropy, Batch: equiv.Tokens(3, 5, 32)},
		{Name: "convolution and classifier", Build: trunkAndHead(11), Loss: entropy, Batch: pixels(9, 11)},
		{Name: "experts", Build: experts(9, 3, 6, 14, 10, false), Loss: entropy, Batch: samples(9, 10, 7, 6)},
		{Name: "experts outside", Build: experts(9, 3, 6, 14, 10, true), Loss: entropy, Batch: samples(9, 10, 7, 6)},
		{Name: "embedding", Build: splitEmbedding, Loss: entropy, Batch: equiv.Tokens(7, 6, 32)},
		{Name: "layer normalisation", Build: layerNorm, Loss: loss.MeanSquaredError, Batch: equiv.Regression(7, 10)},
	}
}

// samples makes batches of random features, with a class each or one for each row of them.
func samples(batch, classes int, dims ...int) func(step int) (inputs, labels []*tensors.Tensor) {
	return func(step int) (inputs, labels []*tensors.Tensor) {
		r := rand.New(rand.NewSource(int64(step)))
		rows := batch
		for _, d := range dims[:len(dims)-1] {
			rows *= d
		}
		x, y := make([]float32, rows*dims[len(dims)-1]), make([]int32, rows)
		for i := range x {
			x[i] = r.Float32()*2 - 1
		}
		for i := range y {
			y[i] = int32(r.Intn(classes))
		}
		shape := append([]int{batch}, dims...)
		return []*tensors.Tensor{tensors.FromFlatDataAndDimensions(x, shape...)},
			[]*tensors.Tensor{tensors.FromFlatDataAndDimensions(y, append(shape[:len(shape)-1:len(shape)-1], 1)...)}
	}
}

func pixels(batch, classes int) func(step int) (inputs, labels []*tensors.Tensor) {
	return func(step int) (inputs, labels []*tensors.Tensor) {
		in, labels := samples(batch, classes, 8*8*3)(step)
		flat, _ := tensors.CopyFlatData[float32](in[0])
		return []*tensors.Tensor{tensors.FromFlatDataAndDimensions(flat, batch, 8, 8, 3)}, labels
	}
}

func classifier(classes int) func(scope *model.Scope, x *Node) *Node {
	return func(scope *model.Scope, x *Node) *Node {
		epl.With(x, epl.Split(2, "head"), func() {
			x = layers.Dense(scope.In("head"), x, true, classes)
		})
		return x
	}
}

func columnsAndRows(hidden int) func(scope *model.Scope, x *Node) *Node {
	return func(scope *model.Scope, x *Node) *Node {
		epl.With(x, epl.Split(2, "mlp"), func() {
			h := activation.Gelu(layers.Dense(scope.In("first"), x, true, hidden))
			x = Add(x, layers.Dense(scope.In("second"), h, true, x.Shape().Dimensions[1]))
			x = Tanh(x)
			h = activation.Gelu(layers.Dense(scope.In("third"), x, true, hidden))
			x = layers.Dense(scope.In("fourth"), h, true, 1)
		})
		return x
	}
}

// transformerBlock is attention and an MLP, with residual connections, between an embedding and a head.
func transformerBlock(dim, heads, headDim, vocabulary int) func(scope *model.Scope, x *Node) *Node {
	return func(scope *model.Scope, ids *Node) *Node {
		var x *Node
		epl.With(ids, epl.Split(2, "block"), func() {
			x = layers.Embedding(scope.In("tokens"), ids, dtypes.Float32, vocabulary, dim, false)
			h := norm.LayerNorm(scope.In("ln1"), x, -1).Done()
			x = Add(x, attention.SelfAttention(scope.In("att"), h, heads, headDim).WithCausalMask(true).Done())
			h = norm.LayerNorm(scope.In("ln2"), x, -1).Done()
			h = activation.Gelu(layers.Dense(scope.In("up"), h, true, 4*dim))
			x = Add(x, layers.Dense(scope.In("down"), h, true, dim))
			x = layers.Dense(scope.In("out"), norm.LayerNorm(scope.In("ln3"), x, -1).Done(), true, vocabulary)
		})
		return x
	}
}

func trunkAndHead(classes int) func(scope *model.Scope, x *Node) *Node {
	return func(scope *model.Scope, x *Node) *Node {
		epl.With(x, epl.Replicate(2, "trunk"), func() {
			x = Tanh(layers.Convolution(scope.In("a"), x).Channels(4).KernelSize(3).PadSame().Done())
			x = MaxPool(x).Window(2).Done()
			x = Tanh(layers.Convolution(scope.In("b"), x).Channels(6).KernelSize(3).Strides(2).PadSame().Done())
			x = norm.BatchNorm(scope.In("norm"), x, -1).UseBackendInference(false).Done()
			x = Reshape(MeanPool(x).Window(2).Done(), x.Shape().Dimensions[0], -1)
		})
		epl.With(x, epl.Split(2, "head"), func() {
			x = layers.Dense(scope.In("head"), x, true, classes)
		})
		return x
	}
}

// experts is a mixture of experts: a gate sends each row to one of them, as many to each as it has room for. The groups are
// the samples. Outside: only the variables are defined under split.
func experts(n, capacity, dim, hidden, classes int, outside bool) func(scope *model.Scope, x *Node) *Node {
	return func(scope *model.Scope, x *Node) *Node {
		g := x.Graph()
		epl.SetDefaultStrategy(x, epl.Replicate(2, "all"))
		x = layers.Dense(scope.In("in"), x, true, dim)
		gate := scope.In("gate").VariableWithShape("w", shapes.Make(dtypes.Float32, dim, n)).NodeValue(g)
		dispatch, combine := equiv.Route(x, gate, capacity)
		var up, down *Node
		define := func() {
			up = scope.In("up").VariableWithShape("w", shapes.Make(dtypes.Float32, n, dim, hidden)).NodeValue(g)
			down = scope.In("down").VariableWithShape("w", shapes.Make(dtypes.Float32, n, hidden, dim)).NodeValue(g)
		}
		var y *Node
		calculate := func() {
			y = Einsum("gsec,gsd->egcd", StopGradient(dispatch), x)
			y = activation.Relu(Einsum("egcd,edf->egcf", y, up))
			y = Einsum("egcf,efd->egcd", y, down)
		}
		epl.With(x, epl.Split(2, "experts"), func() {
			define()
			if !outside {
				calculate()
			}
		})
		if outside {
			calculate()
		}
		return layers.Dense(scope.In("out"), Add(x, Einsum("gsec,egcd->gsd", combine, y)), true, classes)
	}
}

func splitEmbedding(scope *model.Scope, ids *Node) *Node {
	var x *Node
	epl.With(ids, epl.Split(2, "embedding"), func() {
		x = layers.Embedding(scope.In("tokens"), ids, dtypes.Float32, 32, 9, false)
		position := scope.In("positions").VariableWithValue("w", make([]float32, 6)).NodeValue(ids)
		x = Add(x, ExpandAndBroadcast(position, x.Shape().Dimensions, []int{0, 2}))
		x = layers.Dense(scope.In("out"), x, true, 32)
	})
	return x
}

func layerNorm(scope *model.Scope, x *Node) *Node {
	epl.With(x, epl.Split(2, "all"), func() {
		x = norm.LayerNorm(scope.In("d"), layers.Dense(scope.In("a"), x, true, 14), -1).Done()
		x = layers.Dense(scope.In("b"), norm.LayerNorm(scope.In("c"), Tanh(x), -1).Done(), true, 1)
	})
	return x
}
