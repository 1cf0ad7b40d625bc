// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package shard_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/easyparallel/epl/ir"
	"github.com/easyparallel/epl/ir/analysis"
	"github.com/easyparallel/epl/shard"
)

// parse reads a program with two TaskGraphs: %0 is a batch of 7 samples, %1 a weight.
func parse(t *testing.T, k0, k1 int, local bool, body string) *ir.Program {
	t.Helper()
	var w strings.Builder
	w.WriteString("program \"p\"\n")
	varying := ""
	if local {
		w.WriteString("instances 2 2\n")
		varying = " varying"
	}
	fmt.Fprintf(&w, "taskgraph 0 \"first\" replicate(%d) \"model.go:1\"\ntaskgraph 1 \"second\" replicate(%d) \"model.go:2\"\n", k0, k1)
	for i, k := range []int{k0, k1} {
		fmt.Fprintf(&w, "stage taskgraph %d", i)
		for j := range k {
			fmt.Fprintf(&w, " place %d", i*k0+j)
		}
		w.WriteString("\n")
	}
	w.WriteString("variable \"/w\" %1\ninput %0\nmain {\n")
	fmt.Fprintf(&w, "  %%0 = Parameter() {Name: \"arg0\", Shape: float32[7,4]} -> float32[7,4] : forward%s\n", varying)
	w.WriteString("  %1 = Parameter() {Name: \"/w\", Shape: float32[4,4]} -> float32[4,4] : forward\n")
	for line := range strings.SplitSeq(strings.TrimSpace(body), "\n") {
		w.WriteString("  " + strings.TrimSpace(line) + "\n")
	}
	w.WriteString("}\n")
	p, err := ir.Parse(w.String())
	if err != nil {
		t.Fatalf("%v\n%s", err, &w)
	}
	for _, op := range p.Main.Ops {
		if op.TaskGraph != nil {
			op.Place = analysis.Of(p).Stage(op)
		}
	}
	if err := p.Verify(); err != nil {
		t.Fatal(err)
	}
	return p
}

// counts counts the ops of a type.
func counts(p *ir.Program, types ...ir.OpType) (n int) {
	for _, op := range p.Main.Ops {
		if slices.Contains(types, op.Type()) {
			n++
		}
	}
	return n
}

// crossing is how many bytes go from stage to stage.
func crossing(p *ir.Program) (bytes int64) {
	groups := p.Groups()
	for _, op := range p.Main.Ops {
		op.Uses(func(v *ir.Value) {
			if !v.Op.IsLeaf() && v.Op.Place != op.Place {
				n := v.Shape.ByteSize()
				if op.Outputs[0].On(ir.Model).Kind != ir.Sharded && op.IsTransfer() {
					n *= int64(len(groups[op.Place]))
				}
				bytes += n
			}
		})
	}
	return bytes
}

const twoLayers = `
%2 = DotGeneral(%0, %1) {LHSContractingAxes: [1], RHSContractingAxes: [0]} -> float32[7,4] : forward taskgraph 0
%3 = Tanh(%2) -> float32[7,4] : forward taskgraph 1
%4 = ReduceSum(%3) {Axes: [0]} -> float32[4] : forward taskgraph 1
return %4`

func TestOnlyTheRowsThatAreNeededCrossBetweenStages(t *testing.T) {
	for k0 := 1; k0 <= 4; k0++ {
		for k1 := 1; k1 <= 4; k1++ {
			p := parse(t, k0, k1, false, twoLayers)
			compare(t, p, 1)
			want := int64(7 * 4 * 4)
			if k0 == 1 { // all compute the whole
				want *= int64(k1)
			}
			if got := crossing(p); got != want {
				t.Errorf("%d to %d devices: %d bytes cross\n%s", k0, k1, got, p)
			}
		}
	}
}

