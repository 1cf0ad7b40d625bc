// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package plan_test

import (
	"testing"
	"time"

	"github.com/easyparallel/epl/cost"
)

// What a plan says of another cluster is what EPL finds there.
func TestAPlanSaysWhatWouldBecomeOfItOnAnotherCluster(t *testing.T) {
	m := wideClassifier(64, 60_000)
	const here = "1x4xV100-32"
	pl := described(t, m, here)
	links := func(bandwidth float64, latency time.Duration) func(*cost.Cluster) {
		return func(c *cost.Cluster) {
			for _, l := range []*cost.Link{&c.Within, &c.Inside, &c.Between} {
				l.Bandwidth *= bandwidth
				l.Latency *= latency
			}
		}
	}
	memory := func(factor float64) func(*cost.Cluster) {
		return func(c *cost.Cluster) {
			p := *c.Devices[0].Profile
			p.Memory = int64(float64(p.Memory) * factor)
			for i := range c.Devices {
				c.Devices[i].Profile = &p
			}
		}
	}
	others := []func(*cost.Cluster){links(2, 1), links(0.5, 1), links(1, 10), memory(0.5), memory(2)}
	if len(pl.Changes) != len(others) {
		t.Fatalf("the plan says %d things of other clusters, not %d", len(pl.Changes), len(others))
	}
	for i, c := range pl.Changes {
		there := described(t, m, here, others[i])
		best, step := c.Best, c.BestStep
		if best == "" {
			best, step = pl.Ways[0].String(), c.Step
		}
		if w := there.Ways[0]; w.String() != best || w.Step != step {
			t.Errorf("if %s: the plan says %s in %s, and EPL finds %s in %s there", c.If, best, step, &w, w.Step)
		}
	}
}
