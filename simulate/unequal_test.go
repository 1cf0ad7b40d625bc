// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package simulate_test

import (
	"testing"
	"time"

	"github.com/easyparallel/epl/cost"
	"github.com/easyparallel/epl/schedule"
	"github.com/easyparallel/epl/simulate"
)

// A model replica with fewer micro-batches leaves out the others.
func TestUnequalSharesAreSimulatedWithTheirMicroBatches(t *testing.T) {
	for _, c := range []struct {
		stages int
		shares []int
		want   time.Duration // a forward and a backward take 1 s and 2 s at speed 1
	}{
		{1, nil, 4 * 3 * time.Second},
		{1, []int{4, 2}, 2 * 3 * time.Second},
		{2, nil, (4 + 1) * 3 * time.Second},
		{2, []int{4, 2}, (2 + 1) * 3 * time.Second},
	} {
		s := pipeline(t, schedule.Pipeline{Strategy: schedule.PreferBackward, Stages: c.stages, Groups: c.stages, Micro: 4}, 2, 1)
		s.Local.Shares = c.shares
		batches := 8
		cluster := cost.Uniform(1, 2*c.stages, device, atOnce, atOnce)
		for i := range c.stages {
			if cluster.Devices[i].Speed = 2; c.shares != nil {
				batches = 6
			}
		}
		r := run(t, s, cluster, simulate.Options{Segment: times(time.Second, 2*time.Second, 0, 0)})
		if r.Step != c.want || r.Batches != batches {
			t.Errorf("%d stages, shares %v: a step of %d batches takes %s, want %s", c.stages, c.shares, r.Batches, r.Step, c.want)
		}
		left, _, err := simulate.WhatIf{Lost: []int{0}}.Apply(s, cluster)
		if err != nil {
			t.Fatal(err)
		}
		if r := run(t, left, cluster, simulate.Options{Segment: times(time.Second, 2*time.Second, 0, 0)}); r.Batches != left.Local.Share(0) || r.Step != c.want {
			t.Errorf("%d stages, shares %v, without the first replica: %d batches in %s", c.stages, c.shares, r.Batches, r.Step)
		}
	}
}