func TestStagesOfOneDeviceStayAsTheyAre(t *testing.T) {
	p := parse(t, 1, 1, false, twoLayers)
	before := p.String()
	r, err := expanded(p, nil)
	if err != nil {
		t.Fatal(err)
	}
	if p.String() != before || len(r.Lines()) != 0 {
		t.Errorf("%v\n%s", r.Lines(), p)
	}
}

// steps of which we know how much devices must exchange.
var steps = []struct {
	name     string
	local    bool
	body     string
	reduces  int // all-reduces
	gathers  int // all-gathers
	merges   int
	gathered string
}{
	{"a sum that two ops need is reduced once", false, `
		%2 = ReduceSum(%0) {Axes: [0]} -> float32[4] : forward taskgraph 0
		%3 = Neg(%2) -> float32[4] : forward taskgraph 0
		%4 = Exp(%3) -> float32[4] : forward taskgraph 0
		%5 = Exp(%2) -> float32[4] : forward taskgraph 0
		return %4, %5`, 1, 0, 0, ""},
	{"another stage takes the sum that was reduced for this one", false, `
		%2 = ReduceSum(%0) {Axes: [0]} -> float32[4] : forward taskgraph 0
		%3 = Exp(%2) -> float32[4] : backward taskgraph 0
		%4 = Tanh(%2) -> float32[4] : backward taskgraph 1
		return %3, %4`, 1, 0, 0, ""},
	{"sums are added before they are reduced", false, `
		%2 = ReduceSum(%0) {Axes: [0]} -> float32[4] : forward taskgraph 0
		%3 = Mul(%0, %0) -> float32[7,4] : forward taskgraph 0
		%4 = ReduceSum(%3) {Axes: [0]} -> float32[4] : forward taskgraph 0
		%5 = Sub(%2, %4) -> float32[4] : forward taskgraph 0
		%6 = Constant() {Value: float32[](0.5)} -> float32[] : forward
		%7 = Mul(%6, %5) -> float32[4] : forward taskgraph 0
		%8 = Div(%7, %6) -> float32[4] : forward taskgraph 0
		%9 = Reshape(%8) {Dimensions: [2, 2]} -> float32[2,2] : forward taskgraph 0
		return %9`, 1, 0, 0, ""},
	{"what every device has is added once", false, `
		%2 = DotGeneral(%0, %0) {LHSContractingAxes: [0], RHSContractingAxes: [0]} -> float32[4,4] : forward taskgraph 0
		%3 = Tanh(%1) -> float32[4,4] : forward taskgraph 0
		%4 = Add(%3, %2) -> float32[4,4] : forward taskgraph 0
		return %4`, 1, 0, 0, ""},
	{"a sum of integers is reduced before it is divided", false, `
		%2 = ConvertDType(%0) {DType: int32} -> int32[7,4] : forward taskgraph 0
		%3 = Constant() {Value: int32[](1)} -> int32[] : forward
		%4 = Add(%2, %3) -> int32[7,4] : forward taskgraph 0
		%5 = ReduceSum(%4) {Axes: [0]} -> int32[4] : forward taskgraph 0
		%6 = Constant() {Value: int32[](3)} -> int32[] : forward
		%7 = Div(%5, %6) -> int32[4] : forward taskgraph 0
		return %7`, 1, 0, 0, ""},
	{"a sum that may meet infinities is reduced before", false, `
		%2 = Constant() {Value: float32[](0)} -> float32[] : forward
		%3 = DotGeneral(%0, %0) {LHSContractingAxes: [0], RHSContractingAxes: [0]} -> float32[4,4] : forward taskgraph 0
		%4 = Max(%1, %2) -> float32[4,4] : forward taskgraph 0
		%5 = Log(%4) -> float32[4,4] : forward taskgraph 0
		%6 = Mul(%3, %5) -> float32[4,4] : forward taskgraph 0
		return %6`, 1, 0, 0, ""},
	{"a maximum moves and is reduced", false, `
		%2 = ReduceMax(%0) {Axes: [0]} -> float32[4] : forward taskgraph 0
		%3 = Reshape(%2) {Dimensions: [2, 2]} -> float32[2,2] : forward taskgraph 0
		%4 = Neg(%3) -> float32[2,2] : forward taskgraph 0
		return %4`, 1, 0, 0, ""},
	{"a small sum is reduced before it is spread", false, `
		%2 = ReduceSum(%0) {Axes: [0]} -> float32[4] : forward taskgraph 0
		%3 = BroadcastInDim(%2) {OutputShape: float32[7,4], BroadcastAxes: [1]} -> float32[7,4] : forward taskgraph 0
		%4 = Sub(%0, %3) -> float32[7,4] : forward taskgraph 0
		%5 = ReduceSum(%4) {Axes: [1]} -> float32[7] : forward taskgraph 0
		return %5`, 1, 1, 0, ""},
	{"what the batch is cut along is gathered", false, `
		%2 = Tanh(%0) -> float32[7,4] : forward taskgraph 0
		%3 = CumSum(%2) {Axis: 0, Options: {Exclusive: false, Reverse: false}} -> float32[7,4] : forward taskgraph 0 "model.go:9"
		return %3`, 0, 1, 0, "CumSum is computed on whole values by every device (1 times, first at model.go:9)"},
	{"a dim that is not the first is gathered", false, `
		%2 = Transpose(%0) {Permutation: [1, 0]} -> float32[4,7] : forward taskgraph 0
		return %2`, 0, 1, 0, ""},
	{"barriers hand through what there is", false, `
		%2 = ReduceSum(%0) {Axes: [0]} -> float32[4] : forward taskgraph 0
		%3 = Tanh(%0) -> float32[7,4] : forward taskgraph 0
		%4 = OptimizationBarrier(%2, %3) -> float32[4], float32[7,4] : forward taskgraph 0
		%5 = SchedulingBarrier(%4.1, %2) -> float32[7,4] : forward taskgraph 0
		%6 = ReduceSum(%5) {Axes: [0]} -> float32[4] : forward taskgraph 0
		%7 = Add(%6, %4) -> float32[4] : forward taskgraph 0
		return %7`, 1, 0, 0, ""},
	{"what was gathered for backward is gathered again for forward", false, `
		%2 = Tanh(%0) -> float32[7,4] : forward taskgraph 0
		%3 = CumSum(%2) {Axis: 0, Options: {Exclusive: false, Reverse: false}} -> float32[7,4] : backward taskgraph 0
		%4 = CumSum(%2) {Axis: 0, Options: {Exclusive: true, Reverse: false}} -> float32[7,4] : forward taskgraph 0
		return %3, %4`, 0, 2, 0, "CumSum is computed on whole values by every device (2 times)"},
	{"a function may capture what is sharded", false, `
		%2 = Tanh(%0) -> float32[7,4] : forward taskgraph 0
		%3 = ReduceSum(%2) -> float32[] : forward taskgraph 0
		%4 = Constant() {Value: float32[](0)} -> float32[] : forward
		%5 = GreaterThan(%3, %4) -> bool[] : forward taskgraph 0
		%6 = If(%5) [closure 0 {
		%7 = Mul(%2, %0) -> float32[7,4] : forward
		return %7
		}, closure 1 {
		%8 = Neg(%2) -> float32[7,4] : forward
		return %8
		}] -> float32[7,4] : forward taskgraph 0
		return %6`, 1, 1, 0, "If is computed on whole values by every device (1 times)"},
	{"so may one of another stage", false, `
		%2 = Tanh(%0) -> float32[7,4] : forward taskgraph 0
		%3 = Constant() {Value: bool[](true)} -> bool[] : forward
		%4 = If(%3) [closure 0 {
		%5 = Mul(%2, %0) -> float32[7,4] : forward
		return %5
		}, closure 1 {
		return %2
		}] -> float32[7,4] : forward taskgraph 1
		return %4`, 0, 0, 0, ""},
	{"a gradient is added up by its merge", true, `
		%2 = DotGeneral(%0, %0) {LHSContractingAxes: [0], RHSContractingAxes: [0]} -> float32[4,4] : backward varying taskgraph 0
		%3 = Add(%2, %1) -> float32[4,4] : backward varying taskgraph 0
		%4 = Merge(%3) {How: "mean"} -> float32[4,4] : backward taskgraph 0
		%5 = Sub(%1, %4) -> float32[4,4] : apply taskgraph 0
		return %5`, 0, 0, 1, ""},
	{"what is merged in other ways is gathered before", true, `
		%2 = Tanh(%0) -> float32[7,4] : forward varying taskgraph 0
		%3 = Merge(%2) {How: "concat"} -> float32[28,4] : forward taskgraph 0
		return %3`, 0, 1, 1, ""},
	{"every device has what apply needs", true, `
		%2 = Tanh(%0) -> float32[7,4] : forward varying taskgraph 0
		%3 = Merge(%2) {How: "mean"} -> float32[7,4] : forward taskgraph 0
		%4 = Exp(%3) -> float32[7,4] : apply taskgraph 0
		%5 = DotGeneral(%4, %1) {LHSContractingAxes: [1], RHSContractingAxes: [0]} -> float32[7,4] : apply
		return %4, %5`, 0, 1, 1, ""},
	{"the data themselves can be merged", true, `
		%2 = Merge(%0) {How: "concat"} -> float32[28,4] : forward taskgraph 0
		return %2`, 0, 0, 1, ""},
	{"what workers merge by themselves is reduced before", true, `
		%2 = ReduceSum(%0) -> float32[] : forward varying taskgraph 0
		%3 = Merge(%2) {How: "sum", Worker: true} -> float32[] : forward taskgraph 0
		return %3`, 1, 0, 1, ""},
}

