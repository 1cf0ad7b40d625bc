// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package moe

import (
	"math"

	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/shapes"
	. "github.com/gomlx/gomlx/core/graph" //nolint:all // the way GoMLX models are written
	"github.com/gomlx/gomlx/ml/layers/activation"
	"github.com/gomlx/gomlx/ml/layers/norm"
	"github.com/gomlx/gomlx/ml/model"
	"github.com/gomlx/gomlx/ml/model/initializer"
	"github.com/gomlx/gomlx/ml/train/loss"

	"github.com/easyparallel/epl"
)

// T5 describes an encoder and a decoder ("Exploring the Limits of Transfer Learning with a Unified Text-to-Text
// Transformer", Raffel et al. 2019), in which every other layer has experts in place of a dense layer.
type T5 struct {
	Layers, Width, FF, Heads int
	Vocabulary               int
	Gate                     Gate
	Devices                  int    // that share the sentences, and the experts
	Form                     string // what is in the scope of Split
}

// The forms of annotation.
const (
	FormScope  = "scope"  // variables and calculation of the experts are under Split
	FormDefine = "define" // only the variables are; the calculation is outside
)

// Logits builds the network: for each word of a translation, what it may be, [batch, words, vocabulary]. Inputs are the
// words of the sentences, and those of the translations before each word, both [batch, words]. The second result is how
// evenly each pair keeps the experts busy, [batch].
func (m T5) Logits(scope *model.Scope, inputs []*Node) []*Node {
	source, target := inputs[0], inputs[1]
	epl.SetDefaultStrategy(source, epl.Replicate(m.Devices, "attention and gating")) // + epl
	words := normal(scope, 1).VariableWithShape("words", shapes.Make(dtypes.Float32, m.Vocabulary, m.Width)).NodeValue(source)
	embed := func(ids *Node) *Node { return Gather(words, InsertAxes(ids, -1)) }

	encoder := stack{T5: m, scope: scope.In("encoder"), real: isWord(source)}
	memory := encoder.run(embed(source))
	decoder := stack{T5: m, scope: scope.In("decoder"), real: isWord(target), memory: memory, memoryReal: encoder.real}
	x := decoder.run(embed(target))

	x = MulScalar(x, 1/math.Sqrt(float64(m.Width)))
	return []*Node{Einsum("btd,vd->btv", x, words), Add(encoder.balance, decoder.balance)}
}

// isWord is 1 for words and 0 for padding.
func isWord(ids *Node) *Node {
	return ConvertDType(NotEqual(ids, ScalarZero(ids.Graph(), ids.DType())), dtypes.Float32)
}

// stack is an encoder, or a decoder, which also looks at the sentence that the encoder read.
type stack struct {
	T5
	scope              *model.Scope
	real               *Node // 1 for words and 0 for padding
	memory, memoryReal *Node // of the encoder; nil in an encoder
	balance            *Node // sum over layers with experts
}

// run builds the layers.
func (s *stack) run(x *Node) *Node {
	bias := Add(s.distanceBias(x), paddingBias(s.real))
	if s.memory != nil {
		bias = Add(bias, futureBias(x))
	}
	for i := range s.Layers {
		scope := s.scope.In("layer_%d", i)
		x = s.residual(scope.In("self"), x, func(scope *model.Scope, x *Node) *Node { return s.attend(scope, x, x, bias) })
		if s.memory != nil {
			x = s.residual(scope.In("memory"), x, func(scope *model.Scope, x *Node) *Node {
				return s.attend(scope, x, s.memory, paddingBias(s.memoryReal))
			})
		}
		if s.hasExperts(i) {
			x = s.residual(scope.In("experts"), x, s.expertLayer)
		} else {
			x = s.residual(scope.In("dense"), x, s.denseLayer)
		}
	}
	return rmsNorm(s.scope.In("last"), x)
}

// residual adds to x what a layer learns from x, normalised.
func (m T5) residual(scope *model.Scope, x *Node, layer func(*model.Scope, *Node) *Node) *Node {
	return Add(x, layer(scope, rmsNorm(scope, x)))
}

func (m T5) denseLayer(scope *model.Scope, x *Node) *Node {
	return dense(scope.In("out"), activation.Relu(dense(scope.In("in"), x, m.FF)), m.Width)
}

// hasExperts tells whether a layer does. The last one does, and every other one before it.
func (m T5) hasExperts(layer int) bool { return (m.Layers-1-layer)%2 == 0 }

// expertLayer lets some experts look at each word. The gate is replicated, and the experts are split: EPL finds that
// words must travel to the devices of their experts, and the answers back.
func (s *stack) expertLayer(scope *model.Scope, x *Node) *Node {
	e, d, f := s.Gate.Experts, s.Width, s.FF
	dispatch, combine, balance := s.Gate.route(Softmax(dense(scope.In("gate"), x, e), -1), s.real)
	if s.balance != nil {
		balance = Add(balance, s.balance)
	}
	s.balance = balance

	words := Einsum("gtec,gtd->egcd", dispatch, x) // of each expert
	var in, out, answers *Node
	define := func() {
		in = normal(scope, d).VariableWithShape("in", shapes.Make(x.DType(), e, d, f)).NodeValue(x)
		out = normal(scope, f).VariableWithShape("out", shapes.Make(x.DType(), e, f, d)).NodeValue(x)
	}
	calculate := func() {
		hidden := activation.Relu(Einsum("egcd,edf->egcf", words, in))
		answers = Einsum("egcf,efd->egcd", hidden, out)
	}
	experts := epl.Split(s.Devices, "experts") // + epl
	if s.Form == FormDefine {
		epl.With(x, experts, define) // + epl
		calculate()
	} else {
		epl.With(x, experts, func() { define(); calculate() }) // + epl
	}
	return Einsum("gtec,egcd->gtd", combine, answers)
}

