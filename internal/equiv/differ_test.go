// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package equiv

import (
	"fmt"
	"maps"
	"strings"
	"testing"

	"github.com/gomlx/gomlx/core/graph"
	"github.com/gomlx/gomlx/core/tensors"
	"github.com/gomlx/gomlx/ml/model"
	"github.com/gomlx/gomlx/ml/train"

	"github.com/easyparallel/epl"
	"github.com/easyparallel/epl/checkpoint"
)

// A bit changes in the memory of one device; whoever holds the same notices, whatever the plan, and before a hook of the loop can save anything.
func TestABitThatChangesInADeviceIsFoundAndItsRankIsNamed(t *testing.T) {
	mlp := PartedModels()[0]
	for _, c := range []struct {
		load   workload
		params map[string]any
		fault  string
		want   string
	}{
		{replicated(stagedMLP(), 3, 1), nil, "rank=1", `on rank 1 is not that of rank 0 and rank 2`},
		{replicated(stagedMLP(), 2, 2), nil, "rank=1", `is not the same on rank 0 and rank 1, and which is right cannot be known`},
		{replicated(stagedMLP(), 3, 1), nil, "rank=2,variable=/global_step", `variable "/global_step" on rank 2 is not that of rank 0 and rank 1`},
		{replicated(stagedMLP(), 3, 1), map[string]any{"zero.level": "v0"}, "rank=0", `on rank 0 is not that of rank 1 and rank 2`},
		{replicated(stagedMLP(), 3, 1), map[string]any{"zero.level": "v1"}, "rank=0", `on rank 0 is not that of rank 1 and rank 2`},
		{replicated(stagedMLP(), 3, 1), map[string]any{"zero.level": "v2"}, "rank=2", `on rank 2 is not that of rank 0 and rank 1`},
		{replicated(stagedMLP(), 3, 1), map[string]any{"offload.level": "v0"}, "rank=1", `on rank 1 is not that of rank 0 and rank 2`},
		{replicated(stagedMLP(), 3, 1), map[string]any{"amp.level": "O1", "reliability.nan": "skip"}, "rank=1", `on rank 1 is not that of rank 0 and rank 2`},
		{inStages(stagedMLP(), pipelinePlan{stages: 2, replicas: 2, micro: 2}), nil, "rank=3", `is not the same on rank 1 and rank 3`},
		{inStages(stagedMLP(), pipelinePlan{stages: 2, replicas: 3, micro: 1}), nil, "rank=3", `on rank 3 is not that of rank 1 and rank 5`},
		{inParts(mlp, splitPlan{parts: []int{2}, replicas: 3, micro: 1}), nil, "rank=2", `on rank 2 is not that of rank 0 and rank 4`},
	} {
		t.Run(fmt.Sprint(c.load.name, " ", c.params, " ", c.fault), func(t *testing.T) {
			for every, step := range []int{1: 3, 2: 4} {
				if level := c.params["zero.level"]; every == 0 || every > 1 && (level == "v0" || level == "v1") { // weights are gathered anew in every step
					continue
				}
				params := map[string]any{"reliability.check_every": every}
				maps.Copy(params, c.params)
				t.Setenv(epl.EnvFaults, "flip:step=3,"+c.fault)
				err := c.load.model.stopped(t, c.load.make(t, params), c.load.stages, step-1)
				if !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), fmt.Sprintf("after step %d, bits differ", step)) {
					t.Errorf("%v lacks %q", err, c.want)
				}
			}
		})
	}
}

// All workers end with the same error, which names who differs; and nothing is saved that was not compared.
func TestABitThatChangesInAWorkerEndsAllOfThem(t *testing.T) {
	t.Setenv(epl.EnvFaults, "flip:rank=2,step=3")
	workers{num: 3, devices: 1, hosts: "a,b,a"}.agree(t, "differ")
	workers{num: 3, devices: 2}.agree(t, "differ")
}

func init() {
	parts["differ"] = func(w *part) error {
		env, err := w.init(map[string]any{"reliability.check_every": 2})
		if err != nil {
			return err
		}
		devices := env.Cluster().TotalDevices() / 3
		want := fmt.Sprintf("after step 4, bits differ that have to be equal (reliability.check_every): variable \"/stage_1/dense/weights\" on rank 2 of worker %d (", 2/devices)
		_, err = stagedMLP().train(env.Backend(), 2, env.Dataset(Dataset{stagedMLP().Batch}), epl.Optimizer(sgd()), 5)
		if err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "is not that of rank 0 of worker 0 (") {
			return fmt.Errorf("%v lacks %q", err, want)
		}
		fmt.Println("found at step 4")
		_ = env.Close() // which says why the job ended
		return nil
	}
}

// A checkpoint between two checks is compared before it is written.
func TestNothingIsSavedThatDiffers(t *testing.T) {
	t.Setenv(epl.EnvFaults, "flip:rank=1,step=3")
	m := stagedMLP()
	env := newCluster(t, 3, 1, map[string]any{"reliability.check_every": 100})
	store := newStore()
	dir := t.TempDir()
	saver, err := env.Checkpoints(store).Dir(dir).Done()
	if err != nil {
		t.Fatal(err)
	}
	loop := train.NewLoop(train.NewTrainer(env.Backend(), store, m.Build(2), m.Loss, epl.Optimizer(adam()), nil, nil))
	saved := 0
	loop.OnStep("save", 0, func(*train.Loop, []*tensors.Tensor) error {
		err := saver.Save()
		if err == nil {
			saved++
		}
		return err
	})
	_, err = loop.RunSteps(env.Dataset(Dataset{m.Batch}), 5)
	if err == nil || !strings.Contains(err.Error(), "after step 3, bits differ") || !strings.Contains(err.Error(), "After step 2 all were equal") {
		t.Errorf("%v", err)
	}
	all, _, _, err := checkpoint.List(checkpoint.OS, dir)
	if err != nil || len(all) == 0 || all[len(all)-1].Manifest.Step != 2 || saved != 2 {
		t.Errorf("%d saves, checkpoints %v, %v", saved, all, err)
	}
}

// Weights that are not trained are compared, too.
func TestABitThatChangesInFrozenWeightsIsFound(t *testing.T) {
	t.Setenv(epl.EnvFaults, "flip:rank=2,step=3,variable=/frozen/w")
	m := stagedMLP()
	build := m.Build(1)
	m.Build = func(int) func(scope *model.Scope, inputs []*graph.Node) []*graph.Node {
		return func(scope *model.Scope, inputs []*graph.Node) []*graph.Node {
			frozen := scope.In("frozen").VariableWithValue("w", []float32{0.5, 1, 2}).SetTrainable(false)
			out := build(scope, inputs)
			return []*graph.Node{graph.Mul(out[0], graph.ReduceAllMean(frozen.NodeValue(out[0].Graph())))}
		}
	}
	for _, params := range []map[string]any{{}, {"zero.level": "v2"}} {
		params["reliability.check_every"] = 1
		err := m.stopped(t, newCluster(t, 3, 1, params), 1, 2)
		if want := `variable "/frozen/w" on rank 2 is not that of rank 0 and rank 1`; !strings.Contains(err.Error(), want) {
			t.Errorf("%v lacks %q", err, want)
		}
	}
}