func TestDevicesExchangeWhatTheyMust(t *testing.T) {
	for _, c := range steps {
		for k := 2; k <= 4; k++ {
			t.Run(fmt.Sprintf("%s/%d", c.name, k), func(t *testing.T) {
				p := parse(t, k, 1, c.local, c.body)
				r := compare(t, p, uint64(k))
				gathered := ""
				for _, g := range r.Lines() {
					if strings.Contains(g, "computed on") {
						gathered += g
					}
				}
				if r.Exchanges[ir.AllReduceOf].Count != c.reduces || r.Exchanges[ir.AllGatherOf].Count != c.gathers || gathered != c.gathered ||
					counts(p, ir.OpMerge) != c.merges {
					t.Errorf("%v, %d merges\n%s", r.Lines(), counts(p, ir.OpMerge), p)
				}
			})
		}
	}
}

// Slices of a value for another stage may be cut out of what was made in a later phase than the value itself.
func TestRowsThatWereCutInBackwardServeBackwardOfAnotherStage(t *testing.T) {
	p := parse(t, 3, 2, false, `
		%2 = Constant() {Value: float32[7,4](`+strings.Repeat("0.25, ", 27)+`0.5)} -> float32[7,4] : forward
		%3 = DotGeneral(%2, %1) {LHSContractingAxes: [1], RHSContractingAxes: [0]} -> float32[7,4] : forward taskgraph 0
		%4 = Mul(%3, %0) -> float32[7,4] : backward taskgraph 0
		%5 = Mul(%3, %0) -> float32[7,4] : backward taskgraph 1
		%6 = Add(%4, %5) -> float32[7,4] : backward taskgraph 1
		%7 = Add(%3, %0) -> float32[7,4] : forward taskgraph 1
		%8 = ReduceSum(%6) -> float32[] : backward taskgraph 1
		%9 = ReduceSum(%7) -> float32[] : forward taskgraph 1
		return %8, %9`)
	compare(t, p, 1)
}

