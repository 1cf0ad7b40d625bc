// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package plan_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/gomlx/gomlx/ml/train/loss"

	"github.com/easyparallel/epl/cluster"
	"github.com/easyparallel/epl/config"
	"github.com/easyparallel/epl/internal/equiv"
	"github.com/easyparallel/epl/ir"
	"github.com/easyparallel/epl/passes"
	"github.com/easyparallel/epl/plan"
)

// unannotated are models for which EPL chooses.
func unannotated() []equiv.Model {
	return []equiv.Model{
		language(2, 0),
		{Name: "perceptron", Build: perceptron, Loss: loss.MeanSquaredError, Batch: equiv.Regression(8, 8)},
		{Name: "checkpointed", Build: checkpointed, Loss: loss.MeanSquaredError, Batch: equiv.Regression(8, 8)},
	}
}

// onDevices are a configuration that lets EPL choose, and a described cluster.
func onDevices(t testing.TB, devices []int, settings map[string]string) (*config.Config, plan.Target) {
	t.Helper()
	c, err := cluster.New(cluster.Spec{Devices: devices})
	if err != nil {
		t.Fatal(err)
	}
	cfg, err := config.New(map[string]any{"auto.auto_parallel": true})
	if err != nil {
		t.Fatal(err)
	}
	var list []string
	for k, v := range settings {
		list = append(list, k+"="+v)
	}
	if cfg, err = cfg.With(list); err != nil {
		t.Fatal(err)
	}
	set, err := passes.Parse("", nil)
	if err != nil {
		t.Fatal(err)
	}
	return cfg, plan.Target{Cluster: c, Passes: set, AsWritten: true}
}

// searched is what EPL chooses for a program on a described cluster.
func searched(t testing.TB, p *ir.Program, devices []int, settings map[string]string) (*plan.Plan, error) {
	t.Helper()
	cfg, target := onDevices(t, devices, settings)
	pl, _, err := plan.Decide(p, cfg, target)
	return pl, err
}

func mustSearch(t testing.TB, p *ir.Program, devices []int, settings map[string]string) *plan.Plan {
	t.Helper()
	pl, err := searched(t, p, devices, settings)
	if err != nil {
		t.Fatalf("%+v", err)
	}
	return pl
}

// Each way is planned by itself, too, as the only one that there is.
func TestTheChosenWayIsTheBestOfAll(t *testing.T) {
	defer func() { plan.Consider = nil }()
	for _, m := range unannotated() {
		p := recorded(t, m)
		for _, devices := range [][]int{{4}, {6}}[:clusters(t)] {
			plan.Consider = nil
			best := mustSearch(t, p, devices, nil).Ways
			for _, w := range best {
				groups := func(w plan.Way) int { return w.Stages / max(w.PerDevice, 1) }
				plan.Consider = func(_ *ir.Program, x plan.Way) bool { // what is run in another order is derived from the usual one
					usual := x.PerDevice == 0 && !strings.Contains(x.String(), "pipeline.strategy")
					return x.String() == w.String() && x.Part == w.Part || usual && groups(x) == groups(w) && x.Split == w.Split && x.Replicas == w.Replicas
				}
				ways := mustSearch(t, p, devices, nil).Ways
				only := ways[slices.IndexFunc(ways, func(x plan.Way) bool { return x.String() == w.String() && x.Part == w.Part })]
				if only.Step < best[0].Step*98/100 {
					t.Errorf("%s on %v: %s takes %s, and %s, which was chosen, %s", m.Name, devices, &only, only.Step, &best[0], best[0].Step)
				}
				if only.Step != w.Step {
					t.Errorf("%s on %v: %s takes %s, and %s among others", m.Name, devices, &w, only.Step, w.Step)
				}
			}
		}
	}
}

