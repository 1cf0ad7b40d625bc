// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package equiv

import (
	"fmt"
	"math"
	"math/rand"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/shapes"
	. "github.com/gomlx/gomlx/core/graph"
	"github.com/gomlx/gomlx/core/tensors"
	"github.com/gomlx/gomlx/ml/layers"
	"github.com/gomlx/gomlx/ml/model"
	"github.com/gomlx/gomlx/ml/model/checkpoint"
	"github.com/gomlx/gomlx/ml/model/initializer"
	"github.com/gomlx/gomlx/ml/train"
	"github.com/gomlx/gomlx/ml/train/optimizer"

	"github.com/easyparallel/epl"
)

// zeroLevels are those of zero.level.
var zeroLevels = []map[string]any{{"zero.level": "v0"}, {"zero.level": "v1"}, {"zero.level": "v2"}}

func adam() optimizer.Interface { return optimizer.Adam().LearningRate(1e-3).Done() }

// someLevels are the levels for the i-th test: one of them, or all if the flag for long runs says so.
func someLevels(i int) []map[string]any {
	if *seedCount > 120 {
		return zeroLevels
	}
	return zeroLevels[i%3 : i%3+1]
}

// velocity keeps one for every variable, element by element.
type velocity struct{}

func (velocity) UpdateGraphWithGradients(scope *model.Scope, gradients []*Node, lossDType dtypes.DType) {
	eachTrained(scope, gradients, lossDType, func(v *model.Variable, slot func(name string) *model.Variable, gradient *Node) {
		g := gradient.Graph()
		state := slot("velocity")
		next := Add(MulScalar(state.NodeValue(g), 0.9), gradient)
		state.SetNodeValue(next)
		v.SetNodeValue(Sub(v.NodeValue(g), MulScalar(next, 0.01)))
	})
}

// rowwise takes means over the rows of what it keeps for a variable, which it needs all of for that.
type rowwise struct{}

func (rowwise) UpdateGraphWithGradients(scope *model.Scope, gradients []*Node, lossDType dtypes.DType) {
	eachTrained(scope, gradients, lossDType, func(v *model.Variable, slot func(name string) *model.Variable, gradient *Node) {
		g := gradient.Graph()
		state := slot("rows")
		before := state.NodeValue(g)
		next := Add(MulScalar(before, 0.9), gradient)
		state.SetNodeValue(next)
		if v.Shape().Rank() > 1 {
			next = Sub(next, MulScalar(ReduceAndKeep(before, ReduceMean, -1), 0.5))
			next = Sub(next, MulScalar(ReduceAndKeep(gradient, ReduceMax, 0), 0.1))
		}
		v.SetNodeValue(Sub(v.NodeValue(g), MulScalar(next, 0.01)))
	})
}

func (o velocity) UpdateGraph(scope *model.Scope, g *Graph, loss *Node) {
	o.UpdateGraphWithGradients(scope, scope.BuildTrainableVariablesGradientsGraph(loss), loss.DType())
}

func (o rowwise) UpdateGraph(scope *model.Scope, g *Graph, loss *Node) {
	o.UpdateGraphWithGradients(scope, scope.BuildTrainableVariablesGradientsGraph(loss), loss.DType())
}

func (velocity) Clear(*model.Scope) error { return nil }
func (rowwise) Clear(*model.Scope) error  { return nil }

// eachTrained calls update for every variable with its gradient; slot makes variables of its shape.
func eachTrained(scope *model.Scope, gradients []*Node, lossDType dtypes.DType, update func(v *model.Variable, slot func(name string) *model.Variable, gradient *Node)) {
	g := gradients[0].Graph()
	optimizer.IncrementGlobalStep(g, lossDType)
	i := 0
	for v := range scope.IterVariables() {
		if !v.Trainable || !v.InUseByGraph(g) {
			continue
		}
		update(v, func(name string) *model.Variable {
			return scope.Store().Scope("/slots"+v.Scope()+"/"+name).WithInitializer(initializer.Zero).
				VariableWithShape(v.Name(), v.Shape()).SetTrainable(false)
		}, gradients[i])
		i++
	}
}