// A variable is updated on every device of its stage.
func TestUpdatesAreCopiedToAllDevices(t *testing.T) {
	body := `
		%2 = DotGeneral(%0, %0) {LHSContractingAxes: [0], RHSContractingAxes: [0]} -> float32[4,4] : backward varying taskgraph 0
		%3 = Merge(%2) {How: "mean"} -> float32[4,4] : backward taskgraph 0
		%4 = Sub(%1, %3) -> float32[4,4] : apply taskgraph 0
		return %4`
	p := parse(t, 3, 1, true, body)
	w := p.Variables[0]
	w.Trainable, w.Update, p.Outputs[0].Updates = true, p.Main.Outputs[0], w
	p.Gradients = []ir.Gradient{{Variable: w, Value: w.Update.Op.Inputs[1]}}
	compare(t, p, 1)
	if w.Update.IsPlaced() || p.Main.Outputs[0] != w.Update || p.Gradients[0].Value.IsPlaced() {
		t.Errorf("the devices do not have all of the new value\n%s", p)
	}
}

// What is made of numbers is computed for the rows that are needed, and not as a whole.
func TestWhatDoesNotDependOnTheBatchIsComputedForEachDevicesRows(t *testing.T) {
	p := parse(t, 2, 1, false, `
		%2 = Iota() {Shape: int32[7,4], IotaAxis: 1} -> int32[7,4] : forward taskgraph 0
		%3 = ConvertDType(%2) {DType: float32} -> float32[7,4] : forward taskgraph 0
		%4 = Constant() {Value: float32[](3)} -> float32[] : forward
		%5 = BroadcastInDim(%4) {OutputShape: float32[7,4]} -> float32[7,4] : forward taskgraph 0
		%6 = Mul(%3, %5) -> float32[7,4] : forward taskgraph 0
		%7 = Add(%0, %6) -> float32[7,4] : forward taskgraph 0
		%8 = ReduceSum(%7) -> float32[] : forward taskgraph 0
		return %8`)
	compare(t, p, 1)
	for _, op := range p.Main.Ops {
		if !op.IsLeaf() && op.Outputs[0].Shape.Rank() > 0 && op.Outputs[0].LocalShape(nil).Dimensions[0] == 7 {
			t.Errorf("%s is computed as a whole\n%s", op, p)
		}
	}
}

