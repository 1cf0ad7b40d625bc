// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package plan_test

import (
	"slices"
	"strings"
	"testing"

	. "github.com/gomlx/gomlx/core/graph"
	"github.com/gomlx/gomlx/ml/layers"
	"github.com/gomlx/gomlx/ml/model"

	"github.com/easyparallel/epl"
	"github.com/easyparallel/epl/cost"
	"github.com/easyparallel/epl/plan"
)

// Parts go by speed as far as memory allows it: what a device has no room for moves to others that have, and no more than that.
func TestPartsMoveToDevicesThatHaveRoom(t *testing.T) {
	for _, strategy := range []epl.Strategy{epl.Split(2, "all"), epl.Replicate(2, "all"), epl.Split(3, "all")} {
		p := recorded(t, annotatedOf(strategy, 9600))
		k := p.TaskGraphs[0].Devices
		speeds := []float64{3, 1, 1}[:k]
		free, r := onSpeeds(t, p, nil, false, speeds...)
		needs := func(r *plan.Result) (all []int64) {
			for j := range k {
				all = append(all, r.Account.Places[0].On(j).Total())
			}
			return all
		}
		before := needs(r)
		if before[0] <= before[1] {
			t.Fatalf("%v: the fast device has more to do, and needs %d of memory", strategy, before)
		}
		on := func(memory ...int64) (*plan.Plan, *plan.Result, func(int) int64) {
			var devices []cost.Device
			for j, s := range speeds {
				profile := *cost.Default
				profile.Memory = memory[min(j, len(memory)-1)]
				devices = append(devices, cost.Device{Profile: &profile, Speed: s})
			}
			cfg, target := withDevices(t, nil, devices...)
			pl, r, err := plan.Decide(p, cfg, target)
			if err != nil {
				t.Fatal(err)
			}
			return pl, r, func(rank int) int64 { return target.Memory(cfg, rank) }
		}
		middle := (2*before[0] + before[1]) / 3
		pl, r, memory := on(middle, 4*before[0])
		if f := r.Fullest(r.Account, memory); f.Over() || !strings.Contains(pl.Weights.Why, "as far as their memory allows it") {
			t.Errorf("%v: %s: %+v", strategy, f, pl.Weights)
		}
		after := needs(r)
		if after[0] < middle*93/100 || after[1] < before[1] {
			t.Errorf("%v: with %d on the fast device, which needed %d, devices need %d, so that more than necessary moved", strategy, middle, before, after)
		}
		if pl, _, _ := on(2 * before[0]); !slices.Equal(pl.Weights.Of[0], free.Weights.Of[0]) {
			t.Errorf("%v: there is room, and parts are %v in place of %v", strategy, pl.Weights.Of, free.Weights.Of)
		}
		if pl, r, memory := on(before[1] / 2); !slices.Equal(pl.Weights.Of[0], free.Weights.Of[0]) || !r.Fullest(r.Account, memory).Over() {
			t.Errorf("%v: nowhere is room, and parts are %v", strategy, pl.Weights.Of)
		}
	}
}

// Devices that are equally fast and have different memory get parts by memory only if equal parts do not fit.
func TestPartsOfEquallyFastDevicesMoveToTheLargerOne(t *testing.T) {
	p := recorded(t, annotated(epl.Split(2, "all")))
	_, r := onSpeeds(t, p, nil, false, 1, 1)
	needs := r.Account.Peak()
	for _, least := range []int64{needs * 8 / 10, needs * 2} {
		large, small := *cost.Default, *cost.Default
		large.Memory, small.Memory = 4*needs, least
		cfg, target := withDevices(t, nil, cost.Device{Profile: &small, Speed: 1}, cost.Device{Profile: &large, Speed: 1})
		pl, r, err := plan.Decide(p, cfg, target)
		if err != nil {
			t.Fatal(err)
		}
		if f := r.Fullest(r.Account, func(rank int) int64 { return target.Memory(cfg, rank) }); f.Over() || (pl.Weights != nil) != (least < needs) {
			t.Errorf("a device with %d bytes where equal parts need %d: %s, weights %+v", least, needs, f, pl.Weights)
		}
	}
}

// Each stage of a pipeline has to fit into the memory of its own devices, not into the least of all.
func TestEachDeviceHasItsOwnMemory(t *testing.T) {
	m := annotated(epl.Replicate(1, "first"))
	first := m.Build
	m.Build = func(scope *model.Scope, x *Node) *Node {
		x = first(scope.In("first"), x)
		epl.With(x, epl.Replicate(1, "second"), func() { x = layers.Dense(scope.In("second"), x, true, 1) })
		return x
	}
	p := recorded(t, m)
	large, small := *cost.Default, *cost.Default
	devices := []cost.Device{{Profile: &small, Speed: 1}, {Profile: &large, Speed: 1}}
	cfg, target := withDevices(t, map[string]any{"pipeline.num_micro_batch": 2}, devices...)
	_, r, err := plan.Decide(p, cfg, target)
	if err != nil {
		t.Fatal(err)
	}
	needs := []int64{r.Account.Places[0].Peak.Total(), r.Account.Places[1].Peak.Total()}
	for _, c := range []struct {
		small int64
		over  bool
	}{{needs[1], false}, {needs[1] - 1, true}} {
		large.Memory, small.Memory = needs[0], c.small
		if _, r, err = plan.Decide(p, cfg, target); err != nil {
			t.Fatal(err)
		}
		f := r.Fullest(r.Account, func(rank int) int64 { return target.Memory(cfg, rank) })
		if f.Over() != c.over || c.over && f.Rank != 0 {
			t.Errorf("stages need %d, devices have %d and %d: %s", needs, small.Memory, large.Memory, f)
		}
	}
	large.Memory, small.Memory = 0, 0
	p = recorded(t, language(4, 0))
	cfg, target = withDevices(t, map[string]any{"auto.auto_parallel": true, "pipeline.num_stages": 2}, devices...)
	if _, r, err = plan.Decide(p, cfg, target); err != nil {
		t.Fatal(err)
	}
	large.Memory, small.Memory = 1<<40, r.Account.Places[1].Peak.Total()*9/10
	pl, r, err := plan.Decide(p, cfg, target)
	if err != nil || r.Fullest(r.Account, func(rank int) int64 { return target.Memory(cfg, rank) }).Over() {
		t.Fatalf("memory can be saved, and is not: %v", err)
	}
	if !slices.ContainsFunc(pl.Ways, func(w plan.Way) bool { return strings.Contains(w.Why, "device 0 needs") }) {
		t.Errorf("no way says that it does not fit into device 0: %+v", pl.Ways)
	}
}
