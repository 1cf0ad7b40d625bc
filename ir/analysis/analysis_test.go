// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package analysis_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/easyparallel/epl/ir"
	"github.com/easyparallel/epl/ir/analysis"
)

// staged is a program in two stages, with regions, merges, a part of a variable, and a dead op.
const staged = `program "staged"
instances 2 3
taskgraph 0 "a" replicate(1)
taskgraph 1 "b" replicate(1)
stage taskgraph 0 place 0
stage taskgraph 1 place 1
variable "/w" %1 trainable update %10 taskgraph 0
variable "/step" %2 update %11
input %0
gradient %1 = %9
loss %6
outputs update %1 update %2 result
collection "named" %4 %5
main {
  %0 = Parameter() {Name: "arg0", Shape: float32[8]} -> float32[8] : forward varying
  %1 = Parameter() {Name: "/w", Shape: float32[8]} -> float32[8] : forward taskgraph 0
  %2 = Parameter() {Name: "/step", Shape: float32[]} -> float32[] : forward
  %3 = Mul(%1, %1) -> float32[8] : forward taskgraph 0
  %4 = Mul(%0, %3) -> float32[8] : forward varying taskgraph 0
  %5 = Exp(%4) -> float32[8] : forward varying taskgraph 0
  %6 = ReduceSum(%4) {Axes: [0]} -> float32[] : forward varying taskgraph 1 place 1 region 1
  %7 = Merge(%6) {How: "mean"} -> float32[] : forward taskgraph 1 place 1 region 1
  %8 = Mul(%4, %4) -> float32[8] : backward varying taskgraph 0 region 2
  %9 = Merge(%8) {How: "mean"} -> float32[8] : backward taskgraph 0 region 2
  %10 = Sub(%1, %9) -> float32[8] : apply taskgraph 0
  %11 = Add(%2, %2) -> float32[] : apply taskgraph 0
  return %10, %11, %7
}
`

func parse(t *testing.T, text string) *ir.Program {
	t.Helper()
	p, err := ir.Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Verify(); err != nil {
		t.Fatal(err)
	}
	return p
}

// which lists the numbers of the ops of main that satisfy a condition.
func which(p *ir.Program, is func(*ir.Op) bool) string {
	var ids []string
	for _, op := range p.Main.Ops {
		if is(op) {
			ids = append(ids, fmt.Sprint(op.ID))
		}
	}
	return strings.Join(ids, " ")
}

func TestAnIndexSaysHowOpsAreRelated(t *testing.T) {
	p := parse(t, staged)
	x, live := analysis.Of(p), analysis.Live(p)
	for _, c := range []struct{ what, got, want string }{
		{"the second stage", which(p, func(op *ir.Op) bool { return x.Stage(op) == 1 }), "6 7"},
		{"live", which(p, func(op *ir.Op) bool { return live[op] }), "0 1 2 3 4 6 7 8 9 10 11"},
		{"computed by every instance", which(p, x.PerInstance), "4 5 6 8"},
		{"reads merged values", which(p, x.Merged), "10"},
		{"bound to its device", which(p, x.Bound), "7 9 10"},
		{"reads %4", which(p, func(op *ir.Op) bool {
			for _, u := range x.Users(p.Main.Ops[4].Outputs[0]) {
				if u == op {
					return true
				}
			}
			return false
		}), "5 6 8"},
		{"crosses", which(p, func(op *ir.Op) bool { return x.Crossing()[op.Outputs[0]] }), "4"},
		{"regions of forward", fmt.Sprint(x.Regions()), "2"},
	} {
		if c.got != c.want {
			t.Errorf("%s: %s, want %s", c.what, c.got, c.want)
		}
	}
	if users := x.Users(p.Main.Ops[2].Outputs[0]); len(users) != 1 {
		t.Errorf("an op that reads a value twice is its user %d times", len(users))
	}
	for i, op := range p.Main.Ops {
		if x.Position(op) != i {
			t.Errorf("%s is at %d, and said to be at %d", op, i, x.Position(op))
		}
	}
}

func TestWhatPartsAndExchangesReachIsBoundToItsDevice(t *testing.T) {
	p := parse(t, `program "parts"
instances 2 1
variable "/w" %1 trainable update %6
input %0
gradient %1 = %5
outputs update %1
main {
  %0 = Parameter() {Name: "arg0", Shape: float32[8]} -> float32[8] : forward varying
  %1 = Parameter() {Name: "/w", Shape: float32[8]} -> float32[8] on replica of 2 flat : forward
  %3 = Reshard(%1) -> float32[8] : forward
  %4 = Mul(%3, %0) -> float32[8] : backward varying
  %5 = Merge(%4) {How: "mean"} -> float32[8] on replica of 2 flat : backward
  %6 = Sub(%1, %5) -> float32[8] on replica of 2 flat : apply
  %7 = Neg(%3) -> float32[8] : forward
  return %6
}
`)
	x := analysis.Of(p)
	if got := which(p, x.Bound); got != "3 5 6 7" {
		t.Errorf("bound: %s", got)
	}
	if got := which(p, x.PerInstance); got != "3 4 7" { // what is gathered for instances, and follows from it, is theirs
		t.Errorf("of instances: %s", got)
	}
}

func TestASweepDropsWhatNothingNeeds(t *testing.T) {
	p := parse(t, staged)
	if n := analysis.Sweep(p); n != 1 {
		t.Errorf("%d ops were dropped", n)
	}
	if got := p.Collection("named"); len(got) != 1 || got[0].Op.ID != 4 {
		t.Errorf("the collection has %v", got)
	}
	if err := p.Verify(); err != nil {
		t.Error(err)
	}
	if n := analysis.Sweep(p); n != 0 {
		t.Errorf("a second sweep dropped %d ops", n)
	}
}

func TestChecksAndTheWeightOfInstancesAreNeeded(t *testing.T) {
	weighted := strings.NewReplacer("instances 2 3\n", "", " varying", "", `"named" %4 %5`, `"InstanceWeight" %5`, "Merge", "Identity", ` {How: "mean"}`, "")
	p := parse(t, weighted.Replace(staged))
	if got := which(p, func(op *ir.Op) bool { return analysis.Live(p)[op] }); !strings.Contains(" "+got+" ", " 5 ") {
		t.Errorf("a weight of instances that are not merged yet is dropped: %s", got)
	}
	p = parse(t, strings.NewReplacer("  return", "  %12 = Merge(%5) {How: \"check\", Limit: 1, Of: \"x\"} -> float32[8] : forward taskgraph 0\n  return").Replace(staged))
	if n := analysis.Sweep(p); n != 0 {
		t.Errorf("%d ops of a check were dropped", n)
	}
}
