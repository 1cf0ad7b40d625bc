// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package plan_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/easyparallel/epl/cluster"
	"github.com/easyparallel/epl/config"
	"github.com/easyparallel/epl/ir"
	"github.com/easyparallel/epl/passes"
	"github.com/easyparallel/epl/plan"
)

// evaluation is a program with a weight and the state of a metric, which a label goes into as it is.
const evaluation = `program "eval"
taskgraph 0 "" replicate(1)
variable "/w" %2
variable "/total" %3 update %6
input %0
input %1
outputs update %3 result
main {
  %0 = Parameter() {Name: "arg0", Shape: float32[8,8]} -> float32[8,8] : forward
  %1 = Parameter() {Name: "arg1", Shape: float32[]} -> float32[] : forward
  %2 = Parameter() {Name: "/w", Shape: float32[8,8]} -> float32[8,8] : forward
  %3 = Parameter() {Name: "/total", Shape: float32[]} -> float32[] : forward
  %4 = DotGeneral(%0, %2) {LHSContractingAxes: [1], RHSContractingAxes: [0]} -> float32[8,8] : forward taskgraph 0
  %5 = ReduceSum(%4) {Axes: [0, 1]} -> float32[] : forward taskgraph 0
  %6 = Add(%3, %5) -> float32[] : forward
  %7 = Mul(%6, %1) -> float32[] : forward
  return %6, %7
}
`

func TestAProgramIsDividedAtTheVariablesThatItUpdates(t *testing.T) {
	p, err := ir.Parse(evaluation)
	if err != nil {
		t.Fatal(err)
	}
	on, err := passes.Parse("all", nil)
	if err != nil {
		t.Fatal(err)
	}
	cfg, err := config.Of(nil)
	if err != nil {
		t.Fatal(err)
	}
	c, err := cluster.New(cluster.Spec{Devices: []int{2}})
	if err != nil {
		t.Fatal(err)
	}
	target := plan.Target{Cluster: c, Passes: on}
	_, r, err := plan.Decide(p, cfg, target)
	if err != nil {
		t.Fatal(err)
	}
	if fmt.Sprint(r.Replicas) != "[[0] [1]]" || r.Schedule != nil {
		t.Errorf("replicas are %v", r.Replicas)
	}
	updated := func(paths ...string) func(*ir.Value) bool {
		return func(v *ir.Value) bool {
			x := p.Variable(v)
			return x != nil && strings.Contains(strings.Join(paths, " "), x.Path)
		}
	}
	a, why, err := plan.DecideAhead(r, p, updated("/total"), cfg, target)
	if err != nil {
		t.Fatal(err)
	}
	if fmt.Sprint(a.ForwardArgs, a.RestArgs) != "[0 1 2] [3]" || !strings.Contains(why, "dealt to 2 model replicas") {
		t.Errorf("parameters %v and %v: %s", a.ForwardArgs, a.RestArgs, why)
	}
	if n := len(a.Forward.Final.Main.Outputs); n != 2 { // the sum, and what comes as it is
		t.Errorf("the first half has %d results", n)
	}
	if a.Rest.Final.Variables[0].Path != "/total" || len(a.Rest.Final.Inputs) != 2 || len(a.Rest.Final.Main.Outputs) != 2 {
		t.Errorf("the second half is\n%s", a.Rest.Final)
	}
	if a, why, err := plan.DecideAhead(r, p, updated("/total", "/w"), cfg, target); a != nil || err != nil || !strings.Contains(why, "one after the other") {
		t.Errorf("what depends on what it updates is computed ahead: %v %s %v", a, why, err)
	}
}