func TestZeroGivesTheWeightsOfPlainDataParallelism(t *testing.T) {
	models := StagedModels()
	for _, m := range Models() {
		models = append(models, staged(m))
	}
	for i, m := range models {
		w := replicated(m, 2+i%3, 1+i/3%3)
		levels := zeroLevels
		if *seedCount <= 120 && i%3 > 0 {
			levels = zeroLevels[2:] // it has what the others have
		}
		t.Run(w.name, func(t *testing.T) {
			t.Parallel()
			w.changesNothing(t, plainSGD, levels...)
		})
	}
}

func TestZeroChangesNothingForPipelinesWithReplicas(t *testing.T) {
	for i, m := range append([]Staged{stagedMLP()}, StagedModels()...) {
		p := pipelinePlan{stages: 2 + i%3, replicas: 2 + i/5%2, micro: 1 + i%4, strategy: strategies[i%5]}
		if p.strategy == "Interleaved" {
			p.stages, p.perDevice = 4, 2
			if m.Name == "reordered" {
				p.strategy, p.perDevice = "", 0
			}
		}
		w := inStages(m, p)
		t.Run(w.name, func(t *testing.T) {
			t.Parallel()
			w.changesNothing(t, plainSGD, someLevels(i+i/3)...)
		})
	}
}

func TestZeroChangesNothingForTaskGraphsOfSeveralDevicesWithReplicas(t *testing.T) {
	var all []workload
	for i, m := range PartedModels() {
		p := randomSplit(rand.New(rand.NewSource(int64(i))), m)
		p.replicas = 2
		if *seedCount > 120 || i%2 == 0 {
			all = append(all, inParts(m, p))
		}
		if *seedCount > 120 || i%2 > 0 {
			all = append(all, inParts(m, m.whole(2+i/2%2, 2+i/4%2, 1+i%3)))
		}
	}
	for i, p := range []splitPlan{
		{parts: []int{-2}}, {parts: []int{-2, -2}}, {parts: []int{-2, -1}}, {parts: []int{-3, 1, -2}},
		{parts: []int{-2, -2}, colocate: true}, {parts: []int{-2, 2}, colocate: true},
	} {
		p.replicas, p.micro = 2, 1+i%2
		all = append(all, inParts(partedModel([]string{"mlp", "tied", "shared"}[i%3]), p))
	}
	for i, w := range all {
		t.Run(w.name, func(t *testing.T) {
			t.Parallel()
			w.changesNothing(t, plainSGD, someLevels(2-i%2)...)
		})
	}
}

// A weight that a stage reads lives with another one.
func TestZeroLeavesWholeWeightsThatSeveralStagesRead(t *testing.T) {
	for i, c := range []struct{ model, path string }{
		{"tied", "/embedding/table"}, {"regularised", "/stage_0/dense/weights"}, {"shared-by-all", "/shared"},
	} {
		w := inStages(stagedModel(t, c.model), pipelinePlan{stages: 2 + i%2, replicas: 2, micro: 1 + i, strategy: strategies[i]})
		t.Run(w.name, func(t *testing.T) {
			t.Parallel()
			env := w.make(t, zeroLevels[2])
			mustBeClose(t, w.run(t, nil, velocity{}, 3), w.on(t, env, Dataset{w.model.Batch}, velocity{}, 3))
			if text, want := explained(t, env), fmt.Sprintf("%q stays whole on every model replica", c.path); !strings.Contains(text, want) {
				t.Errorf("Explain does not say that %s:\n%s", want, text)
			}
		})
	}
}

