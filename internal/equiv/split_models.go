// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package equiv

import (
	"fmt"
	"math/rand"
	"reflect"

	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/shapes"
	. "github.com/gomlx/gomlx/core/graph" //nolint:all // the way GoMLX models are written
	"github.com/gomlx/gomlx/core/tensors"
	"github.com/gomlx/gomlx/ml/layers"
	"github.com/gomlx/gomlx/ml/layers/activation"
	"github.com/gomlx/gomlx/ml/layers/attention"
	"github.com/gomlx/gomlx/ml/layers/norm"
	"github.com/gomlx/gomlx/ml/model"
	"github.com/gomlx/gomlx/ml/train"
	"github.com/gomlx/gomlx/ml/train/loss"
	"github.com/gomlx/gomlx/ml/zoo/transformer"

	"github.com/easyparallel/epl"
)

// Parted is a model whose TaskGraphs get the strategies that the test wants.
type Parted struct {
	Name string
	// Least and Most are how many TaskGraphs it can have.
	Least, Most int
	// Colocated: its TaskGraphs wait for each other, so that they must share their devices.
	Colocated bool
	// PerInstance: a step on one large batch is not the mean of steps on its parts.
	PerInstance bool
	Build       func(s Strategies) func(scope *model.Scope, inputs []*Node) []*Node
	Loss        train.LossFn // nil: the model adds its own
	Batch       func(step int) (inputs, labels []*tensors.Tensor)
}

// Strategies are those of the TaskGraphs of a model, in order.
type Strategies []epl.Strategy

// part runs the body as the i-th TaskGraph. The zero strategy is no annotation.
func (s Strategies) part(at *Node, i int, body func()) {
	if reflect.ValueOf(s[i]).IsZero() {
		body()
	} else {
		epl.With(at, s[i], body)
	}
}

// last tells whether the i-th TaskGraph is the last one.
func (s Strategies) last(i int) bool { return i == len(s)-1 }

// PartedModels each have something that goes wrong easily when the ops of a TaskGraph are sharded. Hardly a size of theirs
// divides by a number of devices.
func PartedModels() []Parted {
	entropy, squares := loss.SparseCategoricalCrossEntropyLogits, loss.MeanSquaredError
	regression := Regression(10, 8)
	return []Parted{
		{Name: "mlp", Least: 1, Most: 4, Build: PartedMLP, Loss: squares, Batch: regression},
		{Name: "classifier", Least: 1, Most: 3, Build: Classifier(19), Loss: entropy, Batch: Classes(10, 8, 19)},
		{Name: "convolution", Least: 1, Most: 3, Build: Convolutions(false), Loss: entropy, Batch: Images(9, 11)},
		{Name: "batch-norm", Least: 1, Most: 3, PerInstance: true, Build: Convolutions(true), Loss: entropy, Batch: Images(9, 11)},
		{Name: "transformer", Least: 1, Most: 3, Build: PartedTransformer(false, 0), Loss: entropy, Batch: Tokens(8, 5, 19)},
		{Name: "tied", Least: 1, Most: 3, Build: PartedTransformer(true, 0), Loss: entropy, Batch: Tokens(8, 5, 19)},
		{Name: "dropout", Least: 1, Most: 3, PerInstance: true, Build: PartedTransformer(true, 0.3), Loss: entropy, Batch: Tokens(8, 5, 19)},
		{Name: "zoo", Least: 1, Most: 1, Build: ZooTransformer, Loss: entropy, Batch: Tokens(8, 6, 19)},
		{Name: "experts", Least: 2, Most: 2, Colocated: true, Build: Experts(true, 14), Loss: entropy, Batch: rowsOfClasses(9, 7, 6, 10)},
		{Name: "experts-outside", Least: 2, Most: 2, Colocated: true, Build: Experts(false, 14), Loss: entropy, Batch: rowsOfClasses(9, 7, 6, 10)},
		{Name: "embeddings", Least: 1, Most: 3, Build: PartedEmbeddings, Loss: entropy, Batch: Tokens(8, 3, 17)},
		{Name: "own-gradients", Least: 1, Most: 3, Build: OwnGradients, Loss: squares, Batch: regression},
		{Name: "closures", Least: 1, Most: 3, Build: PartedClosures, Loss: squares, Batch: regression},
		{Name: "types", Least: 1, Most: 3, Build: PartedTypes, Loss: squares, Batch: regression},
		{Name: "shared", Least: 1, Most: 3, Build: SharedWeights, Loss: squares, Batch: regression},
		{Name: "losses", Least: 1, Most: 3, Build: ManyLosses, Batch: maskedRegression(8)},
		{Name: "states", Least: 1, Most: 3, Build: States, Loss: squares, Batch: regression},
		{Name: "branches", Least: 2, Most: 3, Build: PartedBranches, Loss: squares, Batch: regression},
		{Name: "frozen", Least: 1, Most: 3, Build: Frozen, Loss: squares, Batch: regression},
	}
}

