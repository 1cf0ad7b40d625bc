// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package equiv

import (
	"fmt"
	"path/filepath"
	"testing"

	"github.com/gomlx/gomlx/core/graph"
	"github.com/gomlx/gomlx/core/tensors"
	"github.com/gomlx/gomlx/ml/model"
	"github.com/gomlx/gomlx/ml/model/checkpoint"
	"github.com/gomlx/gomlx/ml/train"
	"github.com/gomlx/gomlx/ml/train/metric"
	"github.com/gomlx/gomlx/ml/train/optimizer"
	"github.com/pkg/errors"

	"github.com/easyparallel/epl"
)

// Whatever the workers start from, they go on from what the first one has.
func TestVariablesStartEqual(t *testing.T) {
	for _, w := range layouts[:2] {
		t.Run(w.String(), func(t *testing.T) { w.agree(t, "start equal") })
	}
}

func init() {
	parts["start equal"] = func(w *part) error {
		env, err := w.init(nil)
		if err != nil {
			return err
		}
		defer env.Close()
		m := regression()
		run := &Run{Store: newStore()}
		run.Store.SetParam(model.ParamInitialSeed, int64(42+env.Cluster().WorkerIndex()))
		loop := train.NewLoop(train.NewTrainer(env.Backend(), run.Store, m.Build, m.Loss, epl.Optimizer(optimizer.Adam().Done()), nil, nil))
		ds := env.Dataset(Dataset{m.Batch})
		if _, err := loop.RunSteps(ds, 2); err != nil {
			return err
		}
		w.report("different seeds:", run)
		// One worker changes a variable between steps: the first one's value counts.
		for v := range run.Store.IterVariables() {
			if v.Trainable && env.Cluster().WorkerIndex() == 1 {
				if err := v.SetValue(tensors.FromShape(v.Shape())); err != nil {
					return err
				}
			}
		}
		if _, err := loop.RunSteps(ds, 2); err != nil {
			return err
		}
		w.report("one changed a variable:", run)
		return nil
	}
}

// The last step of the data may lack batches for some workers, or for all micro-batches of one.
func TestAnIncompleteLastStepOverSeveralWorkers(t *testing.T) {
	for _, w := range layouts[:3] {
		t.Run(w.String(), func(t *testing.T) { w.agree(t, "incomplete step") })
	}
}

func init() {
	parts["incomplete step"] = func(w *part) error {
		m := regression()
		for _, micro := range []int{1, 2} {
			for missing := range 4 {
				params := map[string]any{"pipeline.num_micro_batch": micro}
				env, err := w.init(params)
				if err != nil {
					return err
				}
				alone, err := w.alone(env.Cluster().TotalDevices(), params)
				if err != nil {
					return err
				}
				n := max(3*env.Cluster().TotalDevices()*micro-missing, 1)
				var runs []*Run
				for _, e := range []*epl.Env{env, alone} {
					r := &Run{Store: newStore()}
					loop := train.NewLoop(train.NewTrainer(e.Backend(), r.Store, m.Build, m.Loss, epl.Optimizer(sgd()), nil, nil))
					if _, err := loop.RunEpochs(e.Dataset(first(m, n)), 2); err != nil {
						return err
					}
					runs = append(runs, r)
					defer e.Close()
				}
				w.report(fmt.Sprintf("%d batches, %d micro-batches:", n, micro), runs[0])
				if err := CloseWeights(runs[1], runs[0], 1e-5); err != nil {
					return err
				}
			}
		}
		return nil
	}
}

// With io.slicing every worker has its own data, more or less of it, and each sample is used once.
func TestWorkersWithDataOfTheirOwn(t *testing.T) {
	for _, w := range layouts[:3] {
		t.Run(w.String(), func(t *testing.T) { w.agree(t, "own data") })
	}
}

