// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package equiv

import (
	"cmp"
	"fmt"
	"maps"
	"path/filepath"
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

// Parts of variables on different workers: every worker ends with the weights of one device, though it has only some rows of
// them.
func TestSplitTaskGraphsOverSeveralWorkersGiveTheWeightsOfOneDevice(t *testing.T) {
	for _, w := range []workers{
		{num: 2, devices: 1, hosts: "a,b"},
		{num: 2, devices: 2},
		{num: 4, devices: 1, hosts: "a,a,b,b"},
	} {
		t.Run(w.String(), func(t *testing.T) { w.agree(t, "split") })
	}
}

func init() {
	parts["split"] = func(w *part) error {
		env, err := w.init(nil)
		if err != nil {
			return err
		}
		n := env.Cluster().TotalDevices()
		if err := env.Close(); err != nil {
			return err
		}
		for i, m := range append(PartedModels(), longSequences()...) {
			p := m.whole(n, 1, 1+i%3)
			switch {
			case m.PerInstance:
				continue
			case n == 4 && i%3 == 1:
				p = m.whole(2, 2, 1+i%2)
			case n == 4 && i%3 == 2 && m.Most > 1 && !m.Colocated:
				p = splitPlan{parts: []int{-1, 3}, replicas: 1, micro: 2, schedule: strategies[i%4]}
			}
			if err := w.split(m, p, nil); err != nil {
				return errors.Wrapf(err, "%s, %s", m.Name, p)
			}
		}
		return nil
	}
}

// split trains over all workers, and on one device of the first worker alone.
func (w *part) split(m Parted, p splitPlan, params map[string]any) error {
	all := p.params(params)
	all["pipeline.num_micro_batch"] = p.micro
	env, err := w.init(all)
	if err != nil {
		return err
	}
	defer env.Close()
	const steps = 3
	got, err := m.under(p).train(env.Backend(), 0, env.Dataset(Dataset{m.Batch}), epl.Optimizer(sgd()), steps)
	if err != nil {
		return err
	}
	w.report(fmt.Sprintf("%s, %s:", m.Name, p), got)
	if !env.IsMain() {
		return nil
	}
	want, err := m.under(p).train(Plain(), 0, Dataset{Joined(m.Batch, p.batches())}, sgd(), steps)
	if err != nil {
		return err
	}
	return cmp.Or(CloseWeights(want, got, 1e-5), CloseLosses(want, got, 1e-5))
}

// The first worker saves and evaluates between steps, though it has only some rows of each variable, and training goes on
// from what it saved, over other devices.
func TestASplitOverSeveralWorkersEvaluatesSavesAndGoesOn(t *testing.T) {
	for _, w := range []workers{{num: 2, devices: 1}, {num: 4, devices: 1, hosts: "a,b,a,b"}} {
		t.Run(w.String(), func(t *testing.T) { w.agree(t, "split checkpoints") })
	}
}

func init() {
	parts["split checkpoints"] = func(w *part) error {
		m := partedModel("classifier")
		folder := filepath.Join(w.folder, "checkpoints")
		adam := func() optimizer.Interface { return optimizer.Adam().LearningRate(1e-3).Done() }
		all := &Run{}
		step := 0
		for _, until := range []int{4, 8} {
			env, err := w.init(map[string]any{"cluster.colocate_split_and_replicate": true})
			if err != nil {
				return err
			}
			defer env.Close()
			k := env.Cluster().TotalDevices()
			p := splitPlan{parts: []int{-k, k}, colocate: true, replicas: 1, micro: 1}
			all.Store = newStore()
			handler, err := checkpoint.Build(all.Store).Dir(folder).Done()
			if err != nil {
				return err
			}
			mean := []metric.Interface{metric.NewMeanMetric("mean", "m", "size", func(_ *model.Scope, _, predictions []*graph.Node) *graph.Node {
				return graph.ReduceAllMean(graph.Abs(predictions[0]))
			}, nil)}
			trainer := train.NewTrainer(env.Backend(), all.Store, m.under(p).Build(0), m.Loss, epl.Optimizer(adam()), nil, mean)
			loop := train.NewLoop(trainer)
			loop.OnStep("loss", 0, func(_ *train.Loop, metrics []*tensors.Tensor) error {
				all.Losses = append(all.Losses, tensors.ToScalar[float32](metrics[0]))
				return nil
			})
			train.EveryNSteps(loop, 2, "save", 100, env.OnFirstWorker(handler.SaveOnStepFn))
			train.EveryNSteps(loop, 3, "evaluate", 90, func(l *train.Loop, _ []*tensors.Tensor) error {
				evaluated, err := trainer.Eval(first(Model{Batch: m.Batch}, 3))
				fmt.Println("evaluation", l.LoopStep, evaluated)
				return err
			})
			from := step
			ds := custom(func(yield func(train.Batch, error) bool) { // go on where the last run stopped
				for i := from; yield(oneBatch(m.Batch, i), nil); i++ {
				}
			})
			if _, err := loop.RunToGlobalStep(env.Dataset(ds), until); err != nil {
				return err
			}
			step = until
		}
		want, err := m.under(splitPlan{parts: []int{-1, 1}}).train(Plain(), 0, Dataset{m.Batch}, adam(), step)
		if err != nil {
			return err
		}
		w.report("restored:", all)
		return CloseLosses(want, all, 1e-3)
	}
}

// Dropout, clipping, float16, data that end in the middle of a step: over a split of several workers as over one.
func TestASplitOverSeveralWorkersDoesWhatOneWorkerDoes(t *testing.T) {
	for _, w := range []workers{{num: 2, devices: 1, hosts: "a,b"}, {num: 2, devices: 2}} {
		t.Run(w.String(), func(t *testing.T) { w.agree(t, "split as one") })
	}
}

func init() {
	parts["split as one"] = func(w *part) error {
		clipped := func() optimizer.Interface { return epl.ClipByGlobalNorm(sgd(), 0.01) }
		adam := func() optimizer.Interface { return optimizer.Adam().LearningRate(1e-3).Done() }
		for _, c := range []struct {
			model  string
			opt    func() optimizer.Interface
			params map[string]any
		}{
			{"dropout", sgd, nil},
			{"batch-norm", sgd, nil},
			{"mlp", clipped, nil},
			{"tied", adam, nil},
			{"classifier", clipped, map[string]any{"communication.fp16": true, "communication.clip_after_allreduce": true}},
		} {
			m := partedModel(c.model)
			p := m.whole(2, 1, 2)
			params := p.params(c.params)
			params["pipeline.num_micro_batch"] = p.micro
			env, err := w.init(params)
			if err != nil {
				return err
			}
			defer env.Close()
			n := env.Cluster().TotalDevices()
			batches := first(Model{Batch: m.Batch}, 2*n+1)
			got, err := m.under(p).train(env.Backend(), 0, env.Dataset(batches), epl.Optimizer(c.opt()), 3)
			if err != nil {
				return errors.Wrap(err, c.model)
			}
			alone, err := w.alone(n, params)
			if err != nil {
				return err
			}
			defer alone.Close()
			want, err := m.under(p).train(alone.Backend(), 0, alone.Dataset(batches), epl.Optimizer(c.opt()), 3)
			if err != nil {
				return errors.Wrap(err, c.model)
			}
			w.report(c.model+":", got)
			if err := CloseLosses(want, got, 1e-4); err != nil {
				return errors.Wrap(err, c.model)
			}
		}
		return nil
	}
}

func TestAKilledDeviceOfASplitIsNamedByTheOthers(t *testing.T) {
	all := workers{num: 3, devices: 1}.start(t, "split for ever")
	for _, r := range all {
		r.says(t, time.Minute, "three steps")
	}
	if err := all[1].cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	for _, i := range []int{0, 2} {
		all[i].ends(t, 5*time.Second, "worker 1", "gone")
	}
}

func init() {
	parts["split for ever"] = func(w *part) error {
		m := partedModel("mlp")
		p := splitPlan{parts: []int{3}, replicas: 1, micro: 1}
		all := map[string]any{}
		maps.Copy(all, p.params(nil))
		env, err := w.init(all)
		if err != nil {
			return err
		}
		defer env.Close()
		loop := train.NewLoop(train.NewTrainer(env.Backend(), newStore(), m.under(p).Build(0), m.Loss, epl.Optimizer(sgd()), nil, nil))
		loop.OnStep("tell", 0, func(loop *train.Loop, _ []*tensors.Tensor) error {
			if loop.LoopStep == 2 {
				fmt.Println("three steps")
			}
			return nil
		})
		_, err = loop.RunSteps(env.Dataset(Dataset{m.Batch}), 1<<30)
		return err
	}
}
