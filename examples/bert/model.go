// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"math"

	"github.com/gomlx/compute"
	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/shapes"
	. "github.com/gomlx/gomlx/core/graph" //nolint:all // the way GoMLX models are written
	"github.com/gomlx/gomlx/ml/layers"
	"github.com/gomlx/gomlx/ml/layers/activation"
	"github.com/gomlx/gomlx/ml/layers/norm"
	"github.com/gomlx/gomlx/ml/model"
	"github.com/gomlx/gomlx/ml/model/initializer"
	"github.com/gomlx/gomlx/ml/nn"
	"github.com/gomlx/gomlx/ml/train/loss"

	"github.com/easyparallel/epl"
)

// bert describes a BERT encoder with a head that answers questions ("BERT: Pre-training of Deep Bidirectional
// Transformers for Language Understanding", Devlin et al. 2018).
type bert struct {
	layers, hidden, heads int
	vocabulary            int     // word pieces that it knows
	positions             int     // the longest window that it can see
	dropout               float64 // share of values that training leaves out
	stages                int     // scopes that the layers are dealt to; with 0 there is no annotation
}

// Names of scopes and variables, by which weights of others are loaded.
const (
	inEmbeddings = "embeddings"
	inLayer      = "layer_%d"
	inHead       = "answers"
)

// logits builds the network: for each position of each window, how likely an answer starts there, and ends there. All of
// it is [batch, positions]. Inputs are the word pieces, the segments and the mask of windows.
//
// With stages, each is a TaskGraph on a device of its own: the embeddings are in the first, the head is in the last.
func (b bert) logits(scope *model.Scope, inputs []*Node) []*Node {
	ids, segments, mask := inputs[0], inputs[1], inputs[2]
	var x *Node
	var answers []*Node
	stages := max(b.stages, 1)
	for stage := range stages {
		b.annotate(ids, stage, func() {
			if stage == 0 {
				x = b.embed(scope.In(inEmbeddings), ids, segments)
			}
			padding := paddingBias(mask)
			for i := b.firstLayer(stage); i < b.firstLayer(stage+1); i++ {
				x = b.layer(scope.In(inLayer, i), x, padding)
			}
			if stage == stages-1 {
				answers = b.head(scope.In(inHead), x)
			}
		})
	}
	return answers
}

// annotate builds a stage of the pipeline.
func (b bert) annotate(at *Node, stage int, build func()) {
	if b.stages == 0 {
		build()
		return
	}
	epl.With(at, epl.Replicate(1, fmt.Sprintf("stage_%d", stage)), build) // + epl
}

// firstLayer returns the first layer of a stage. Stages differ by one layer at most.
func (b bert) firstLayer(stage int) int { return stage * b.layers / max(b.stages, 1) }

// embed sums what a word piece is, where it is, and whether it is of the question or of the context.
func (b bert) embed(scope *model.Scope, ids, segments *Node) *Node {
	table := func(name string, rows int) *Node {
		return normal(scope.In("%s", name), b.hidden).VariableWithShape("embeddings", shapes.Make(dtypes.Float32, rows, b.hidden)).NodeValue(ids)
	}
	positions := Slice(table("position", b.positions), AxisRangeFromStart(ids.Shape().Dim(1)))
	x := Gather(table("word", b.vocabulary), InsertAxes(ids, -1))
	x = Add(x, ExpandLeftToRank(positions, 3))
	x = Add(x, Gather(table("segment", 2), InsertAxes(segments, -1)))
	return b.drop(scope, layerNorm(scope, x))
}

// paddingBias is added to the scores of attention, so that nothing attends to padding.
func paddingBias(mask *Node) *Node {
	bias := MulScalar(OneMinus(ConvertDType(mask, dtypes.Float32)), -10000)
	return InsertAxes(bias, 1, 1) // [batch, head, from, to]
}

// layer is attention and two dense layers. Each is added to what it is given, and normalised after that.
func (b bert) layer(scope *model.Scope, x, padding *Node) *Node {
	attention := scope.In("attention")
	y := b.attend(attention, x, padding)
	x = layerNorm(attention, Add(x, b.drop(scope, dense(attention.In("output"), y, b.hidden))))
	y = activation.Gelu(dense(scope.In("intermediate"), x, 4*b.hidden))
	return layerNorm(scope, Add(x, b.drop(scope, dense(scope.In("output"), y, b.hidden))))
}

// attend lets each position look at all others, with several heads.
func (b bert) attend(scope *model.Scope, x, padding *Node) *Node {
	batch, length, size := x.Shape().Dim(0), x.Shape().Dim(1), b.hidden/b.heads
	project := func(name string) *Node {
		return Reshape(dense(scope.In("%s", name), x, b.hidden), batch, length, b.heads, size)
	}
	query, key, value := project("query"), project("key"), project("value")
	scores := MulScalar(Einsum("bqhd,bkhd->bhqk", query, key), 1/math.Sqrt(float64(size)))
	weights := b.drop(scope, Softmax(Add(scores, padding), -1))
	return Reshape(Einsum("bhqk,bkhd->bqhd", weights, value), batch, length, b.hidden)
}

// head says of each position how likely an answer starts there, and ends there.
func (b bert) head(scope *model.Scope, x *Node) []*Node {
	both := dense(scope, x, 2)
	return []*Node{
		Squeeze(Slice(both, AxisRange(), AxisRange(), AxisElem(0)), -1),
		Squeeze(Slice(both, AxisRange(), AxisRange(), AxisElem(1)), -1),
	}
}

func (b bert) drop(scope *model.Scope, x *Node) *Node {
	return layers.DropoutStatic(scope, x, b.dropout)
}

// normal lets variables of a network of some width begin with random numbers: of deviation 0.02 in BERT-base, as in the
// paper, and larger in narrower networks, so that what they compute is about as large.
func normal(scope *model.Scope, width int) *model.Scope {
	return scope.WithInitializer(initializer.RandomNormalFn(scope, 0.02*math.Sqrt(768/float64(width))))
}

func dense(scope *model.Scope, x *Node, out int) *Node {
	w := normal(scope, x.Shape().Dim(-1)).VariableWithShape("weights", shapes.Make(x.DType(), x.Shape().Dim(-1), out))
	bias := scope.WithInitializer(initializer.Zero).VariableWithShape("biases", shapes.Make(x.DType(), out))
	return nn.Dense(x, w.NodeValue(x), bias.NodeValue(x), compute.DenseLayoutInputOutputs)
}

func layerNorm(scope *model.Scope, x *Node) *Node {
	return norm.LayerNorm(scope, x, -1).Epsilon(1e-12).Done()
}

// answerLoss is the mean of the cross-entropies of where answers start and where they end.
func answerLoss(labels, logits []*Node) *Node {
	start := loss.SparseCategoricalCrossEntropyLogits(labels[:1], logits[:1])
	end := loss.SparseCategoricalCrossEntropyLogits(labels[1:], logits[1:])
	return MulScalar(Add(ReduceAllMean(start), ReduceAllMean(end)), 0.5)
}