func init() {
	parts["own data"] = func(w *part) error {
		m := regression()
		for _, micro := range []int{1, 2} {
			env, err := w.init(map[string]any{"io.slicing": true, "pipeline.num_micro_batch": micro})
			if err != nil {
				return err
			}
			defer env.Close()
			// Worker i has i fewer batches than it needs for three steps.
			num, devices := env.Cluster().WorkerNum(), len(env.Cluster().LocalDevices())
			have := func(worker int) int { return max(1, 3*devices*micro-2*worker) }
			mine := env.Cluster().WorkerIndex()
			ds := custom(func(yield func(train.Batch, error) bool) {
				for i := range have(mine) {
					if !yield(batchOf(m, 1000*mine+i), nil) {
						return
					}
				}
			})
			got := &Run{Store: newStore()}
			loop := train.NewLoop(train.NewTrainer(env.Backend(), got.Store, m.Build, m.Loss, epl.Optimizer(sgd()), nil, nil))
			if _, err := loop.RunEpochs(env.Dataset(ds), 1); err != nil {
				return err
			}
			w.report("own data:", got)
			// One device takes the same samples, step by step.
			want := &Run{Store: newStore()}
			trainer := train.NewTrainer(Plain(), want.Store, m.Build, m.Loss, sgd(), nil, nil)
			for step := range 3 {
				var ins, labels [][]*tensors.Tensor
				for worker := range num {
					for i := step * devices * micro; i < min((step+1)*devices*micro, have(worker)); i++ {
						in, label := m.Batch(1000*worker + i)
						ins, labels = append(ins, in), append(labels, label)
					}
				}
				if _, err := trainer.TrainStep(train.Batch{Inputs: concat(ins), Labels: concat(labels)}); err != nil {
					return err
				}
			}
			if err := closeTrainable(want, got); err != nil {
				return err
			}
		}
		return nil
	}
}

// Metrics, and evaluation, are the same on every worker.
func TestEvaluationIsTheSameOnEveryWorker(t *testing.T) {
	workers{num: 2, devices: 2}.agree(t, "evaluation")
}

func init() {
	parts["evaluation"] = func(w *part) error {
		env, err := w.init(nil)
		if err != nil {
			return err
		}
		defer env.Close()
		m := regression()
		mean := []metric.Interface{metric.NewMeanMetric("mean", "m", "loss", func(_ *model.Scope, labels, predictions []*graph.Node) *graph.Node {
			return graph.ReduceAllMean(graph.Abs(graph.Sub(labels[0], predictions[0])))
		}, nil)}
		store := newStore()
		trainer := train.NewTrainer(env.Backend(), store, m.Build, m.Loss, epl.Optimizer(sgd()), mean, mean)
		loop := train.NewLoop(trainer)
		metrics, err := loop.RunSteps(env.Dataset(Dataset{m.Batch}), 5)
		if err != nil {
			return err
		}
		fmt.Println("training", metrics)
		evaluated, err := trainer.Eval(env.Dataset(first(m, 5)))
		if err != nil {
			return err
		}
		fmt.Println("evaluation", evaluated)
		return nil
	}
}

// Checkpoints are written by the first worker, and read by all.
func TestCheckpointsAreWrittenOnceAndRestoredEverywhere(t *testing.T) {
	workers{num: 2, devices: 1}.agree(t, "checkpoints")
}

func init() {
	parts["checkpoints"] = func(w *part) error {
		m := regression()
		folder := filepath.Join(w.folder, "checkpoints")
		var last *Run
		for _, until := range []int{4, 8} {
			env, err := w.init(nil)
			if err != nil {
				return err
			}
			defer env.Close()
			run := &Run{Store: newStore()}
			handler, err := checkpoint.Build(run.Store).Dir(folder).Done()
			if err != nil {
				return err
			}
			loop := train.NewLoop(train.NewTrainer(env.Backend(), run.Store, m.Build, m.Loss, epl.Optimizer(sgd()), nil, nil))
			saved := 0
			train.EveryNSteps(loop, 2, "save", 100, env.OnFirstWorker(func(l *train.Loop, metrics []*tensors.Tensor) error {
				saved++
				return handler.SaveOnStepFn(l, metrics)
			}))
			ds := custom(func(yield func(train.Batch, error) bool) { // go on where the last run stopped
				for i := 2 * (until - 4); yield(batchOf(m, i), nil); i++ {
				}
			})
			if _, err := loop.RunToGlobalStep(env.Dataset(ds), until); err != nil {
				return err
			}
			if (saved > 0) != env.IsMain() {
				return errors.Errorf("worker %d saved %d times", env.Cluster().WorkerIndex(), saved)
			}
			last = run
		}
		single := m
		single.Batch = Joined(m.Batch, 2)
		want, err := TrainOn(Plain(), Dataset{single.Batch}, single, sgd(), 8)
		if err != nil {
			return err
		}
		w.report("restored:", last)
		return closeTrainable(want, last)
	}
}