// A batch that cannot be dealt is computed by every device, and the report says so.
func TestABatchWithFewerSamplesThanDevicesIsComputedByEachOfThem(t *testing.T) {
	for _, c := range []struct {
		k0, k1 int
		want   string
	}{
		{8, 1, `a batch of 7 has fewer samples than TaskGraph "first" (model.go:1) has devices, 8: each device computes the whole batch`},
		{2, 9, `a batch of 7 has fewer samples than TaskGraph "second" (model.go:2) has devices, 9: each device computes the whole batch`},
		{8, 9, `a batch of 7 has fewer samples than TaskGraph "first" (model.go:1) has devices, 8, as another TaskGraph has: each device computes the whole batch`},
		{7, 7, ""},
	} {
		if r := compare(t, parse(t, c.k0, c.k1, false, twoLayers), 1); r.Undealt != c.want {
			t.Errorf("%d and %d devices: %q", c.k0, c.k1, r.Undealt)
		}
	}
}

func TestWhatCannotBePartitionedIsRefusedWithTheReason(t *testing.T) {
	split := parse(t, 1, 5, false, twoLayers)
	split.TaskGraphs[1].Kind, split.Variables[0].TaskGraph, split.Variables[0].Trainable = ir.Split, split.TaskGraphs[1], true
	for _, c := range []struct {
		p        *ir.Program
		mentions []string
	}{
		{split, []string{`"second"`, "model.go:2", "5 devices", "use fewer devices", "float32[4,4]", `"/w"`}},
	} {
		before := c.p.String()
		_, err := expanded(c.p, nil)
		if err == nil || c.p.String() != before {
			t.Errorf("%v; or the program was changed", err)
			continue
		}
		for _, m := range append(c.mentions, "epl: ") {
			if !strings.Contains(err.Error(), m) {
				t.Errorf("the error does not mention %q: %v", m, err)
			}
		}
	}
}