// PartedMLP has two dense layers in each TaskGraph, and normalises between them.
func PartedMLP(s Strategies) func(scope *model.Scope, inputs []*Node) []*Node {
	return func(scope *model.Scope, inputs []*Node) []*Node {
		x := inputs[0]
		for i := range s {
			s.part(x, i, func() {
				scope := scope.In("part_%d", i)
				h := activation.Gelu(layers.Dense(scope.In("up"), x, true, 13))
				h = norm.LayerNorm(scope, h, -1).Done()
				if h = layers.Dense(scope.In("down"), h, true, 8); i > 0 {
					h = Add(x, h)
				}
				if x = h; s.last(i) {
					x = layers.Dense(scope.In("out"), x, true, 1)
				}
			})
		}
		return []*Node{x}
	}
}

// Classifier has a trunk, and its classes in the last TaskGraph.
func Classifier(classes int) func(s Strategies) func(scope *model.Scope, inputs []*Node) []*Node {
	return func(s Strategies) func(scope *model.Scope, inputs []*Node) []*Node {
		return func(scope *model.Scope, inputs []*Node) []*Node {
			x := inputs[0]
			for i := range s {
				s.part(x, i, func() {
					if x = activation.Gelu(layers.Dense(scope.In("trunk_%d", i), x, true, 22)); s.last(i) {
						x = layers.Dense(scope.In("head"), x, true, classes)
					}
				})
			}
			return []*Node{x}
		}
	}
}

// Convolutions looks at images, and has its classes in the last TaskGraph.
func Convolutions(batchNorm bool) func(s Strategies) func(scope *model.Scope, inputs []*Node) []*Node {
	return func(s Strategies) func(scope *model.Scope, inputs []*Node) []*Node {
		return func(scope *model.Scope, inputs []*Node) []*Node {
			x := inputs[0]
			for i := range s {
				s.part(x, i, func() {
					scope := scope.In("part_%d", i)
					x = Tanh(layers.Convolution(scope, x).Channels(5 + i).KernelSize(3).PadSame().Done())
					if batchNorm {
						x = norm.BatchNorm(scope, x, -1).UseBackendInference(false).Done()
					}
					if i == 0 {
						x = MaxPool(x).Window(2).Done()
					}
					if s.last(i) {
						x = layers.Convolution(scope.In("strided"), x).Channels(6).KernelSize(2).Strides(2).PadSame().Done()
						x = Reshape(MeanPool(Tanh(x)).Window(2).Done(), x.Shape().Dimensions[0], -1)
						x = layers.Dense(scope.In("head"), x, true, 11)
					}
				})
			}
			return []*Node{x}
		}
	}
}

// Images makes images of 8 by 8 pixels, with a class each.
func Images(batch, classes int) func(step int) (inputs, labels []*tensors.Tensor) {
	return func(step int) (inputs, labels []*tensors.Tensor) {
		in, labels := Classes(batch, 8*8*3, classes)(step)
		return []*tensors.Tensor{tensors.FromFlatDataAndDimensions(tensors.MustCopyFlatData[float32](in[0]), batch, 8, 8, 3)}, labels
	}
}

