// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package equiv

import (
	"fmt"
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
)

// Staged is a model in as many stages as the test wants.
type Staged struct {
	Name string
	// Build annotates the stages, at least two.
	Build func(stages int) func(scope *model.Scope, inputs []*Node) []*Node
	Loss  train.LossFn // nil: the model adds its own
	Batch func(step int) (inputs, labels []*tensors.Tensor)
}

// StagedModels each have something that goes wrong easily when a model is cut into stages. Of all, a step on one large
// batch is the mean of steps on its parts.
func StagedModels() []Staged {
	regression := func(name string, build func(stages int) func(scope *model.Scope, inputs []*Node) []*Node) Staged {
		return Staged{name, build, loss.MeanSquaredError, Regression(4, 8)}
	}
	return []Staged{
		{"tied", TiedTransformer(0), loss.SparseCategoricalCrossEntropyLogits, Tokens(2, 6, 16)},
		regression("skips", StagedSkips),
		{"labels-in-the-middle", LabelsInTheMiddle, nil, labelsAsInputs},
		{"loss-outside", LossOutside, nil, labelsAsInputs},
		regression("defaults", DefaultStages),
		{"late-integers", LateIntegers, loss.MeanSquaredError, withIntegers},
		regression("shared-by-all", SharedByAll),
		regression("unused", UnusedVariables),
		regression("regularised", Regularised),
		{"embeddings", StagedEmbeddings, loss.SparseCategoricalCrossEntropyLogits, Tokens(2, 6, 16)},
		regression("branches", Branches),
		regression("reordered", Reordered),
		regression("frozen-start", FrozenStart),
		regression("no-weights", NoWeights),
		regression("odd-types", OddTypes),
		regression("closures", Closures),
		regression("checkpoints", StagedCheckpoints),
		regression("scalars", Scalars),
		regression("only-sent", OnlySent),
	}
}

// stage runs the body as the i-th stage.
func stage(at *Node, i int, body func()) {
	epl.With(at, epl.Replicate(1, fmt.Sprintf("stage_%d", i)), body)
}

// hidden is a dense layer of the stage with a smooth activation.
func hidden(scope *model.Scope, x *Node, i, width int) *Node {
	return Tanh(layers.Dense(scope.In("stage_%d", i), x, true, width))
}

// StagedMLP is a layer per stage, and what more does for each; the output layer is outside every scope.
func StagedMLP(more func(scope *model.Scope, x *Node) *Node) func(stages int) func(scope *model.Scope, inputs []*Node) []*Node {
	return func(stages int) func(scope *model.Scope, inputs []*Node) []*Node {
		return func(scope *model.Scope, inputs []*Node) []*Node {
			x := inputs[0]
			for i := range stages {
				stage(x, i, func() { x = more(scope.In("more_%d", i), hidden(scope, x, i, 12)) })
			}
			return []*Node{layers.Dense(scope.In("out"), x, true, 1)}
		}
	}
}

// TiedTransformer looks tokens up in the first stage, and uses the same table for the logits in the last.
func TiedTransformer(dropout float64) func(stages int) func(scope *model.Scope, inputs []*Node) []*Node {
	const vocabulary, width = 16, 8
	return func(stages int) func(scope *model.Scope, inputs []*Node) []*Node {
		return func(scope *model.Scope, inputs []*Node) []*Node {
			ids := inputs[0]
			g := ids.Graph()
			table := scope.In("embedding").VariableWithShape("table", shapes.Make(dtypes.Float32, vocabulary, width))
			var x *Node
			for i := range stages {
				stage(ids, i, func() {
					s := scope.In("stage_%d", i)
					if i == 0 {
						x = Gather(table.NodeValue(g), InsertAxes(ids, -1))
						position := s.VariableWithShape("position", shapes.Make(dtypes.Float32, ids.Shape().Dimensions[1], width))
						x = Add(x, InsertAxes(position.NodeValue(g), 0))
					}
					x = block(s, x, dropout)
					if i == stages-1 {
						x = norm.LayerNorm(s.In("last"), x, -1).Done()
						x = Einsum("bsd,vd->bsv", x, table.NodeValue(g))
					}
				})
			}
			return []*Node{x}
		}
	}
}