func TestTheReportSaysWhatIsExchangedAndWhatIsGathered(t *testing.T) {
	p := parse(t, 2, 1, false, `
		%2 = Tanh(%0) -> float32[7,4] : forward taskgraph 0
		%3 = ReduceSum(%2) {Axes: [0]} -> float32[4] : forward taskgraph 0
		%4 = CumSum(%2) {Axis: 0, Options: {Exclusive: false, Reverse: false}} -> float32[7,4] : forward taskgraph 0 "model.go:9"
		return %3, %4`)
	r := compare(t, p, 1)
	want := []string{
		"1 × all-reduce between the devices of a stage, of 16 bytes",
		"1 × all-gather between the devices of a stage, of 112 bytes",
		"CumSum is computed on whole values by every device (1 times, first at model.go:9)",
	}
	if got := r.Lines(); !slices.Equal(got, want) {
		t.Errorf("%q", got)
	}
}

// A program in which the rows of the weight are sharded; %2 must still be reduced, and %3 is sharded along its columns.
const ofShardedRows = `
	%2 = DotGeneral(%0, %1) {LHSContractingAxes: [1], RHSContractingAxes: [0]} -> float32[7,4] : forward taskgraph 0
	%3 = DotGeneral(%0, %1) {LHSContractingAxes: [1], RHSContractingAxes: [1]} -> float32[7,4] : forward taskgraph 0
`

