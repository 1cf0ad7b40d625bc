// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package lower_test

import (
	"fmt"
	"math"
	"reflect"
	"strings"
	"testing"

	"github.com/gomlx/compute"
	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/gobackend"
	"github.com/gomlx/compute/shapes"

	"github.com/easyparallel/epl/emit"
	"github.com/easyparallel/epl/exec/lower"
	"github.com/easyparallel/epl/ir"
)

// exchanges change placements by every collective, on a mesh of 2 model replicas of 2 devices, and merge in every way.
const exchanges = `program "exchanges"
instances 2 1
taskgraph 0 "all" split(2)
stage taskgraph 0 place 0 place 1
variable "/w" %1 taskgraph 0
input %0
main {
  %0 = Parameter() {Name: "x", Shape: float32[4,6]} -> float32[4,6] : forward varying
  %1 = Parameter() {Name: "w", Shape: float32[3,3]} -> float32[3,3] on replica of 2 flat : forward taskgraph 0
  %2 = Position() {Axis: "model"} -> int32[] on model of 2 each : forward
  %3 = Reshard(%1) -> float32[3,3] : forward taskgraph 0
  %4 = Reshard(%0, %2) -> float32[4,6] on model of 2 sharded(0) : forward varying taskgraph 0
  %5 = Reshard(%4) -> float32[4,6] on model of 2 sharded(1) : forward varying taskgraph 0
  %6 = Reshard(%5) -> float32[4,6] : forward varying taskgraph 0
  %7 = ReduceSum(%4) {Axes: [0]} -> float32[6] on model of 2 partial(sum) : forward varying taskgraph 0
  %8 = Reshard(%7) -> float32[6] : forward varying taskgraph 0
  %9 = Reshard(%7) -> float32[6] on model of 2 sharded(0) : forward varying taskgraph 0
  %20 = Merge(%6) {How: "mean"} -> float32[4,6] : backward taskgraph 0
  %21 = Merge(%3) {How: "sum"} -> float32[3,3] on replica of 2 flat : backward taskgraph 0
  %22 = Merge(%8) {How: "first"} -> float32[6] : forward taskgraph 0
  %23 = Merge(%9) {How: "concat"} -> float32[12] on model of 2 sharded(0) : forward taskgraph 0
  %24 = Merge(%7) {How: "mean"} -> float32[6] : backward taskgraph 0
  return %20, %21, %22, %23, %24
}
`