// block is one layer of a transformer: causal attention of one head, and a dense layer, with skip connections.
func block(scope *model.Scope, x *Node, dropout float64) *Node {
	width := x.Shape().Dimensions[2]
	h := norm.LayerNorm(scope.In("norm_1"), x, -1).Done()
	q, k := layers.Dense(scope.In("q"), h, false, width), layers.Dense(scope.In("k"), h, false, width)
	v := layers.Dense(scope.In("v"), h, true, width)
	scores := MulScalar(Einsum("bsd,btd->bst", q, k), 0.35)
	length := x.Shape().Dimensions[1]
	causal := BroadcastToDims(InsertAxes(LowerTriangular(x.Graph(), length), 0), scores.Shape().Dimensions...)
	scores = Where(causal, scores, MulScalar(OnesLike(scores), -1e9))
	x = Add(x, Einsum("bst,btd->bsd", Softmax(scores, -1), v))
	h = activation.Gelu(layers.Dense(scope.In("up"), norm.LayerNorm(scope.In("norm_2"), x, -1).Done(), true, 2*width))
	if dropout > 0 {
		h = layers.DropoutStatic(scope, h, dropout)
	}
	return Add(x, layers.Dense(scope.In("down"), h, true, width))
}

// StagedSkips uses a value of the first stage in every later one.
func StagedSkips(stages int) func(scope *model.Scope, inputs []*Node) []*Node {
	return func(scope *model.Scope, inputs []*Node) []*Node {
		x := inputs[0]
		var first *Node
		for i := range stages {
			stage(x, i, func() {
				x = hidden(scope, x, i, 12)
				if i == 0 {
					first = Sin(x)
				} else {
					x = Add(x, Mul(first, x))
				}
				if i == stages-1 {
					x = layers.Dense(scope.In("out"), Concatenate([]*Node{x, first}, -1), true, 1)
				}
			})
		}
		return []*Node{x}
	}
}

// labelsAsInputs gives features, a mask over them, and labels, all as inputs.
func labelsAsInputs(step int) (inputs, labels []*tensors.Tensor) {
	in, out := Regression(4, 8)(step)
	r := rand.New(rand.NewSource(int64(step)))
	mask := make([]float32, 4*12)
	for i := range mask {
		mask[i] = float32(r.Intn(2))
	}
	return []*tensors.Tensor{in[0], tensors.FromFlatDataAndDimensions(mask, 4, 12), out[0]}, nil
}

// LabelsInTheMiddle has a loss in every stage, and a mask in all but the first.
func LabelsInTheMiddle(stages int) func(scope *model.Scope, inputs []*Node) []*Node {
	return func(scope *model.Scope, inputs []*Node) []*Node {
		x, mask, labels := inputs[0], inputs[1], inputs[2]
		for i := range stages {
			stage(x, i, func() {
				x = hidden(scope, x, i, 12)
				if i > 0 {
					x = Mul(x, mask)
				}
				y := layers.Dense(scope.In("aside_%d", i), x, true, 1)
				train.AddMainLoss(ReduceAllMean(Square(Sub(y, labels))))
			})
		}
		return []*Node{x}
	}
}

// LossOutside prepares its input and makes its loss outside every scope, and works between the scopes, too.
func LossOutside(stages int) func(scope *model.Scope, inputs []*Node) []*Node {
	return func(scope *model.Scope, inputs []*Node) []*Node {
		x, mask, labels := inputs[0], inputs[1], inputs[2]
		prepared := Concatenate([]*Node{x, Square(x)}, -1)
		weight := MulScalar(ReduceAllMean(mask), 0.01)
		x = prepared
		for i := range stages {
			stage(x, i, func() { x = hidden(scope, x, i, 12) })
			x = Mul(x, Add(mask, Cos(x)))
		}
		x = layers.Dense(scope.In("out"), x, true, 1)
		train.AddMainLoss(ReduceAllMean(Square(Sub(x, labels))))
		train.AddMainLoss(Mul(StopGradient(weight), MulScalar(ReduceAllMean(Square(prepared)), 0)))
		return []*Node{x}
	}
}

