// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package equiv

import (
	"cmp"
	"fmt"
	"maps"
	"path/filepath"
	"strings"
	"testing"
	"time"

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

// Stages on different workers: every worker ends with the weights of one device, though it trained only some of them.
func TestAPipelineOverSeveralWorkersGivesTheWeightsOfOneDevice(t *testing.T) {
	for _, w := range []workers{
		{num: 2, devices: 1},
		{num: 2, devices: 1, hosts: "a,b"},
		{num: 2, devices: 2, hosts: "a,b"},
		{num: 4, devices: 1, hosts: "a,a,b,b"},
	} {
		t.Run(w.String(), func(t *testing.T) { w.agree(t, "pipeline") })
	}
}

func init() {
	parts["pipeline"] = func(w *part) error {
		for _, c := range []struct {
			micro  int
			params map[string]any
		}{
			{1, nil},
			{3, nil},
			{2, map[string]any{"pipeline.strategy": "PreferForward"}},
			{4, map[string]any{"pipeline.strategy": "ZeroBubble"}},
			{2, map[string]any{"cluster.device_place_prefer_intra_node": false}},
		} {
			if err := w.pipeline(stagedMLP(), 2, 2, c.micro, c.params); err != nil {
				return errors.Wrapf(err, "%d micro-batches, %v", c.micro, c.params)
			}
		}
		return nil
	}
}

func TestEveryModelInStagesOverSeveralWorkersGivesTheWeightsOfOneDevice(t *testing.T) {
	workers{num: 2, devices: 1, hosts: "a,b"}.agree(t, "staged models")
}

func init() {
	parts["staged models"] = func(w *part) error {
		for i, m := range StagedModels() {
			if err := w.pipeline(m, 2, 2, 1+i%3, nil); err != nil {
				return errors.Wrap(err, m.Name)
			}
		}
		// Two stages on each device; four stages on two devices that share each of their micro-batches.
		if err := w.pipeline(stagedMLP(), 4, 2, 4, map[string]any{"pipeline.strategy": "Interleaved", "pipeline.stages_per_device": 2}); err != nil {
			return errors.Wrap(err, "Interleaved")
		}
		m := Staged{"a stage of two devices", func(int) func(scope *model.Scope, inputs []*graph.Node) []*graph.Node {
			return func(scope *model.Scope, inputs []*graph.Node) []*graph.Node {
				return []*graph.Node{wide(2)(scope, inputs[0])}
			}
		}, Models()[0].Loss, Regression(5, 8)}
		return errors.Wrap(w.pipeline(m, 1, 2, 2, nil), m.Name)
	}
}

// pipeline trains over all workers in stages, and on one device of the first worker alone.
func (w *part) pipeline(m Staged, stages, devices, micro int, params map[string]any) error {
	all := map[string]any{"pipeline.num_micro_batch": micro, "cluster.colocate_split_and_replicate": false}
	maps.Copy(all, params)
	env, err := w.init(all)
	if err != nil {
		return err
	}
	defer env.Close()
	const steps = 3
	got, err := m.train(env.Backend(), stages, env.Dataset(Dataset{m.Batch}), epl.Optimizer(sgd()), steps)
	if err != nil {
		return err
	}
	w.report(fmt.Sprintf("%s, %d micro-batches:", m.Name, micro), got)
	if !env.IsMain() {
		return nil
	}
	want, err := m.train(Plain(), stages, Dataset{Joined(m.Batch, env.Cluster().TotalDevices()/devices*micro)}, sgd(), steps)
	if err != nil {
		return err
	}
	return cmp.Or(CloseWeights(want, got, 1e-5), CloseLosses(want, got, 1e-5))
}

// Whatever a worker reads of a variable that lives on another, it gets the value of its own last step, while the other may
// have gone on to wait for the next. Here the first worker saves and evaluates between steps, and training goes on from
// what it saved.
func TestAPipelineOverSeveralWorkersEvaluatesSavesAndGoesOn(t *testing.T) {
	for _, w := range []workers{{num: 2, devices: 1}, {num: 4, devices: 1, hosts: "a,b,a,b"}} {
		t.Run(w.String(), func(t *testing.T) { w.agree(t, "pipeline checkpoints") })
	}
}

func init() {
	parts["pipeline checkpoints"] = func(w *part) error {
		m := stagedMLP()
		folder := filepath.Join(w.folder, "checkpoints")
		var last *Run
		devices := 0
		for _, until := range []int{4, 8} {
			env, err := w.init(map[string]any{"cluster.colocate_split_and_replicate": false})
			if err != nil {
				return err
			}
			defer env.Close()
			devices = env.Cluster().TotalDevices()
			run := &Run{Store: newStore()}
			handler, err := checkpoint.Build(run.Store).Dir(folder).Done()
			if err != nil {
				return err
			}
			mean := []metric.Interface{metric.NewMeanMetric("mean", "m", "loss", func(_ *model.Scope, labels, predictions []*graph.Node) *graph.Node {
				return graph.ReduceAllMean(graph.Abs(graph.Sub(labels[0], predictions[0])))
			}, nil)}
			trainer := train.NewTrainer(env.Backend(), run.Store, m.Build(2), m.Loss, epl.Optimizer(sgd()), nil, mean)
			loop := train.NewLoop(trainer)
			train.EveryNSteps(loop, 2, "save", 100, env.OnFirstWorker(handler.SaveOnStepFn))
			train.EveryNSteps(loop, 3, "evaluate", 90, func(l *train.Loop, _ []*tensors.Tensor) error {
				evaluated, err := trainer.Eval(first(Model{Batch: m.Batch}, 3))
				fmt.Println("evaluation", l.LoopStep, evaluated)
				return err
			})
			ds := custom(func(yield func(train.Batch, error) bool) { // go on where the last run stopped
				for i := devices / 2 * (until - 4); yield(batchOf(Model{Batch: m.Batch}, i), nil); i++ {
				}
			})
			if _, err := loop.RunToGlobalStep(env.Dataset(ds), until); err != nil {
				return err
			}
			last = run
		}
		want, err := m.train(Plain(), 2, Dataset{Joined(m.Batch, devices/2)}, sgd(), 8)
		if err != nil {
			return err
		}
		w.report("restored:", last)
		return closeTrainable(want, last)
	}
}

// Data that end in the middle of a step, and Adam, over a pipeline of several workers: as over one.
func TestAPipelineOverSeveralWorkersDoesWhatOneWorkerDoes(t *testing.T) {
	for _, w := range []workers{{num: 2, devices: 1, hosts: "a,b"}, {num: 2, devices: 2}} {
		t.Run(w.String(), func(t *testing.T) { w.agree(t, "pipeline as one") })
	}
}

func init() {
	parts["pipeline as one"] = func(w *part) error {
		params := map[string]any{"cluster.colocate_split_and_replicate": false, "pipeline.num_micro_batch": 2}
		for _, m := range []Staged{stagedMLP(), {"dropout", TiedTransformer(0.2), Models()[1].Loss, Tokens(2, 6, 16)}} {
			env, err := w.init(params)
			if err != nil {
				return err
			}
			defer env.Close()
			devices := env.Cluster().TotalDevices()
			batches := first(Model{Batch: m.Batch}, 2*devices+1)
			got, err := m.train(env.Backend(), 2, env.Dataset(batches), epl.Optimizer(optimizer.Adam().Done()), 3)
			if err != nil {
				return err
			}
			alone, err := w.alone(devices, params)
			if err != nil {
				return err
			}
			defer alone.Close()
			want, err := m.train(alone.Backend(), 2, alone.Dataset(batches), epl.Optimizer(optimizer.Adam().Done()), 3)
			if err != nil {
				return err
			}
			w.report(m.Name+":", got)
			if err := CloseLosses(want, got, 1e-4); err != nil {
				return errors.Wrap(err, m.Name)
			}
			if devices == 2 { // nothing is added up between workers
				if err := SameBits(want, got); err != nil {
					return errors.Wrap(err, m.Name)
				}
			}
		}
		return nil
	}
}

func TestAKilledStageIsNamedByTheOthers(t *testing.T) {
	w := workers{num: 2, devices: 1, env: []string{colocateVariable + "=false"}}
	all := w.start(t, "for ever")
	for _, r := range all {
		r.says(t, time.Minute, "three steps")
	}
	if err := all[1].cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	all[0].ends(t, 5*time.Second, "worker 1", "gone")
}

// Files would be dealt to a worker that feeds nobody.
func TestSlicesOfFilesAreRefusedWhereAWorkerFeedsNobody(t *testing.T) {
	outputs, errs := workers{num: 2, devices: 1}.play(t, "sliced pipeline")
	for i, err := range errs {
		if err == nil {
			t.Errorf("worker %d trained:\n%s", i, outputs[i])
		}
		for _, words := range []string{"io.slicing", "worker 0 has 1 and feeds 1 model replicas of 2 devices", "set io.slicing to false"} {
			if !strings.Contains(outputs[i], words) {
				t.Errorf("worker %d does not say %q:\n%s", i, words, outputs[i])
			}
		}
	}
}

func init() {
	parts["sliced pipeline"] = func(w *part) error {
		return w.pipeline(stagedMLP(), 2, 2, 1, map[string]any{"io.slicing": true})
	}
}

// What instances concatenate is shorter in a last step that lacks some, also on the worker that does not compute it.
func TestConcatenatedResultsOfAPipelineReachEveryWorker(t *testing.T) {
	workers{num: 2, devices: 1}.agree(t, "pipeline results")
}

func init() {
	parts["pipeline results"] = func(w *part) error {
		env, err := w.init(map[string]any{"cluster.colocate_split_and_replicate": false, "pipeline.num_micro_batch": 3})
		if err != nil {
			return err
		}
		defer env.Close()
		m := stagedMLP()
		exec, err := model.NewExec(env.Backend(), newStore(), func(scope *model.Scope, x, y *graph.Node) *graph.Node {
			out := m.Build(2)(scope, []*graph.Node{x})[0]
			epl.AddToCollection(epl.GlobalConcat, out)
			epl.Optimizer(sgd()).UpdateGraph(scope, x.Graph(), graph.ReduceAllMean(graph.Square(graph.Sub(out, y))))
			return out
		})
		if err != nil {
			return err
		}
		for batch, err := range env.Dataset(first(Model{Batch: m.Batch}, 5)).Iter() {
			if err != nil {
				return err
			}
			out, err := exec.Call(batch.Inputs[0], batch.Labels[0])
			if err != nil {
				return err
			}
			fmt.Println("result", out[0].Shape(), numbers(out[0]))
		}
		return nil
	}
}
