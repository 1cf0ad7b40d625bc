// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package equiv

import (
	"fmt"
	"testing"

	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/shapes"
	. "github.com/gomlx/gomlx/core/graph"
	"github.com/gomlx/gomlx/core/tensors"
	"github.com/gomlx/gomlx/ml/layers"
	"github.com/gomlx/gomlx/ml/model"
	"github.com/gomlx/gomlx/ml/model/initializer"
	"github.com/gomlx/gomlx/ml/train"
	"github.com/gomlx/gomlx/ml/train/optimizer"

	"github.com/easyparallel/epl"
)

// stateful has variables that are no weights: one that every stage moves by its data and the next stage reads, one that
// counts and all stages read, one that adds up the count and only the last stage reads, and, after the optimizer, slow
// copies of all weights and the norm of all of them.
func stateful() Staged {
	m := stagedMLP()
	m.Build = func(stages int) func(scope *model.Scope, inputs []*Node) []*Node {
		return func(scope *model.Scope, inputs []*Node) []*Node {
			x := inputs[0]
			g := x.Graph()
			count := scope.In("count").VariableWithValue("n", float32(0)).SetTrainable(false)
			now := count.NodeValue(g)
			count.SetNodeValue(OnePlus(now))
			first := scope.In("a").VariableWithValue("n", float32(0)).SetTrainable(false) // which only another variable reads
			sum := scope.In("sum").VariableWithValue("n", float32(0)).SetTrainable(false)
			total := sum.NodeValue(g)
			sum.SetNodeValue(Add(total, first.NodeValue(g)))
			first.SetNodeValue(AddScalar(first.NodeValue(g), 0.5))
			var before *Node
			for i := range stages {
				stage(x, i, func() {
					x = hidden(scope, x, i, 12)
					x = Mul(x, OnePlus(MulScalar(now, 0.01)))
					if before != nil {
						x = Add(x, before)
					}
					if i == stages-1 {
						x = Mul(x, OnePlus(MulScalar(total, 0.01)))
					}
					mean := scope.In("mean_%d", i).WithInitializer(initializer.Zero).VariableWithShape("m", shapes.Make(dtypes.Float32, 1, 12)).SetTrainable(false)
					before = mean.NodeValue(g)
					mean.SetNodeValue(Add(MulScalar(before, 0.9), MulScalar(ReduceAndKeep(StopGradient(x), ReduceMean, 0), 0.1)))
				})
			}
			train.AddPerStepUpdateGraphFn(scope, g, func(scope *model.Scope, g *Graph) {
				norm := Scalar(g, dtypes.Float32, 0)
				for i := range stages {
					w := scope.Store().GetVariable(fmt.Sprintf("/stage_%d/dense/weights", i))
					slow := scope.In("slow_%d", i).WithInitializer(initializer.Zero).VariableWithShape("w", w.Shape()).SetTrainable(false)
					slow.SetNodeValue(Add(MulScalar(slow.NodeValue(g), 0.5), MulScalar(w.NodeValue(g), 0.5)))
					norm = Add(norm, ReduceAllSum(Square(w.NodeValue(g))))
				}
				scope.In("norm").VariableWithValue("all", float32(0)).SetTrainable(false).SetNodeValue(Sqrt(norm))
			})
			return []*Node{layers.Dense(scope.In("out"), x, true, 1)}
		}
	}
	return m
}

func TestVariablesThatAreNoWeightsAdvanceOnceAStep(t *testing.T) {
	m := stateful()
	for _, p := range append(fewPlans(), pipelinePlan{stages: 3, replicas: 1, micro: 1, strategy: "PreferBackward"}) {
		t.Run(p.String(), func(t *testing.T) {
			t.Parallel()
			// The means over a batch are the means of those over its parts, so that one device is the measure.
			want := m.alone(t, p.stages, p.batches(), sgd(), 4)
			mustBeClose(t, want, m.piped(t, p.env(t, nil), p.stages, sgd(), 4))
			if p.batches() == 1 {
				if err := SameBits(want, m.piped(t, p.env(t, nil, epl.WithPasses("none")), p.stages, sgd(), 4)); err != nil {
					t.Error(err)
				}
			}
		})
	}
}

