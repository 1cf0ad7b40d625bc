// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package ir_test

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/easyparallel/epl/ir"
)

// nested has closures in closures, which use values of all functions around them.
const nested = `program "nested"
input %0
main {
  %0 = Parameter() {Name: "arg0", Shape: float32[2]} -> float32[2] : forward
  %1 = Tanh(%0) -> float32[2] : forward
  %2 = Constant() {Value: bool[](true)} -> bool[] : forward
  %3 = If(%2) [closure 0 {
    %4 = Exp(%1) -> float32[2] : forward
    %5 = If(%2) [closure 1 {
      %6 = Add(%4, %0) -> float32[2] : forward
      return %6
    }, closure 2 {
      return %1
    }] -> float32[2] : forward
    return %5
  }, closure 3 {
    return %1
  }] -> float32[2] : forward
  %7 = While(%3, %2) [closure 4 {
    %8 = Parameter() {Name: "x", Shape: float32[2]} -> float32[2] : forward
    %9 = Parameter() {Name: "go on", Shape: bool[]} -> bool[] : forward
    return %9
  }, closure 5 {
    %10 = Parameter() {Name: "x", Shape: float32[2]} -> float32[2] : forward
    %11 = Parameter() {Name: "go on", Shape: bool[]} -> bool[] : forward
    %12 = Sub(%10, %1) -> float32[2] : forward
    %13 = LogicalNot(%11) -> bool[] : forward
    return %12, %13
  }] -> float32[2], bool[] : forward
  return %7
}
`

// names lists values, sorted and without repetition.
func names(vs ...*ir.Value) string {
	set := map[string]bool{}
	for _, v := range vs {
		set[v.String()] = true
	}
	return strings.Join(slices.Sorted(maps.Keys(set)), " ")
}

func TestAnOpCapturesWhatItsClosuresTakeFromOutside(t *testing.T) {
	p := parse(t, nested)
	if err := p.Verify(); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		op             int
		captures, uses string
	}{
		{1, "", "%0"},
		{3, "%0 %1 %2", "%0 %1 %2"},
		{5, "%0 %1 %4", "%0 %1 %2 %4"},
		{7, "%1", "%1 %2 %3"},
	} {
		var captures, uses []*ir.Value
		op(p, c.op).Captures(func(v *ir.Value) { captures = append(captures, v) })
		op(p, c.op).Uses(func(v *ir.Value) { uses = append(uses, v) })
		if names(captures...) != c.captures || names(uses...) != c.uses {
			t.Errorf("op %d captures %q and uses %q, not %q and %q", c.op, names(captures...), names(uses...), c.captures, c.uses)
		}
	}
}

func TestAbsentInputsAndNamedFunctionsAreNotUses(t *testing.T) {
	p := parse(t, everything)
	for id, want := range map[int]string{6: "%5", 9: "%8", 0: "", 7: ""} {
		var uses []*ir.Value
		op(p, id).Uses(func(v *ir.Value) { uses = append(uses, v) })
		if names(uses...) != want {
			t.Errorf("op %d uses %q, not %q", id, names(uses...), want)
		}
	}
}

// rename writes another value where one is used, but not where it is defined.
func rename(text string, from, to int) string {
	use := regexp.MustCompile(fmt.Sprintf(`%%%d\b( = [A-Z])?`, from))
	return use.ReplaceAllStringFunc(text, func(s string) string {
		if strings.Contains(s, "=") {
			return s
		}
		return fmt.Sprintf("%%%d", to)
	})
}

func TestReplaceUsesReachesEveryUser(t *testing.T) {
	for _, c := range []struct {
		text     string
		from, to int
	}{
		{everything, 3, 0},   // inputs in main and in a closure
		{everything, 6, 3},   // input and output of closures
		{everything, 4, 3},   // a twin
		{everything, 12, 3},  // a gradient
		{everything, 14, 1},  // an output of main, and the new value of a variable
		{everything, 11, 10}, // the loss and a collection
		{everything, 20, 21}, // in a named function
		{nested, 1, 0},       // in a closure in a closure
		{nested, 4, 1},       // of a closure in a closure
		{nested, 5, 4},       // an output of a closure
	} {
		p := parse(t, c.text)
		p.ReplaceUses(map[*ir.Value]*ir.Value{val(p, c.from): val(p, c.to)})
		want := rename(c.text, c.from, c.to)
		if want == c.text {
			t.Fatalf("nobody uses %%%d", c.from)
		}
		if got := p.String(); got != want {
			t.Errorf("%%%d by %%%d: %s", c.from, c.to, firstDifference(want, got))
		}
	}
}

func TestReplaceUsesFollowsChains(t *testing.T) {
	p := parse(t, everything)
	p.ReplaceUses(map[*ir.Value]*ir.Value{val(p, 6): val(p, 5), val(p, 5): val(p, 3), val(p, 12): val(p, 4)})
	want := rename(rename(rename(everything, 6, 3), 5, 3), 12, 4)
	if got := p.String(); got != want {
		t.Error(firstDifference(want, got))
	}
}

func TestReplaceUsesOfNothingChangesNothing(t *testing.T) {
	p := parse(t, everything)
	p.ReplaceUses(nil)
	p.ReplaceUses(map[*ir.Value]*ir.Value{})
	if got := p.String(); got != everything {
		t.Error(firstDifference(everything, got))
	}
}

func TestBetweenFindsTheOpsThatComputeValuesFromInputs(t *testing.T) {
	for _, c := range []struct {
		text           string
		values, inputs []int
		ops            string
		ok             bool
	}{
		{everything, []int{6}, []int{3}, "%5 %6", true},
		{everything, []int{6}, []int{0, 1}, "%3 %5 %6", true},
		{everything, []int{6}, []int{0}, "%3 %5 %6", false}, // it also depends on a parameter
		{everything, []int{8}, []int{6, 3}, "%8", true},     // what its closures capture; a constant is free
		{everything, []int{8}, []int{6}, "%3 %8", false},
		{everything, []int{3}, []int{3}, "", true},
		{everything, []int{7}, nil, "", true}, // a constant depends on nothing
		{everything, []int{5, 4}, []int{3}, "%4 %5", true},
		{nested, []int{3}, []int{0}, "%1 %3", true},
		{nested, []int{3}, []int{1}, "%3", false}, // the innermost closure uses the parameter
	} {
		p := parse(t, c.text)
		list := func(ids []int) (vs []*ir.Value) {
			for _, id := range ids {
				vs = append(vs, val(p, id))
			}
			return vs
		}
		ops, ok := ir.Between(list(c.values), list(c.inputs))
		var outs []*ir.Value
		for o := range ops {
			outs = append(outs, o.Outputs[0])
		}
		if names(outs...) != c.ops || ok != c.ok {
			t.Errorf("between %v and %v: %q, %v, not %q, %v", c.inputs, c.values, names(outs...), ok, c.ops, c.ok)
		}
	}
}

func TestAnOpIsInsertedWithThePlaceOfTheNext(t *testing.T) {
	p := parse(t, everything)
	next := op(p, 12)
	o := p.NewOp(&ir.Tanh{}, []*ir.Value{val(p, 3)}, matrix())
	p.Main.InsertBefore(next, o)
	i := slices.Index(p.Main.Ops, o)
	if p.Main.Ops[i+1] != next || o.TaskGraph != next.TaskGraph || o.Phase != next.Phase || o.Origin != next.Origin || o.Source != next.Source {
		t.Errorf("%s stands before %s", o.Text(), p.Main.Ops[i+1].Text())
	}
	if err := p.Verify(); err != nil {
		t.Error(err)
	}
}