// DefaultStages opens its stages by SetDefaultStrategy, so that the loss is in the last.
func DefaultStages(stages int) func(scope *model.Scope, inputs []*Node) []*Node {
	return func(scope *model.Scope, inputs []*Node) []*Node {
		x := inputs[0]
		for i := range stages {
			epl.SetDefaultStrategy(x, epl.Replicate(1, fmt.Sprintf("default_%d", i)))
			x = hidden(scope, x, i, 12)
		}
		return []*Node{layers.Dense(scope.In("out"), x, true, 1)}
	}
}

// withIntegers has integers as a second input.
func withIntegers(step int) (inputs, labels []*tensors.Tensor) {
	in, labels := Regression(4, 8)(step)
	r := rand.New(rand.NewSource(int64(step)))
	ids := make([]int32, 4)
	for i := range ids {
		ids[i] = int32(r.Intn(5))
	}
	return []*tensors.Tensor{in[0], tensors.FromFlatDataAndDimensions(ids, 4, 1)}, labels
}

// LateIntegers uses one of its inputs, which are integers, in the last stage only.
func LateIntegers(stages int) func(scope *model.Scope, inputs []*Node) []*Node {
	return func(scope *model.Scope, inputs []*Node) []*Node {
		x, ids := inputs[0], inputs[1]
		for i := range stages {
			stage(x, i, func() {
				x = hidden(scope, x, i, 12)
				if i == stages-1 {
					e := layers.Embedding(scope.In("late"), ids, dtypes.Float32, 5, 12, false)
					x = layers.Dense(scope.In("out"), Mul(x, e), true, 1)
				}
			})
		}
		return []*Node{x}
	}
}

// SharedByAll uses the same weights in every stage, and in the loss' neighbourhood outside.
func SharedByAll(stages int) func(scope *model.Scope, inputs []*Node) []*Node {
	return func(scope *model.Scope, inputs []*Node) []*Node {
		x := inputs[0]
		g := x.Graph()
		w := scope.VariableWithShape("shared", shapes.Make(dtypes.Float32, 8, 8))
		b := scope.WithInitializer(initializer.Zero).VariableWithShape("bias", shapes.Make(dtypes.Float32, 8))
		for i := range stages {
			stage(x, i, func() { x = Tanh(Add(Dot(x, w.NodeValue(g)).Product(), InsertAxes(b.NodeValue(g), 0))) })
		}
		x = Dot(x, w.NodeValue(g)).Product()
		return []*Node{ReduceAndKeep(x, ReduceMean, -1)}
	}
}

// UnusedVariables has weights in every stage that do not reach the loss, and some that nobody reads.
func UnusedVariables(stages int) func(scope *model.Scope, inputs []*Node) []*Node {
	return StagedMLP(func(scope *model.Scope, x *Node) *Node {
		scope.VariableWithValue("unread", []float32{1, 2, 3})
		w := scope.VariableWithValue("unused", []float32{1, 2, 3}).NodeValue(x.Graph())
		_ = Mul(w, w)
		return x
	})(stages)
}

// Regularised adds a loss on the weights of every stage.
func Regularised(stages int) func(scope *model.Scope, inputs []*Node) []*Node {
	return func(scope *model.Scope, inputs []*Node) []*Node {
		x := inputs[0]
		g := x.Graph()
		for i := range stages {
			stage(x, i, func() {
				x = hidden(scope, x, i, 12)
				w := scope.Store().GetVariable(fmt.Sprintf("/stage_%d/dense/weights", i)).NodeValue(g)
				train.AddRegularizationLoss(MulScalar(ReduceAllMean(Square(w)), 0.1))
			})
		}
		x = layers.Dense(scope.In("out"), x, true, 1)
		for i := range stages { // and once more, outside
			w := scope.Store().GetVariable(fmt.Sprintf("/stage_%d/dense/weights", i)).NodeValue(g)
			train.AddRegularizationLoss(MulScalar(ReduceAllMean(Abs(w)), 0.01))
		}
		return []*Node{x}
	}
}

