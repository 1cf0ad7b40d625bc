// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package equiv

import (
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"

	. "github.com/gomlx/gomlx/core/graph"
	"github.com/gomlx/gomlx/ml/model"
	"github.com/gomlx/gomlx/ml/train/optimizer"

	"github.com/easyparallel/epl"
)

// planFile writes down the plan of the last training program.
func planFile(t *testing.T, env *epl.Env) string {
	t.Helper()
	file, err := os.Create(filepath.Join(t.TempDir(), "plan.json"))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	if err := env.Plan().Encode(file); err != nil {
		t.Fatal(err)
	}
	return file.Name()
}

// within is a model whose middle is in a TaskGraph.
func within(s epl.Strategy, m Model) Model {
	inner := m.Build
	m.Build = func(scope *model.Scope, x *Node) (y *Node) {
		epl.With(x, s, func() { y = inner(scope, x) })
		return y
	}
	return m
}

// A run by a plan that was written down gives every bit of the run that it was made for, though nothing but the plan says how.
func TestAPinnedPlanReproducesEveryBit(t *testing.T) {
	mlp, transformer := Models()[0], blocksOfTransformer(2)
	for name, c := range map[string]struct {
		m       Model
		devices int
		params  map[string]any
	}{
		"data parallel":   {mlp, 3, map[string]any{"pipeline.num_micro_batch": 2}},
		"stages":          {transformer, 4, map[string]any{"auto.auto_parallel": true, "pipeline.num_stages": 2, "pipeline.num_micro_batch": 3}},
		"split":           {within(epl.Split(2, "all"), transformer), 2, nil},
		"recompute, v2":   {transformer, 2, map[string]any{"gradient_checkpoint.type": "auto", "zero.level": "v2"}},
		"v1 in groups":    {transformer, 2, map[string]any{"zero.level": "v1", "optimizer.num_apply_group": 3}},
		"offload, AMP":    {transformer, 2, map[string]any{"offload.level": "v0", "amp.level": "O1", "amp.dtype": "bfloat16"}},
		"split, replicas": {within(epl.Split(2, "all"), transformer), 4, map[string]any{"zero.level": "v2", "pipeline.num_micro_batch": 2}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			params := map[string]any{"cluster.colocate_split_and_replicate": false}
			maps.Copy(params, c.params)
			decided := newCluster(t, c.devices, 1, params, epl.WithInner("cpu"))
			want := trainParallel(t, decided, c.m, optimizer.Adam().Done(), 4)
			pinned, err := epl.Init(nil, epl.WithInner("cpu"), epl.WithLocalDevices(c.devices), epl.WithPlan(planFile(t, decided)))
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = pinned.Close() })
			got := trainParallel(t, pinned, c.m, optimizer.Adam().Done(), 4)
			if err := SameBits(want, got); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestAPlanOfSomethingElseIsRefused(t *testing.T) {
	m := Model{"mlp", MLP(2, 16, false), Models()[0].Loss, Regression(8, 8)}
	env := newCluster(t, 2, 1, nil)
	trainParallel(t, env, m, sgd(), 1)
	file := planFile(t, env)
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	changed := func(t *testing.T, old, new string) string {
		name := filepath.Join(t.TempDir(), "other.json")
		if !strings.Contains(string(text), old) {
			t.Fatalf("the plan has no %q", old)
		}
		if err := os.WriteFile(name, []byte(strings.Replace(string(text), old, new, 1)), 0o644); err != nil {
			t.Fatal(err)
		}
		return name
	}
	refused := func(t *testing.T, file string, devices int, m Model, words ...string) {
		t.Helper()
		env, err := epl.Init(nil, epl.WithLocalDevices(devices), epl.WithPlan(file))
		if err == nil {
			defer env.Close()
			_, err = TrainOn(env.Backend(), env.Dataset(Dataset{m.Batch}), m, epl.Optimizer(sgd()), 1)
		}
		for _, word := range append(words, "epl: plan "+file+": ") {
			if err == nil || !strings.Contains(err.Error(), word) {
				t.Errorf("the error does not say %q: %v", word, err)
			}
		}
	}
	t.Run("another cluster", func(t *testing.T) {
		refused(t, file, 3, m, "another cluster", "it has 1 worker with 2 devices", "this one has 1 worker with 3 devices")
	})
	t.Run("a missing variable", func(t *testing.T) {
		refused(t, file, 2, Model{"mlp", MLP(1, 16, false), m.Loss, m.Batch}, `variable "/layer_1/dense/weights", float32[16,16], is missing`)
	})
	t.Run("a new variable", func(t *testing.T) {
		refused(t, file, 2, Model{"mlp", MLP(3, 16, false), m.Loss, m.Batch}, `variable "/layer_2/dense/weights", float32[16,16], is new`)
	})
	t.Run("another shape", func(t *testing.T) {
		refused(t, file, 2, Model{"mlp", MLP(2, 17, false), m.Loss, m.Batch},
			`variable "/layer_0/dense/weights" is float32[8,17], trainable, and was float32[8,16], trainable`)
	})
	t.Run("another batch", func(t *testing.T) {
		refused(t, file, 2, Model{"mlp", m.Build, m.Loss, Regression(9, 8)}, "its inputs are float32[9,8], float32[9,1], and were float32[8,8], float32[8,1]")
	})
	t.Run("another function", func(t *testing.T) {
		refused(t, file, 2, Model{"mlp", func(scope *model.Scope, x *Node) *Node { return Sin(m.Build(scope, x)) }, m.Loss, m.Batch}, "it computes something else")
	})
	t.Run("another version", func(t *testing.T) {
		refused(t, changed(t, `"version": 2`, `"version": 3`), 2, m, "version 3", "this EPL reads version 2")
	})
	t.Run("other passes", func(t *testing.T) {
		refused(t, changed(t, `fused,`, ``), 2, m, "other passes")
	})
	t.Run("another result", func(t *testing.T) {
		refused(t, changed(t, `"result": "`, `"result": "0`), 2, m, "makes something else of program")
	})
	t.Run("a setting that is none", func(t *testing.T) {
		refused(t, changed(t, `"zero.level"`, `"zero.levl"`), 2, m, `"zero.levl"`)
	})
	t.Run("no plan", func(t *testing.T) {
		refused(t, changed(t, `{`, `[`), 2, m, "this is no plan")
	})
}

// The environment wins over the code, as it does where a launcher pins a plan.
func TestTheEnvironmentPinsAPlan(t *testing.T) {
	m := Models()[0]
	env := newCluster(t, 2, 3, nil)
	trainParallel(t, env, m, sgd(), 1)
	t.Setenv(epl.EnvPlanFile, planFile(t, env))
	pinned, err := epl.Init(nil, epl.WithLocalDevices(2), epl.WithPlan("no such file"))
	if err != nil {
		t.Fatal(err)
	}
	defer pinned.Close()
	if n := pinned.Config().Pipeline.NumMicroBatch; n != 3 {
		t.Errorf("%d micro-batches, and the plan has 3", n)
	}
}
