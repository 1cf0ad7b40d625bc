// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"math"
	"path"

	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/shapes"
	. "github.com/gomlx/gomlx/core/graph" //nolint:all // the way GoMLX models are written
	"github.com/gomlx/gomlx/ml/layers"
	"github.com/gomlx/gomlx/ml/layers/activation"
	"github.com/gomlx/gomlx/ml/layers/attention"
	"github.com/gomlx/gomlx/ml/layers/attention/pos"
	"github.com/gomlx/gomlx/ml/layers/norm"
	"github.com/gomlx/gomlx/ml/model"
	"github.com/gomlx/gomlx/ml/model/initializer"

	"github.com/easyparallel/epl"
)

// gpt describes a decoder-only transformer: that of GPT-2 ("Language Models are Unsupervised Multitask Learners", Radford et al. 2019), or with the parts that Llama has
// in their place (RMSNorm, rotary positions, SwiGLU, no biases).
type gpt struct {
	llama                 bool
	layers, width, heads  int
	vocabulary, positions int
	epsilon               float64 // of its normalisation
	dropout               float64 // share of values that training leaves out
	stages                int     // of a pipeline, annotated; 0: no annotation
	split                 int     // devices that share a layer (tensor parallelism); 0: no annotation
}

func (m gpt) style() string {
	if m.llama {
		return "Llama-style GPT"
	}
	return "GPT"
}

// hidden is the width between the two dense layers of a block. Llama has three matrices there, and is narrower in return.
func (m gpt) hidden() int {
	if m.llama {
		return (8*m.width/3 + 7) / 8 * 8
	}
	return 4 * m.width
}

// logits says of each position how likely each token follows it: [batch, positions, vocabulary]. With at, it says so of the position at of each text alone: [batch, vocabulary].
//
// With stages, each is a TaskGraph on devices of its own: the embeddings are in the first, the head is in the last, and both have the same table.
func (m gpt) logits(scope *model.Scope, ids, at *Node) *Node {
	var x, logits *Node
	stages := max(m.stages, 1)
	for stage := range stages {
		m.annotate(ids, stage, func() {
			if stage == 0 {
				x = m.embed(scope, ids)
			}
			for i := stage * m.layers / stages; i < (stage+1)*m.layers/stages; i++ {
				x = m.block(scope.In(inBlock, i), x)
			}
			if stage == stages-1 {
				logits = m.head(scope, x, at)
			}
		})
	}
	return logits
}

// annotate builds a stage.
func (m gpt) annotate(at *Node, stage int, build func()) {
	name := fmt.Sprintf("stage_%d", stage)
	switch {
	case m.split > 0:
		// Megatron's layout: heads, and columns before rows. EPL finds one by itself, which for wide networks communicates more.
		split := epl.Split(m.split, name).Shard("attn/c_attn/weights", 2).Shard("attn/c_proj/weights", 0).
			Shard("mlp/c_fc/weights", 1).Shard("mlp/c_proj/weights", 0) // + epl
		epl.With(at, split, build) // + epl
	case m.stages > 0:
		epl.With(at, epl.Replicate(1, name), build) // + epl
	default:
		build()
	}
}

// Names of scopes, as those of GPT-2's files.
const (
	inTokens    = "wte"
	inPositions = "wpe"
	inBlock     = "h_%d"
	inLast      = "ln_f"
)

func (m gpt) table(scope *model.Scope, g *Graph) *Node {
	return m.variable(scope.At(inTokens), g, "embeddings", m.vocabulary, m.width)
}

func (m gpt) embed(scope *model.Scope, ids *Node) *Node {
	x := Gather(m.table(scope, ids.Graph()), InsertAxes(ids, -1))
	if !m.llama {
		positions := m.variable(scope.In(inPositions), ids.Graph(), "embeddings", m.positions, m.width)
		x = Add(x, ExpandLeftToRank(Slice(positions, AxisRangeFromStart(ids.Shape().Dim(1))), 3))
	}
	return m.drop(scope, x)
}

// block is attention and two dense layers. Each reads what is normalised, and is added to what it was given.
func (m gpt) block(scope *model.Scope, x *Node) *Node {
	x = Add(x, m.drop(scope, m.attend(scope.In("attn"), m.norm(scope.In("ln_1"), x))))
	y := m.norm(scope.In("ln_2"), x)
	mlp := scope.In("mlp")
	if m.llama {
		y = Mul(activation.Swish(m.dense(mlp.In("gate"), y, "btn,nf->btf", 1, m.width, m.hidden())), m.dense(mlp.In("c_fc"), y, "btn,nf->btf", 1, m.width, m.hidden()))
	} else {
		y = gelu(m.dense(mlp.In("c_fc"), y, "btn,nf->btf", 1, m.width, m.hidden()))
	}
	return Add(x, m.drop(scope, m.dense(mlp.In("c_proj"), y, "btf,fn->btn", 1, m.hidden(), m.width)))
}

