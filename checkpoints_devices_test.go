// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package epl_test

import (
	"fmt"
	"maps"
	"math"
	"path/filepath"
	"testing"
	"time"

	"github.com/gomlx/compute"
	"github.com/gomlx/gomlx/core/tensors"
	"github.com/gomlx/gomlx/ml/model"
	"github.com/gomlx/gomlx/ml/train"

	"github.com/easyparallel/epl"
	"github.com/easyparallel/epl/checkpoint"
)

// fourDevices are plans that divide the model by a split, by ZeRO, by stages, and by all of them at once.
var fourDevices = map[string]savedPlan{
	"split and ZeRO v2":    {4, map[string]any{"zero.level": "v2"}, epl.Split(2, "one"), epl.Split(2, "two")},
	"stages and ZeRO v2":   {4, map[string]any{"cluster.colocate_split_and_replicate": false, "zero.level": "v2", "pipeline.num_micro_batch": 2}, epl.Replicate(1, "one"), epl.Replicate(1, "two")},
	"stages of a split":    {4, map[string]any{"cluster.colocate_split_and_replicate": false, "pipeline.num_micro_batch": 2}, epl.Split(2, "one"), epl.Split(2, "two")},
	"all, two per device":  {4, interleaved("v2"), epl.Split(2, "one"), epl.Split(2, "two")},
	"all, and ZeRO v1":     {4, interleaved("v1"), epl.Split(2, "one"), epl.Split(2, "two")},
	"split, uneven stages": {4, map[string]any{"cluster.colocate_split_and_replicate": false, "pipeline.num_micro_batch": 3}, epl.Replicate(1, "one"), epl.Split(3, "two")},
}

// interleaved has both stages on the same devices, one after the other, with micro-batches.
func interleaved(zero string) map[string]any {
	return map[string]any{"cluster.colocate_split_and_replicate": false, "zero.level": zero, "pipeline.num_micro_batch": 2, "pipeline.strategy": "Interleaved", "pipeline.stages_per_device": 2}
}

// What four devices have saved predicts the same on one, two, three and eight, under other plans, and in plain GoMLX.
func TestACheckpointOfFourDevicesPredictsTheSameOnAnyNumber(t *testing.T) {
	split, stages := savedPlans["split, uneven"], savedPlans["stages, split, ZeRO"]
	others := []savedPlan{savedPlans["one device"], savedPlans["stages"], split, savedPlans["ZeRO v2"],
		{8, stages.params, epl.Split(2, "one"), epl.Split(2, "two")}, {2, nil, epl.Split(2, "one"), epl.Split(2, "two")}}
	for name, from := range fourDevices {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			r := from.start(t, dir, nil)
			r.train(t, 3)
			if err := r.saver.Save(); err != nil {
				t.Fatal(err)
			}
			saved := from.predict(t, r.env.Backend(), r.store)
			r.train(t, 4)
			next := from.predict(t, r.env.Backend(), r.store)
			if math.Abs(float64(next[0]-saved[0])) < 1e-3 {
				t.Fatal("a step changes too little to tell checkpoints apart")
			}
			if name == "all, two per device" {
				if n := piecesOf(t, dir, "/two/dense/weights"); n != 4 {
					t.Errorf("the weights are in %d pieces: two of a split, each divided over two replicas, are 4", n)
				}
			}
			plain, err := compute.NewWithConfig("go")
			if err != nil {
				t.Fatal(err)
			}
			samePredictions(t, "plain GoMLX", saved, from.predict(t, plain, loadedByGoMLX(t, dir)))
			for _, p := range others {
				on := fmt.Sprint(p.devices, " devices, ")
				to := p.start(t, dir, nil)
				samePredictions(t, on+"loaded", saved, p.predict(t, to.env.Backend(), to.store))
				again := p.start(t, dir, nil) // the step reads weights straight into their places
				again.train(t, 4)
				samePredictions(t, on+"after the next step", next, p.predict(t, again.env.Backend(), again.store))
				for _, e := range []*epl.Env{to.env, again.env} {
					if err := e.Close(); err != nil {
						t.Error(err)
					}
				}
			}
		})
	}
}

// What is read while the next step runs is what it was before that step. The step leaves it alone, or, where devices have a limit of memory, waits before it
// updates what is not copied yet.
func TestStepsDoNotChangeWhatIsBeingSaved(t *testing.T) {
	plans := maps.Clone(savedPlans)
	for name, p := range savedPlans {
		p.params = maps.Clone(p.params)
		if p.params == nil {
			p.params = map[string]any{}
		}
		p.params["cluster.device_memory"] = 1 << 30
		plans[name+", with a limit"] = p
	}
	for name, p := range plans {
		t.Run(name, func(t *testing.T) {
			want, undisturbed := map[int64]map[string]string{}, p.start(t, t.TempDir(), nil)
			const steps = 3
			for step := 1; step <= steps; step++ {
				undisturbed.train(t, step)
				want[int64(step)] = values(t, undisturbed.store)
				delete(want[int64(step)], "/trainer/train_last_global_step") // the loop's
			}
			dir := t.TempDir()
			r := p.start(t, dir, func(b *epl.CheckpointBuilder) *epl.CheckpointBuilder { return b.Keep(-1).EverySteps(1) })
			epl.BeforeCopy(func() { time.Sleep(2 * time.Millisecond) }) // the next step runs meanwhile
			defer epl.BeforeCopy(nil)
			r.loop.OnStep("until that before is written", 50, func(*train.Loop, []*tensors.Tensor) error {
				epl.WaitForSave(r.saver) // or this one is skipped
				return nil
			})
			r.train(t, steps)
			if err := r.saver.Close(); err != nil {
				t.Fatal(err)
			}
			all, _, _, err := checkpoint.List(checkpoint.OS, dir)
			if err != nil || len(all) != steps {
				t.Fatalf("%d checkpoints: %v", len(all), err)
			}
			for _, c := range all {
				if err := sameAsSaved(filepath.Join(dir, c.Name), want[c.Manifest.Step]); err != nil {
					t.Errorf("step %d: %v", c.Manifest.Step, err)
				}
			}
		})
	}
}

// piecesOf is in how many pieces the newest checkpoint of a folder has a variable.
func piecesOf(t *testing.T, dir, path string) int {
	t.Helper()
	_, newest := checkpointsIn(t, dir)
	c, err := checkpoint.Open(checkpoint.OS, newest)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	regions, _ := c.Pieces(path)
	return len(regions)
}

// predict computes what the model makes of a batch.
func (p savedPlan) predict(t *testing.T, backend compute.Backend, store *model.Store) []float32 {
	t.Helper()
	exec, err := model.NewExec(backend, store, p.model)
	if err != nil {
		t.Fatal(err)
	}
	x := make([]float32, 24*5)
	for i := range x {
		x[i] = float32(math.Cos(float64(i)))
	}
	y, err := exec.Call1(tensors.FromFlatDataAndDimensions(x, 24, 5))
	if err != nil {
		t.Fatalf("%+v", err)
	}
	return tensors.MustCopyFlatData[float32](y)
}

// samePredictions compares: sums of a split are in another order.
func samePredictions(t *testing.T, where string, want, got []float32) {
	t.Helper()
	if len(want) != len(got) || len(want) == 0 {
		t.Errorf("%s: %d predictions, not %d", where, len(got), len(want))
		return
	}
	for i := range want {
		if math.Abs(float64(want[i]-got[i])) > 1e-5*(1+math.Abs(float64(want[i]))) {
			t.Errorf("%s: prediction %d is %v, not %v", where, i, got[i], want[i])
			return
		}
	}
}