// PartedTransformer has a layer in each TaskGraph. Tied: the table of the embedding in the first is that of the logits in
// the last.
func PartedTransformer(tied bool, dropout float64) func(s Strategies) func(scope *model.Scope, inputs []*Node) []*Node {
	const vocabulary, width, heads, headDim = 19, 10, 5, 2
	return func(s Strategies) func(scope *model.Scope, inputs []*Node) []*Node {
		return func(scope *model.Scope, inputs []*Node) []*Node {
			ids := inputs[0]
			g := ids.Graph()
			table := scope.In("embedding").VariableWithShape("table", shapes.Make(dtypes.Float32, vocabulary, width))
			var x *Node
			for i := range s {
				s.part(ids, i, func() {
					scope := scope.In("part_%d", i)
					if i == 0 {
						x = Gather(table.NodeValue(g), InsertAxes(ids, -1))
					}
					h := norm.LayerNorm(scope.In("norm_1"), x, -1).Done()
					x = Add(x, attention.SelfAttention(scope.In("attention"), h, heads, headDim).WithCausalMask(true).Done())
					h = norm.LayerNorm(scope.In("norm_2"), x, -1).Done()
					h = activation.Gelu(layers.Dense(scope.In("up"), h, true, 3*width+1))
					if dropout > 0 {
						h = layers.DropoutStatic(scope, h, dropout)
					}
					x = Add(x, layers.Dense(scope.In("down"), h, true, width))
					if s.last(i) {
						x = norm.LayerNorm(scope.In("last"), x, -1).Done()
						if tied {
							x = Einsum("bsd,vd->bsv", x, table.NodeValue(g))
						} else {
							x = layers.Dense(scope.In("out"), x, true, vocabulary)
						}
					}
				})
			}
			return []*Node{x}
		}
	}
}

// ZooTransformer is GoMLX's language model as a whole.
func ZooTransformer(s Strategies) func(scope *model.Scope, inputs []*Node) []*Node {
	return func(scope *model.Scope, inputs []*Node) []*Node {
		x := inputs[0]
		s.part(x, 0, func() {
			x = transformer.New(scope).WithVocabSize(19).WithEmbedDim(12).WithNumLayers(2).WithNumHeads(3).WithHeadDim(4).
				WithMaxPosEmbed(16).WithCausalMask(true).Logits(x, transformer.CallOptions{})
		})
		return []*Node{x}
	}
}

// Experts is a mixture of experts: a gate sends each row of a sample to one of them, as many as it has room for. The first
// strategy is the default one, the second that of the experts: under it are their variables, and the calculation or not.
func Experts(calculate bool, hidden int) func(s Strategies) func(scope *model.Scope, inputs []*Node) []*Node {
	const experts, capacity, width = 9, 3, 6
	return func(s Strategies) func(scope *model.Scope, inputs []*Node) []*Node {
		return func(scope *model.Scope, inputs []*Node) []*Node {
			x := inputs[0]
			g := x.Graph()
			if !reflect.ValueOf(s[0]).IsZero() {
				epl.SetDefaultStrategy(x, s[0])
			}
			x = layers.Dense(scope.In("in"), x, true, width)
			gate := scope.In("gate").VariableWithShape("w", shapes.Make(dtypes.Float32, width, experts)).NodeValue(g)
			dispatch, combine := Route(x, gate, capacity)
			var up, down, y *Node
			work := func() {
				y = Einsum("gsec,gsd->egcd", StopGradient(dispatch), x)
				y = Einsum("egcf,efd->egcd", activation.Relu(Einsum("egcd,edf->egcf", y, up)), down)
			}
			s.part(x, 1, func() {
				up = scope.In("up").VariableWithShape("w", shapes.Make(dtypes.Float32, experts, width, hidden)).NodeValue(g)
				down = scope.In("down").VariableWithShape("w", shapes.Make(dtypes.Float32, experts, hidden, width)).NodeValue(g)
				if calculate {
					work()
				}
			})
			if !calculate {
				work()
			}
			return []*Node{layers.Dense(scope.In("out"), Add(x, Einsum("gsec,egcd->gsd", combine, y)), true, 10)}
		}
	}
}