func TestDevicesOfASplitTaskGraphExchangeWhatTheyMust(t *testing.T) {
	for _, c := range []struct {
		name, body string
		want       map[ir.Collective]int
		lines      []string
	}{
		{"terms of a sum that must be reduced are added up first", `
			%4 = Tanh(%3) -> float32[7,4] : forward taskgraph 0
			%5 = Add(%4, %2) -> float32[7,4] : forward taskgraph 0
			%6 = Exp(%0) -> float32[7,4] : forward taskgraph 0
			%7 = DotGeneral(%6, %1) {LHSContractingAxes: [1], RHSContractingAxes: [0]} -> float32[7,4] : forward taskgraph 0
			%8 = Add(%5, %7) -> float32[7,4] : forward taskgraph 0
			%9 = Exp(%8) -> float32[7,4] : forward taskgraph 0
			%10 = ReduceSum(%9) {Axes: [0]} -> float32[4] : forward taskgraph 0
			return %10`, map[ir.Collective]int{ir.ReduceScatterOf: 1, ir.AllGatherOf: 1}, nil},
		{"what is needed in part is reduced and computed in part", `
			%4 = Tanh(%2) -> float32[7,4] : forward taskgraph 0
			%5 = Exp(%4) -> float32[7,4] : forward taskgraph 0
			%6 = Mul(%5, %3) -> float32[7,4] : forward taskgraph 0
			%7 = ReduceMax(%6) {Axes: [1]} -> float32[7] : forward taskgraph 0
			return %7`, map[ir.Collective]int{ir.ReduceScatterOf: 1, ir.AllReduceOf: 1}, nil},
		{"what every device has is added to what must be reduced", `
			%4 = Add(%0, %2) -> float32[7,4] : forward taskgraph 0
			%5 = Add(%4, %0) -> float32[7,4] : forward taskgraph 0
			%6 = Exp(%5) -> float32[7,4] : forward taskgraph 0
			return %6`, map[ir.Collective]int{ir.AllReduceOf: 1}, nil},
		{"a sum that is needed in several forms is reduced once", `
			%4 = Neg(%2) -> float32[7,4] : forward taskgraph 0
			%5 = Exp(%4) -> float32[7,4] : forward taskgraph 0
			%6 = Reshape(%2) {Dimensions: [28]} -> float32[28] : forward taskgraph 0
			%7 = Tanh(%6) -> float32[28] : forward taskgraph 0
			return %5, %7`, map[ir.Collective]int{ir.AllReduceOf: 1}, nil},
		{"what is sharded along one dim is needed along another", `
			%4 = Tanh(%3) -> float32[7,4] : forward taskgraph 0
			%5 = DotGeneral(%4, %1) {LHSContractingAxes: [1], RHSContractingAxes: [1]} -> float32[7,4] : forward taskgraph 0
			%6 = Mul(%5, %4) -> float32[7,4] : forward taskgraph 0
			%7 = Transpose(%6) {Permutation: [1, 0]} -> float32[4,7] : forward taskgraph 0
			%8 = Mul(%7, %7) -> float32[4,7] : forward taskgraph 0
			%9 = ReduceSum(%8) -> float32[] : forward taskgraph 0
			return %9`, map[ir.Collective]int{ir.AllGatherOf: 1, ir.AllReduceOf: 1}, nil},
		{"a form of it that is there already in another placement is not exchanged", `
			%4 = CumSum(%3) {Axis: 1, Options: {Exclusive: false, Reverse: false}} -> float32[7,4] : forward taskgraph 0 "model.go:9"
			%5 = Transpose(%3) {Permutation: [1, 0]} -> float32[4,7] : forward taskgraph 0
			%6 = CumSum(%5) {Axis: 0, Options: {Exclusive: false, Reverse: false}} -> float32[4,7] : forward taskgraph 0
			return %4, %6`, map[ir.Collective]int{ir.AllGatherOf: 1}, []string{
			"1 × all-gather between the devices of a stage, of 112 bytes",
			"CumSum is computed on whole values by every device (2 times, first at model.go:9)"}},
		{"a result that is the old value of a variable is gathered", `
			return %1, %0`, map[ir.Collective]int{ir.AllGatherOf: 1}, nil},
		{"a weight is gathered if there is no other way", `
			%4 = CumSum(%1) {Axis: 0, Options: {Exclusive: false, Reverse: false}} -> float32[4,4] : forward taskgraph 0 "model.go:9"
			%5 = CumSum(%1) {Axis: 0, Options: {Exclusive: true, Reverse: false}} -> float32[4,4] : backward taskgraph 0 "model.go:9"
			return %4, %5`, map[ir.Collective]int{ir.AllGatherOf: 2}, []string{
			"2 × all-gather between the devices of a stage, of 128 bytes",
			"/w is sharded, and gathered for an op that needs all of it",
			"CumSum is computed on whole values by every device (2 times, first at model.go:9)"}},
	} {
		for k := 2; k <= 4; k++ {
			t.Run(fmt.Sprintf("%s/%d", c.name, k), func(t *testing.T) {
				p := parse(t, k, 1, false, ofShardedRows+c.body)
				w := p.Variables[0]
				p.TaskGraphs[0].Kind, w.TaskGraph, w.Trainable = ir.Split, p.TaskGraphs[0], true
				r := compareSplit(t, p, shard.Choice{w.Param: by(0, 1)}, uint64(k))
				n := map[ir.Collective]int{}
				for how, e := range r.Exchanges {
					n[how] = e.Count
				}
				rows := shard.Listing(p, &shard.Chosen{}, r)
				if k == 2 && c.lines != nil && (len(rows) != 1 || !slices.Equal(rows[0][:2], []string{"/w float32[4,4]", "sharded(0): 2 of 4 rows"})) {
					t.Errorf("the table is %q", rows)
				}
				if !maps.Equal(n, c.want) || k == 2 && c.lines != nil && !slices.Equal(r.Lines(), c.lines) {
					t.Errorf("%q\n%s", r.Lines(), p)
				}
			})
		}
	}
}
