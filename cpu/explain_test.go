// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package cpu_test

import (
	"flag"
	"fmt"
	"math"
	"os"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/easyparallel/epl/cpu"
	"github.com/easyparallel/epl/cpu/isa"
	"github.com/easyparallel/epl/emit"
	"github.com/easyparallel/epl/ir"
)

var update = flag.Bool("update", false, "rewrite the listings in testdata")

// listed has a dense layer with its gradient, a softmax, a change of a variable, and an op that the engine does not have.
const listed = `program "listed"
input %0
outputs result result result result
main {
  %0 = Parameter() {Name: "x", Shape: float32[8,16]} -> float32[8,16] : forward
  %1 = Parameter() {Name: "w", Shape: float32[16,24]} -> float32[16,24] : forward
  %2 = DotGeneral(%0, %1) {LHSContractingAxes: [1], RHSContractingAxes: [0]} -> float32[8,24] : forward
  %3 = Tanh(%2) -> float32[8,24] : forward
  %4 = ReduceMax(%3) {Axes: [1]} -> float32[8] : forward
  %5 = Reshape(%4) {Dimensions: [8, 1]} -> float32[8,1] : forward
  %6 = BroadcastInDim(%5) {OutputShape: float32[8,24], BroadcastAxes: [0, 1]} -> float32[8,24] : forward
  %7 = Sub(%3, %6) -> float32[8,24] : forward
  %8 = Exp(%7) -> float32[8,24] : forward
  %9 = ReduceSum(%8) {Axes: [1]} -> float32[8] : forward
  %10 = Transpose(%8) {Permutation: [1, 0]} -> float32[24,8] : forward
  %11 = DotGeneral(%10, %0) {LHSContractingAxes: [1], RHSContractingAxes: [0]} -> float32[24,16] : forward
  %12 = Transpose(%11) {Permutation: [1, 0]} -> float32[16,24] : forward
  %13 = Mul(%12, %12) -> float32[16,24] : forward
  %14 = Sub(%1, %13) -> float32[16,24] : forward
  %18 = ConvertDType(%3) {DType: int32} -> int32[8,24] : forward
  %15 = DotGeneral(%18, %18) {LHSContractingAxes: [1], RHSContractingAxes: [1], Config: {AccumulatorDType: int64}} -> int32[8,8] : forward
  %16 = Neg(%9) -> float32[8] : forward
  %17 = Transpose(%3) {Permutation: [1, 0]} -> float32[24,8] : forward
  return %14, %15, %16, %17
}`

func listing(t *testing.T, off ...string) *emit.Listing {
	t.Helper()
	p, err := ir.Parse(listed)
	if err != nil {
		t.Fatal(err)
	}
	b := cpu.New(opByOp(t), 1, cpu.Without(off...))
	defer b.Finalize()
	l, err := b.Plan(emit.Whole(p))
	if err != nil {
		t.Fatal(err)
	}
	// What depends on the CPU.
	l.Level = "LEVEL"
	for i := range l.Steps {
		if l.Steps[i].Kind == emit.Group {
			l.Steps[i].Kernel = ""
		} else if l.Steps[i].Kernel != "" {
			l.Steps[i].Kernel = "ROWSxCOLS"
		}
	}
	return l
}

func TestAListingShowsGroupsProductsAndFallbacks(t *testing.T) {
	const file = "testdata/listing.txt"
	got := listing(t).String()
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

// An optimizer's update is one loop, where there are loops.
func TestAListingShowsLoops(t *testing.T) {
	text, err := os.ReadFile("testdata/groups/adam3M.txt")
	if err != nil {
		t.Fatal(err)
	}
	p, err := ir.Parse(string(text))
	if err != nil {
		t.Fatal(err)
	}
	kernel := func(off ...string) string {
		b := cpu.New(opByOp(t), 1, cpu.Without(off...))
		defer b.Finalize()
		l, err := b.Plan(emit.Whole(p))
		if err != nil {
			t.Fatal(err)
		}
		return l.Steps[len(l.Steps)-1].Kernel
	}
	if got := kernel("loops"); got != "" {
		t.Errorf("without loops the kernel is %q", got)
	}
	if isa.Current() != isa.AVX512 || runtime.GOOS != "linux" {
		t.Skipf("there are no loops for %s on %s", isa.Current(), runtime.GOOS)
	}
	if got := kernel(); got != "loop of 14" {
		t.Errorf("the kernel is %q", got)
	}
}

// A timeline is made of what a watched segment tells.
func TestAWatchedSegmentTellsItsSteps(t *testing.T) {
	p, b, exec, ins := descending(t)
	l, err := b.Plan(emit.Whole(p))
	if err != nil {
		t.Fatal(err)
	}
	for i, op := range p.Main.Ops {
		op.Source = ir.Source(fmt.Sprintf("model.go:%d", i))
	}
	lines := map[string]bool{}
	var flops, bytes int64
	var last time.Time
	_, err = exec.(emit.Watched).ExecuteWatched(ins, nil, 0, func(s emit.Step, start, end time.Time) {
		if start.Before(last) || end.Before(start) {
			t.Errorf("%s is from %v to %v, after %v", s, start, end, last)
		}
		last = end
		share := 0.0
		for _, at := range s.Sites {
			share += at.Share
			lines[at.Line] = true
		}
		if math.Abs(share-1) > 1e-9 {
			t.Errorf("the places of %s have %g of it: %v", s, share, s.Sites)
		}
		flops += s.Flops
		bytes += s.Read + s.Written
	})
	if err != nil {
		t.Fatal(err)
	}
	if _, want := l.Sum(""); flops != want.Flops || bytes != want.Read+want.Written || flops == 0 {
		t.Errorf("steps told of %d operations and %d bytes, the plan has %+v", flops, bytes, want)
	}
	if len(lines) < 4 || lines[""] {
		t.Errorf("steps told of the lines %v", lines)
	}
}

// That no bit changes is tested with random programs.
func TestEverySwitchChangesThePlan(t *testing.T) {
	all := listing(t)
	for _, c := range []struct {
		off  string
		what func(l *emit.Listing) bool
	}{
		{"fuse-elementwise", func(l *emit.Listing) bool { return len(l.Steps) > len(all.Steps) }},
		{"fuse-reduce", func(l *emit.Listing) bool {
			for _, s := range l.Steps {
				if s.Ops > 1 && strings.Contains(s.What, "Reduce") {
					return false
				}
			}
			return true
		}},
		{"fuse-dot", func(l *emit.Listing) bool { return l.Steps[len(l.Steps)-1].Number > all.Steps[len(all.Steps)-1].Number }},
		{"views", func(l *emit.Listing) bool { return strings.Contains(l.String(), "Identity") }},
		{"in-place", func(l *emit.Listing) bool { return l.InPlace() == 0 && all.InPlace() > 0 }},
	} {
		if l := listing(t, c.off); !c.what(l) {
			t.Errorf("without %s:\n%s\nwith everything:\n%s", c.off, l, all)
		}
	}
}
