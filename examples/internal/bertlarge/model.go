// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package bertlarge

import (
	"math"

	"github.com/gomlx/compute"
	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/shapes"
	. "github.com/gomlx/gomlx/core/graph" //nolint:all // the way GoMLX models are written
	"github.com/gomlx/gomlx/ml/layers/activation"
	"github.com/gomlx/gomlx/ml/layers/attention"
	"github.com/gomlx/gomlx/ml/model"
	"github.com/gomlx/gomlx/ml/model/initializer"
	"github.com/gomlx/gomlx/ml/nn"
	"github.com/gomlx/gomlx/ml/train/loss"
)

// bert is the network of BERT, with norms in front of its layers, and a loss over all positions. Variables are float32.
type bert struct {
	batch, length, layers, width, heads, hidden, vocabulary int
	// dtype is what a model that casts by itself computes in; float32: it has no casts.
	dtype dtypes.DType
	fused bool // attention may be one op
	seeds float64
}

// start draws the first values of a matrix: a wave of a high frequency is random enough, and compiles fast.
func (m *bert) start() model.VariableInitializer {
	m.seeds++
	seed := 0.7317 * m.seeds
	return func(g *Graph, shape shapes.Shape) *Node {
		y := Add(MulScalar(Iota(g, shape, 0), 12.9898), MulScalar(Iota(g, shape, 1), 78.233))
		y = MulScalar(Sin(AddScalar(y, seed)), 43758.5453)
		return MulScalar(AddScalar(Sub(y, Floor(y)), -0.5), 2*0.02*math.Sqrt(3))
	}
}

func variable(scope *model.Scope, g *Graph, name string, dims ...int) *Node {
	return scope.VariableWithShape(name, shapes.Make(dtypes.Float32, dims...)).NodeValue(g)
}

func (m *bert) dense(scope *model.Scope, x *Node, out int) *Node {
	g, in := x.Graph(), x.Shape().Dimensions[1]
	w := ConvertDType(variable(scope.WithInitializer(m.start()), g, "weights", in, out), m.dtype)
	b := ConvertDType(variable(scope.WithInitializer(initializer.Zero), g, "biases", out), m.dtype)
	return nn.Dense(x, w, b, compute.DenseLayoutInputOutputs)
}

func (m *bert) norm(scope *model.Scope, x *Node) *Node {
	g := x.Graph()
	gain := variable(scope.WithInitializer(initializer.One), g, "gain", m.width)
	offset := variable(scope.WithInitializer(initializer.Zero), g, "offset", m.width)
	return ConvertDType(nn.LayerNorm(ConvertDType(x, dtypes.Float32), []int{-1}, 1e-5, gain, offset, nil), m.dtype)
}

func (m *bert) attention(qkv *Node) *Node {
	part := func(i int) *Node {
		x := Slice(qkv, AxisRange(), AxisRange(i*m.width, (i+1)*m.width))
		return Reshape(x, m.batch, m.length, m.heads, m.width/m.heads)
	}
	scale := 1 / math.Sqrt(float64(m.width/m.heads))
	x, _ := attention.Core(part(0), part(1), part(2), attention.LayoutBSHD, attention.CoreOptions{Scale: scale, DisableFusion: !m.fused})
	return Reshape(x, m.batch*m.length, m.width)
}

func (m *bert) loss(scope *model.Scope, tokens, labels *Node) *Node {
	g := tokens.Graph()
	table := variable(scope.In("tokens").WithInitializer(m.start()), g, "embeddings", m.vocabulary, m.width)
	positions := variable(scope.In("positions").WithInitializer(m.start()), g, "embeddings", m.length, m.width)
	x := Add(Gather(table, InsertAxes(tokens, -1)), InsertAxes(positions, 0))
	x = Reshape(ConvertDType(x, m.dtype), m.batch*m.length, m.width)
	for i := range m.layers {
		s := scope.In("layer_%02d", i)
		h := m.attention(m.dense(s.In("qkv"), m.norm(s.In("norm_1"), x), 3*m.width))
		x = Add(x, m.dense(s.In("out"), h, m.width))
		h = activation.Gelu(m.dense(s.In("up"), m.norm(s.In("norm_2"), x), m.hidden))
		x = Add(x, m.dense(s.In("down"), h, m.width))
	}
	x = m.norm(scope.In("norm"), x)
	x = m.norm(scope.In("head_norm"), activation.Gelu(m.dense(scope.In("head"), x, m.width)))
	logits := Dot(x, ConvertDType(table, m.dtype)).General([]int{1}, nil, []int{1}, nil)
	bias := variable(scope.In("logits").WithInitializer(initializer.Zero), g, "biases", m.vocabulary)
	logits = ConvertDType(Add(logits, ExpandLeftToRank(ConvertDType(bias, m.dtype), 2)), dtypes.Float32)
	return loss.SparseCategoricalCrossEntropyLogits([]*Node{Reshape(labels, m.batch*m.length, 1)}, []*Node{logits})
}