// StagedEmbeddings looks the same tokens up in a table per stage.
func StagedEmbeddings(stages int) func(scope *model.Scope, inputs []*Node) []*Node {
	return func(scope *model.Scope, inputs []*Node) []*Node {
		ids := inputs[0]
		var x *Node
		for i := range stages {
			stage(ids, i, func() {
				e := layers.Embedding(scope.In("table_%d", i), ids, dtypes.Float32, 16, 8, false)
				if x == nil {
					x = e
				} else {
					x = Tanh(Add(layers.Dense(scope.In("stage_%d", i), x, true, 8), e))
				}
			})
		}
		return []*Node{layers.Dense(scope.In("out"), x, true, 16)}
	}
}

// Branches has stages that read the input only, and a last one that joins them.
func Branches(stages int) func(scope *model.Scope, inputs []*Node) []*Node {
	return func(scope *model.Scope, inputs []*Node) []*Node {
		x := inputs[0]
		var parts []*Node
		for i := range stages {
			stage(x, i, func() {
				if i < stages-1 {
					parts = append(parts, hidden(scope, x, i, 6))
					return
				}
				x = layers.Dense(scope.In("out"), Concatenate(parts, -1), true, 1)
			})
		}
		return []*Node{x}
	}
}

// Reordered opens the TaskGraph first that comes last in the flow of data.
func Reordered(stages int) func(scope *model.Scope, inputs []*Node) []*Node {
	return func(scope *model.Scope, inputs []*Node) []*Node {
		x := inputs[0]
		epl.SetDefaultStrategy(x, epl.Replicate(1, "last"))
		for i := range stages - 1 {
			stage(x, i, func() { x = hidden(scope, x, i, 12) })
		}
		return []*Node{layers.Dense(scope.In("out"), x, true, 1)}
	}
}

// FrozenStart trains the last stage only: the others have no backward.
func FrozenStart(stages int) func(scope *model.Scope, inputs []*Node) []*Node {
	return func(scope *model.Scope, inputs []*Node) []*Node {
		x := inputs[0]
		g := x.Graph()
		for i := range stages {
			stage(x, i, func() {
				if i == stages-1 {
					x = layers.Dense(scope.In("out"), x, true, 1)
					return
				}
				w := scope.In("frozen_%d", i).VariableWithShape("w", shapes.Make(dtypes.Float32, 8, 8)).SetTrainable(false)
				x = Tanh(Dot(x, w.NodeValue(g)).Product())
			})
		}
		return []*Node{x}
	}
}

// NoWeights has weights in the first stage only, and none in the others.
func NoWeights(stages int) func(scope *model.Scope, inputs []*Node) []*Node {
	return func(scope *model.Scope, inputs []*Node) []*Node {
		x := inputs[0]
		for i := range stages {
			stage(x, i, func() {
				switch i {
				case 0:
					x = hidden(scope, x, i, 12)
				case stages - 1:
					x = ReduceAndKeep(x, ReduceMean, -1)
				default:
					x = Sin(MulScalar(x, 2))
				}
			})
		}
		return []*Node{x}
	}
}

// OddTypes lets booleans, integers of several sizes, float64 and a scalar cross between stages.
func OddTypes(stages int) func(scope *model.Scope, inputs []*Node) []*Node {
	return func(scope *model.Scope, inputs []*Node) []*Node {
		x := inputs[0]
		var positive, count, small, precise, scale *Node
		for i := range stages {
			stage(x, i, func() {
				x = hidden(scope, x, i, 8)
				if i == 0 {
					positive = GreaterThan(inputs[0], ScalarZero(x.Graph(), dtypes.Float32))
					count = ReduceAndKeep(ConvertDType(positive, dtypes.Int64), ReduceSum, -1)
					small = ConvertDType(positive, dtypes.Int8)
					precise = ConvertDType(x, dtypes.Float64)
					scale = Scalar(x.Graph(), dtypes.Float32, 0.5)
					return
				}
				x = Where(positive, x, MulScalar(x, 0.5))
				x = Add(x, MulScalar(ConvertDType(count, dtypes.Float32), 0.01))
				x = Add(x, ConvertDType(Mul(precise, ConvertDType(small, dtypes.Float64)), dtypes.Float32))
				x = Mul(x, scale)
			})
		}
		return []*Node{layers.Dense(scope.In("out"), x, true, 1)}
	}
}