// reading has functions that take weights, and what is computed from them alone, from outside, and as inputs, too.
func reading(scope *model.Scope, x *Node) *Node {
	g := x.Graph()
	epl.With(x, epl.Replicate(1, "reading"), func() {
		w := scope.In("w").VariableWithShape("w", shapes.Make(dtypes.Float32, 8, 8)).NodeValue(g)
		v := scope.In("v").VariableWithShape("v", shapes.Make(dtypes.Float32, 8, 8)).NodeValue(g)
		half := MulScalar(v, 0.5)
		large := GreaterThan(ReduceAllSum(Abs(half)), Scalar(g, dtypes.Float32, 1))
		branch := If(large, NewClosure(g, func(*Graph) []*Node { return []*Node{Tanh(half)} }), NewClosure(g, func(*Graph) []*Node { return []*Node{half} }))[0]
		cond := NewClosure(g, func(g *Graph) []*Node {
			n := Parameter(g, "n", shapes.Make(dtypes.Int32))
			Parameter(g, "y", w.Shape())
			return []*Node{LessThan(n, Const(g, int32(2)))}
		})
		body := NewClosure(g, func(g *Graph) []*Node {
			n, y := Parameter(g, "n", shapes.Make(dtypes.Int32)), Parameter(g, "y", w.Shape())
			return []*Node{OnePlus(n), Add(y, w)}
		})
		loop := While(cond, body, Const(g, int32(0)), w)[1]
		x = Tanh(Dot(x, Add(w, MulScalar(StopGradient(loop), 0.1))).Product())
		x = Tanh(Dot(x, Add(v, MulScalar(StopGradient(branch), 0.1))).Product())
	})
	return layers.Dense(scope.In("out"), x, true, 1)
}

func TestZeroLeavesWholeWhatFunctionsRead(t *testing.T) {
	w := replicated(staged(Model{"reading", reading, Models()[0].Loss, Regression(4, 8)}), 2, 2)
	env := w.make(t, zeroLevels[2])
	mustBeClose(t, w.run(t, nil, sgd(), 3), w.on(t, env, Dataset{w.model.Batch}, sgd(), 3))
	for _, path := range []string{"/w/w", "/v/v"} {
		if text, want := explained(t, env), fmt.Sprintf("%q stays whole on every model replica", path); !strings.Contains(text, want) {
			t.Errorf("Explain does not say that %s:\n%s", want, text)
		}
	}
}

// Devices of a model replica that add up gradients and exchange values meet in the same order. The program was found among
// the random ones.
func TestZeroLetsDevicesOfASplitMeetInOneOrder(t *testing.T) {
	for _, parts := range [][]int{{2}, {2, 2}, {3, -3}} {
		m, _ := randomParts(305)
		w := inParts(m, splitPlan{parts: parts, colocate: true, replicas: 2, micro: 1})
		t.Run(w.name, func(t *testing.T) {
			w.changesNothing(t, rule{make: sgd, params: map[string]any{"communication.timeout": "5s"}}, zeroLevels[1:]...)
		})
	}
}

// Such devices wait for the parts of gradients, each with its like; the account goes on to the end of the step.
func TestTheAccountUnderZeroForetellsWhatDevicesOfASplitNeed(t *testing.T) {
	m, _ := randomParts(305)
	w := inParts(m, splitPlan{parts: []int{2}, replicas: 2, micro: 1})
	for _, level := range zeroLevels {
		t.Run(fmt.Sprint(level), func(t *testing.T) {
			env := w.make(t, level)
			foretold(t, env, train.NewTrainer(env.Backend(), newStore(), w.model.Build(0), w.model.Loss, epl.Optimizer(adam()), nil, nil), Dataset{w.model.Batch}, 0.05)
		})
	}
}

// choosing has functions that take something of a variable's update from outside.
type choosing struct {
	velocity
	takes string
}

