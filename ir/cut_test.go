// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package ir_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/easyparallel/epl/ir"
)

// inOrder lists values as they come.
func inOrder(vs []*ir.Value) string {
	var s []string
	for _, v := range vs {
		s = append(s, v.String())
	}
	return strings.Join(s, " ")
}

func opsOf(s *ir.Segment) string {
	var vs []*ir.Value
	for _, o := range s.Ops {
		vs = append(vs, o.Outputs[0])
	}
	return inOrder(vs)
}

func phases(ps ...ir.Phase) func(*ir.Op) bool {
	return func(o *ir.Op) bool { return slices.Contains(ps, o.Phase) }
}

func only(ids ...int) func(*ir.Op) bool {
	return func(o *ir.Op) bool { return slices.Contains(ids, o.ID) }
}

func TestASegmentHasTheOpsItsOutputsNeed(t *testing.T) {
	for _, c := range []struct {
		what        string
		text        string
		keep        func(*ir.Op) bool
		outputs     []int
		inputs, ops string
	}{
		{"forward and backward", everything, phases(ir.Forward, ir.Backward), []int{12, 11}, "%0 %1", "%3 %5 %6 %7 %8 %9 %10 %11 %12"},
		{"what no output needs stays out", everything, phases(ir.Forward, ir.Backward), []int{12}, "%0 %1", "%3 %12"},
		{"apply", everything, phases(ir.Apply), []int{14, 16}, "%1 %12 %2", "%13 %14 %15 %16"},
		{"backward by itself", everything, phases(ir.Backward), []int{12}, "%3", "%12"},
		{"captured values are inputs", everything, only(8), []int{8}, "%3 %6", "%7 %8"},
		{"captured values of closures in closures are inputs", nested, only(3), []int{3}, "%0 %1", "%2 %3"},
		{"captured values are computed if they are kept", nested, only(1, 3, 7), []int{7}, "%0", "%1 %2 %3 %7"},
		{"constants come along though nobody keeps them", everything, only(16), []int{16}, "%2", "%15 %16"},
		{"parameters are inputs even if they are kept", everything, only(0, 1, 3), []int{3}, "%0 %1", "%3"},
		{"an output that it does not compute is handed through", everything, only(12), []int{12, 1, 3, 6}, "%1 %3 %6", "%12"},
		{"a constant may be an output", everything, only(), []int{7}, "", "%7"},
		{"an op may be used through one that is not kept", everything, only(3, 6, 11), []int{11, 6}, "%10 %5", "%6 %11"},
		{"nothing", everything, phases(), nil, "", ""},
	} {
		t.Run(c.what, func(t *testing.T) {
			p := parse(t, c.text)
			var outputs []*ir.Value
			for _, id := range c.outputs {
				outputs = append(outputs, val(p, id))
			}
			s := ir.Cut(p.Main, "piece", c.keep, outputs)
			if names(s.Inputs...) != c.inputs || opsOf(s) != c.ops {
				t.Errorf("it takes %q and computes %q, not %q and %q", names(s.Inputs...), opsOf(s), c.inputs, c.ops)
			}
			if len(s.Inputs) != len(strings.Fields(c.inputs)) {
				t.Errorf("an input comes twice: %s", inOrder(s.Inputs))
			}
			if !slices.Equal(s.Outputs, outputs) || s.Name != "piece" {
				t.Errorf("it returns %s", inOrder(s.Outputs))
			}
			if p.String() != c.text {
				t.Error("the program has changed")
			}
		})
	}
}

func TestCuttingIsDeterministic(t *testing.T) {
	p := parse(t, everything)
	keep := phases(ir.Forward, ir.Backward)
	first := ir.Cut(p.Main, "a", keep, ir.Crossing(p.Main, keep))
	for range 10 {
		s := ir.Cut(p.Main, "a", keep, ir.Crossing(p.Main, keep))
		if !slices.Equal(s.Inputs, first.Inputs) || !slices.Equal(s.Ops, first.Ops) || !slices.Equal(s.Outputs, first.Outputs) {
			t.Fatal("two cuts differ")
		}
	}
}

func TestConstantsAreInEverySegmentThatUsesThem(t *testing.T) {
	p := parse(t, `program "shared"
input %0
main {
  %0 = Parameter() {Name: "arg0", Shape: float32[]} -> float32[] : forward
  %1 = Constant() {Value: float32[](2)} -> float32[] : forward
  %2 = Mul(%0, %1) -> float32[] : forward
  %3 = Add(%2, %1) -> float32[] : backward
  %4 = Sub(%2, %3) -> float32[] : apply
  return %4
}
`)
	var got []string
	for _, phase := range []ir.Phase{ir.Forward, ir.Backward, ir.Apply} {
		s := ir.Cut(p.Main, phase.String(), phases(phase), ir.Crossing(p.Main, phases(phase)))
		got = append(got, names(s.Inputs...)+" -> "+opsOf(s)+" -> "+inOrder(s.Outputs))
	}
	// %2 crosses once, though two segments use it.
	if want := []string{"%0 -> %1 %2 -> %2", "%2 -> %1 %3 -> %3", "%2 %3 -> %4 -> %4"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestValuesCrossThatOthersUseOrThatLeave(t *testing.T) {
	for _, c := range []struct {
		what string
		text string
		from func(*ir.Op) bool
		want string
	}{
		{"what backward uses, and the loss", everything, phases(ir.Forward), "%3 %11"},
		{"the gradient, and the loss", everything, phases(ir.Forward, ir.Backward), "%11 %12"},
		{"what leaves at the end", everything, phases(ir.Apply), "%14 %16"},
		{"what closures of others capture", everything, only(3, 6), "%3 %6"},
		{"what closures in closures of others capture", nested, only(1), "%1"},
		{"parameters and constants do not cross", everything, only(0, 1, 2, 7, 15), ""},
		{"a second output", nested, only(7), "%7"},
		{"nothing", everything, only(), ""},
		{"all", everything, func(*ir.Op) bool { return true }, "%11 %14 %16"},
	} {
		p := parse(t, c.text)
		if got := inOrder(ir.Crossing(p.Main, c.from)); got != c.want {
			t.Errorf("%s: %q crosses, not %q", c.what, got, c.want)
		}
	}
}

// What crosses from the first segment is all that the second needs of it.
func TestTheTwoSidesOfACutFitTogether(t *testing.T) {
	for _, text := range append(examples(t), everything) {
		p := parse(t, text)
		first := phases(ir.Forward, ir.Backward)
		crossing := ir.Crossing(p.Main, first)
		a := ir.Cut(p.Main, "first", first, crossing)
		b := ir.Cut(p.Main, "second", phases(ir.Apply), p.Main.Outputs)
		for _, v := range a.Inputs {
			if !slices.Contains(p.Main.Params, v) {
				t.Errorf("%q: the first segment needs %s", p.Name, v)
			}
		}
		for _, v := range b.Inputs {
			if !slices.Contains(p.Main.Params, v) && !slices.Contains(crossing, v) {
				t.Errorf("%q: the second segment needs %s, which does not cross", p.Name, v)
			}
		}
	}
}