// gelu is GPT-2's activation, Gelu by a hyperbolic tangent. GoMLX's GeluApproximate takes a cube by Pow, which is slow.
func gelu(x *Node) *Node {
	inner := MulScalar(Mul(x, AddScalar(MulScalar(Square(x), 0.044715), 1)), math.Sqrt(2/math.Pi))
	return Mul(MulScalar(x, 0.5), AddScalar(Tanh(inner), 1))
}

// attend lets each position look at itself and those before it, with several heads. Queries, keys and values come from one product. The heads are an axis of the weights, along
// which a split shards all of it.
func (m gpt) attend(scope *model.Scope, x *Node) *Node {
	size := m.width / m.heads
	all := m.dense(scope.In("c_attn"), x, "btn,nchd->btchd", 1, m.width, 3, m.heads, size)
	part := func(i int) *Node {
		return Squeeze(Slice(all, AxisRange(), AxisRange(), AxisElem(i)), 2)
	}
	query, key, value := part(0), part(1), part(2)
	if m.llama {
		indices := Iota(x.Graph(), shapes.Make(dtypes.Int32, x.Shape().Dim(1)), 0)
		query, key = pos.NewRoPE(10000).EncodeQK(query, key, indices, 1)
	}
	y, _ := attention.Core(query, key, value, attention.LayoutBSHD, attention.CoreOptions{UseCausalMask: true})
	return m.dense(scope.In("c_proj"), y, "bthd,hdn->btn", 2, m.heads, size, m.width)
}

// head compares what came out with the embedding of each token.
func (m gpt) head(scope *model.Scope, x, at *Node) *Node {
	if at != nil {
		where := Concatenate([]*Node{Iota(at.Graph(), shapes.Make(at.DType(), at.Shape().Dim(0), 1), 0), InsertAxes(at, -1)}, 1)
		return Einsum("bn,vn->bv", m.norm(scope.In(inLast), Gather(x, where)), m.table(scope, x.Graph()))
	}
	return Einsum("btn,vn->btv", m.norm(scope.In(inLast), x), m.table(scope, x.Graph()))
}

func (m gpt) norm(scope *model.Scope, x *Node) *Node {
	if m.llama {
		return norm.RMSNorm(scope, x).WithEpsilon(m.epsilon).Done()
	}
	return norm.LayerNorm(scope, x, -1).Epsilon(m.epsilon).Done()
}

func (m gpt) drop(scope *model.Scope, x *Node) *Node {
	return layers.DropoutStatic(scope, x, m.dropout)
}

// dense multiplies by weights, of which the first so many dims are summed over, and adds a bias.
func (m gpt) dense(scope *model.Scope, x *Node, equation string, summed int, dims ...int) *Node {
	x = Einsum(equation, x, m.variable(scope, x.Graph(), "weights", dims...))
	if m.llama {
		return x
	}
	bias := scope.WithInitializer(initializer.Zero).VariableWithShape("biases", shapes.Make(dtypes.Float32, dims[summed:]...)).NodeValue(x)
	return Add(x, ExpandLeftToRank(bias, x.Rank()))
}

// variable begins with random numbers: of deviation 0.02 in a network as wide as the smallest GPT-2, and larger in narrower ones, so that what they compute is about as large. Where blocks
// add to their input they are smaller, as in GPT-2, since there are many of them.
func (m gpt) variable(scope *model.Scope, g *Graph, name string, dims ...int) *Node {
	deviation := 0.02 * math.Sqrt(768/float64(m.width))
	if path.Base(scope.Scope()) == "c_proj" {
		deviation /= math.Sqrt(2 * float64(m.layers))
	}
	return scope.WithInitializer(initializer.RandomNormalFn(scope, deviation)).VariableWithShape(name, shapes.Make(dtypes.Float32, dims...)).NodeValue(g)
}

// parameters is the number of trained values.
func (m gpt) parameters() (n int) {
	block := 4*m.width*m.width + 2*m.width*m.hidden()
	if m.llama {
		block += m.width*m.hidden() + 2*m.width
		return m.vocabulary*m.width + m.layers*block + m.width
	}
	block += 4*m.width + m.hidden() + m.width + 4*m.width
	return (m.vocabulary+m.positions)*m.width + m.layers*block + 2*m.width
}

// flops are those that training takes for a token of texts of some length: two for each parameter forward and four backward, but for the positions, which are only looked up, and those of attention ("PaLM", Chowdhery
// et al. 2022, appendix B). What a plan computes again does not count.
func (m gpt) flops(length int) float64 {
	n := m.parameters()
	if !m.llama {
		n -= m.positions * m.width
	}
	return 6*float64(n) + 12*float64(m.layers*m.width*length)
}
