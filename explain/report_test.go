// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package explain

import (
	"fmt"
	"strings"
	"testing"

	"github.com/pkg/errors"

	"github.com/easyparallel/epl/cluster"
	"github.com/easyparallel/epl/ir"
	"github.com/easyparallel/epl/plan"
)

func explain(c *Program, final *ir.Program) string {
	var s strings.Builder
	c.Number = 1
	newReport(c, final).write(&s, "")
	return s.String()
}

func TestExplainSaysWhyAProgramWasRefused(t *testing.T) {
	program := parse(t, small)
	text := explain(&Program{Result: plan.Result{Recorded: program}, Err: errors.New(`program "train": epl: a replica needs 3 devices`)}, program)
	if !strings.HasPrefix(text, "program 1 \"train\": training step\n  REFUSED: epl: a replica needs 3 devices\n") {
		t.Error(text)
	}
	if strings.Contains(text, "passes") || strings.Contains(text, "placement") {
		t.Errorf("it tells of things that did not happen:\n%s", text)
	}
}

func TestExplainSaysWhenEPLDidNotSeeTheGraph(t *testing.T) {
	program := parse(t, `program "init"
taskgraph 0 "" replicate(1) implicit
main {
  %0 = Constant() {Value: float32[](1)} -> float32[] : forward taskgraph 0
  return %0
}
`)
	text := explain(&Program{Result: plan.Result{Recorded: program}}, program)
	for _, want := range []string{`program 1 "init": not annotated`, "EPL did not see the GoMLX graph", "nothing in it is annotated",
		"1 op; 0 inputs; 0 variables of 0 B; 1 output\n", "nowhere: it is all of the program", "passes: none; it runs op by op"} {
		if !strings.Contains(text, want) {
			t.Errorf("%q is not in:\n%s", want, text)
		}
	}
}

func TestExplainTellsCollectionsWithTheLinesOfTheirValues(t *testing.T) {
	program := parse(t, small)
	if text := explain(&Program{Result: plan.Result{Recorded: program}}, program); !strings.Contains(text, "Checkpoints       1  %4 float32[20] (model.go:13)\n") {
		t.Error(text)
	}
}

func TestPlacementIsExplained(t *testing.T) {
	const legend = "VD is the virtual device of a TaskGraph: [ ] are its devices in a model replica; w is a worker, g a device of it"
	for _, c := range []struct {
		devices    []int
		taskGraphs []int
		options    cluster.Options
		want       string
	}{
		{[]int{1}, []int{1}, cluster.Options{}, "1 model replica, on 1 device\nVD0=[g0]"},
		{[]int{4}, []int{1, 1}, cluster.Options{PreferIntraNode: true}, "4 devices hold 2 model replicas of 2 devices each\nVD0=[g0][g2] VD1=[g1][g3]\n" + legend},
		{[]int{2}, []int{2, 2, 2}, cluster.Options{Colocate: true},
			"1 model replica, on 2 devices\nTaskGraphs share devices (cluster.colocate_split_and_replicate)\nVD0…VD2=[g0 g1]\n" + legend},
	} {
		cl, err := cluster.New(cluster.Spec{Devices: c.devices})
		if err != nil {
			t.Fatal(err)
		}
		var requests []cluster.TaskGraph
		for _, n := range c.taskGraphs {
			requests = append(requests, cluster.TaskGraph{Devices: n})
		}
		p, err := cluster.Place(cl, requests, c.options)
		if err != nil {
			t.Fatal(err)
		}
		if got := strings.Join(placementSentences(p, nil), "\n"); got != c.want {
			t.Errorf("%v on %v:\n%s\nwant:\n%s", c.taskGraphs, c.devices, got, c.want)
		}
	}
}

// variablesOf makes a model of some layers, with their variables and those of an optimizer.
func variablesOf(layers, taskGraphs int) []variableReport {
	var tgs []*ir.TaskGraph
	for i := range taskGraphs {
		tgs = append(tgs, &ir.TaskGraph{ID: i, Name: fmt.Sprintf("stage_%d", i)})
	}
	var vs []variableReport
	add := func(t *ir.TaskGraph, path string) {
		vs = append(vs, variableReport{Variable: &ir.Variable{Path: path, TaskGraph: t}, Bytes: 4})
	}
	for _, front := range []string{"", "/Adam"} {
		for l := range layers {
			for _, name := range []string{"attn/query/weights", "attn/query/biases", "ff/weights", "ff/biases"} {
				add(tgs[l*taskGraphs/layers], fmt.Sprintf("%s/layer_%d/%s", front, l, name))
			}
		}
	}
	add(nil, "/global_step")
	return vs
}

func TestManyVariablesAreShownInFewGroups(t *testing.T) {
	for _, c := range []struct {
		layers, taskGraphs int
		want               string // the first three groups
		groups             int
	}{
		{6, 1, "/layer_0/attn/query/… stage_0 2, /layer_0/ff/… stage_0 2, /layer_1/attn/query/… stage_0 2", 25},
		{12, 1, "/layer_0/… stage_0 4, /layer_1/… stage_0 4, /layer_2/… stage_0 4", 14},
		{48, 2, "/layer_*/attn/… stage_0 48, /layer_*/ff/… stage_0 48, /layer_*/attn/… stage_1 48", 7},
		{48, 48, "/layer_*/attn/query/… 48 TaskGraphs 96, /layer_*/ff/… 48 TaskGraphs 96, /Adam/layer_*/attn/… 48 TaskGraphs 96", 5},
	} {
		var got []string
		vs := variablesOf(c.layers, c.taskGraphs)
		groups := groupVariables(vs)
		total := 0
		for _, g := range groups {
			got = append(got, fmt.Sprintf("%s %s %d", g.path, g.taskGraphText(), len(g.variables)))
			total += len(g.variables)
		}
		if got := strings.Join(got[:3], ", "); got != c.want || len(groups) != c.groups {
			t.Errorf("%d layers in %d TaskGraphs: %d groups: %s\nwant %d groups: %s", c.layers, c.taskGraphs, len(groups), got, c.groups, c.want)
		}
		if total != len(vs) {
			t.Errorf("%d of %d variables are in groups", total, len(vs))
		}
		if last := got[len(got)-1]; last != "/global_step outside 1" {
			t.Errorf("a variable alone is shown as %s", last)
		}
	}
}
