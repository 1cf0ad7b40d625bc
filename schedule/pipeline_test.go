// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package schedule

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/easyparallel/epl/ir"
)

// stages is a program of two stages that share a weight. The first value goes to the second stage, whose gradient comes
// back; the parts of the weight's gradient meet on the first.
const stages = `program "two stages"
instances %d %d
taskgraph 0 "first" replicate(1)
taskgraph 1 "second" replicate(1)
stage taskgraph 0 place 0
stage taskgraph 1 place 1
variable "/w" %%2 trainable update %%40 taskgraph 0
variable "/v" %%3 trainable update %%41 taskgraph 1
variable "/step" %%4 update %%43 taskgraph 0
input %%0
input %%1
gradient %%2 = %%39
gradient %%3 = %%37
loss %%16
outputs update %%2 update %%3 update %%4 result
main {
  %%0 = Parameter() {Name: "arg0", Shape: float32[8]} -> float32[8] : forward varying
  %%1 = Parameter() {Name: "arg1", Shape: float32[8]} -> float32[8] : forward varying
  %%2 = Parameter() {Name: "/w", Shape: float32[8]} -> float32[8] : forward taskgraph 0
  %%3 = Parameter() {Name: "/v", Shape: float32[8]} -> float32[8] : forward taskgraph 1
  %%4 = Parameter() {Name: "/step", Shape: float32[]} -> float32[] : apply
  %%10 = Mul(%%0, %%2) -> float32[8] : forward varying taskgraph 0
  %%13 = Mul(%%10, %%2) -> float32[8] : forward varying taskgraph 1 place 1
  %%14 = Mul(%%13, %%3) -> float32[8] : forward varying taskgraph 1 place 1
  %%15 = Sub(%%14, %%1) -> float32[8] : forward varying taskgraph 1 place 1
  %%16 = ReduceSum(%%15) -> float32[] : forward varying taskgraph 1 place 1
  %%30 = Exp(%%15) -> float32[8] : backward varying taskgraph 1 place 1
  %%31 = Mul(%%30, %%13) -> float32[8] : backward varying taskgraph 1 place 1
  %%32 = Mul(%%30, %%10) -> float32[8] : backward varying taskgraph 1 place 1
  %%33 = Mul(%%30, %%3) -> float32[8] : backward varying taskgraph 1 place 1
  %%34 = Mul(%%33, %%0) -> float32[8] : backward varying taskgraph 0
  %%35 = Merge(%%32) {How: "mean"} -> float32[8] : backward taskgraph 1 place 1
  %%36 = Merge(%%34) {How: "mean"} -> float32[8] : backward taskgraph 0
  %%37 = Merge(%%31) {How: "mean"} -> float32[8] : backward taskgraph 1 place 1
  %%38 = Merge(%%16) {How: "mean"} -> float32[] : forward taskgraph 1 place 1
  %%39 = Add(%%35, %%36) -> float32[8] : backward taskgraph 0
  %%42 = Constant() {Value: float32[](1)} -> float32[] : apply
  %%43 = Add(%%4, %%42) -> float32[] : apply taskgraph 0
  %%44 = BroadcastInDim(%%43) {OutputShape: float32[8]} -> float32[8] : apply taskgraph 0
  %%45 = Mul(%%39, %%44) -> float32[8] : apply taskgraph 0
  %%46 = Mul(%%37, %%44) -> float32[8] : apply taskgraph 1 place 1
  %%40 = Sub(%%2, %%45) -> float32[8] : apply taskgraph 0
  %%41 = Sub(%%3, %%46) -> float32[8] : apply taskgraph 1 place 1
  return %%40, %%41, %%43, %%38
}`