// rowsOfClasses makes samples of several rows of features, with a class each.
func rowsOfClasses(batch, rows, dim, classes int) func(step int) (inputs, labels []*tensors.Tensor) {
	return func(step int) (inputs, labels []*tensors.Tensor) {
		in, labels := Classes(batch*rows, dim, classes)(step)
		return []*tensors.Tensor{tensors.FromFlatDataAndDimensions(tensors.MustCopyFlatData[float32](in[0]), batch, rows, dim)},
			[]*tensors.Tensor{tensors.FromFlatDataAndDimensions(tensors.MustCopyFlatData[int32](labels[0]), batch, rows, 1)}
	}
}

// PartedEmbeddings looks the same words up in a table for each TaskGraph, and adds what is learned of positions.
func PartedEmbeddings(s Strategies) func(scope *model.Scope, inputs []*Node) []*Node {
	return func(scope *model.Scope, inputs []*Node) []*Node {
		ids := inputs[0]
		var x *Node
		for i := range s {
			s.part(ids, i, func() {
				scope := scope.In("part_%d", i)
				e := layers.Embedding(scope, ids, dtypes.Float32, 17, 9, false)
				position := scope.In("position").VariableWithValue("w", []float32{0.1, 0.2, 0.3}).NodeValue(ids)
				e = Add(e, ExpandAndBroadcast(position, e.Shape().Dimensions, []int{0, 2}))
				if x == nil {
					x = e
				} else {
					x = Tanh(Add(layers.Dense(scope, x, true, 9), e))
				}
				if s.last(i) {
					x = layers.Dense(scope.In("out"), x, true, 17)
				}
			})
		}
		return []*Node{x}
	}
}

// OwnGradients has gradients inside the model, gradients that the user wrote, and computes again in backward.
func OwnGradients(s Strategies) func(scope *model.Scope, inputs []*Node) []*Node {
	return func(scope *model.Scope, inputs []*Node) []*Node {
		x := inputs[0]
		for i := range s {
			s.part(x, i, func() {
				scope := scope.In("part_%d", i)
				x = layers.Dense(scope, x, true, 11)
				x = Add(Tanh(x), MulScalar(Gradient(ReduceAllSum(Square(Tanh(x))), x)[0], 0.1)).Checkpoint()
				x = IdentityWithCustomGradient(x, func(x, v *Node) *Node { return MulScalar(v, 2) })
				x = IdentityWithCustomGradient(x, func(x, v *Node) *Node { return Mul(v, OnePlus(Abs(x))) })
				if x = layers.Dense(scope.In("next"), Sin(x), true, 8).StopCheckpoint(); s.last(i) {
					x = layers.Dense(scope.In("out"), x, true, 1)
				}
			})
		}
		return []*Node{x}
	}
}

// PartedClosures has a branch and a loop in each TaskGraph, which take sharded values from outside.
func PartedClosures(s Strategies) func(scope *model.Scope, inputs []*Node) []*Node {
	return func(scope *model.Scope, inputs []*Node) []*Node {
		x := inputs[0]
		g := x.Graph()
		for i := range s {
			s.part(x, i, func() {
				scope := scope.In("part_%d", i)
				before := Tanh(layers.Dense(scope.In("before"), x, true, 9))
				x = Tanh(layers.Dense(scope, x, true, 9))
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
					return []*Node{Add(n, Const(g, int32(1))), Add(y, before)}
				})
				loop := While(cond, body, Const(g, int32(0)), StopGradient(x))[1]
				if x = Add(x, MulScalar(StopGradient(Tanh(Add(branch, loop))), 0.1)); s.last(i) {
					x = layers.Dense(scope.In("out"), x, true, 1)
				}
			})
		}
		return []*Node{x}
	}
}