func (o choosing) UpdateGraphWithGradients(scope *model.Scope, gradients []*Node, lossDType dtypes.DType) {
	g := gradients[0].Graph()
	sum := ScalarZero(g, dtypes.Float32)
	for _, x := range gradients {
		sum = Add(sum, ReduceAllSum(Square(x)))
	}
	eachTrained(scope, gradients, lossDType, func(v *model.Variable, slot func(name string) *model.Variable, gradient *Node) {
		w, state := v.NodeValue(g), slot("velocity")
		next := Add(MulScalar(state.NodeValue(g), 0.9), gradient)
		taken := map[string]*Node{"state": state.NodeValue(g), "new state": next, "weight": w, "scalar": sum, "norm": BroadcastToDims(sum, w.Shape().Dimensions...)}[o.takes]
		state.SetNodeValue(next)
		var step *Node
		if taken == nil { // a loop with the gradient as its input
			cond := NewClosure(g, func(g *Graph) []*Node {
				n := Parameter(g, "n", shapes.Make(dtypes.Int32))
				Parameter(g, "y", w.Shape())
				return []*Node{LessThan(n, Const(g, int32(2)))}
			})
			body := NewClosure(g, func(g *Graph) []*Node {
				n, y := Parameter(g, "n", shapes.Make(dtypes.Int32)), Parameter(g, "y", w.Shape())
				return []*Node{Add(n, Const(g, int32(1))), Tanh(y)}
			})
			step = While(cond, body, Const(g, int32(0)), gradient)[1]
		} else {
			step = If(GreaterThan(sum, Scalar(g, dtypes.Float32, 1)),
				NewClosure(g, func(*Graph) []*Node { return []*Node{Tanh(taken)} }), NewClosure(g, func(*Graph) []*Node { return []*Node{Sin(taken)} }))[0]
		}
		if step.IsScalar() {
			step = BroadcastToDims(step, w.Shape().Dimensions...)
		}
		v.SetNodeValue(Sub(w, Add(MulScalar(step, 0.001), MulScalar(next, 0.01))))
	})
}

func (o choosing) UpdateGraph(scope *model.Scope, g *Graph, loss *Node) {
	o.UpdateGraphWithGradients(scope, scope.BuildTrainableVariablesGradientsGraph(loss), loss.DType())
}

func TestZeroChangesNothingForOptimizersWithFunctionsThatTakeFromOutside(t *testing.T) {
	for _, takes := range []string{"state", "new state", "weight", "scalar", "norm", "gradient as input"} {
		t.Run(takes, func(t *testing.T) {
			t.Parallel()
			replicated(stagedMLP(), 2, 1).changesNothing(t, rule{make: func() optimizer.Interface { return choosing{takes: takes} }}, zeroLevels...)
		})
	}
}

func TestZeroChangesNoOptimizer(t *testing.T) {
	for i, r := range memoryRules() {
		all := memoryWorkloads()
		for j := range all {
			if *seedCount <= 120 && j != i%len(all) {
				continue
			}
			t.Run(r.name+"/"+all[j].name, func(t *testing.T) {
				t.Parallel()
				all[j].changesNothing(t, r, someLevels(i)...)
			})
		}
	}
}

var gradientBucket = regexp.MustCompile(`(?m)^ +\d+  (mean|sum)(, reduce-scatter)? +gradients `)

// Small gradients stay whole where others are divided, and cannot travel with these: both share the cap.
func TestZeroKeepsTheCapOnBuckets(t *testing.T) {
	for i, w := range []workload{replicated(stagedModel(t, "scalars"), 2, 2).with(6), replicated(stagedModel(t, "scalars"), 3, 1).with(7)} {
		for _, most := range []int{1, 2, 5} {
			params := map[string]any{"communication.max_splits": most}
			t.Run(fmt.Sprintf("%s/%d", w.name, most), func(t *testing.T) {
				t.Parallel()
				want := w.run(t, params, sgd(), 2)
				for _, level := range zeroLevels[1+(i+most)%2:][:1] {
					env := w.make(t, with(params, level))
					got := w.on(t, env, Dataset{w.model.Batch}, sgd(), 2)
					if err := CloseWeights(want, got, 1e-5); err != nil {
						t.Errorf("%v: %v", level, err)
					}
					if n := len(gradientBucket.FindAllString(explained(t, env), -1)); n < 1 || n > most {
						t.Errorf("%v: %d buckets of gradients, at most %d are allowed:\n%s", level, n, most, explained(t, env))
					}
				}
			})
		}
	}
}

