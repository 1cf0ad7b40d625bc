// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package schedule

import (
	"flag"
	"fmt"
	"math/rand"
	"os"
	"strings"
	"testing"

	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/shapes"

	"github.com/easyparallel/epl/ir"
)

var update = flag.Bool("update", false, "rewrite the files in testdata")

// program has two layers; their gradients come in the opposite order.
const program = `program "two layers"
instances %d %d
taskgraph 0 "" replicate(1) implicit
variable "/w1" %%1 trainable update %%40 taskgraph 0
variable "/w2" %%2 trainable update %%41 taskgraph 0
variable "/seen" %%3 update %%34 taskgraph 0
input %%0
gradient %%1 = %%31
gradient %%2 = %%30
loss %%12
outputs update %%1 update %%2 update %%3 result
main {
  %%0 = Parameter() {Name: "arg0", Shape: float32[4]} -> float32[4] : forward varying taskgraph 0
  %%1 = Parameter() {Name: "/w1", Shape: float32[4]} -> float32[4] : forward taskgraph 0
  %%2 = Parameter() {Name: "/w2", Shape: float32[4]} -> float32[4] : forward taskgraph 0
  %%3 = Parameter() {Name: "/seen", Shape: int64[]} -> int64[] : forward taskgraph 0
  %%10 = Mul(%%0, %%1) -> float32[4] : forward varying taskgraph 0
  %%11 = Mul(%%10, %%2) -> float32[4] : forward varying taskgraph 0
  %%12 = ReduceSum(%%11) -> float32[] : forward varying taskgraph 0
  %%13 = ConvertDType(%%12) {DType: int64} -> int64[] : forward varying taskgraph 0
  %%20 = Exp(%%10) -> float32[4] : backward varying taskgraph 0
  %%21 = Mul(%%20, %%2) -> float32[4] : backward varying taskgraph 0
  %%22 = Mul(%%21, %%0) -> float32[4] : backward varying taskgraph 0
  %%30 = Merge(%%20) {How: "mean"} -> float32[4] : backward taskgraph 0
  %%31 = Merge(%%22) {How: "mean"} -> float32[4] : backward taskgraph 0
  %%40 = Sub(%%1, %%31) -> float32[4] : apply taskgraph 0
  %%41 = Sub(%%2, %%30) -> float32[4] : apply taskgraph 0
  %%33 = Merge(%%12) {How: "mean"} -> float32[] : forward
  %%34 = Merge(%%13) {How: "agree"} -> int64[] : forward
  return %%40, %%41, %%34, %%33
}`

