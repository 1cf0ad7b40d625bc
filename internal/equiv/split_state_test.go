// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package equiv

import (
	"fmt"
	"testing"

	. "github.com/gomlx/gomlx/core/graph"
	"github.com/gomlx/gomlx/core/tensors"
	"github.com/gomlx/gomlx/ml/model"
	"github.com/gomlx/gomlx/ml/model/checkpoint"
	"github.com/gomlx/gomlx/ml/train"
	"github.com/gomlx/gomlx/ml/train/optimizer"

	"github.com/easyparallel/epl"
)

// pair trains a model twice, on one device of plain GoMLX and under a plan, with what each does after a step.
func (m Parted) pair(t *testing.T, p splitPlan, steps int, each func(k int, trainer *train.Trainer, run *Run, loop *train.Loop, dealt func(train.Dataset) train.Dataset) error) {
	t.Helper()
	var runs [2]*Run
	x := m.under(p)
	for k, env := range []*epl.Env{nil, p.env(t, nil)} {
		backend, opt, data := Plain(), sgd(), train.Dataset(Dataset{Joined(m.Batch, p.batches())})
		dealt := func(ds train.Dataset) train.Dataset { return ds }
		if env != nil {
			backend, opt, data, dealt = env.Backend(), epl.Optimizer(opt), env.Dataset(Dataset{m.Batch}), env.Dataset
		}
		run := &Run{Store: newStore()}
		runs[k] = run
		trainer := train.NewTrainer(backend, run.Store, x.Build(0), m.Loss, opt, nil, nil)
		loop := train.NewLoop(trainer)
		loop.OnStep("after", 0, func(loop *train.Loop, metrics []*tensors.Tensor) error {
			run.Losses = append(run.Losses, tensors.ToScalar[float32](metrics[0]))
			return each(k, trainer, run, loop, dealt)
		})
		if _, err := loop.RunSteps(data, steps); err != nil {
			t.Fatalf("%+v", err)
		}
	}
	mustBeClose(t, runs[0], runs[1])
}

// Evaluation runs as a program of its own, on one device, with variables whose parts are on several.
func TestEvaluationBetweenStepsOfSplitTaskGraphs(t *testing.T) {
	for i, p := range fewSplits() {
		m := partedModel([]string{"mlp", "classifier", "embeddings"}[i%3])
		t.Run(p.String(), func(t *testing.T) {
			t.Parallel()
			var losses [2][]float64
			m.pair(t, p, 4, func(k int, trainer *train.Trainer, run *Run, loop *train.Loop, dealt func(train.Dataset) train.Dataset) error {
				evaluated, err := trainer.Eval(dealt(finite{m.Batch, 5}))
				if err == nil {
					losses[k] = append(losses[k], numbers(evaluated[0])...)
				}
				return err
			})
			if d, n := distance(losses[0], losses[1]); len(losses[0]) != len(losses[1]) || d > 1e-5*n {
				t.Errorf("evaluations differ by %g at a norm of %g", d, n)
			}
		})
	}
}