func TestCollectivesOfDevicesThatRunASegmentTogether(t *testing.T) {
	p, err := ir.Parse(exchanges)
	if err != nil {
		t.Fatal(err)
	}
	s := ir.Cut(p.Main, "exchanges", func(*ir.Op) bool { return true }, p.Main.Outputs)
	s.Mesh = &ir.Mesh{Replicas: 2, Model: 2, Instances: 2, Ranks: []int{0, 1, 2, 3}}
	l := lower.Lower(s, nil)
	var got []string
	for _, op := range l.Ops {
		if a, ok := op.Attrs.(*ir.Communicate); ok {
			got = append(got, fmt.Sprintf("%s %v: %s → %s", a.How, a.Groups, ir.ShapeText(op.Inputs[0].Shape), ir.ShapeText(op.Outputs[0].Shape)))
		}
	}
	want := []string{
		"all-gather [[0 2] [1 3]]: float32[5] → float32[10]", // past the end of 9 there are zeros
		"all-to-all [[0 1] [2 3]]: float32[2,6] → float32[4,3]",
		"all-gather [[0 1] [2 3]]: float32[4,3] → float32[4,6]",
		"all-reduce [[0 1] [2 3]]: float32[6] → float32[6]",
		"reduce-scatter [[0 1] [2 3]]: float32[6] → float32[3]",
		"all-reduce [[0 2] [1 3]]: float32[4,6] → float32[4,6]",
		"reduce-scatter [[0 2] [1 3]]: float32[10] → float32[5]",
		"all-gather [[0 2] [1 3]]: float32[1,1,6] → float32[1,2,6]",
		"all-gather [[0 2] [1 3]]: float32[3] → float32[6]",
		"all-reduce [[0 1 2 3]]: float32[6] → float32[6]", // terms of the devices of a model replica, too
	}
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("it communicates\n%s\nnot\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	// A mean is of instances, not of devices.
	scales := 0
	for _, op := range l.Ops {
		if c, ok := op.Attrs.(*ir.Constant); ok && fmt.Sprint(c.Value.Flat) == "[0.5]" {
			scales++
		}
	}
	if scales != 2 {
		t.Errorf("%d values are halved", scales)
	}
	s.Mesh = &ir.Mesh{Replicas: 2, Model: 2, Instances: 2, Ranks: []int{0, 1, 2, 3}, Workers: []int{0, 0, 1, 1}}
	if got := s.Mesh.Circles(&ir.Op{Attrs: &ir.Merge{How: ir.Sum, Worker: true}, Inputs: []*ir.Value{s.Inputs[0]}}); fmt.Sprint(got) != "[[0] [2] [1] [3]]" {
		t.Errorf("within workers, values are merged between %v", got)
	}
}

// What is computed again behind a barrier is not taken from what was computed before.
func TestAPieceBehindABarrierTakesNothingDirectly(t *testing.T) {
	p, err := ir.Parse(strings.ReplaceAll("program \"p\"\ninput %0\nmain {\n  %0 = Parameter() {Name: \"x\", Shape: float32[2]} -> float32[2] : forward\n"+
		"  %1 = Exp(%0) -> float32[2] : forward\n  %2 = Exp(%1) -> float32[2] : forward\n  return %2\n}", "%%", "%"))
	if err != nil {
		t.Fatal(err)
	}
	exp, twice := p.Main.Ops[1], p.Main.Ops[2]
	s := &ir.Segment{Name: "again", Inputs: p.Main.Params, Ops: []*ir.Op{exp, exp, twice}, Outputs: twice.Outputs, Barriers: []int{1},
		Mesh: &ir.Mesh{Replicas: 1, Model: 1, Instances: 1, Ranks: []int{0}}}
	l := lower.Lower(s, nil)
	var types []string
	for _, op := range l.Ops {
		types = append(types, string(op.Type()))
	}
	if got := strings.Join(types, " "); got != "Exp OptimizationBarrier Exp Exp" {
		t.Fatalf("it computes %s", got)
	}
	if again := l.Ops[2]; again.Inputs[0].Op != l.Ops[1] || l.Ops[1].Inputs[0] != l.Inputs[0] || l.Ops[3].Inputs[0].Op != again {
		t.Errorf("%s takes %s", again, again.Inputs[0])
	}
}

// Gradients that travel as float16 are scaled by what all devices agree on; other values travel as they are.
func TestGradientsOfDevicesThatRunASegmentTogetherTravelAsFloat16(t *testing.T) {
	p, err := ir.Parse(exchanges)
	if err != nil {
		t.Fatal(err)
	}
	s := ir.Cut(p.Main, "exchanges", func(op *ir.Op) bool { return true }, p.Main.Outputs)
	s.Mesh = &ir.Mesh{Replicas: 2, Model: 2, Instances: 2, Ranks: []int{0, 1, 2, 3}, Half: 128}
	var got []string
	for _, op := range lower.Lower(s, nil).Ops {
		if a, ok := op.Attrs.(*ir.Communicate); ok && (a.How == ir.AllReduceOf || a.How == ir.ReduceScatterOf) && op.Phase == ir.Backward {
			got = append(got, fmt.Sprintf("%s %s %v: %s → %s", a.How, a.Reduce, a.Groups, ir.ShapeText(op.Inputs[0].Shape), ir.ShapeText(op.Outputs[0].Shape)))
		}
	}
	want := []string{
		"all-reduce max [[0 2] [1 3]]: float32[] → float32[]",
		"all-reduce sum [[0 2] [1 3]]: float16[4,6] → float16[4,6]",
		"all-reduce max [[0 2] [1 3]]: float32[] → float32[]",
		"reduce-scatter sum [[0 2] [1 3]]: float16[10] → float16[5]",
		"all-reduce max [[0 1 2 3]]: float32[] → float32[]",
		"all-reduce sum [[0 1 2 3]]: float16[6] → float16[6]",
	}
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("it communicates\n%s\nnot\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// uneven has 5 columns and 7 rows for 3 devices.
const uneven = `program "uneven"
instances 2 1
taskgraph 0 "all" split(3)
stage taskgraph 0 place 0 place 1 place 2
variable "/w" %10 taskgraph 0
input %0
main {
  %0 = Parameter() {Name: "x", Shape: float32[7,5]} -> float32[7,5] : forward varying
  %10 = Parameter() {Name: "w", Shape: float32[7,5]} -> float32[7,5] on replica of 2 flat on model of 3 sharded(0) : forward taskgraph 0
  %1 = Position() {Axis: "model"} -> int32[] on model of 3 each : forward
  %2 = Reshard(%0, %1) -> float32[7,5] on model of 3 sharded(0) : forward varying taskgraph 0
  %3 = Reshard(%2) -> float32[7,5] on model of 3 sharded(1) : forward varying taskgraph 0
  %4 = Reshard(%3) -> float32[7,5] : forward varying taskgraph 0
  %5 = ReduceSum(%2) {Axes: [0]} -> float32[5] on model of 3 partial(sum) : forward varying taskgraph 0
  %6 = Reshard(%5) -> float32[5] on model of 3 sharded(0) : forward varying taskgraph 0
  %7 = Merge(%3) {How: "mean"} -> float32[7,5] on model of 3 sharded(1) : backward taskgraph 0
  %8 = Merge(%2) {How: "concat"} -> float32[14,5] on model of 3 sharded(0) : forward taskgraph 0
  %11 = Neg(%10) -> float32[7,5] on replica of 2 flat on model of 3 sharded(0) : forward taskgraph 0
  return %4, %6, %7, %8, %11
}
`

func TestUnequalPartsArePadded(t *testing.T) {
	p, err := ir.Parse(uneven)
	if err != nil {
		t.Fatal(err)
	}
	cannot := map[int]string{8: "one after the other"}
	for _, op := range p.Main.Ops {
		if err := lower.CanPad(op); (err != nil) != (cannot[op.ID] != "") || err != nil && !strings.Contains(err.Error(), cannot[op.ID]) {
			t.Errorf("%s: %v", op, err)
		}
	}
	s := ir.Cut(p.Main, "uneven", func(op *ir.Op) bool { return cannot[op.ID] == "" }, append(p.Main.Outputs[:3:3], p.Main.Outputs[4]))
	s.Mesh = &ir.Mesh{Replicas: 2, Model: 3, Instances: 2, Ranks: []int{0, 1, 2, 3, 4, 5}}
	var c lower.Classes
	l := c.Lower(s, nil)
	if c.Lower(s, ir.Coordinates{1, 2}) != l {
		t.Error("devices run different segments")
	}
	var got []string
	for _, op := range l.Ops {
		if a, ok := op.Attrs.(*ir.Communicate); ok {
			got = append(got, fmt.Sprintf("%s: %s → %s", a.How, ir.ShapeText(op.Inputs[0].Shape), ir.ShapeText(op.Outputs[0].Shape)))
		}
	}
	want := []string{
		"all-to-all: float32[3,6] → float32[9,2]",
		"all-gather: float32[7,2] → float32[7,6]",
		"reduce-scatter: float32[6] → float32[2]",
		"all-reduce: float32[7,2] → float32[7,2]",
	}
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("it communicates\n%s\nnot\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	if got := shapesOf(l.Outputs); got != "float32[7,5] float32[2] float32[7,2] float32[8]" {
		t.Errorf("it gives %s", got)
	}
}

// What an instance gives that the step lacks is no part of what is merged, whatever it is.
func TestWhatIsLackingIsSelectedAway(t *testing.T) {
	p, err := ir.Parse(`program "lacking"
instances 1 2
taskgraph 0 "" replicate(1) implicit
input %0
input %1
main {
  %0 = Parameter() {Name: "x", Shape: float32[2]} -> float32[2] : forward varying
  %1 = Parameter() {Name: "y", Shape: float32[2]} -> float32[2] : forward varying
  %2 = Present() -> bool[] : forward
  %3 = Present() -> bool[] : forward
  %4 = InstanceCount() -> float32[] : forward
  return %0
}`)
	if err != nil {
		t.Fatal(err)
	}
	var v []*ir.Value
	for _, op := range p.Main.Ops {
		v = append(v, op.Outputs[0])
	}
	s := &ir.Segment{Name: "lacking", Inputs: v, Mesh: &ir.Mesh{Replicas: 1, Model: 1, Instances: 2, Ranks: []int{0}}}
	merge := func(m *ir.Merge, dims int, in ...*ir.Value) *ir.Op {
		op := p.NewOp(m, in, shapes.Make(dtypes.Float32, dims))
		s.Ops, s.Outputs = append(s.Ops, op), append(s.Outputs, op.Outputs[0])
		return op
	}
	merge(&ir.Merge{How: ir.Sum}, 2, v[0], v[2])
	merge(&ir.Merge{How: ir.Mean}, 2, v[1], v[3], v[4])
	merge(&ir.Merge{How: ir.Concat}, 4, v[0], v[1], v[2], v[3])
	agree := merge(&ir.Merge{How: ir.Agree}, 2, v[0], v[1], v[2], v[3])
	check := merge(&ir.Merge{How: ir.Check, Limit: 4}, 2, v[0], v[1], v[2], v[3])
	for _, op := range []*ir.Op{agree, check} {
		finds := shapes.Make(dtypes.Int32)
		if op == check {
			finds = shapes.Make(dtypes.Float32, 2, 1, 2)
		}
		finding, bad := &ir.Value{Op: op, Index: 1, Shape: finds}, &ir.Value{Op: op, Index: 2, Shape: shapes.Make(dtypes.Int32)}
		op.Outputs, s.Outputs = append(op.Outputs, finding, bad), append(s.Outputs, bad)
	}
	b, err := gobackend.New("")
	if err != nil {
		t.Fatal(err)
	}
	x, err := emit.Segment(b, lower.Lower(s, nil))
	if err != nil {
		t.Fatal(err)
	}
	nan := float32(math.NaN())
	var ins []compute.Buffer
	for i, flat := range []any{[]float32{nan, nan}, []float32{2, 4}, []bool{false}, []bool{true}, []float32{1}} {
		in, err := b.BufferFromFlatData(0, flat, v[i].Shape)
		if err != nil {
			t.Fatal(err)
		}
		ins = append(ins, in)
	}
	outs, err := x.Execute(ins, nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range []any{[]float32{0, 0}, []float32{2, 4}, []float32{0, 0, 2, 4}, []float32{2, 4}, nil, []int32{0}, []int32{0}} {
		if want == nil {
			continue
		}
		flat, err := outs[i].Data()
		if err != nil || !reflect.DeepEqual(flat, want) {
			t.Errorf("result %d is %v, not %v (%v)", i, flat, want, err)
		}
	}
}
