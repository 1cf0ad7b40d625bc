// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package equiv

import (
	"cmp"
	"fmt"
	"maps"
	"path/filepath"
	"testing"
	"time"

	. "github.com/gomlx/gomlx/core/graph"
	"github.com/gomlx/gomlx/core/tensors"
	"github.com/gomlx/gomlx/ml/layers"
	"github.com/gomlx/gomlx/ml/model"
	"github.com/gomlx/gomlx/ml/model/checkpoint"
	"github.com/gomlx/gomlx/ml/train"
	"github.com/gomlx/gomlx/ml/train/optimizer"
	"github.com/pkg/errors"

	"github.com/easyparallel/epl"
)

// Parts of what is divided are on different workers, which all end with the weights of one worker.
func TestTechniquesThatSaveMemoryWorkOverSeveralWorkers(t *testing.T) {
	for _, w := range []workers{{num: 2, devices: 1, hosts: "a,b"}, {num: 2, devices: 2}} {
		t.Run(w.String(), func(t *testing.T) { w.agree(t, "memory") })
	}
}

func init() {
	parts["memory"] = func(w *part) error {
		for _, c := range []struct {
			model  Parted
			parts  []int
			micro  int
			opt    func() optimizer.Interface
			params map[string]any
		}{
			{partedModel("losses"), []int{-1}, 2, sgd, map[string]any{"zero.level": "v0"}},
			{partedModel("tied"), []int{-1}, 1, adam, map[string]any{"zero.level": "v1"}},
			{partedModel("embeddings"), []int{-1}, 3, func() optimizer.Interface { return velocity{} }, map[string]any{"zero.level": "v2", "gradient_checkpoint.type": "auto"}},
			{partedModel("mlp"), []int{-1}, 1, func() optimizer.Interface { return epl.ClipByGlobalNorm(adam(), 0.01) },
				map[string]any{"zero.level": "v2", "communication.clip_after_allreduce": true, "optimizer.num_apply_group": 3}},
			{partedModel("classifier"), []int{-1}, 2, func() optimizer.Interface { return rowwise{} }, map[string]any{"zero.level": "v2"}},
			{partedModel("mlp"), []int{-1}, 1, sgd, map[string]any{"zero.level": "v1", "communication.fp16": true}},
			{partedModel("mlp"), []int{-1, 1}, 3, adam, map[string]any{"zero.level": "v2"}}, // one device has all, or stages
			{partedModel("classifier"), []int{2}, 1, adam, map[string]any{"zero.level": "v2"}},
			{ampleClassifier(), []int{-1}, 1, adam, map[string]any{"offload.level": "v0"}},
			{ampleClassifier(), []int{-1}, 2, sgd, map[string]any{"offload.level": "v0", "zero.level": "v2"}},
		} {
			p := splitPlan{parts: c.parts, micro: c.micro}
			if err := w.memory(c.model, p, c.opt, c.params); err != nil {
				return errors.Wrapf(err, "%s, %v, %v", c.model.Name, c.parts, c.params)
			}
		}
		return nil
	}
}

// memory trains over all workers with techniques that save memory, and without over as many devices of the first worker alone.
func (w *part) memory(m Parted, p splitPlan, opt func() optimizer.Interface, params map[string]any) error {
	plain := p.params(map[string]any{"pipeline.num_micro_batch": p.micro})
	for _, key := range []string{"communication.clip_after_allreduce", "communication.fp16"} {
		if v := params[key]; v != nil {
			plain[key] = v
		}
	}
	all := maps.Clone(plain)
	maps.Copy(all, params)
	env, err := w.init(all)
	if err != nil {
		return err
	}
	defer env.Close()
	n := env.Cluster().TotalDevices()
	if p.devices() > n {
		return nil
	}
	ds := first(Model{Batch: m.Batch}, 3*n*p.micro-1) // the last step is incomplete
	got, err := m.under(p).train(env.Backend(), 0, env.Dataset(ds), epl.Optimizer(opt()), 3)
	if err != nil {
		return err
	}
	w.report(fmt.Sprintf("%s, %v:", m.Name, params), got)
	if params["offload.level"] != nil {
		if err := hasOnHost(env); err != nil {
			return err
		}
	}
	if !env.IsMain() {
		return nil
	}
	alone, err := w.alone(n, plain)
	if err != nil {
		return err
	}
	defer alone.Close()
	want, err := m.under(p).train(alone.Backend(), 0, alone.Dataset(ds), epl.Optimizer(opt()), 3)
	if err != nil {
		return err
	}
	return CloseLosses(want, got, 1e-3) // by loss, because of Adam and float16
}

// One worker reads all variables between steps and saves, though it has only parts of them, while the other goes on.
func TestAWorkerReadsAndSavesWhatIsDividedOverSeveral(t *testing.T) {
	workers{num: 2, devices: 1}.agree(t, "divided checkpoints")
}

