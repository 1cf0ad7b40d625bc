// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package simulate_test

import (
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/easyparallel/epl/cost"
	"github.com/easyparallel/epl/ir"
	"github.com/easyparallel/epl/schedule"
	"github.com/easyparallel/epl/simulate"
	"github.com/easyparallel/epl/trace"
)

var update = flag.Bool("update", false, "rewrite the files in testdata")

// golden compares a text with that of a file in testdata.
func golden(t *testing.T, name, got string) {
	t.Helper()
	file := "testdata/" + name
	if *update {
		if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("run with -update if this is right:\n%s", got)
	}
}

// stages are the lists of a program of two stages, on two model replicas with four micro-batches, and what they need of memory.
func stages(t *testing.T) (*schedule.Program, *schedule.Account) {
	t.Helper()
	text, err := os.ReadFile("testdata/stages.txt")
	if err != nil {
		t.Fatal(err)
	}
	p, err := ir.Parse(string(text))
	if err != nil {
		t.Fatal(err)
	}
	s, err := schedule.Build(p, schedule.Options{MaxSplits: 5, Ranks: [][]int{{0, 1}, {2, 3}}})
	if err != nil {
		t.Fatal(err)
	}
	return s, s.Account(p, schedule.Traffic{}, nil)
}

func TestTheListsOfAScheduleAreSimulated(t *testing.T) {
	s, account := stages(t)
	link := cost.Link{Latency: 10 * time.Microsecond, Bandwidth: 1e9}
	c := cost.Uniform(2, 2, cost.Flat(1e9, 1e9, time.Microsecond), link, link)
	changes, err := simulate.ParseWhatIf("bandwidth=2,latency=0.5, straggler=3:1.5,lost=1")
	if err != nil {
		t.Fatal(err)
	}
	o := simulate.Options{Account: account}
	r, err := simulate.Run(s, c, o)
	if err != nil {
		t.Fatal(err)
	}
	var w strings.Builder
	if err := r.WriteText(&w, simulate.RunChanged(s, c, o, changes...)...); err != nil {
		t.Fatal(err)
	}
	if err := r.Trace().WriteText(&w, 120); err != nil {
		t.Fatal(err)
	}
	golden(t, "simulated.txt", w.String())

	if n := len(r.Trace().Report().Devices); len(r.Devices) != 2 || n != 4 {
		t.Errorf("%d devices were simulated, %d are in the timeline", len(r.Devices), n)
	}
	most := int64(0) // in the timeline
	for _, m := range r.Trace().Memory() {
		sum := int64(0)
		for _, n := range m.Bytes {
			sum += n
		}
		most = max(most, sum)
	}
	if most != account.Peak() {
		t.Errorf("the timeline has a peak of %d bytes, the account of %d", most, account.Peak())
	}
	if _, err := trace.Compare(r.Trace(), r.Trace()); err != nil {
		t.Error(err)
	}
}

func TestChangesAreReadAndRefused(t *testing.T) {
	all, err := simulate.ParseWhatIf("bandwidth=2, latency=0.5,straggler=3:1.5,lost=7")
	if got := fmt.Sprint(all); err != nil || got != "[bandwidth=2 latency=0.5 straggler=3:1.5 lost=7]" {
		t.Error(got, err)
	}
	both := all[0].With(all[0]).With(all[2]).With(all[3])
	if got := both.String(); got != "bandwidth=4,straggler=3:1.5,lost=7" {
		t.Error(got)
	}
	for text, want := range map[string]string{"": "write bandwidth=2,", "memory=2": "write bandwidth=2,", "bandwidth=0": "bandwidth=2", "latency=x": "latency=2",
		"straggler=3": "straggler=3:1.5", "straggler=x:2": "straggler=3:1.5", "lost=x": "lost=7"} {
		if _, err := simulate.ParseWhatIf(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v", text, err)
		}
	}
	s, _ := stages(t)
	c := cost.Uniform(2, 2, device, atOnce, atOnce)
	for text, want := range map[string]string{"lost=9": "devices 0 to 3", "straggler=4:2": "devices 0 to 3"} {
		all, err := simulate.ParseWhatIf(text)
		if err != nil {
			t.Fatal(err)
		}
		if _, _, err := all[0].Apply(s, c); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v", text, err)
		}
	}
	if _, _, err := (simulate.WhatIf{Lost: []int{0, 3}}).Apply(s, c); err == nil || !strings.Contains(err.Error(), "no model replica is left") {
		t.Error(err)
	}
}

func TestAClusterThatIsTooSmallIsRefused(t *testing.T) {
	s, _ := stages(t)
	if _, err := simulate.Run(s, cost.Uniform(1, 3, device, atOnce, atOnce), simulate.Options{}); err == nil || !strings.Contains(err.Error(), "the cluster 3 devices") {
		t.Error(err)
	}
	if _, err := simulate.Run(s, cost.Uniform(2, 2, nil, atOnce, atOnce), simulate.Options{}); err == nil || !strings.Contains(err.Error(), "profile") {
		t.Error(err)
	}
}