// golden compares a text with that of a file in testdata.
func golden(t *testing.T, name, got string) {
	t.Helper()
	file := "testdata/" + name + ".txt"
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

func build(t *testing.T, replicas, micro, splits int) *Program {
	t.Helper()
	p, err := ir.Parse(fmt.Sprintf(program, replicas, micro))
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Verify(); err != nil {
		t.Fatal(err)
	}
	s, err := Build(p, Options{MaxSplits: splits})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestForwardAndBackwardAreApartForATimeline(t *testing.T) {
	for _, instances := range [][2]int{{2, 1}, {1, 3}, {2, 2}} {
		p, err := ir.Parse(fmt.Sprintf(program, instances[0], instances[1]))
		if err != nil {
			t.Fatal(err)
		}
		s, err := Build(p, Options{MaxSplits: 2, Phases: true})
		if err != nil {
			t.Fatal(err)
		}
		seen := map[Part]int{}
		for _, x := range s.Segments {
			seen[x.Kind]++
			for _, op := range x.Ops {
				if x.Kind == Forward && op.Phase != ir.Forward || x.Kind == Backward && op.Phase == ir.Forward && op.Varying {
					t.Errorf("%v: %s is in %s", instances, op, x.Name)
				}
			}
		}
		if seen[Forward] != 1 || seen[Backward] < 1 || seen[Instance] != 0 {
			t.Errorf("%v: segments %v", instances, seen)
		}
	}
}

func TestSchedulesAreThoseOfTheGoldenFiles(t *testing.T) {
	for _, c := range []struct {
		name            string
		replicas, micro int
		splits          int
	}{{"two-replicas", 2, 1, 5}, {"accumulate", 1, 3, 5}, {"both", 3, 2, 1}} {
		t.Run(c.name, func(t *testing.T) {
			golden(t, c.name, build(t, c.replicas, c.micro, c.splits).String())
		})
	}
}

// A value that a later segment still reads must not be merged, which overwrites it, before that.
func TestABucketWaitsForTheLastSegmentThatReadsItsValues(t *testing.T) {
	s := build(t, 2, 1, 5)
	for _, b := range s.Buckets {
		for _, m := range b.Merges {
			for i, seg := range s.Segments {
				for _, in := range seg.Inputs {
					if in == m.Inputs[0] && i > b.After {
						t.Errorf("%s is merged after segment %d, but segment %d reads it", in, b.After, i)
					}
				}
			}
		}
	}
}

func TestCheckFindsWhatWouldGoWrong(t *testing.T) {
	for _, c := range []struct {
		name   string
		break_ func(*Program)
		want   string
	}{
		{"a value freed too early", func(s *Program) {
			for _, v := range s.Segments[0].Outputs {
				s.Places[0][1].Frees = append(s.Places[0][1].Frees, Slot{v, 0})
			}
		}, "is not there"},
		{"a bucket merged twice", func(s *Program) {
			s.Places[0] = append(s.Places[0], Instr{Kind: Merge, Bucket: 0, Micro: Once})
		}, "merged twice"},
		{"a bucket never merged", func(s *Program) {
			s.Places[0] = s.Places[0][:1]
		}, "never merged"},
		{"a bucket waited for before it starts", func(s *Program) {
			s.Places[0] = append([]Instr{{Kind: Wait, Bucket: 1, Micro: Once}}, s.Places[0]...)
		}, "not being merged"},
	} {
		s := build(t, 2, 1, 5)
		c.break_(s)
		if err := s.Check(); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v", c.name, err)
		}
	}
}

func tensors(p *ir.Program, r *rand.Rand, sizes []int, kinds ...dtypes.DType) []*ir.Op {
	var merges []*ir.Op
	for _, n := range sizes {
		s := shapes.Make(kinds[r.Intn(len(kinds))], n)
		merges = append(merges, p.NewOp(&ir.Merge{How: ir.Mean}, []*ir.Value{p.NewOp(&ir.Exp{}, nil, s).Outputs[0]}, s))
	}
	return merges
}

func TestFusionOfEqualTensorsIsThatOfTheWorkedCases(t *testing.T) {
	for _, c := range []struct {
		tensors, splits int
		want            string
	}{{10, 5, "[2 2 2 2 2]"}, {8, 5, "[2 2 2 2]"}, {10, 1, "[10]"}, {7, 5, "[2 2 2 1]"}, {3, 5, "[1 1 1]"}, {0, 5, "[]"}} {
		sizes := make([]int, c.tensors)
		for i := range sizes {
			sizes[i] = 100
		}
		got := []int{}
		for _, g := range fused(t, c.splits, tensors(ir.NewProgram("x"), rand.New(rand.NewSource(1)), sizes, dtypes.Float32)) {
			got = append(got, len(g))
		}
		if fmt.Sprint(got) != c.want {
			t.Errorf("%d tensors in at most %d: %v, want %s", c.tensors, c.splits, got, c.want)
		}
	}
}

func TestFusionKeepsOrderNeverMixesAndNeverExceedsItsCap(t *testing.T) {
	r := rand.New(rand.NewSource(1))
	for range 500 {
		sizes := make([]int, r.Intn(40))
		for i := range sizes {
			sizes[i] = r.Intn(1 << r.Intn(16))
		}
		splits := 1 + r.Intn(8)
		merges := tensors(ir.NewProgram("x"), r, sizes, dtypes.Float32, dtypes.Float64, dtypes.BFloat16)
		perKind := map[dtypes.DType]int{}
		place := map[*ir.Op]int{}
		n := 0
		for g, group := range fused(t, splits, merges) {
			perKind[group[0].Inputs[0].Shape.DType]++
			for _, m := range group {
				if m.Inputs[0].Shape.DType != group[0].Inputs[0].Shape.DType {
					t.Fatal("a bucket mixes dtypes")
				}
				place[m] = g
				n++
			}
		}
		if n != len(merges) || len(place) != len(merges) {
			t.Fatalf("%d of %d tensors are in buckets", n, len(merges))
		}
		last := map[dtypes.DType]int{}
		for _, m := range merges {
			d := m.Inputs[0].Shape.DType
			if place[m] < last[d] {
				t.Fatal("the order of tensors changed")
			}
			last[d] = place[m]
		}
		for d, k := range perKind {
			if k > splits {
				t.Fatalf("%d buckets of %s, at most %d are allowed", k, d, splits)
			}
		}
	}
}

func TestTemporaryCountsWhatLivesAtTheSameTime(t *testing.T) {
	s := build(t, 1, 2, 5)
	// %10, %20 and %21 are 16 bytes each; %11 dies before.
	if got := (&Ledger{}).Profile(s.Segments[0].Segment, nil).Need(func(int) bool { return false }).Peak.Total(); got < 48 || got > 100 {
		t.Errorf("the instance needs %d bytes", got)
	}
}