// Closures has, in every stage, a branch and a loop that take values of the stage before from outside.
func Closures(stages int) func(scope *model.Scope, inputs []*Node) []*Node {
	return func(scope *model.Scope, inputs []*Node) []*Node {
		x := inputs[0]
		g := x.Graph()
		previous := x
		for i := range stages {
			stage(x, i, func() {
				before := previous
				previous = x
				x = hidden(scope, x, i, 8)
				if i == 0 {
					return
				}
				yes := NewClosure(g, func(*Graph) []*Node { return []*Node{Mul(before, before)} })
				no := NewClosure(g, func(*Graph) []*Node { return []*Node{Neg(before)} })
				never := GreaterThan(ReduceAllSum(Abs(before)), Scalar(g, dtypes.Float32, 1e6)) // whatever the batch
				branch := If(never, yes, no)[0]
				cond := NewClosure(g, func(g *Graph) []*Node {
					n := Parameter(g, "n", shapes.Make(dtypes.Int32))
					Parameter(g, "y", x.Shape())
					return []*Node{LessThan(n, Const(g, int32(2)))}
				})
				body := NewClosure(g, func(g *Graph) []*Node {
					n, y := Parameter(g, "n", shapes.Make(dtypes.Int32)), Parameter(g, "y", x.Shape())
					return []*Node{Add(n, Const(g, int32(1))), Add(y, previous)}
				})
				loop := While(cond, body, Const(g, int32(0)), StopGradient(x))[1]
				x = Add(x, MulScalar(StopGradient(Tanh(Add(branch, loop))), 0.1))
			})
		}
		return []*Node{layers.Dense(scope.In("out"), x, true, 1)}
	}
}

// StagedCheckpoints computes every stage again in backward, from what it read.
func StagedCheckpoints(stages int) func(scope *model.Scope, inputs []*Node) []*Node {
	return func(scope *model.Scope, inputs []*Node) []*Node {
		x := inputs[0]
		for i := range stages {
			stage(x, i, func() {
				x = x.Checkpoint()
				x = Sin(hidden(scope, x, i, 12))
				x = IdentityWithCustomGradient(x, func(x, v *Node) *Node { return Mul(v, OnePlus(Abs(x))) })
				if i == stages-1 {
					x = x.StopCheckpoint()
				}
			})
		}
		return []*Node{layers.Dense(scope.In("out"), x, true, 1)}
	}
}

// Scalars has a weight per stage without axes, which the next stage reads, too.
func Scalars(stages int) func(scope *model.Scope, inputs []*Node) []*Node {
	return func(scope *model.Scope, inputs []*Node) []*Node {
		x := inputs[0]
		g := x.Graph()
		var before *Node
		for i := range stages {
			stage(x, i, func() {
				w := scope.In("scalar_%d", i).VariableWithValue("w", float32(0.5)).NodeValue(g)
				x = Mul(Tanh(hidden(scope, x, i, 8)), OnePlus(w))
				if before != nil {
					x = Sub(x, before)
				}
				before = Square(w) // the same for all instances, but computed by one stage and read by another
			})
		}
		return []*Node{layers.Dense(scope.In("out"), x, true, 1)}
	}
}

// OnlySent sends values between stages that their own backward does not need, and its stages get slower, so that such
// values wait.
func OnlySent(stages int) func(scope *model.Scope, inputs []*Node) []*Node {
	return func(scope *model.Scope, inputs []*Node) []*Node {
		x := inputs[0]
		for i := range stages {
			stage(x, i, func() {
				for j := range 1 + 2*i {
					x = Tanh(layers.Dense(scope.In("slow_%d_%d", i, j), x, true, 32))
				}
				x = layers.Dense(scope.In("stage_%d", i), x, true, 8)
			})
		}
		return []*Node{ReduceAndKeep(x, ReduceMean, -1)}
	}
}
