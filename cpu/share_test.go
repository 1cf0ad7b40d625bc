// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package cpu

import (
	"slices"
	"strings"
	"testing"

	"github.com/easyparallel/epl/emit"
	"github.com/easyparallel/epl/ir"
)

const repeated = `program "a block"
input %0
outputs result
main {
  %0 = Parameter() {Name: "x", Shape: float32[8,16]} -> float32[8,16] : forward
  %1 = Parameter() {Name: "w", Shape: float32[16,16]} -> float32[16,16] : forward
  %2 = Constant() {Value: float32[](0.5)} -> float32[] : forward
  %3 = DotGeneral(%0, %1) {LHSContractingAxes: [1], RHSContractingAxes: [0]} -> float32[8,16] : forward
  %4 = BroadcastInDim(%2) {OutputShape: float32[8,16]} -> float32[8,16] : forward
  %5 = Mul(%3, %4) -> float32[8,16] : forward
  %6 = DotGeneral(%5, %1) {LHSContractingAxes: [1], RHSContractingAxes: [1]} -> float32[8,16] : forward
  %7 = Add(%6, %0) -> float32[8,16] : forward
  return %7
}`

func segmentOf(t *testing.T, text string) *ir.Segment {
	t.Helper()
	p, err := ir.Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	return emit.Whole(p)
}

// renumbered is the block with other numbers, another name and other lines of the user's.
var renumbered = strings.NewReplacer("a block", "the next block", "%7", "%17", "%6", "%16", ": forward\n  %5", ": forward \"model.go:3\"\n  %5",
	": forward\n  %7", ": forward \"model.go:7\"\n  %17").Replace(repeated)

func TestSegmentsThatComputeTheSameShareAPlan(t *testing.T) {
	one, two := &Backend{opts: everything}, &Backend{opts: everything}
	first, second := segmentOf(t, repeated), segmentOf(t, renumbered)
	p, err := one.planOf(first, nil)
	if err != nil {
		t.Fatal(err)
	}
	q, err := two.planOf(second, nil)
	if err != nil {
		t.Fatal(err)
	}
	if &p.steps[0] != &q.steps[0] {
		t.Fatal("the segment was compiled again")
	}
	if q.segment != second || q.listing().Segment != "the next block" {
		t.Errorf("the plan is that of segment %q", q.segment.Name)
	}
	lives := q.listing().Lives
	if len(lives) == 0 {
		t.Fatal("no tensor is in the arena, so that nothing was tested")
	}
	for _, l := range lives {
		if l.Value != nil && !slices.Contains(second.Ops, l.Value.Op) {
			t.Errorf("%s, which lives in the arena, is of another segment", l.Value)
		}
	}
	p.described()
	if !slices.ContainsFunc(q.described(), func(s emit.Step) bool {
		return slices.ContainsFunc(s.Sites, func(at emit.Site) bool { return at.Line == "model.go:7" })
	}) {
		t.Error("a profile would give the times of the segment to the lines of the first that has its plan")
	}
	last := len(first.Ops) - 1
	if got := q.own(first.Ops[last]); got != second.Ops[last] {
		t.Errorf("an error would name %s instead of %s", got, second.Ops[last])
	}
}

func TestAPlanIsSharedOnlyIfNothingDiffers(t *testing.T) {
	key := func(text string, o options) planKey {
		k, ok := keyOf(segmentOf(t, text), o)
		if !ok {
			t.Fatal("a segment without functions has no key")
		}
		return k
	}
	base := key(repeated, everything)
	if key(renumbered, everything) != base {
		t.Error("numbers and names make a difference")
	}
	for name, text := range map[string]string{
		"an op":        strings.Replace(repeated, "Add(%6", "Sub(%6", 1),
		"an attribute": strings.Replace(repeated, "RHSContractingAxes: [1]", "RHSContractingAxes: [0]", 1),
		"a constant":   strings.Replace(repeated, "(0.5)", "(0.25)", 1),
		"an input":     strings.Replace(repeated, "Add(%6, %0)", "Add(%6, %5)", 1),
		"an output":    strings.Replace(repeated, "return %7", "return %6", 1),
		"a shape":      strings.ReplaceAll(repeated, "[8,16]", "[4,16]"),
	} {
		if text == repeated || key(text, everything) == base {
			t.Errorf("%s makes no difference", name)
		}
	}
	less := everything
	less.loops = false
	if key(repeated, less) == base {
		t.Error("what the engine may do makes no difference")
	}
}

func TestASegmentWithFunctionsHasAPlanOfItsOwn(t *testing.T) {
	s := segmentOf(t, repeated)
	s.Ops[len(s.Ops)-1].Funcs = []*ir.Func{{}}
	if _, ok := keyOf(s, everything); ok {
		t.Error("a segment with functions has a key, which does not cover them")
	}
}