func init() {
	parts["divided checkpoints"] = func(w *part) error {
		m := ampleClassifier()
		one := splitPlan{parts: []int{-1}}
		folder := filepath.Join(w.folder, "checkpoints")
		all := &Run{}
		for i, level := range []string{"v2", "v0", "", "v1", "v2"} {
			env, err := w.init(map[string]any{"zero.level": level, "offload.level": []string{"", "v0"}[i/3]})
			if err != nil {
				return err
			}
			defer env.Close()
			all.Store = newStore()
			handler, err := checkpoint.Build(all.Store).Dir(folder).Done()
			if err != nil {
				return err
			}
			loop := train.NewLoop(train.NewTrainer(env.Backend(), all.Store, m.under(one).Build(0), m.Loss, epl.Optimizer(velocity{}), nil, nil))
			loop.OnStep("loss", 0, func(_ *train.Loop, metrics []*tensors.Tensor) error {
				all.Losses = append(all.Losses, tensors.ToScalar[float32](metrics[0]))
				return nil
			})
			loop.OnStep("read", 10, env.OnFirstWorker(func(loop *train.Loop, _ []*tensors.Tensor) error {
				if loop.LoopStep%2 == 0 {
					for _, v := range variables(all.Store) {
						numbers(v.MustValue())
					}
				}
				return nil
			}))
			train.EveryNSteps(loop, 3, "save", 100, env.OnFirstWorker(handler.SaveOnStepFn))
			ds := custom(func(yield func(train.Batch, error) bool) { // go on where the last run stopped
				for k := 2 * 3 * i; yield(oneBatch(m.Batch, k), nil); k++ {
				}
			})
			if _, err := loop.RunToGlobalStep(env.Dataset(ds), 3*(i+1)); err != nil {
				return errors.Wrapf(err, "level %q", level)
			}
			if i/3 > 0 {
				if err := hasOnHost(env); err != nil {
					return err
				}
			}
		}
		want, err := m.under(one).train(Plain(), 0, Dataset{Joined(m.Batch, 2)}, epl.Optimizer(velocity{}), len(all.Losses))
		if err != nil {
			return err
		}
		w.report("restored:", all)
		return cmp.Or(CloseLosses(want, all, 1e-5), closeTrainable(want, all))
	}
}

// travelling are the settings under which parts of variables are on their way in the middle of a step.
var travelling = map[string]map[string]any{
	"v0":              {"zero.level": "v0"}, // in common memory
	"v2":              {"zero.level": "v2"},
	"offload":         {"offload.level": "v0"},
	"v2 with offload": {"zero.level": "v2", "offload.level": "v0"},
}

func init() {
	for name, params := range travelling {
		// It trains until something happens, and says when the third step is done.
		parts["for ever under "+name] = func(w *part) error {
			env, err := w.init(params)
			if err != nil {
				return err
			}
			defer env.Close()
			m := ample()
			loop := train.NewLoop(train.NewTrainer(env.Backend(), newStore(), m.Build(3), m.Loss, epl.Optimizer(adam()), nil, nil))
			loop.OnStep("print", 0, func(l *train.Loop, _ []*tensors.Tensor) error {
				if l.LoopStep == 3 {
					fmt.Println("three steps")
				}
				return nil
			})
			_, err = loop.RunSteps(env.Dataset(Dataset{m.Batch}), 1<<30)
			return err
		}
		parts["small and large under "+name] = func(w *part) error {
			env, err := w.init(params)
			if err != nil {
				return err
			}
			defer env.Close()
			run, err := smallAndLarge(env)
			if err != nil {
				return err
			}
			w.report("trained:", run)
			return nil
		}
	}
}

func TestAKilledWorkerIsNamedThoughPartsAreOnTheirWay(t *testing.T) {
	for name := range travelling {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			all := workers{num: 2, devices: 1}.start(t, "for ever under "+name)
			for _, r := range all {
				r.says(t, time.Minute, "three steps")
			}
			if err := all[1].cmd.Process.Kill(); err != nil {
				t.Fatal(err)
			}
			all[0].ends(t, 5*time.Second, "worker 1", "gone")
		})
	}
}

// smallAndLarge trains two models in turns. They share layers that are small beside the others of the large one, where they
// stay whole, and not in the small one, where they are divided.
func smallAndLarge(env *epl.Env) (*Run, error) {
	run := &Run{Store: newStore()}
	var loops []*train.Loop
	for _, large := range []int{0, 2} {
		build := func(scope *model.Scope, inputs []*Node) []*Node {
			x := inputs[0]
			for i := range 4 {
				x = Tanh(layers.Dense(scope.In("small_%d", i), x, true, 32))
			}
			for i := range large {
				x = Tanh(layers.Dense(scope.In("large_%d", i), x, true, 1024))
			}
			return []*Node{layers.Dense(scope.In("out_%d", large), x, true, 1)}
		}
		loop := train.NewLoop(train.NewTrainer(env.Backend(), run.Store, build, Models()[0].Loss, epl.Optimizer(sgd()), nil, nil))
		loop.OnStep("loss", 0, func(_ *train.Loop, metrics []*tensors.Tensor) error {
			run.Losses = append(run.Losses, tensors.ToScalar[float32](metrics[0]))
			return nil
		})
		loops = append(loops, loop)
	}
	for range 10 {
		for _, loop := range loops {
			if _, err := loop.RunSteps(env.Dataset(Dataset{Regression(2, 8)}), 1); err != nil {
				return nil, err
			}
		}
	}
	return run, nil
}

// A worker reads the parts of others before those take them for a program that divides otherwise.
func TestWorkersTrainProgramsInTurnsThatDivideVariablesOtherwise(t *testing.T) {
	for name := range travelling {
		t.Run(name, func(t *testing.T) { workers{num: 2, devices: 1}.agree(t, "small and large under "+name) })
	}
}
