// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package lower_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/easyparallel/epl/exec/lower"
	"github.com/easyparallel/epl/ir"
)

// rows takes rows of something whole, on four devices, and part of a flat variable of three replicas.
const rows = `program "rows"
instances 3 1
taskgraph 0 "all" split(4)
stage taskgraph 0 place 0 place 1 place 2 place 3
variable "/w" %%1 taskgraph 0
input %%0
main {
  %%0 = Parameter() {Name: "x", Shape: float32[%[1]d,2]} -> float32[%[1]d,2] : forward varying
  %%1 = Parameter() {Name: "w", Shape: float32[%[1]d,2]} -> float32[%[1]d,2] on replica of 3 flat on model of 4 sharded(0) : forward taskgraph 0
  %%2 = Position() {Axis: "model"} -> int32[] on model of 4 each : forward
  %%3 = Reshard(%%0, %%2) -> float32[%[1]d,2] on model of 4 sharded(0) : forward varying taskgraph 0
  %%4 = Exp(%%3) -> float32[%[1]d,2] on model of 4 sharded(0) : forward varying taskgraph 0
  %%5 = Neg(%%1) -> float32[%[1]d,2] on replica of 3 flat on model of 4 sharded(0) : forward taskgraph 0
  %%6 = Merge(%%4) {How: "mean"} -> float32[%[1]d,2] on model of 4 sharded(0) : forward taskgraph 0
  return %%6, %%5
}
`

func segment(t *testing.T, n int) *ir.Segment {
	t.Helper()
	p, err := ir.Parse(fmt.Sprintf(rows, n))
	if err == nil {
		err = p.Verify()
	}
	if err != nil {
		t.Fatal(err)
	}
	outs := []*ir.Value{p.Main.Outputs[0].Op.Inputs[0], p.Main.Outputs[1]}
	return ir.Cut(p.Main, "rows", func(op *ir.Op) bool { return !op.IsMerge() }, outs)
}

func shapesOf(vs []*ir.Value) string {
	var words []string
	for _, v := range vs {
		words = append(words, ir.ShapeText(v.Shape))
	}
	return strings.Join(words, " ")
}

func TestADeviceRunsWhatItHas(t *testing.T) {
	s := segment(t, 10)
	for j, want := range []string{"float32[3,2] float32[2]", "float32[3,2] float32[2]", "float32[2,2] float32[2]", "float32[2,2] float32[2]"} {
		l := lower.Lower(s, ir.Coordinates{0, j})
		if got := shapesOf(l.Outputs); got != want {
			t.Errorf("device %d makes %s, not %s", j, got, want)
		}
		for i, v := range l.Outputs {
			if l.Origin(v) != s.Outputs[i] {
				t.Errorf("%s stands for %s", v, l.Origin(v))
			}
		}
		if len(l.Inputs) != len(s.Inputs) {
			t.Errorf("it takes %d inputs instead of %d", len(l.Inputs), len(s.Inputs))
		}
	}
}

func TestDevicesOfEqualShapesShareWhatTheyRun(t *testing.T) {
	for n, want := range map[int]int{8: 1, 10: 2, 11: 2} {
		s, made := segment(t, n), map[*ir.Segment]bool{}
		var c lower.Classes
		for j := range 4 {
			for replica := range 3 {
				made[c.Lower(s, ir.Coordinates{replica, j})] = true
			}
		}
		if len(made) != want {
			t.Errorf("%d rows on 4 devices are %d classes, not %d", n, len(made), want)
		}
	}
}

func TestASegmentWithoutPlacementsStaysAsItIs(t *testing.T) {
	p, err := ir.Parse("program \"p\"\ninput %0\nmain {\n  %0 = Parameter() {Name: \"x\", Shape: float32[2]} -> float32[2] : forward\n" +
		"  %1 = Exp(%0) -> float32[2] : forward\n  return %1\n}")
	if err != nil {
		t.Fatal(err)
	}
	s := ir.Cut(p.Main, "all", func(*ir.Op) bool { return true }, p.Main.Outputs)
	if lower.Lower(s, nil) != s {
		t.Error("it is another one")
	}
}
