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

func TestAnIncompleteLastStepOfAPipelineTakesTheMeanOverWhatItHas(t *testing.T) {
	for i, p := range fewPlans() {
		m := stagedModel(t, []string{"tied", "skips", "shared-by-all"}[i%3])
		k := p.batches()
		for n := 1; n <= 2*k; n++ { // a step that is full or not, then one with what is left
			if (n+i)%3 != 0 && *seedCount <= 120 {
				continue // some of them
			}
			t.Run(fmt.Sprintf("%s/%d", p, n), func(t *testing.T) {
				t.Parallel()
				steps := (n + k - 1) / k
				want, err := m.train(Plain(), p.stages, Dataset{func(step int) (in, labels []*tensors.Tensor) {
					shifted := func(i int) (in, labels []*tensors.Tensor) { return m.Batch(step*k + i) }
					return Joined(shifted, min(k, n-step*k))(0)
				}}, sgd(), steps)
				if err != nil {
					t.Fatalf("%+v", err)
				}
				env := p.env(t, nil)
				got, err := m.train(env.Backend(), p.stages, env.Dataset(finite{m.Batch, n}), epl.Optimizer(sgd()), steps)
				if err != nil {
					t.Fatalf("%+v", err)
				}
				mustBeClose(t, want, got)
			})
		}
	}
}

// Evaluation runs as a program of its own, on one device, with variables that live where their stages are.
func TestEvaluationAndPredictionBetweenStepsOfAPipeline(t *testing.T) {
	for i, p := range fewPlans() {
		m := stagedModel(t, []string{"tied", "skips", "embeddings"}[i%3])
		t.Run(p.String(), func(t *testing.T) {
			t.Parallel()
			var losses [2][]float64
			var runs [2]*Run
			for k, env := range []*epl.Env{nil, p.env(t, nil)} {
				backend, opt := Plain(), sgd()
				dealt := func(ds train.Dataset) train.Dataset { return ds }
				data := train.Dataset(Dataset{Joined(m.Batch, p.batches())})
				if env != nil {
					backend, opt, dealt = env.Backend(), epl.Optimizer(opt), env.Dataset
					data = env.Dataset(Dataset{m.Batch})
				}
				run := &Run{Store: newStore()}
				runs[k] = run
				trainer := train.NewTrainer(backend, run.Store, m.Build(p.stages), m.Loss, opt, nil, nil)
				predict := model.MustNewExec(backend, run.Store, func(scope *model.Scope, x *Node) []*Node {
					return m.Build(p.stages)(scope, []*Node{x})
				})
				loop := train.NewLoop(trainer)
				loop.OnStep("look", 0, func(loop *train.Loop, metrics []*tensors.Tensor) error {
					run.Losses = append(run.Losses, tensors.ToScalar[float32](metrics[0]))
					evaluated, err := trainer.Eval(dealt(finite{m.Batch, 5}))
					if err != nil {
						return err
					}
					predicted, err := predict.Call(oneBatch(m.Batch, loop.LoopStep).Inputs[0])
					if err != nil {
						return err
					}
					losses[k] = append(append(losses[k], numbers(evaluated[0])...), numbers(predicted[0])...)
					return nil
				})
				if _, err := loop.RunSteps(data, 4); err != nil {
					t.Fatalf("%+v", err)
				}
			}
			mustBeClose(t, runs[0], runs[1])
			if d, n := distance(losses[0], losses[1]); len(losses[0]) != len(losses[1]) || d > 1e-5*n {
				t.Errorf("evaluations and predictions differ by %g at a norm of %g", d, n)
			}
		})
	}
}

// A checkpoint has no trace of the plan that made it.
func TestACheckpointOfAPipelineGoesOnUnderAnyOtherPlan(t *testing.T) {
	const k, stages = 4, 4 // batches of a step, whatever the plan
	plans := []pipelinePlan{
		{stages: stages, replicas: 2, micro: 2, strategy: "PreferBackward"},
		{stages: stages, replicas: 1, micro: 4, strategy: "Interleaved", perDevice: 2},
		{}, // one device, on plain GoMLX
		{stages: stages, replicas: 1, micro: 4, strategy: "ZeroBubble"},
		{stages: stages, replicas: 4, micro: 1, strategy: "PreferForward"},
	}
	optimizers := map[string]func() optimizer.Interface{
		"sgd":  sgd,
		"adam": func() optimizer.Interface { return optimizer.Adam().LearningRate(1e-3).Done() },
	}
	for name, opt := range optimizers {
		for _, model := range []string{"tied", "shared-by-all", "unused"} {
			t.Run(name+"/"+model, func(t *testing.T) {
				t.Parallel()
				m := stagedModel(t, model)
				want := m.alone(t, stages, k, opt(), 2*len(plans))
				folder := t.TempDir()
				all := &Run{}
				for i, p := range plans {
					at := func(step int) (in, labels []*tensors.Tensor) { return m.Batch(2*i*k + step) }
					backend, ds, o := Plain(), train.Dataset(Dataset{Joined(at, k)}), opt()
					if p.stages > 0 {
						env := p.env(t, nil)
						backend, ds, o = env.Backend(), env.Dataset(Dataset{at}), epl.Optimizer(o)
					}
					all.Store = newStore()
					handler, err := checkpoint.Build(all.Store).Dir(folder).Done()
					if err != nil {
						t.Fatal(err)
					}
					loop := train.NewLoop(train.NewTrainer(backend, all.Store, m.Build(stages), m.Loss, o, nil, nil))
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
				if name == "sgd" {
					mustBeClose(t, want, all)
				} else if err := CloseLosses(want, all, 1e-3); err != nil {
					t.Error(err)
				}
			})
		}
	}
}

// What another program does to the variables between steps, training sees, on whichever stage they live.
func TestAPipelineGoesOnFromWhatAnotherProgramChanged(t *testing.T) {
	for i, p := range fewPlans() {
		m := stagedModel(t, []string{"tied", "shared-by-all", "skips"}[i%3])
		t.Run(p.String(), func(t *testing.T) {
			t.Parallel()
			var runs [2]*Run
			for k, env := range []*epl.Env{nil, p.env(t, nil)} {
				backend, opt, data := Plain(), sgd(), train.Dataset(Dataset{Joined(m.Batch, p.batches())})
				if env != nil {
					backend, opt, data = env.Backend(), epl.Optimizer(opt), env.Dataset(Dataset{m.Batch})
				}
				run := &Run{Store: newStore()}
				runs[k] = run
				halve := model.MustNewExec(backend, run.Store, func(scope *model.Scope, g *Graph) *Node {
					for v := range scope.Store().IterVariables() {
						if v.Trainable {
							v.SetNodeValue(MulScalar(v.NodeValue(g), 0.5))
						}
					}
					return Const(g, float32(0))
				})
				loop := train.NewLoop(train.NewTrainer(backend, run.Store, m.Build(p.stages), m.Loss, opt, nil, nil))
				loop.OnStep("halve", 0, func(loop *train.Loop, metrics []*tensors.Tensor) error {
					run.Losses = append(run.Losses, tensors.ToScalar[float32](metrics[0]))
					if loop.LoopStep != 1 {
						return nil
					}
					_, err := halve.Call()
					return err
				})
				if _, err := loop.RunSteps(data, 4); err != nil {
					t.Fatalf("%+v", err)
				}
			}
			mustBeClose(t, runs[0], runs[1])
		})
	}
}