// What needs the whole of what it keeps gets it, and Explain says so.
func TestZeroLeavesWholeWhatAnOptimizerNeedsWhole(t *testing.T) {
	w := replicated(stagedMLP(), 2, 1)
	for _, level := range zeroLevels {
		env := w.make(t, level)
		w.on(t, env, Dataset{w.model.Batch}, rowwise{}, 2)
		text := explained(t, env)
		for _, path := range []string{"/slots/stage_0/dense/rows/weights", "/slots/out/dense/rows/weights"} {
			if want := fmt.Sprintf("%q stays whole on every model replica", path); !strings.Contains(text, want) {
				t.Errorf("%v: Explain does not say that %s:\n%s", level, want, text)
			}
		}
		if strings.Contains(text, `rows/biases" stays whole`) {
			t.Errorf("%v: Explain says that biases stay whole:\n%s", level, text)
		}
	}
}

func TestZeroChangesNothingUnderAnySettingOfCommunication(t *testing.T) {
	settings := []map[string]any{
		{"communication.max_splits": 1},
		{"communication.max_splits": 7, "communication.num_communicators": 3},
		{"communication.sparse_as_dense": true},
		{"communication.sparse_as_dense": false, "communication.num_communicators": 1},
		{"communication.gradients_reduce_method": "sum"},
		{"communication.fp16": true},
		{"cluster.device_place_prefer_intra_node": false},
	}
	embeddings := stagedModel(t, "embeddings")
	for i, params := range settings {
		for j, w := range []workload{replicated(embeddings, 3, 2), inStages(embeddings, fewPlans()[0]),
			inParts(partedModel("embeddings"), splitPlan{parts: []int{2}, replicas: 2, micro: 2})} {
			t.Run(fmt.Sprintf("%v/%s", params, w.name), func(t *testing.T) {
				t.Parallel()
				want := w.run(t, params, sgd(), 3)
				for _, level := range someLevels(i + j) {
					got := w.run(t, with(params, level), sgd(), 3)
					tolerance := 1e-5
					if params["communication.fp16"] != nil {
						tolerance = 1e-3
					}
					if err := CloseWeights(want, got, tolerance); err != nil {
						t.Error(level, err)
					}
				}
			})
		}
	}
}

func TestAnIncompleteLastStepUnderZeroIsThatWithout(t *testing.T) {
	for i, w := range memoryWorkloads() {
		k := w.replicas * w.micro
		for n := k + 1; n < 2*k; n++ {
			if *seedCount <= 120 && n%3 != i%3 {
				continue
			}
			t.Run(fmt.Sprintf("%s/%d", w.name, n), func(t *testing.T) {
				t.Parallel()
				want := w.on(t, w.make(t, nil), finite{w.model.Batch, n}, velocity{}, 2)
				for _, level := range someLevels(n) {
					mustBeClose(t, want, w.on(t, w.make(t, level), finite{w.model.Batch, n}, velocity{}, 2))
				}
			})
		}
	}
}

// inspected trains some steps. After each, everything is read and the model is evaluated; after the second and the third,
// variables and state are set, by hand and by a program.
func (w workload) inspected(t *testing.T, env *epl.Env) (run *Run, read []float64) {
	t.Helper()
	run = &Run{Store: newStore()}
	trainer := train.NewTrainer(env.Backend(), run.Store, w.model.Build(w.stages), w.model.Loss, epl.Optimizer(velocity{}), nil, nil)
	loop := train.NewLoop(trainer)
	loop.OnStep("read and set", 0, func(loop *train.Loop, metrics []*tensors.Tensor) error {
		run.Losses = append(run.Losses, tensors.ToScalar[float32](metrics[0]))
		for _, v := range variables(run.Store) {
			x := numbers(v.MustValue())
			read = append(read, x...)
			if loop.LoopStep == 1 && v.DType() == dtypes.Float32 {
				half := make([]float32, len(x))
				for i := range x {
					half[i] = float32(x[i] / 2)
				}
				if err := v.SetValue(tensors.FromFlatDataAndDimensions(half, v.Shape().Dimensions...)); err != nil {
					return err
				}
			}
		}
		if loop.LoopStep == 2 {
			if err := halve(env, run.Store); err != nil {
				return err
			}
		}
		evaluated, err := trainer.Eval(env.Dataset(finite{w.model.Batch, 3}))
		if err != nil {
			return err
		}
		read = append(read, numbers(evaluated[0])...)
		return nil
	})
	if _, err := loop.RunSteps(env.Dataset(Dataset{w.model.Batch}), 5); err != nil {
		t.Fatal(err)
	}
	return run, read
}

