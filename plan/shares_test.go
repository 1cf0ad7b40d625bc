// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package plan_test

import (
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/easyparallel/epl/cluster"
	"github.com/easyparallel/epl/config"
	"github.com/easyparallel/epl/cost"
	"github.com/easyparallel/epl/ir"
	"github.com/easyparallel/epl/passes"
	"github.com/easyparallel/epl/plan"
)

// onSpeeds plans a program on devices of one worker with these speeds.
func onSpeeds(t *testing.T, p *ir.Program, settings map[string]any, slicing bool, speeds ...float64) (*plan.Plan, *plan.Result) {
	t.Helper()
	var devices []cost.Device
	for _, s := range speeds {
		devices = append(devices, cost.Device{Profile: cost.Default, Speed: s})
	}
	cfg, target := withDevices(t, settings, devices...)
	target.Slicing = slicing
	pl, r, err := plan.Decide(p, cfg, target)
	if err != nil {
		t.Fatal(err)
	}
	return pl, r
}

// withDevices are settings, and a target of one worker with these devices.
func withDevices(t *testing.T, settings map[string]any, devices ...cost.Device) (*config.Config, plan.Target) {
	t.Helper()
	c, err := cluster.New(cluster.Spec{Devices: []int{len(devices)}})
	if err != nil {
		t.Fatal(err)
	}
	cfg, err := config.New(settings)
	if err != nil {
		t.Fatal(err)
	}
	set, err := passes.Parse("", nil)
	if err != nil {
		t.Fatal(err)
	}
	return cfg, plan.Target{Cluster: c, Passes: set, AsWritten: true, Hardware: &cost.Cluster{Devices: devices, Inside: cost.DefaultLink, Between: cost.DefaultLink}}
}

// Stages have as much to do as their devices can, those with most memory come first, and a model replica is as fast as its stages together.
func TestStagesAreInProportionToSpeed(t *testing.T) {
	p := recorded(t, language(12, 0))
	large, small := *cost.Default, *cost.Default
	large.Memory, small.Memory = 32<<30, 16<<30
	of := func(p *cost.Profile, speed float64) cost.Device { return cost.Device{Profile: p, Speed: speed} }
	plain := func(speed float64) cost.Device { return of(cost.Default, speed) }
	for _, c := range []struct {
		devices []cost.Device
		blocks  []int // of the stages
		ranks   [][]int
		shares  []int // of the model replicas; nil: all have as many
	}{
		{[]cost.Device{plain(1), plain(1)}, []int{6, 6}, [][]int{{0}, {1}}, nil},
		{[]cost.Device{plain(2), plain(1)}, []int{8, 4}, [][]int{{0}, {1}}, nil},
		{[]cost.Device{plain(1), plain(3)}, []int{3, 9}, [][]int{{0}, {1}}, nil},
		{[]cost.Device{of(&small, 1), of(&large, 1)}, []int{6, 6}, [][]int{{1}, {0}}, nil},
		{[]cost.Device{of(&small, 1), of(&large, 2)}, []int{8, 4}, [][]int{{1}, {0}}, nil},
		{[]cost.Device{plain(2), plain(2), plain(1), plain(1)}, []int{6, 6}, [][]int{{0, 2}, {1, 3}}, []int{4, 2}},
		{[]cost.Device{plain(4), plain(2), plain(2), plain(1)}, []int{8, 4}, [][]int{{0, 2}, {1, 3}}, []int{4, 2}},
		{[]cost.Device{plain(2), plain(1), plain(1), plain(2)}, []int{6, 6}, [][]int{{0, 2}, {1, 3}}, nil},
	} {
		cfg, target := withDevices(t, map[string]any{"pipeline.num_micro_batch": 3}, c.devices...)
		cut, err := plan.Stages(p, 2, cfg, target)
		if err != nil {
			t.Fatal(err)
		}
		if got := []int{cut.Stages[0].Blocks, cut.Stages[1].Blocks}; !slices.Equal(got, c.blocks) {
			t.Errorf("%v: stages have %v blocks, want %v", c.devices, got, c.blocks)
		}
		target.Cut = cut
		pl, _, err := plan.Decide(p, cfg, target)
		if err != nil {
			t.Fatal(err)
		}
		for i, groups := range pl.Placement {
			if got := slices.Concat(groups...); !slices.Equal(got, c.ranks[i]) {
				t.Errorf("%v: stage %d is on %v, want %v", c.devices, i, got, c.ranks[i])
			}
		}
		var shares []int
		if pl.Shares != nil {
			shares = pl.Shares.MicroBatches
		}
		if !slices.Equal(shares, c.shares) {
			t.Errorf("%v: shares %v, want %v", c.devices, shares, c.shares)
		}
	}
}

func TestSharesAreInProportionToSpeed(t *testing.T) {
	p := recorded(t, language(2, 0))
	for _, c := range []struct {
		speeds []float64
		micro  int
		want   []int // nil: all have as many
	}{
		{[]float64{1, 1, 1}, 2, nil},
		{[]float64{2, 1}, 3, []int{4, 2}},
		{[]float64{3, 2, 1}, 2, []int{3, 2, 1}},
		{[]float64{1, 2}, 1, nil}, // the fast one would take as long for both as the slow one for one
		{[]float64{5, 1}, 1, []int{2, 0}},
		{[]float64{1.01, 1}, 8, nil},
		{[]float64{0.5, 1, 1, 1}, 7, []int{4, 8, 8, 8}},
	} {
		pl, r := onSpeeds(t, p, map[string]any{"pipeline.num_micro_batch": c.micro}, false, c.speeds...)
		var got []int
		if pl.Shares != nil {
			got = pl.Shares.MicroBatches
		}
		if !slices.Equal(got, c.want) || !slices.Equal(r.Schedule.Local.Shares, c.want) || r.Schedule.Local.Instances() != len(c.speeds)*c.micro {
			t.Errorf("speeds %v, %d micro-batches: shares %v, want %v; the schedule has %+v", c.speeds, c.micro, got, c.want, r.Schedule.Local)
		}
	}
}