// With every order of stages and of devices given, one after the other, no search finds a faster way than the one that may choose them. On slow links between hosts the order of devices
// matters.
func TestTheChosenOrderIsTheBestOfAll(t *testing.T) {
	found := map[string]bool{}
	for _, m := range unannotated() {
		p := recorded(t, m)
		for _, devices := range [][]int{{4}, {2, 2}}[:clusters(t)] {
			settings := map[string]string{"auto.global_batch": fmt.Sprint(4 * p.Inputs[0].Shape.Dimensions[0] * 2)}
			free := mustSearch(t, p, devices, settings)
			best := free.Ways[0]
			for _, x := range best.Settings {
				found[x] = true
			}
			for _, strategy := range []string{"PreferBackward", "PreferForward", "PreferBackwardOptimizer", "ZeroBubble", "Interleaved"} {
				for _, intra := range []string{"true", "false"}[:len(devices)] { // one host has one order
					settings["pipeline.strategy"], settings["cluster.device_place_prefer_intra_node"] = strategy, intra
					delete(settings, "pipeline.stages_per_device")
					if strategy == "Interleaved" {
						settings["pipeline.stages_per_device"] = "2"
					}
					pl, err := searched(t, p, devices, settings)
					if err != nil {
						continue // it has too few layers
					}
					if w := pl.Ways[0]; w.Step < best.Step*98/100 {
						t.Errorf("%s on %v: with %v %s takes %s; %s, which was chosen, %s", m.Name, devices, settings, &w, w.Step, &best, best.Step)
					}
				}
			}
		}
	}
	if !found["pipeline.strategy=ZeroBubble"] || !found["pipeline.strategy=PreferForward"] {
		t.Errorf("no other order was ever better: %v", found)
	}
}

// The samples of a step do not depend on the way, and what the user gave stays as it is.
func TestWaysKeepTheBatchAndWhatIsGiven(t *testing.T) {
	p := recorded(t, language(2, 0))
	for name, c := range map[string]struct {
		settings map[string]string
		ok       func(w plan.Way) bool
	}{
		"devices × batch": {nil, func(w plan.Way) bool { return w.Replicas*w.MicroBatches == 4 }},
		"global batch":    {map[string]string{"auto.global_batch": "32"}, func(w plan.Way) bool { return w.Replicas*w.MicroBatches == 8 }}, // of 4
		"micro-batches":   {map[string]string{"pipeline.num_micro_batch": "3"}, func(w plan.Way) bool { return w.MicroBatches == 3 }},
		"stages":          {map[string]string{"pipeline.num_stages": "2"}, func(w plan.Way) bool { return w.Stages == 2 && w.Replicas*w.MicroBatches == 4 }},
	} {
		pl := mustSearch(t, p, []int{4}, c.settings)
		for _, w := range pl.Ways {
			if !c.ok(w) {
				t.Errorf("%s: %s with %d micro-batches", name, &w, w.MicroBatches)
			}
		}
		w := pl.Ways[0]
		if pl.Replicas != w.Replicas || pl.MicroBatches != w.MicroBatches || w.Why != "" {
			t.Errorf("%s: the plan has %d replicas with %d micro-batches, and chose %+v", name, pl.Replicas, pl.MicroBatches, w)
		}
	}
	pl := mustSearch(t, p, []int{4}, map[string]string{"zero.level": "v1", "cluster.device_memory": "1MiB"})
	for _, s := range pl.Settings {
		if s.Key == "zero.level" && s.Value != "v1" {
			t.Errorf("zero.level is %s (%s)", s.Value, s.Why)
		}
	}
}