// PartedTypes has booleans, integers of several sizes and float64, from one TaskGraph to the next, and looks up rows of
// integers.
func PartedTypes(s Strategies) func(scope *model.Scope, inputs []*Node) []*Node {
	return func(scope *model.Scope, inputs []*Node) []*Node {
		x := inputs[0]
		g := x.Graph()
		var positive, count, small, best, precise *Node
		for i := range s {
			s.part(x, i, func() {
				scope := scope.In("part_%d", i)
				x = Tanh(layers.Dense(scope, x, true, 9))
				if positive == nil {
					positive = GreaterThan(x, ScalarZero(g, dtypes.Float32))
					count = ReduceAndKeep(ConvertDType(positive, dtypes.Int64), ReduceSum, -1)
					small = ConvertDType(positive, dtypes.Int8)
					best = ArgMax(x, -1, dtypes.Int32)
					precise = ConvertDType(x, dtypes.Float64)
				}
				x = Where(positive, x, MulScalar(x, 0.5))
				x = Add(x, MulScalar(ConvertDType(count, dtypes.Float32), 0.01))
				x = Add(x, ConvertDType(Mul(precise, ConvertDType(small, dtypes.Float64)), dtypes.Float32))
				numbers := scope.In("numbers").VariableWithValue("n", []int32{3, 1, 4, 1, 5, 9, 2, 6, 5}).SetTrainable(false).NodeValue(g)
				x = Add(x, MulScalar(InsertAxes(ConvertDType(Gather(numbers, InsertAxes(best, -1)), dtypes.Float32), -1), 0.01))
				x = Add(x, MulScalar(OneHot(best, 9, dtypes.Float32), 0.1))
				if s.last(i) {
					x = layers.Dense(scope.In("out"), x, true, 1)
				}
			})
		}
		return []*Node{x}
	}
}

// SharedWeights uses the same weights in every TaskGraph and outside, has scalar weights that the next one reads, too, and a
// value of the first one in every other.
func SharedWeights(s Strategies) func(scope *model.Scope, inputs []*Node) []*Node {
	return func(scope *model.Scope, inputs []*Node) []*Node {
		x := inputs[0]
		g := x.Graph()
		w := scope.VariableWithShape("shared", shapes.Make(dtypes.Float32, 8, 8))
		b := scope.VariableWithValue("bias", make([]float32, 8))
		var first, before *Node
		for i := range s {
			s.part(x, i, func() {
				scale := scope.In("scale_%d", i).VariableWithValue("w", float32(0.5)).NodeValue(g)
				x = Mul(Tanh(Add(Dot(x, w.NodeValue(g)).Product(), InsertAxes(b.NodeValue(g), 0))), OnePlus(scale))
				if first == nil {
					first = Sin(layers.Dense(scope.In("first"), x, true, 8))
				} else {
					x = Sub(Add(x, Mul(first, x)), before)
				}
				before = Square(scale)
			})
		}
		return []*Node{ReduceAndKeep(Dot(x, w.NodeValue(g)).Product(), ReduceMean, -1)}
	}
}

// PartedBranches has TaskGraphs that read the input only, and a last one that joins them.
func PartedBranches(s Strategies) func(scope *model.Scope, inputs []*Node) []*Node {
	return func(scope *model.Scope, inputs []*Node) []*Node {
		x := inputs[0]
		var branches []*Node
		for i := range s {
			s.part(x, i, func() {
				if branches = append(branches, Tanh(layers.Dense(scope.In("part_%d", i), x, true, 7+i))); s.last(i) {
					x = layers.Dense(scope.In("out"), Concatenate(branches, -1), true, 1)
				}
			})
		}
		return []*Node{x}
	}
}

// Frozen has weights that are not trained in every TaskGraph, and others in the last only.
func Frozen(s Strategies) func(scope *model.Scope, inputs []*Node) []*Node {
	return func(scope *model.Scope, inputs []*Node) []*Node {
		x := inputs[0]
		for i := range s {
			s.part(x, i, func() {
				w := scope.In("frozen_%d", i).VariableWithShape("w", shapes.Make(dtypes.Float32, 8, 8)).SetTrainable(false)
				if x = Tanh(Dot(Sin(x), w.NodeValue(x)).Product()); s.last(i) {
					x = layers.Dense(scope.In("out"), Tanh(layers.Dense(scope.In("trained"), x, true, 9)), true, 1)
				}
			})
		}
		return []*Node{x}
	}
}