func buildStages(t *testing.T, replicas, micro int, strategy Strategy) *Program {
	t.Helper()
	p, err := ir.Parse(fmt.Sprintf(stages, replicas, micro))
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Verify(); err != nil {
		t.Fatal(err)
	}
	var ranks [][]int
	for r := range replicas {
		ranks = append(ranks, []int{2 * r, 2*r + 1})
	}
	s, err := Build(p, Options{MaxSplits: 5, Strategy: strategy, Ranks: ranks})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestPipelinesAreThoseOfTheGoldenFiles(t *testing.T) {
	for _, c := range []struct {
		replicas, micro int
		strategy        Strategy
	}{{1, 1, PreferBackward}, {2, 3, PreferBackward}, {1, 2, ZeroBubble}} {
		name := fmt.Sprintf("stages-%dx%d-%s", c.replicas, c.micro, c.strategy)
		t.Run(name, func(t *testing.T) {
			golden(t, name, buildStages(t, c.replicas, c.micro, c.strategy).String())
		})
	}
}

// A weight that stages share travels once per step, and so does its gradient; a value travels once to a stage, however
// often it is used there; a variable whose new value depends on no data lives wherever it is read, and does not travel.
func TestWhatTravelsBetweenStages(t *testing.T) {
	s := buildStages(t, 2, 3, PreferBackward)
	var got []string
	for _, x := range s.Transfers {
		got = append(got, fmt.Sprintf("%s %d→%d once=%v", x.Value, x.From, x.To, x.Once))
	}
	slices.Sort(got)
	want := []string{"%1 0→1 once=false", "%10 0→1 once=false", "%2 0→1 once=true", "%33 1→0 once=false", "%35 1→0 once=true"}
	if !slices.Equal(got, want) {
		t.Errorf("%q travel, want %q", got, want)
	}
	for _, x := range s.Variables {
		if x.Param.Shape.Rank() == 0 && !slices.Equal(x.Places, []int{0, 1}) {
			t.Errorf("the step lives on %v", x.Places)
		}
	}
}

func TestZeroBubbleComputesWhatOthersWaitForFirst(t *testing.T) {
	s := buildStages(t, 1, 2, ZeroBubble)
	for _, x := range s.Segments {
		computes := func(id int) bool { return slices.ContainsFunc(x.Ops, func(op *ir.Op) bool { return op.ID == id }) }
		if x.Kind == Backward && computes(31) || x.Kind == Weights && computes(33) {
			t.Errorf("%s computes %v", x.Name, x.Ops)
		}
	}
}

func TestCheckFindsPipelinesThatWouldHang(t *testing.T) {
	find := func(l []Instr, kind Kind) int {
		return slices.IndexFunc(l, func(in Instr) bool { return in.Kind == kind })
	}
	for _, c := range []struct {
		name   string
		break_ func(*Program)
		want   string
	}{
		{"a value that is not sent", func(s *Program) {
			at := slices.IndexFunc(s.Places[0], func(in Instr) bool { return in.Kind == Send && in.Micro == 1 && !s.Transfers[in.Transfer].Input })
			s.Places[0] = slices.Delete(s.Places[0], at, at+1)
		}, "waits forever"},
		{"a value that nobody receives", func(s *Program) {
			at := find(s.Places[0], Send)
			s.Places[0] = slices.Insert(s.Places[0], at, Instr{Kind: Send, Transfer: s.Places[0][at].Transfer, Micro: s.Places[0][at].Micro})
		}, "received"},
		{"a value of another device", func(s *Program) {
			s.Places[0] = append([]Instr{{Kind: Send, Transfer: slices.IndexFunc(s.Transfers, func(t Transfer) bool { return t.From == 1 })}}, s.Places[0]...)
		}, "is not there"},
		{"stages that wait for each other", func(s *Program) { // the first wants the gradient before it has done anything
			at := slices.IndexFunc(s.Places[0], func(in Instr) bool { return in.Kind == Receive && in.Micro == 0 })
			in := s.Places[0][at]
			s.Places[0] = append([]Instr{in}, slices.Delete(s.Places[0], at, at+1)...)
		}, "waits forever"},
		{"micro-batches out of order", func(s *Program) {
			at := find(s.Places[1], Feed)
			for i := range s.Places[1] {
				if in := &s.Places[1][i]; i != at && in.Kind == Feed && in.Micro == 1 {
					in.Micro, s.Places[1][at].Micro = s.Places[1][at].Micro, in.Micro
				}
			}
		}, "was sent first"},
	} {
		s := buildStages(t, 1, 3, PreferBackward)
		c.break_(s)
		if err := s.Check(); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v", c.name, err)
		}
	}
}

// Whatever uses a variable that waits on the host needs it on the device: segments, and what sends it to another one.
func TestCheckFindsAVariableThatIsStillOnTheHost(t *testing.T) {
	s := func() *Program {
		p, err := ir.Parse(strings.ReplaceAll(fmt.Sprintf(stages, 1, 2), "float32[8]", "float32[512]"))
		if err != nil {
			t.Fatal(err)
		}
		s, err := Build(p, Options{MaxSplits: 5, Ranks: [][]int{{0, 1}}, Offload: true})
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	kinds := map[Kind]bool{}
	for place, l := range s().Places {
		for i, in := range l {
			if in.Kind != Load {
				continue
			}
			s := s()
			s.Places[place] = slices.Delete(s.Places[place], i, i+1)
			use := slices.IndexFunc(s.Places[place][i:], func(x Instr) bool {
				return slices.ContainsFunc(s.Uses(x), func(at Slot) bool { return at.Value.String() == in.Value.String() })
			})
			x := s.Places[place][i+use]
			kinds[x.Kind] = true
			want := fmt.Sprintf("%s needs %s, which is not there", s.Text(x), in.Value)
			if err := s.Check(); err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("without %s on device %d: %v, not %q", s.Text(in), place, err, want)
			}
		}
	}
	if !kinds[Run] || !kinds[Send] {
		t.Errorf("what needs a variable from the host is only of the kinds %v", kinds)
	}
}

// Devices that take some rows of an input are sent no others.
func TestOnlyTheRowsOfAnInputTravelThatAreRead(t *testing.T) {
	text := strings.NewReplacer("%15 = Sub(%14, %1) -> float32[8]", `%49 = Position() {Axis: "model"} -> int32[] on model of 2 each : forward
  %50 = Reshard(%1, %49) -> float32[8] on model of 2 sharded(0) : forward varying taskgraph 1 place 1
  %51 = Reshard(%50) -> float32[8] : forward varying taskgraph 1 place 1
  %15 = Sub(%14, %51) -> float32[8]`, "stage taskgraph 1 place 1", "stage taskgraph 1 place 1 place 2").Replace(fmt.Sprintf(stages, 1, 1))
	p, err := ir.Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	s, err := Build(p, Options{MaxSplits: 5, Ranks: [][]int{{0, 1, 2}}})
	if err != nil {
		t.Fatal(err)
	}
	i := slices.IndexFunc(s.Transfers, func(x Transfer) bool { return x.Input })
	if i < 0 || s.Transfers[i].Into.Op.ID != 50 {
		t.Errorf("%+v", s.Transfers)
	}
}