// What model replicas cannot share evenly, they share as evenly as can be.
func TestBatchesThatReplicasCannotShareEvenly(t *testing.T) {
	plan.Consider = func(_ *ir.Program, w plan.Way) bool { return w.Replicas == 4 }
	defer func() { plan.Consider = nil }()
	p := recorded(t, language(2, 0))
	pl := mustSearch(t, p, []int{4}, map[string]string{"auto.global_batch": "24"}) // 6 batches
	if w := pl.Ways[0]; w.Batches != 6 || w.Samples != 24 || w.Step == 0 || w.MicroBatches != 2 {
		t.Errorf("%+v", w)
	}
	if pl.Shares == nil || !slices.Equal(pl.Shares.MicroBatches, []int{2, 2, 1, 1}) || !strings.Contains(pl.Shares.Why, "which 4 model replicas cannot share evenly") {
		t.Errorf("shares %+v", pl.Shares)
	}
	_, err := searched(t, p, []int{4}, map[string]string{"auto.global_batch": "12"}) // 3 batches
	if err == nil || !strings.Contains(err.Error(), "3 batches of a step cannot be dealt to 4 model replicas") {
		t.Errorf("%v", err)
	}
}

// What does not fit into memory is tried with what saves some.
func TestWhatIsChosenFitsIntoMemory(t *testing.T) {
	p := recorded(t, language(2, 0))
	whole := mustSearch(t, p, []int{4}, nil).Ways[0]
	for _, part := range []int64{100, 70, 45} {
		limit := whole.Peak * part / 100
		pl := mustSearch(t, p, []int{4}, map[string]string{"cluster.device_memory": fmt.Sprint(limit)})
		if w := pl.Ways[0]; w.Peak > limit || w.Step < whole.Step {
			t.Errorf("with %d bytes: %s needs %d, and takes %s; without a limit %s", limit, &w, w.Peak, w.Step, whole.Step)
		}
	}
}

// What is known of a way's memory before it is planned is no more than what it needs: else ways would be left out that fit.
func TestWaysNeedAtLeastWhatIsKnownBefore(t *testing.T) {
	p := recorded(t, language(2, 0))
	whole := mustSearch(t, p, []int{4}, nil).Ways[0]
	for _, part := range []int64{95, 60, 30} {
		cfg, target := onDevices(t, []int{4}, map[string]string{"cluster.device_memory": fmt.Sprint(whole.Peak * part / 100)})
		needs, err := plan.Needs(p, cfg, target)
		if err != nil {
			t.Fatal(err)
		}
		if len(needs) < 3 {
			t.Errorf("with %d %% of the memory %d ways were looked at", part, len(needs))
		}
		for way, n := range needs {
			if n[0] > n[1] {
				t.Errorf("%s needs %d bytes, and was to need %d at least", way, n[1], n[0])
			}
		}
	}
}

func TestSearchIsDeterministic(t *testing.T) {
	p := recorded(t, language(2, 0))
	a, b := mustSearch(t, p, []int{2, 2}, nil), mustSearch(t, p, []int{2, 2}, nil)
	if x, y := encoded(t, a), encoded(t, b); x != y {
		t.Errorf("two plans for the same differ:\n%s", plan.Diff(a, b))
	}
}

// A stage may have nothing but ops that take no time.
func TestStagesThatTakeNoTimeAreRecomputed(t *testing.T) {
	mustSearch(t, recorded(t, unannotated()[1]), []int{19}, map[string]string{"gradient_checkpoint.type": "auto", "pipeline.num_stages": "19"})
}

func TestAProgramThatFitsNowhereIsToldWhatWouldDo(t *testing.T) {
	m := unannotated()[2]
	p := recorded(t, m)
	least := mustSearch(t, p, []int{4}, map[string]string{"cluster.device_memory": "12000"}).Ways[0].Peak
	_, err := searched(t, p, []int{1}, map[string]string{"cluster.device_memory": fmt.Sprint(least)})
	if err == nil || !strings.Contains(err.Error(), "It would run on") {
		t.Errorf("with %d bytes on 1 device: %v", least, err)
	}
	whole := mustSearch(t, p, []int{1}, nil).Ways[0]
	var weights int64
	for _, v := range p.Variables {
		weights += v.Param.Bytes()
	}
	_, err = searched(t, p, []int{1}, map[string]string{"cluster.device_memory": fmt.Sprint(whole.Peak - weights/2), "gradient_checkpoint.type": "", "offload.level": ""})
	if err == nil || !strings.Contains(err.Error(), "It would run on 3 workers with 1 device each: 3 stages, ") {
		t.Errorf("%v", err)
	}
	_, err = searched(t, p, []int{2}, map[string]string{"cluster.device_memory": "3"})
	if err == nil || !strings.Contains(err.Error(), "devices need more memory, or batches fewer samples") {
		t.Errorf("with 3 bytes: %v", err)
	}
}