// maskedRegression gives features, a mask over hidden ones, and labels, all as inputs.
func maskedRegression(batch int) func(step int) (inputs, labels []*tensors.Tensor) {
	return func(step int) (inputs, labels []*tensors.Tensor) {
		in, out := Regression(batch, 8)(step)
		r := rand.New(rand.NewSource(int64(step)))
		mask := make([]float32, batch*13)
		for i := range mask {
			mask[i] = float32(r.Intn(2))
		}
		return []*tensors.Tensor{in[0], tensors.FromFlatDataAndDimensions(mask, batch, 13), out[0]}, nil
	}
}

// ManyLosses has a loss in every TaskGraph, on labels and on weights, one on the weights outside, a mask, and variables that
// nobody needs.
func ManyLosses(s Strategies) func(scope *model.Scope, inputs []*Node) []*Node {
	return func(scope *model.Scope, inputs []*Node) []*Node {
		x, mask, labels := inputs[0], inputs[1], inputs[2]
		g := x.Graph()
		weights := func(i int) *Node {
			return scope.Store().GetVariable(fmt.Sprintf("/part_%d/dense/weights", i)).NodeValue(g)
		}
		for i := range s {
			s.part(x, i, func() {
				scope := scope.In("part_%d", i)
				x = Mul(Tanh(layers.Dense(scope, x, true, 13)), mask)
				y := layers.Dense(scope.In("aside"), x, true, 1)
				train.AddMainLoss(ReduceAllMean(Square(Sub(y, labels))))
				train.AddRegularizationLoss(MulScalar(ReduceAllMean(Square(weights(i))), 0.1))
				scope.VariableWithValue("unread", []float32{1, 2, 3})
				unused := scope.VariableWithValue("unused", []float32{1, 2, 3}).NodeValue(g)
				_ = Mul(unused, unused)
			})
		}
		for i := range s {
			train.AddRegularizationLoss(MulScalar(Sqrt(ReduceAllSum(Square(weights(i)))), 0.01))
		}
		return []*Node{x}
	}
}

// States has variables that are no weights: means over data of sharded features, a count, and slow copies of the weights
// with their norm, made after the optimizer.
func States(s Strategies) func(scope *model.Scope, inputs []*Node) []*Node {
	return func(scope *model.Scope, inputs []*Node) []*Node {
		x := inputs[0]
		g := x.Graph()
		count := scope.In("count").VariableWithValue("n", float32(0)).SetTrainable(false)
		now := count.NodeValue(g)
		count.SetNodeValue(OnePlus(now))
		for i := range s {
			s.part(x, i, func() {
				scope := scope.In("part_%d", i)
				x = Tanh(layers.Dense(scope, x, true, 13))
				x = Mul(x, OnePlus(MulScalar(now, 0.01)))
				mean := scope.In("mean").VariableWithValue("m", make([]float32, 13)).SetTrainable(false)
				before := mean.NodeValue(g)
				mean.SetNodeValue(Add(MulScalar(before, 0.9), MulScalar(ReduceMean(StopGradient(x), 0), 0.1)))
				if x = Sub(x, InsertAxes(before, 0)); s.last(i) {
					x = layers.Dense(scope.In("out"), x, true, 1)
				}
			})
		}
		train.AddPerStepUpdateGraphFn(scope, g, func(scope *model.Scope, g *Graph) {
			sum := Scalar(g, dtypes.Float32, 0)
			for i := range s {
				w := scope.Store().GetVariable(fmt.Sprintf("/part_%d/dense/weights", i))
				slow := scope.In("slow_%d", i).VariableWithShape("w", w.Shape()).SetTrainable(false)
				slow.SetNodeValue(Add(MulScalar(slow.NodeValue(g), 0.5), MulScalar(w.NodeValue(g), 0.5)))
				sum = Add(sum, ReduceAllSum(Square(w.NodeValue(g))))
			}
			scope.In("norm").VariableWithValue("all", float32(0)).SetTrainable(false).SetNodeValue(Sqrt(sum))
		})
		return []*Node{x}
	}
}
