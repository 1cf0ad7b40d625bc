// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package schedule

import (
	"fmt"
	"strings"
	"testing"

	"github.com/easyparallel/epl/ir"
)

// pipelineOfSplits is a program of stages that are each split over devices: in every layer a device multiplies with its own
// weight, and the devices of the stage all-reduce, forward and backward.
func pipelineOfSplits(t testing.TB, stages, devices, layers, micro int) *ir.Program {
	t.Helper()
	var head, vars, params, ops, apply, updates strings.Builder
	fmt.Fprintf(&head, "program \"splits\"\ninstances 1 %d\n", micro)
	n := 2 // the input and the position are there
	op := func(w *strings.Builder, what, shape, phase string, stage int) string {
		v := fmt.Sprintf("%%%d", n)
		n++
		fmt.Fprintf(w, "  %s = %s -> %s : %s taskgraph %d place %d\n", v, what, shape, phase, stage, stage)
		return v
	}
	const whole = "float32[64]"
	rows := fmt.Sprintf("%s on model of %d sharded(0)", whole, devices)
	type layer struct{ weight, in string }
	var all []layer
	x := "%0"
	for s := range stages {
		fmt.Fprintf(&head, "taskgraph %d \"stage %d\" split(%d)\n", s, s, devices)
		if s > 0 { // it comes from another stage
			x = op(&ops, fmt.Sprintf("Reshard(%s)", x), whole, "forward varying", s)
		}
		for range layers {
			w := op(&params, fmt.Sprintf("Parameter() {Name: \"/w%d\", Shape: %s}", n, whole), rows, "forward", s)
			l := layer{w, op(&ops, fmt.Sprintf("Reshard(%s, %%1)", x), rows, "forward varying", s)}
			x = op(&ops, fmt.Sprintf("Reshard(%s)", op(&ops, fmt.Sprintf("Mul(%s, %s)", l.in, w), rows, "forward varying", s)), whole, "forward varying", s)
			all = append(all, l)
		}
	}
	last := stages - 1
	loss := op(&ops, fmt.Sprintf("ReduceSum(%s)", x), "float32[]", "forward varying", last)
	g := op(&ops, fmt.Sprintf("Exp(%s)", x), whole, "backward varying", last)
	var returns []string
	for i := len(all) - 1; i >= 0; i-- {
		s, l := i/layers, all[i]
		if s < last && (i+1)%layers == 0 {
			g = op(&ops, fmt.Sprintf("Reshard(%s)", g), whole, "backward varying", s)
		}
		mine := op(&ops, fmt.Sprintf("Reshard(%s, %%1)", g), rows, "backward varying", s)
		gw := op(&ops, fmt.Sprintf("Mul(%s, %s)", mine, l.in), rows, "backward varying", s)
		g = op(&ops, fmt.Sprintf("Reshard(%s)", op(&ops, fmt.Sprintf("Mul(%s, %s)", mine, l.weight), rows, "backward varying", s)), whole, "backward varying", s)
		merged := op(&ops, fmt.Sprintf("Merge(%s) {How: \"mean\"}", gw), rows, "backward", s)
		update := op(&apply, fmt.Sprintf("Sub(%s, %s)", l.weight, merged), rows, "apply", s)
		fmt.Fprintf(&vars, "variable \"/v%s\" %s trainable update %s taskgraph %d\n", l.weight[1:], l.weight, update, s)
		fmt.Fprintf(&updates, " update %s", l.weight)
		returns = append(returns, update)
	}
	returns = append(returns, op(&apply, fmt.Sprintf("Merge(%s) {How: \"mean\"}", loss), "float32[]", "forward", last))
	for s := range stages {
		fmt.Fprintf(&head, "stage taskgraph %d", s)
		for d := range devices {
			fmt.Fprintf(&head, " place %d", s*devices+d)
		}
		head.WriteString("\n")
	}
	text := head.String() + vars.String() + "input %0\nloss " + loss + "\noutputs" + updates.String() + " result\nmain {\n" +
		"  %0 = Parameter() {Name: \"arg0\", Shape: " + whole + "} -> " + whole + " : forward varying taskgraph 0\n" +
		fmt.Sprintf("  %%1 = Position() {Axis: \"model\"} -> int32[] on model of %d each : forward\n", devices) +
		params.String() + ops.String() + apply.String() + "  return " + strings.Join(returns, ", ") + "\n}"
	p, err := ir.Parse(text)
	if err == nil {
		err = p.Verify()
	}
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func BenchmarkPipelineOfSplits(b *testing.B) {
	for _, devices := range []int{2, 8, 32} {
		p := pipelineOfSplits(b, 4, devices, 6, 8)
		ranks := make([]int, 4*devices)
		for i := range ranks {
			ranks[i] = i
		}
		var s *Program
		b.Run(fmt.Sprintf("build/%d", devices), func(b *testing.B) {
			for b.Loop() {
				var err error
				if s, err = Build(p, Options{MaxSplits: 5, Ranks: [][]int{ranks}}); err != nil {
					b.Fatal(err)
				}
			}
		})
		b.Run(fmt.Sprintf("check/%d", devices), func(b *testing.B) {
			for b.Loop() {
				if err := s.Check(); err != nil {
					b.Fatal(err)
				}
			}
		})
		b.Run(fmt.Sprintf("account/%d", devices), func(b *testing.B) {
			for b.Loop() {
				s.Account(p, Traffic{}, nil)
			}
		})
	}
}