func TestVariablesUnderZeroAreReadSetAndEvaluatedBetweenSteps(t *testing.T) {
	for i, w := range memoryWorkloads() {
		t.Run(w.name, func(t *testing.T) {
			t.Parallel()
			want, read := w.inspected(t, w.make(t, nil))
			for _, level := range someLevels(i) {
				got, now := w.inspected(t, w.make(t, level))
				plainSGD.compare(t, want, got)
				if d, n := distance(read, now); len(read) != len(now) || d > 1e-5*n {
					t.Errorf("%v: what was read differs by %g at a norm of %g", level, d, n)
				}
			}
		})
	}
}

// variables are those of training: not metrics, whose names are drawn at random.
func variables(store *model.Store) (all []*model.Variable) {
	for v := range store.IterVariables() {
		if strings.HasPrefix(v.Path(), "/slots") || v.Trainable {
			all = append(all, v)
		}
	}
	slices.SortFunc(all, func(x, y *model.Variable) int { return strings.Compare(x.Path(), y.Path()) })
	return all
}

// halve is a program that changes variables.
func halve(env *epl.Env, store *model.Store) error {
	exec, err := model.NewExec(env.Backend(), store, func(scope *model.Scope, g *Graph) *Node {
		for _, v := range variables(store) {
			v.SetNodeValue(MulScalar(v.NodeValue(g), 0.5))
		}
		return Const(g, float32(0))
	})
	if err != nil {
		return err
	}
	_, err = exec.Call()
	return err
}

// A checkpoint has the variables as the model knows them, and no trace of how they were divided.
func TestACheckpointUnderZeroGoesOnAtAnyOtherLevelAndNumberOfReplicas(t *testing.T) {
	const k = 6 // batches of a step, whatever the plan
	m := partedModel("losses")
	one := splitPlan{parts: []int{-1}, replicas: 1, micro: k}
	plans := []struct {
		p     splitPlan
		level string
	}{
		{splitPlan{parts: []int{-1}, replicas: 3, micro: 2}, "v2"},
		{splitPlan{parts: []int{-1}, replicas: 2, micro: 3}, "v0"},
		{splitPlan{}, ""}, // one device, on plain GoMLX
		{splitPlan{parts: []int{2}, replicas: 2, micro: 3}, "v2"},
		{splitPlan{parts: []int{-1}, replicas: 6, micro: 1}, "v1"},
		{splitPlan{parts: []int{-1}, replicas: 2, micro: 3}, ""},
		{splitPlan{parts: []int{-2}, replicas: 3, micro: 2}, "v2"},
		{one, "v2"},
	}
	for _, r := range memoryRules()[:6] {
		t.Run(r.name, func(t *testing.T) {
			t.Parallel()
			all, folder := &Run{}, t.TempDir()
			for i, c := range plans {
				at := func(step int) (in, labels []*tensors.Tensor) { return m.Batch(2*i*k + step) }
				backend, ds, build := Plain(), train.Dataset(Dataset{Joined(at, k)}), m.under(one).Build(0)
				if c.p.parts != nil {
					env := c.p.env(t, map[string]any{"zero.level": c.level})
					backend, ds, build = env.Backend(), env.Dataset(Dataset{at}), m.under(c.p).Build(0)
				}
				all.Store = newStore()
				handler, err := checkpoint.Build(all.Store).Dir(folder).Done()
				if err != nil {
					t.Fatal(err)
				}
				loop := train.NewLoop(train.NewTrainer(backend, all.Store, build, m.Loss, epl.Optimizer(r.make()), nil, nil))
				loop.OnStep("loss", 0, func(_ *train.Loop, metrics []*tensors.Tensor) error {
					all.Losses = append(all.Losses, tensors.ToScalar[float32](metrics[0]))
					return nil
				})
				if _, err := loop.RunSteps(ds, 2); err != nil {
					t.Fatalf("plan %d: %v", i, err)
				}
				if err := handler.Save(); err != nil {
					t.Fatal(err)
				}
			}
			straight, err := m.under(one).train(Plain(), 0, Dataset{Joined(m.Batch, k)}, epl.Optimizer(r.make()), 2*len(plans))
			if err != nil {
				t.Fatal(err)
			}
			r.compare(t, straight, all)
		})
	}
}