// A plan says what it shares and why, and is applied without knowing the devices.
func TestSharesAreOfThePlan(t *testing.T) {
	p := recorded(t, language(2, 0))
	pl, r := onSpeeds(t, p, map[string]any{"pipeline.num_micro_batch": 3}, false, 2, 1)
	const why = "model replicas take 4 and 2 micro-batches of the 6 batches of a step, because their devices are unequal: they compute 2 and 1 micro-batches in the same time"
	if !strings.HasPrefix(pl.Shares.Why, why) || !strings.HasSuffix(pl.Shares.Why, "would take 50 % longer") || r.Notes[0].Line != pl.Shares.Why {
		t.Errorf("%q", pl.Shares.Why)
	}
	var text strings.Builder
	if err := pl.Encode(&text); err != nil {
		t.Fatal(err)
	}
	pinned, err := plan.Decode(strings.NewReader(text.String()))
	if err != nil {
		t.Fatal(err)
	}
	c, err := cluster.New(cluster.Spec{Devices: []int{2}})
	if err != nil {
		t.Fatal(err)
	}
	set, err := passes.Parse("", nil)
	if err != nil {
		t.Fatal(err)
	}
	again, err := pinned.Apply(p, plan.Target{Cluster: c, Passes: set, AsWritten: true})
	if err != nil || !slices.Equal(again.Schedule.Local.Shares, []int{4, 2}) {
		t.Errorf("pinned: %+v, %v", again.Schedule.Local, err)
	}
}

// Where files are dealt to workers, each reads as much as the others.
func TestFilesThatAreDealtEvenlyLeaveSharesEven(t *testing.T) {
	pl, r := onSpeeds(t, recorded(t, language(2, 0)), map[string]any{"pipeline.num_micro_batch": 3}, true, 2, 1)
	if pl.Shares != nil || len(r.Notes) == 0 || !strings.Contains(r.Notes[0].Line, "io.slicing deals files evenly") {
		t.Errorf("%+v, notes %v", pl.Shares, r.Notes)
	}
}

// A step takes as many batches as in an earlier run, on any number of devices, and whoever chooses the plan.
func TestBatchesOfAnEarlierRunAreKept(t *testing.T) {
	p := recorded(t, language(2, 0))
	for _, c := range []struct {
		devices, batches int
		want             []int // micro-batches of the model replicas
	}{{1, 3, []int{3}}, {2, 3, []int{2, 1}}, {3, 3, []int{1, 1, 1}}, {4, 3, []int{1, 1, 1, 0}}, {2, 8, []int{4, 4}}} {
		for _, auto := range []bool{false, true} {
			cfg, target := withDevices(t, map[string]any{"auto.auto_parallel": auto}, slices.Repeat([]cost.Device{{Profile: cost.Default, Speed: 1}}, c.devices)...)
			target.Batches = c.batches
			pl, r, err := plan.Decide(p, cfg, target)
			if err != nil {
				t.Fatal(err)
			}
			if pl.Batches() != c.batches {
				t.Errorf("%d devices, auto %v: a step has %d batches, not %d", c.devices, auto, pl.Batches(), c.batches)
			}
			if auto {
				continue // it may have stages
			}
			shares := slices.Repeat([]int{pl.MicroBatches}, pl.Replicas)
			if pl.Shares != nil {
				shares = pl.Shares.MicroBatches
			}
			if !slices.Equal(shares, c.want) {
				t.Errorf("%d devices: micro-batches %v, not %v", c.devices, shares, c.want)
			}
			if idle := len(r.Warnings) > 0; idle != slices.Contains(c.want, 0) {
				t.Errorf("%d devices: warnings %v", c.devices, r.Warnings)
			}
		}
	}
	cfg, target := withDevices(t, nil, cost.Device{Profile: cost.Default}, cost.Device{Profile: cost.Default})
	target.Batches, target.Slicing = 3, true
	if _, _, err := plan.Decide(p, cfg, target); err == nil || !strings.Contains(err.Error(), "3 batches, as before the checkpoint, which 2 model replicas cannot share evenly") {
		t.Errorf("workers with data of their own get unequal shares: %v", err)
	}
}

// Those of one speed take turns, which is the same as to look for the one that is done first, each time.
func TestBatchesGoToWhoIsDoneFirst(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for range 500 {
		speeds := make([]float64, 1+r.IntN(12))
		for i := range speeds {
			speeds[i] = []float64{1, 1, 1.5, 2, 3, 1 + r.Float64(), 1.1 * 3 / 1.1}[r.IntN(7)]
		}
		batches := r.IntN(60)
		want := make([]int, len(speeds))
		for range batches {
			next := 0
			for i, speed := range speeds {
				if float64(want[i]+1)/speed < float64(want[next]+1)/speeds[next]*(1-1e-9) {
					next = i
				}
			}
			want[next]++
		}
		if got := plan.Dealt(batches, speeds); !slices.Equal(got, want) {
			t.Fatalf("%d batches, speeds %v: got %v, want %v", batches, speeds, got, want)
		}
	}
}