// Programs that train the same variables may be cut differently: variables move where they are needed.
func TestProgramsWithDifferentStagesTrainTheSameVariables(t *testing.T) {
	m := stagedMLP()
	cut := func(stages int) func(scope *model.Scope, inputs []*Node) []*Node { // four layers in so many stages
		return func(scope *model.Scope, inputs []*Node) []*Node {
			x := inputs[0]
			for s := range stages {
				stage(x, s, func() {
					for i := s * 4 / stages; i < (s+1)*4/stages; i++ {
						x = hidden(scope, x, i, 12)
					}
				})
			}
			return []*Node{layers.Dense(scope.In("out"), x, true, 1)}
		}
	}
	for _, strategy := range strategies[:4] {
		t.Run(strategy, func(t *testing.T) {
			t.Parallel()
			var runs [2]*Run
			env := newPipeline(t, 4, 2, map[string]any{"pipeline.strategy": strategy})
			for k := range runs {
				run, plain := &Run{Store: newStore()}, Plain()
				runs[k] = run
				next := 0
				for _, stages := range []int{4, 2, 1, 4, 2} {
					n := 4 / stages * 2 // batches of a step
					from := next
					at := func(step int) (in, labels []*tensors.Tensor) { return m.Batch(from + step) }
					backend, opt, ds := plain, sgd(), train.Dataset(Dataset{Joined(at, n)})
					if k == 1 {
						backend, opt, ds = env.Backend(), epl.Optimizer(opt), env.Dataset(Dataset{at})
					}
					loop := train.NewLoop(train.NewTrainer(backend, run.Store, cut(stages), m.Loss, opt, nil, nil))
					loop.OnStep("loss", 0, func(_ *train.Loop, metrics []*tensors.Tensor) error {
						run.Losses = append(run.Losses, tensors.ToScalar[float32](metrics[0]))
						return nil
					})
					if _, err := loop.RunSteps(ds, 2); err != nil {
						t.Fatalf("%d stages: %+v", stages, err)
					}
					next += 2 * n
				}
			}
			mustBeClose(t, runs[0], runs[1])
		})
	}
}

// GoMLX builds a program for every shape of a batch.
func TestBatchesOfAPipelineMayChangeTheirShapeFromStepToStep(t *testing.T) {
	m := stagedMLP()
	for _, p := range fewPlans() {
		t.Run(p.String(), func(t *testing.T) {
			t.Parallel()
			m, k := m, p.batches()
			m.Batch = func(step int) (in, labels []*tensors.Tensor) { return Regression(2+step/k%3, 8)(step) }
			mustBeClose(t, m.alone(t, p.stages, k, sgd(), 7), m.piped(t, p.env(t, nil), p.stages, sgd(), 7))
		})
	}
}

func TestVariablesOfAPipelineCanBeReadAndSetBetweenSteps(t *testing.T) {
	m := stagedModel(t, "tied")
	for _, p := range fewPlans() {
		t.Run(p.String(), func(t *testing.T) {
			t.Parallel()
			var runs [2]*Run
			var read [2][]float64
			for k, env := range []*epl.Env{nil, p.env(t, nil)} {
				backend, opt, data := Plain(), sgd(), train.Dataset(Dataset{Joined(m.Batch, p.batches())})
				if env != nil {
					backend, opt, data = env.Backend(), epl.Optimizer(opt), env.Dataset(Dataset{m.Batch})
				}
				run := &Run{Store: newStore()}
				runs[k] = run
				loop := train.NewLoop(train.NewTrainer(backend, run.Store, m.Build(p.stages), m.Loss, opt, nil, nil))
				loop.OnStep("read and set", 0, func(loop *train.Loop, metrics []*tensors.Tensor) error {
					run.Losses = append(run.Losses, tensors.ToScalar[float32](metrics[0]))
					for v := range run.Store.IterVariables() {
						if !v.Trainable {
							continue
						}
						x := numbers(v.MustValue())
						read[k] = append(read[k], x...)
						if loop.LoopStep == 1 {
							half := make([]float32, len(x))
							for i := range x {
								half[i] = float32(x[i] / 2)
							}
							if err := v.SetValue(tensors.FromFlatDataAndDimensions(half, v.Shape().Dimensions...)); err != nil {
								return err
							}
						}
					}
					return nil
				})
				if _, err := loop.RunSteps(data, 4); err != nil {
					t.Fatalf("%+v", err)
				}
			}
			mustBeClose(t, runs[0], runs[1])
			if d, n := distance(read[0], read[1]); d > 1e-5*n {
				t.Errorf("what was read differs by %g at a norm of %g", d, n)
			}
		})
	}
}

