package main

import (
	"math"

	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/shapes"
	. "github.com/gomlx/gomlx/core/graph" //nolint:all // the way GoMLX models are written
	"github.com/gomlx/gomlx/ml/layers"
	"github.com/gomlx/gomlx/ml/layers/activation"
	"github.com/gomlx/gomlx/ml/layers/norm"
	"github.com/gomlx/gomlx/ml/model"
	"github.com/gomlx/gomlx/ml/train/loss"

	"github.com/easyparallel/epl"
	"github.com/easyparallel/epl/internal/equiv"
)

// bert is a small BERT without dropout, which would make one large batch differ from several small ones. Its layers are dealt to stages.
type bert struct {
	layers, width, heads, hidden, vocabulary int
	experts                                  int // in place of the dense layers; 0: none
}

const (
	batch  = 8 // of an instance
	length = 8
)

// even has sizes that divide among 4 devices.
var (
	even   = bert{layers: 2, width: 16, heads: 4, hidden: 32, vocabulary: 32}
	uneven = bert{layers: 2, width: 16, heads: 4, hidden: 32, vocabulary: 31}
	moe    = bert{layers: 2, width: 16, heads: 4, hidden: 32, vocabulary: 32, experts: 4}
)

// model builds it. With experts, the first strategy is the default one, the second that of the experts; otherwise each is that of a stage.
func (b bert) model(s []epl.Strategy) equiv.Model {
	return equiv.Model{Name: "bert", Loss: loss.SparseCategoricalCrossEntropyLogits, Batch: equiv.Tokens(batch, length, b.vocabulary),
		Build: func(scope *model.Scope, ids *Node) *Node {
			table := scope.In("words").VariableWithShape("embeddings", shapes.Make(dtypes.Float32, b.vocabulary, b.width))
			if b.experts > 0 {
				epl.SetDefaultStrategy(ids, s[0])
				x := b.embed(scope, ids, table)
				for i := range b.layers {
					x = b.layer(scope.In("layer_%d", i), x, s[1])
				}
				return b.logits(scope, x, table)
			}
			var x *Node
			for stage, strategy := range s {
				epl.With(ids, strategy, func() {
					if stage == 0 {
						x = b.embed(scope, ids, table)
					}
					for i := stage * b.layers / len(s); i < (stage+1)*b.layers/len(s); i++ {
						x = b.layer(scope.In("layer_%d", i), x, epl.Strategy{})
					}
					if stage == len(s)-1 {
						x = b.logits(scope, x, table)
					}
				})
			}
			return x
		}}
}

func (b bert) embed(scope *model.Scope, ids *Node, table *model.Variable) *Node {
	positions := scope.In("positions").VariableWithShape("embeddings", shapes.Make(dtypes.Float32, length, b.width)).NodeValue(ids)
	return layerNorm(scope.In("first"), Add(Gather(table.NodeValue(ids), InsertAxes(ids, -1)), InsertAxes(positions, 0)))
}

// layer is attention and two dense layers, or experts.
func (b bert) layer(scope *model.Scope, x *Node, experts epl.Strategy) *Node {
	project := func(name string) *Node {
		return Reshape(layers.Dense(scope.In("%s", name), x, true, b.width), batchOf(x), length, b.heads, b.width/b.heads)
	}
	query, key, value := project("query"), project("key"), project("value")
	scores := MulScalar(Einsum("bqhd,bkhd->bhqk", query, key), 1/math.Sqrt(float64(b.width/b.heads)))
	y := Reshape(Einsum("bhqk,bkhd->bqhd", Softmax(scores, -1), value), batchOf(x), length, b.width)
	x = layerNorm(scope.In("attention"), Add(x, layers.Dense(scope.In("output"), y, true, b.width)))
	if b.experts > 0 {
		y = b.mixture(scope, x, experts)
	} else {
		y = layers.Dense(scope.In("down"), activation.Gelu(layers.Dense(scope.In("up"), x, true, b.hidden)), true, b.width)
	}
	return layerNorm(scope, Add(x, y))
}

// mixture sends each word to one expert, which has room for some of each sentence.
func (b bert) mixture(scope *model.Scope, x *Node, experts epl.Strategy) *Node {
	capacity := 2 * length / b.experts
	gates := Softmax(layers.Dense(scope.In("gate"), x, false, b.experts), -1)
	chosen := OneHot(ArgMax(gates, -1, dtypes.Int32), b.experts, dtypes.Float32)
	before := ConvertDType(Sub(CumSum(chosen, 1), chosen), dtypes.Int32)
	dispatch := Mul(OneHot(before, capacity, dtypes.Float32), InsertAxes(chosen, -1)) // [batch, word, expert, place]
	combine := Mul(dispatch, InsertAxes(ReduceSum(Mul(gates, chosen), -1), -1, -1))
	words := Einsum("gtec,gtd->egcd", dispatch, x)
	var answers *Node
	epl.With(x, experts, func() {
		up := scope.In("up").VariableWithShape("weights", shapes.Make(dtypes.Float32, b.experts, b.width, b.hidden)).NodeValue(x)
		down := scope.In("down").VariableWithShape("weights", shapes.Make(dtypes.Float32, b.experts, b.hidden, b.width)).NodeValue(x)
		answers = Einsum("egcf,efd->egcd", activation.Relu(Einsum("egcd,edf->egcf", words, up)), down)
	})
	return Einsum("gtec,egcd->gtd", combine, answers)
}

// logits uses the table of the embedding again.
func (b bert) logits(scope *model.Scope, x *Node, table *model.Variable) *Node {
	bias := scope.In("logits").VariableWithValue("biases", make([]float32, b.vocabulary)).NodeValue(x)
	return Add(Einsum("btd,vd->btv", x, table.NodeValue(x)), InsertAxes(bias, 0, 0))
}

func batchOf(x *Node) int { return x.Shape().Dimensions[0] }

func layerNorm(scope *model.Scope, x *Node) *Node {
	return norm.LayerNorm(scope.In("norm"), x, -1).Done()
}