// closeTrainable compares the trainable variables of two runs: loops differ in the others.
func closeTrainable(want, got *Run) error { return trainableWithin(want, got, 1e-5) }

func trainableWithin(want, got *Run, tolerance float64) error {
	for v := range want.Store.IterVariables() {
		if v.Trainable {
			x, y := numbers(v.MustValue()), numbers(got.Store.GetVariable(v.Path()).MustValue())
			if diff, norm := distance(x, y); !(diff <= tolerance*(norm+1e-3)) {
				return errors.Errorf("variable %s differs by %g at a norm of %g", v.Path(), diff, norm)
			}
		}
	}
	return nil
}

// Results in Local collections are those of a worker, results in Global ones those of all.
func TestCollectionsAreOfAWorkerOrOfAll(t *testing.T) {
	outputs, errs := workers{num: 2, devices: 2, hosts: "a,b"}.play(t, "collections")
	for i, want := range []string{
		// Rank r has the numbers 10·r and 10·r+1: worker 0 has ranks 0 and 1.
		"global 124 15.5 [0 1 10 11 20 21 30 31]\nlocal 22 5.5 [0 1 10 11]\n",
		"global 124 15.5 [0 1 10 11 20 21 30 31]\nlocal 102 25.5 [20 21 30 31]\n",
	} {
		if errs[i] != nil || outputs[i] != want {
			t.Errorf("worker %d: %v, %q, want %q", i, errs[i], outputs[i], want)
		}
	}
}

func init() {
	parts["collections"] = func(w *part) error {
		env, err := w.init(nil)
		if err != nil {
			return err
		}
		defer env.Close()
		exec, err := model.NewExec(env.Backend(), newStore(), func(scope *model.Scope, x *graph.Node) []*graph.Node {
			scope.Store().SetTraining(x.Graph(), true)
			v := scope.VariableWithValue("w", float32(1))
			epl.Optimizer(sgd()).UpdateGraph(scope, x.Graph(), graph.ReduceAllMean(graph.Mul(x, v.NodeValue(x))))
			var all []*graph.Node
			for i, c := range []epl.Collection{epl.GlobalSum, epl.GlobalMean, epl.GlobalConcat, epl.LocalSum, epl.LocalMean, epl.LocalConcat} {
				y := graph.ReduceAllSum(x)
				switch i % 3 {
				case 1:
					y = graph.ReduceAllMean(x)
				case 2:
					y = graph.AddScalar(x, 0)
				}
				y = graph.AddScalar(y, float32(i)) // no two are the same
				epl.AddToCollection(c, y)
				all = append(all, y)
			}
			return all
		})
		if err != nil {
			return err
		}
		ds := custom(func(yield func(train.Batch, error) bool) {
			for r := range 4 {
				if !yield(train.Batch{Inputs: []*tensors.Tensor{tensors.FromFlatDataAndDimensions([]float32{float32(10 * r), float32(10*r + 1)}, 2)}}, nil) {
					return
				}
			}
		})
		for batch, err := range env.Dataset(ds).Iter() {
			if err != nil {
				return err
			}
			results, err := exec.Call(batch.Inputs[0])
			if err != nil {
				return err
			}
			minus := func(i, times int) []float64 { // what was added to tell it from others
				all := numbers(results[i])
				for k := range all {
					all[k] -= float64(i * times)
				}
				return all
			}
			fmt.Println("global", minus(0, 4)[0], minus(1, 1)[0], minus(2, 1))
			fmt.Println("local", minus(3, 2)[0], minus(4, 1)[0], minus(5, 1))
		}
		return nil
	}
}
