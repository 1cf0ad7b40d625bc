// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package plan_test

import (
	"bytes"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/easyparallel/epl/cost"
	"github.com/easyparallel/epl/plan"
)

// buckets are how many there are of gradients, and their bytes.
func buckets(r *plan.Result) (n int, bytes int64) {
	for _, b := range r.Schedule.Buckets {
		if plan.MergesGradients(b) {
			n, bytes = n+1, bytes+b.Bytes()
		}
	}
	return n, bytes
}

func TestGradientsAreFusedByWhatLinksTake(t *testing.T) {
	p := recorded(t, language(4, 0))
	decided := func(settings map[string]any, links *cost.Cluster) (*plan.Plan, *plan.Result, plan.Target) {
		t.Helper()
		cfg, target := withDevices(t, settings, cost.Device{}, cost.Device{})
		target.Hardware, target.Links = nil, links
		pl, r, err := plan.Decide(p, cfg, target)
		if err != nil {
			t.Fatal(err)
		}
		return pl, r, target
	}
	_, r, plain := decided(nil, nil)
	usual, all := buckets(r)
	if usual < 4 {
		t.Fatalf("%d buckets as usual: too few to have fewer", usual)
	}
	for n := range 8 {
		// An all-reduce of two has two rounds, and takes a second beside them. Then n buckets are best.
		links := cost.Uniform(1, 2, cost.Default, cost.Link{Bandwidth: float64(all), Latency: time.Second / time.Duration(2*max(n*n, 1))}, cost.Link{})
		pl, r, _ := decided(nil, links)
		switch got, _ := buckets(r); {
		case n >= 5 && (pl.Fusion != nil || got != usual):
			t.Errorf("%d buckets where %d are best, and %d as usual: %+v", got, n, usual, pl.Fusion)
		case n < 5 && (pl.Fusion == nil || got > max(n, 1) || n < 3 && got != max(n, 1)):
			t.Errorf("%d buckets where %d are best: %+v", got, n, pl.Fusion)
		case n < 5 && !strings.Contains(pl.Fusion.Why, " instead of 5: to reduce "):
			t.Errorf("the reason is %q", pl.Fusion.Why)
		}
		pl, r, _ = decided(map[string]any{"communication.max_splits": 5}, links)
		if got, _ := buckets(r); got != usual || pl.Fusion != nil {
			t.Errorf("%d buckets where the user said 5: %+v", got, pl.Fusion)
		}
	}
	// A plan is applied as it is where nothing is known of links.
	pl, r, _ := decided(nil, cost.Uniform(1, 2, cost.Default, cost.Link{Bandwidth: float64(all), Latency: time.Second / 8}, cost.Link{}))
	var text bytes.Buffer
	if err := pl.Encode(&text); err != nil {
		t.Fatal(err)
	}
	pinned, err := plan.Decode(&text)
	if err != nil {
		t.Fatal(err)
	}
	applied, err := pinned.Apply(p, plain)
	if err != nil {
		t.Fatal(err)
	}
	if want, got := r.Schedule.String(), applied.Schedule.String(); got != want {
		t.Errorf("the plan gives\n%s\nand applied\n%s", want, got)
	}
}

// Fewer buckets are larger, and need more memory while gradients are reduce-scattered.
func TestGradientsAreFusedOnlyAsFarAsMemoryAllowsIt(t *testing.T) {
	p := recorded(t, language(4, 0))
	peak := func(limit int64, latency time.Duration) (int64, *plan.Fusion) {
		t.Helper()
		cfg, target := withDevices(t, map[string]any{"zero.level": "v1", "pipeline.num_micro_batch": 2, "cluster.device_memory": limit}, cost.Device{}, cost.Device{})
		target.Hardware, target.Links = nil, cost.Uniform(1, 2, cost.Default, cost.Link{Bandwidth: 1e9, Latency: latency}, cost.Link{})
		pl, r, err := plan.Decide(p, cfg, target)
		if err != nil {
			t.Fatal(err)
		}
		return r.Account.Peak(), pl.Fusion
	}
	usual, _ := peak(0, 0)
	fused, by := peak(0, time.Second)
	if by == nil || fused <= usual {
		t.Fatalf("%d bytes in few buckets, %d as usual: %+v", fused, usual, by)
	}
	if got, by := peak(fused-1, time.Second); by != nil || got != usual {
		t.Errorf("%d bytes where there are %d, and as usual there would be %d: %+v", got, fused-1, usual, by)
	}
}

// Links that were measured are part of the plan, in words and in its file.
func TestAPlanHasTheLinksThatWereMeasured(t *testing.T) {
	p := recorded(t, language(4, 0))
	cfg, target := withDevices(t, nil, cost.Device{}, cost.Device{})
	found := &cost.Links{Within: &cost.Link{Latency: time.Second, Bandwidth: 2e9, Shared: true}}
	target.Hardware, target.Measured = nil, found
	target.Links = cost.Uniform(1, 2, cost.Default, cost.DefaultLink, cost.DefaultLink)
	found.On(target.Links)
	pl, r, err := plan.Decide(p, cfg, target)
	if err != nil {
		t.Fatal(err)
	}
	if got, _ := buckets(r); got != 1 || pl.Fusion == nil {
		t.Errorf("%d buckets, where each takes a second: %+v", got, pl.Fusion)
	}
	const line = "links were measured at the start (cluster.measure): 1s and 2 GB/s between devices of a worker"
	said := func(r *plan.Result) bool {
		return slices.ContainsFunc(r.Notes, func(n plan.Note) bool { return n.Line == line })
	}
	if !said(r) {
		t.Errorf("nothing says %q: %v", line, r.Notes)
	}
	// Where the plan is pinned nothing is measured, and it says the same.
	var text bytes.Buffer
	if err := pl.Encode(&text); err != nil {
		t.Fatal(err)
	}
	pinned, err := plan.Decode(&text)
	if err != nil {
		t.Fatal(err)
	}
	target.Links, target.Measured = nil, nil
	again, err := pinned.Apply(p, target)
	if err != nil {
		t.Fatal(err)
	}
	if got, _ := buckets(again); got != 1 || !said(again) || *pinned.Links.Within != *found.Within {
		t.Errorf("the pinned plan has %d buckets and says %v", got, again.Notes)
	}
}