// attend lets each word of x look at all words of y, with several heads.
func (m T5) attend(scope *model.Scope, x, y, bias *Node) *Node {
	size := m.Width / m.Heads
	project := func(name string, of *Node) *Node {
		return Reshape(dense(scope.In("%s", name), of, m.Width), of.Shape().Dim(0), of.Shape().Dim(1), m.Heads, size)
	}
	query, key, value := project("query", x), project("key", y), project("value", y)
	scores := MulScalar(Einsum("bqhd,bkhd->bhqk", query, key), 1/math.Sqrt(float64(size)))
	seen := Einsum("bhqk,bkhd->bqhd", Softmax(Add(scores, bias), -1), value)
	return dense(scope.In("output"), Reshape(seen, x.Shape().Dimensions...), m.Width)
}

// paddingBias is added to the scores of attention, so that nothing attends to padding.
func paddingBias(real *Node) *Node {
	return InsertAxes(MulScalar(OneMinus(real), -10000), 1, 1) // [batch, head, from, to]
}

// futureBias keeps words from looking at those after them.
func futureBias(x *Node) *Node {
	past := ConvertDType(LowerTriangular(x.Graph(), x.Shape().Dim(1)), x.DType())
	return InsertAxes(MulScalar(OneMinus(past), -10000), 0, 0)
}

// distanceBias is what a head learned about distances: how far, and in which direction, is the word that it looks at? All
// layers of the stack share it.
func (s *stack) distanceBias(x *Node) *Node {
	words := x.Shape().Dim(1)
	table := make([][]int32, words)
	for from := range table {
		table[from] = make([]int32, words)
		for to := range table[from] {
			table[from][to] = bucket(to-from, s.memory == nil)
		}
	}
	weights := normal(s.scope, s.Heads).VariableWithShape("distances", shapes.Make(x.DType(), buckets, s.Heads)).NodeValue(x)
	bias := Gather(weights, InsertAxes(Const(x.Graph(), table), -1)) // [from, to, head]
	return InsertAxes(TransposeAllAxes(bias, 2, 0, 1), 0)
}

const (
	buckets  = 32  // of distances
	farthest = 128 // what is farther away is in the last bucket
)

// bucket returns the bucket of a distance, as T5 has it: one for each small distance, and of logarithmic sizes above. A
// decoder looks only back, so that all buckets are for that.
func bucket(distance int, bothWays bool) int32 {
	count, first := buckets, 0
	if bothWays {
		count /= 2
		if distance > 0 {
			first = count
		}
		distance = max(distance, -distance)
	} else {
		distance = max(-distance, 0)
	}
	exact := count / 2
	if distance >= exact {
		far := math.Log(float64(distance)/float64(exact)) / math.Log(float64(farthest)/float64(exact))
		distance = min(exact+int(far*float64(count-exact)), count-1)
	}
	return int32(first + distance)
}

// normal lets variables begin with random numbers, so that sums over so many inputs are about as large as an input.
func normal(scope *model.Scope, inputs int) *model.Scope {
	return scope.WithInitializer(initializer.RandomNormalFn(scope, 1/math.Sqrt(float64(inputs))))
}

// dense has no bias, as everywhere in T5.
func dense(scope *model.Scope, x *Node, out int) *Node {
	in := x.Shape().Dim(-1)
	w := normal(scope, in).VariableWithShape("weights", shapes.Make(x.DType(), in, out)).NodeValue(x)
	return Einsum("bti,io->bto", x, w)
}

func rmsNorm(scope *model.Scope, x *Node) *Node { return norm.RMSNorm(scope, x).Done() }

// Loss is the cross-entropy of the words of the translations, with how unevenly their experts are busy, by a weight. It is a mean
// over words, whatever pairs they are in: so that micro-batches with more words count for more.
func Loss(weight float64) func(labels, predictions []*Node) *Node {
	return func(labels, predictions []*Node) *Node {
		target, logits, balance := labels[0], predictions[0], predictions[1]
		mask := NotEqual(Squeeze(target, -1), ScalarZero(target.Graph(), target.DType()))
		entropy := loss.SparseCategoricalCrossEntropyLogits([]*Node{target, mask}, []*Node{logits})
		words := ReduceSum(ConvertDType(mask, logits.DType()), 1)
		all := ReduceAllSum(words)
		epl.AddToCollection(epl.InstanceWeight, all) // + epl
		uneven := Div(ReduceAllSum(Mul(words, balance)), all)
		return Add(entropy, MulScalar(uneven, weight))
	}
}
