// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package epl_test

import (
	"os"
	"path/filepath"
	"testing"

	. "github.com/gomlx/gomlx/core/graph"
	"github.com/gomlx/gomlx/ml/layers"
	"github.com/gomlx/gomlx/ml/model"
	"github.com/gomlx/gomlx/ml/train"

	"github.com/easyparallel/epl"
)

func TestReplicasAndGlobalBatchAreThoseOfTheLastTrainingProgram(t *testing.T) {
	twoStages := func(scope *model.Scope, x *Node) *Node {
		epl.With(x, epl.Replicate(1, "one"), func() { x = layers.Dense(scope.In("one"), x, true, 3) })
		epl.With(x, epl.Replicate(1, "two"), func() { x = layers.Dense(scope.In("two"), x, true, 1) })
		return x
	}
	unequal := filepath.Join(t.TempDir(), "unequal.yaml")
	if err := os.WriteFile(unequal, []byte("workers:\n  - {devices: 2, speed: [2, 1]}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		params            map[string]any
		devices           int
		model             func(scope *model.Scope, x *Node) *Node
		sizes             ones // of batches
		replicas, samples int
	}{
		"one device":            {nil, 1, nil, ones{5}, 1, 5},
		"gradient accumulation": {map[string]any{"pipeline.num_micro_batch": 3}, 1, nil, ones{5, 5, 5}, 1, 15},
		"data parallelism":      {map[string]any{"pipeline.num_micro_batch": 3}, 2, nil, ones{5, 5, 5, 5, 5, 5}, 2, 30},
		"a pipeline":            {map[string]any{"pipeline.num_micro_batch": 2}, 4, twoStages, ones{3, 3, 3, 3}, 2, 12},
		"unequal shares":        {map[string]any{"pipeline.num_micro_batch": 3, "cluster.description": unequal}, 2, nil, ones{4, 4, 4, 4, 4, 4}, 2, 24},
		"fewer batches at last": {nil, 2, nil, ones{4, 4, 4}, 2, 8},
		"a smaller last batch":  {nil, 2, nil, ones{4, 4, 3, 3}, 2, 6},
	} {
		t.Run(name, func(t *testing.T) {
			env := newEnv(t, c.params, epl.WithLocalDevices(c.devices), epl.WithInner("go"))
			if env.Replicas() != 0 || env.GlobalBatch() != 0 {
				t.Errorf("before the first step: %d replicas, %d samples", env.Replicas(), env.GlobalBatch())
			}
			tr := trainer(env.Backend(), epl.Optimizer(sgd()), c.model)
			if _, err := train.NewLoop(tr).RunEpochs(env.Dataset(c.sizes), 1); err != nil {
				t.Fatal(err)
			}
			if _, err := tr.Eval(env.Dataset(ones{2})); err != nil { // evaluation changes nothing
				t.Fatal(err)
			}
			if env.Replicas() != c.replicas || env.GlobalBatch() != c.samples {
				t.Errorf("%d replicas, %d samples in a step; want %d and %d", env.Replicas(), env.GlobalBatch(), c.replicas, c.samples)
			}
			if !env.IsMain() {
				t.Error("the only worker is not the main one")
			}
		})
	}
}

// A job that goes on from a checkpoint on fewer devices keeps its global batch.
func TestGlobalBatchStaysWhenDevicesAreLost(t *testing.T) {
	dir := t.TempDir()
	for _, devices := range []int{4, 3} {
		env := newEnv(t, nil, epl.WithLocalDevices(devices), epl.WithInner("go"))
		tr := trainer(env.Backend(), epl.Optimizer(sgd()), nil)
		saver, err := env.Checkpoints(tr.Store()).Dir(dir).Done()
		if err != nil {
			t.Fatal(err)
		}
		if _, err := train.NewLoop(tr).RunSteps(env.Dataset(ones{6, 6, 6, 6, 6, 6, 6, 6}), 1); err != nil {
			t.Fatal(err)
		}
		if env.Replicas() != devices || env.GlobalBatch() != 24 {
			t.Errorf("%d devices: %d replicas, %d samples in a step, want 24", devices, env.Replicas(), env.GlobalBatch())
		}
		if err := saver.Save(); err != nil {
			t.Fatal(err)
		}
		if err := env.Close(); err != nil {
			t.Fatal(err)
		}
	}
}