// What is divided is divided evenly, and the more of it, the lower the peak.
func TestZeroDividesBytesOverTheReplicas(t *testing.T) {
	for _, n := range []int{2, 3, 4} {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			t.Parallel()
			w := replicated(weighty(), n, 1)
			whole := w.metered(t, nil, adam())[0]
			share := func(use string) float64 { return float64(whole.Most[use]) / float64(n) }
			largest := float64(weightyWidth * weightyWidth * 4) // of all weights
			peak := whole.PeakBytes
			for _, c := range []struct {
				level              string
				gradients, weights float64 // at most
			}{
				{"v0", math.Inf(1), math.Inf(1)},
				{"v1", share("weights") + 3*largest, math.Inf(1)},                  // gradients have the size of weights; some are being merged
				{"v2", share("weights") + 3*largest, share("weights") + 5*largest}, // what a region needs, and the next one
			} {
				for d, got := range w.metered(t, map[string]any{"zero.level": c.level}, adam()) {
					state := "optimizer state"
					if have := float64(got.Most[state]); math.Abs(have/share(state)-1) > 0.05 {
						t.Errorf("%s: device %d has %g bytes of %s, not %g", c.level, d, have, state, share(state))
					}
					if have := float64(got.Most["gradients"]); have > c.gradients {
						t.Errorf("%s: device %d has %g bytes of gradients, more than %g", c.level, d, have, c.gradients)
					}
					if have := float64(got.Most["weights"]); have > c.weights {
						t.Errorf("%s: device %d has %g bytes of weights, more than %g", c.level, d, have, c.weights)
					}
					same := c.level == "v1" && got.PeakBytes == peak                                              // with one micro-batch v0 divides gradients, too
					if inside := *onGPUs && c.level == "v1"; got.PeakBytes >= peak && n > 2 && !inside && !same { // else what gradients travel in outweighs their other half, or they are inside a module
						t.Errorf("%s: device %d has a peak of %d bytes %v, one level lower %d", c.level, d, got.PeakBytes, got.Peak, peak)
					}
					if d == n-1 {
						peak = got.PeakBytes
					}
				}
			}
		})
	}
}

// Every device of a model replica has its own part of a weight, and of that a part of the replicas.
func TestZeroDividesWhatEachDeviceOfASplitHas(t *testing.T) {
	w := inParts(blocks(2, 64, 256, 6), splitPlan{parts: []int{2}, replicas: 3, micro: 1})
	plain, divided := w.metered(t, nil, adam()), w.metered(t, zeroLevels[2], adam())
	for d, got := range divided {
		for use, most := range map[string]float64{"optimizer state": 0.36, "gradients": 0.75, "weights": 0.8} {
			if *onGPUs && use != "optimizer state" {
				continue // the step is one module: gradients and gathered weights are inside, and XLA alone knows what they take
			}
			if share := float64(got.Most[use]) / float64(plain[d].Most[use]); !(share < most) {
				t.Errorf("device %d has %d bytes of %s, which is %.2f of what it has without: %d", d, got.Most[use], use, share, plain[d].Most[use])
			}
		}
	}
}