// What is given and cannot be is refused by the names of the keys, and by where they were given.
func TestContradictionsNameTheKeys(t *testing.T) {
	p := recorded(t, language(2, 0)) // batches of 4
	for _, c := range []struct {
		settings map[string]string
		want     []string
	}{
		{map[string]string{"auto.global_batch": "6"}, []string{"auto.global_batch is 6 (from epl plan --set)", "no multiple of the dataset's batch, 4"}},
		{map[string]string{"pipeline.num_stages": "3"}, []string{"4 devices cannot be dealt to stages", "pipeline.num_stages is 3 (from epl plan --set)"}},
		{map[string]string{"pipeline.strategy": "Interleaved", "pipeline.stages_per_device": "2", "pipeline.num_stages": "6"},
			[]string{"pipeline.num_stages is 6", "pipeline.stages_per_device is 2 (from epl plan --set), so that 3 groups of devices have them"}},
		{map[string]string{"pipeline.strategy": "Interleaved", "pipeline.stages_per_device": "3", "pipeline.num_stages": "4"},
			[]string{"pipeline.num_stages is 4", "pipeline.stages_per_device is 3", "a number of stages that it divides"}},
		{map[string]string{"pipeline.num_stages": "5000"}, []string{"cannot be cut into 5000 stages", "set pipeline.num_stages to at most"}},
		{map[string]string{"gradient_checkpoint.type": "collection"}, []string{"found no way", "no value in the collection"}},
		{map[string]string{"auto.global_batch": "12", "pipeline.num_micro_batch": "2"},
			[]string{"auto.global_batch is 12 (from epl plan --set), which are 3 batches", "pipeline.num_micro_batch is 2 (from epl plan --set)", "leave one of these keys unset"}},
		{map[string]string{"auto.global_batch": "16", "pipeline.num_micro_batch": "1", "pipeline.num_stages": "2"},
			[]string{"auto.global_batch is 16", "pipeline.num_micro_batch is 1", "pipeline.num_stages is 2", "of at most 2"}},
	} {
		_, err := searched(t, p, []int{4}, c.settings)
		for _, want := range c.want {
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%v: %v does not say %q", c.settings, err, want)
			}
		}
	}
	// A single way that contradicts what is given loses, and says by what.
	pl := mustSearch(t, p, []int{4}, map[string]string{"auto.global_batch": "16", "pipeline.num_micro_batch": "2"})
	for _, w := range pl.Ways {
		if bad := w.Replicas != 2; bad != strings.Contains(w.Why, "pipeline.num_micro_batch is 2 (from epl plan --set), and it would have to be") {
			t.Errorf("%s: %q", &w, w.Why)
		}
	}
}

// Stages that share devices are no replicas of each other.
func TestStagesThatShareDevicesKeepTheBatch(t *testing.T) {
	pl := mustSearch(t, recorded(t, language(2, 0)), []int{4}, map[string]string{"pipeline.strategy": "Interleaved", "pipeline.stages_per_device": "2", "pipeline.num_stages": "4"})
	w := pl.Ways[0]
	if pl.Replicas != w.Replicas || pl.Replicas*pl.MicroBatches != 4 || w.Stages != 4 || w.PerDevice != 2 {
		t.Errorf("%s, with %d replicas and %d micro-batches", &w, pl.Replicas, pl.MicroBatches)
	}
}

// clusters is how many of two are looked at.
func clusters(testing.TB) int {
	if testing.Short() {
		return 1
	}
	return 2
}