func TestVariablesOfSplitTaskGraphsCanBeReadAndSetBetweenSteps(t *testing.T) {
	for i, p := range fewSplits() {
		m := partedModel([]string{"tied", "mlp"}[i%2])
		t.Run(p.String(), func(t *testing.T) {
			t.Parallel()
			var read [2][]float64
			m.pair(t, p, 4, func(k int, _ *train.Trainer, run *Run, loop *train.Loop, _ func(train.Dataset) train.Dataset) error {
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
			if d, n := distance(read[0], read[1]); d > 1e-5*n {
				t.Errorf("what was read differs by %g at a norm of %g", d, n)
			}
		})
	}
}

// Another program changes variables whose parts are on several devices, and training goes on from there.
func TestSplitTaskGraphsGoOnFromWhatAnotherProgramChanged(t *testing.T) {
	for i, p := range fewSplits() {
		m := partedModel([]string{"classifier", "shared", "mlp"}[i%3])
		t.Run(p.String(), func(t *testing.T) {
			t.Parallel()
			m.pair(t, p, 4, func(_ int, trainer *train.Trainer, run *Run, loop *train.Loop, _ func(train.Dataset) train.Dataset) error {
				if loop.LoopStep != 1 {
					return nil
				}
				halve := model.MustNewExec(trainer.Backend(), run.Store, func(scope *model.Scope, g *Graph) *Node {
					for v := range scope.Store().IterVariables() {
						if v.Trainable {
							v.SetNodeValue(MulScalar(v.NodeValue(g), 0.5))
						}
					}
					return Const(g, float32(0))
				})
				_, err := halve.Call()
				return err
			})
		})
	}
}

// A checkpoint has the variables as the model knows them, and no trace of the plan that made it.
func TestACheckpointOfASplitGoesOnOverAnyOtherNumberOfDevices(t *testing.T) {
	const k = 2 // batches of a step, whatever the plan
	plans := []splitPlan{
		{parts: []int{2}, replicas: 2, micro: 1},
		{parts: []int{3}, replicas: 1, micro: 2},
		{}, // one device, on plain GoMLX
		{parts: []int{8}, replicas: 1, micro: 2},
		{parts: []int{-1}, replicas: 2, micro: 1},
		{parts: []int{4}, replicas: 2, micro: 1},
	}
	optimizers := map[string]func() optimizer.Interface{
		"sgd":      sgd,
		"adam":     func() optimizer.Interface { return optimizer.Adam().LearningRate(1e-3).Done() },
		"momentum": func() optimizer.Interface { return momentum{} },
	}
	for name, opt := range optimizers {
		for _, model := range []string{"classifier", "embeddings", "losses"} {
			t.Run(name+"/"+model, func(t *testing.T) {
				t.Parallel()
				m := partedModel(model)
				want := m.under(plans[0]).alone(t, 0, k, opt(), 2*len(plans))
				folder := t.TempDir()
				all := &Run{}
				for i, p := range plans {
					at := func(step int) (in, labels []*tensors.Tensor) { return m.Batch(2*i*k + step) }
					backend, ds, o, build := Plain(), train.Dataset(Dataset{Joined(at, k)}), opt(), m.under(plans[0]).Build(0)
					if p.parts != nil {
						env := p.env(t, nil)
						backend, ds, o, build = env.Backend(), env.Dataset(Dataset{at}), epl.Optimizer(o), m.under(p).Build(0)
					}
					all.Store = newStore()
					handler, err := checkpoint.Build(all.Store).Dir(folder).Done()
					if err != nil {
						t.Fatal(err)
					}
					loop := train.NewLoop(train.NewTrainer(backend, all.Store, build, m.Loss, o, nil, nil))
					loop.OnStep("loss", 0, func(_ *train.Loop, metrics []*tensors.Tensor) error {
						all.Losses = append(all.Losses, tensors.ToScalar[float32](metrics[0]))
						return nil
					})
					if _, err := loop.RunSteps(ds, 2); err != nil {
						t.Fatalf("plan %d: %+v", i, err)
					}
					if err := handler.Save(); err != nil {
						t.Fatal(err)
					}
				}
				if name != "adam" {
					mustBeClose(t, want, all)
				} else if err := CloseLosses(want, all, 1e-3); err != nil {
					t.Error(err)
				}
			})
		}
	}
}

// Programs that train the same variables may divide them differently.
func TestProgramsWithOtherPartsTrainTheSameVariables(t *testing.T) {
	m := partedModel("mlp")
	var runs [2]*Run
	env, plain := newPipeline(t, 6, 1, nil), Plain()
	for k := range runs {
		run := &Run{Store: newStore()}
		runs[k] = run
		next := 0
		for _, parts := range [][]int{{2}, {6}, {3}, {-2}, {-1}, {2}} {
			p := splitPlan{parts: parts}
			n := 6 / p.devices() // batches of a step
			from := next
			at := func(step int) (in, labels []*tensors.Tensor) { return m.Batch(from + step) }
			backend, opt, ds := plain, sgd(), train.Dataset(Dataset{Joined(at, n)})
			if k == 1 {
				backend, opt, ds = env.Backend(), epl.Optimizer(opt), env.Dataset(Dataset{at})
			}
			loop := train.NewLoop(train.NewTrainer(backend, run.Store, m.under(p).Build(0), m.Loss, opt, nil, nil))
			loop.OnStep("loss", 0, func(_ *train.Loop, metrics []*tensors.Tensor) error {
				run.Losses = append(run.Losses, tensors.ToScalar[float32](metrics[0]))
				return nil
			})
			if _, err := loop.RunSteps(ds, 2); err != nil {
				t.Fatalf("%v: %+v", parts, err)
			}
			next += 2 * n
		}
	}
	mustBeClose(t, runs[0], runs[1])
}

func TestBatchesOfASplitMayChangeTheirShapeFromStepToStep(t *testing.T) {
	for _, p := range fewSplits() {
		t.Run(p.String(), func(t *testing.T) {
			t.Parallel()
			m, k := partedModel("mlp"), p.batches()
			m.Batch = func(step int) (in, labels []*tensors.Tensor) { return Regression(4+step/k%3, 8)(step) }
			mustBeClose(t, m.measure(t, p, 7), m.under(p).piped(t, p.env(t, nil), 0, sgd(), 7))
		})
	}
}

func TestAnIncompleteLastStepOfASplitTakesTheMeanOverWhatItHas(t *testing.T) {
	for i, p := range fewSplits() {
		m := partedModel([]string{"mlp", "tied", "classifier"}[i%3])
		k := p.batches()
		for n := 1; n <= 2*k; n++ { // a step that is full or not, then one with what is left
			t.Run(fmt.Sprintf("%s/%d", p, n), func(t *testing.T) {
				t.Parallel()
				steps := (n + k - 1) / k
				want, err := m.under(p).train(Plain(), 0, Dataset{func(step int) (in, labels []*tensors.Tensor) {
					shifted := func(i int) (in, labels []*tensors.Tensor) { return m.Batch(step*k + i) }
					return Joined(shifted, min(k, n-step*k))(0)
				}}, sgd(), steps)
				if err != nil {
					t.Fatalf("%+v", err)
				}
				env := p.env(t, nil)
				got, err := m.under(p).train(env.Backend(), 0, env.Dataset(finite{m.Batch, n}), epl.Optimizer(sgd()), steps)
				if err != nil {
					t.Fatalf("%+v", err)
				}
				mustBeClose(t, want, got)
			})
		}
	}
}