// Whatever a training step returns, it returns once per step: also what is no result of a computation.
func TestAPipelineReturnsVariablesConstantsInputsAndTheSameValueTwice(t *testing.T) {
	for _, p := range append(fewPlans(), pipelinePlan{stages: 2, replicas: 1, micro: 1, strategy: "ZeroBubble"}) {
		t.Run(p.String(), func(t *testing.T) {
			t.Parallel()
			var results [2][][]float64
			for k, env := range []*epl.Env{nil, p.env(t, nil)} {
				backend, ds := Plain(), train.Dataset(Dataset{Joined(Regression(4, 8), p.batches())})
				if env != nil {
					backend, ds = env.Backend(), env.Dataset(Dataset{Regression(4, 8)})
				}
				exec := model.MustNewExec(backend, newStore(), func(scope *model.Scope, x, y *Node) []*Node {
					g, input := x.Graph(), x
					var olds, aside []*Node
					for i := range p.stages {
						stage(x, i, func() {
							x = hidden(scope, x, i, 8)
							olds = append(olds, scope.Store().GetVariable(fmt.Sprintf("/stage_%d/dense/weights", i)).NodeValue(g))
							aside = append(aside, ReduceAllMean(Sin(x))) // which nobody differentiates
						})
					}
					last := layers.Dense(scope.In("out"), x, true, 1)
					loss := ReduceAllMean(Square(Sub(last, y)))
					epl.Optimizer(sgd()).UpdateGraph(scope, g, loss)
					epl.AddToCollection(epl.GlobalConcat, input, last, y)
					out := []*Node{loss, loss, Const(g, []float32{1, 2}), input, last, y, Square(Const(g, float32(3)))}
					for i := range p.stages {
						new := scope.Store().GetVariable(fmt.Sprintf("/stage_%d/dense/weights", i)).NodeValue(g)
						out = append(out, olds[i], new, Sub(new, olds[i]), aside[i], ReduceAllSum(new))
					}
					return append(out, ReduceAllMean(y))
				})
				n := 0
				for batch, err := range ds.Iter() {
					if err != nil {
						t.Fatal(err)
					}
					out, err := exec.Call(batch.Inputs[0], batch.Labels[0])
					if err != nil {
						t.Fatalf("%+v", err)
					}
					for _, x := range out {
						results[k] = append(results[k], numbers(x))
					}
					if n++; n == 3 {
						break
					}
				}
			}
			for i, want := range results[0] {
				got := results[1][i]
				if len(want) != len(got) {
					t.Fatalf("output %d has %d elements, not %d", i, len(got), len(want))
				}
				if d, n := distance(want, got); d > 1e-5*(n+1e-2) {
					t.Errorf("output %d differs by %g at a norm of %g", i, d, n)
				}
			}
		})
	}
}

// Models of other tests, with as many stages as they have scopes.
func TestModelsWithScopesRunAsPipelines(t *testing.T) {
	for name, stages := range map[string]int{"skip": 3, "own-gradient": 2, "custom-gradient": 4} {
		for _, m := range Models() {
			if m.Name != name {
				continue
			}
			for i, micro := range []int{1, 3, 5} {
				t.Run(fmt.Sprintf("%s/%d", name, micro), func(t *testing.T) {
					t.Parallel()
					single := m
					single.Batch = Joined(m.Batch, 2*micro)
					env := newPipeline(t, 2*stages, micro, map[string]any{"pipeline.strategy": strategies[i+1]})
					mustBeClose(t, train1(t, single, sgd(), 3, nil), trainParallel(t, env, m, sgd(), 3))
				})
			}
		}
	}
}

// inType computes everything in one type, weights and gradients included.
func inType(dtype dtypes.DType) Staged {
	m := stagedMLP()
	m.Build = func(stages int) func(scope *model.Scope, inputs []*Node) []*Node {
		return func(scope *model.Scope, inputs []*Node) []*Node {
			x := ConvertDType(inputs[0], dtype)
			for i := range stages {
				stage(x, i, func() { x = hidden(scope, x, i, 12) })
			}
			return []*Node{ConvertDType(layers.Dense(scope.In("out"), x, true, 1), dtypes.Float32)}
		}
	}
	return m
}

func TestAPipelineInFloat64AgreesToItsPrecision(t *testing.T) {
	for _, p := range fewPlans() {
		t.Run(p.String(), func(t *testing.T) {
			t.Parallel()
			m := inType(dtypes.Float64)
			want := m.alone(t, p.stages, p.batches(), optimizer.StochasticGradientDescent().WithDecay(false), 3)
			mustBeClose(t, want, m.piped(t, p.env(t, nil), p.stages, sgd(), 3))
		})
	}
}

func TestLongPipelinesWithManyMicroBatches(t *testing.T) {
	m := stagedMLP()
	for _, strategy := range strategies {
		t.Run(strategy, func(t *testing.T) {
			t.Parallel()
			p := pipelinePlan{stages: 12, replicas: 1, micro: 17, strategy: strategy}
			if strategy == "Interleaved" {
				p.perDevice = 3
			}
			mustBeClose(t, m.alone(t, p.stages, p.batches(), sgd(), 2), m.piped(t, p.env(t, nil), p.stages, sgd(), 2))
		})
	}
}
