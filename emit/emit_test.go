// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package emit_test

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/gomlx/compute"
	"github.com/gomlx/compute/dtypes"
	_ "github.com/gomlx/compute/gobackend"
	"github.com/gomlx/compute/shapes"

	"github.com/easyparallel/epl/emit"
	"github.com/easyparallel/epl/ir"
)

func newBackend(t testing.TB) compute.Backend {
	t.Helper()
	b, err := compute.NewWithConfig("go:ops_sequential")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(b.Finalize)
	return b
}

func parse(t testing.TB, text string) *ir.Program {
	t.Helper()
	p, err := ir.Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Verify(); err != nil {
		t.Fatal(err)
	}
	return p
}

// val finds a value of main by its name.
func val(t testing.TB, p *ir.Program, name string) *ir.Value {
	t.Helper()
	for _, op := range p.Main.Ops {
		for _, v := range op.Outputs {
			if v.String() == name {
				return v
			}
		}
	}
	t.Fatalf("there is no %s", name)
	return nil
}

// data is the content of a tensor: a slice of the Go type of its dtype.
type data any

// random draws the content of a tensor.
func random(rng *rand.Rand, s shapes.Shape) data {
	flat := reflect.MakeSlice(reflect.SliceOf(s.DType.GoType()), s.Size(), s.Size())
	for i := range s.Size() {
		switch s.DType {
		case dtypes.Float32:
			flat.Index(i).SetFloat(rng.Float64()*2 - 1)
		case dtypes.Int64:
			flat.Index(i).SetInt(int64(rng.IntN(100)))
		default:
			panic(s.DType)
		}
	}
	return flat.Interface()
}

// run executes on data and returns data.
func run(t testing.TB, b compute.Backend, exec compute.Executable, in ...data) []data {
	t.Helper()
	_, shapes := exec.Inputs()
	ins := make([]compute.Buffer, len(in))
	for i, x := range in {
		var err error
		if ins[i], err = b.BufferFromFlatData(0, x, shapes[i]); err != nil {
			t.Fatal(err)
		}
	}
	outs, err := exec.Execute(ins, nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	result := make([]data, len(outs))
	for i, o := range outs {
		s, err := o.Shape()
		if err != nil {
			t.Fatal(err)
		}
		flat := reflect.MakeSlice(reflect.SliceOf(s.DType.GoType()), s.Size(), s.Size()).Interface()
		if err := o.ToFlatData(flat); err != nil {
			t.Fatal(err)
		}
		result[i] = flat
	}
	return result
}

// whole runs a program on data for its parameters.
func whole(t testing.TB, b compute.Backend, p *ir.Program, in ...data) []data {
	t.Helper()
	exec, err := emit.Program(b, p)
	if err != nil {
		t.Fatal(err)
	}
	return run(t, b, exec, in...)
}

// piecewise runs segments one after the other: each takes parameters of main and what earlier ones computed.
func piecewise(t testing.TB, b compute.Backend, p *ir.Program, segments []*ir.Segment, in ...data) []data {
	t.Helper()
	values := map[*ir.Value]data{}
	for i, v := range p.Main.Params {
		values[v] = in[i]
	}
	for _, s := range segments {
		exec, err := emit.Segment(b, s)
		if err != nil {
			t.Fatal(err)
		}
		ins := make([]data, len(s.Inputs))
		for i, v := range s.Inputs {
			x, ok := values[v]
			if !ok {
				t.Fatalf("segment %q needs %s, which nobody has computed", s.Name, v)
			}
			ins[i] = x
		}
		for i, x := range run(t, b, exec, ins...) {
			values[s.Outputs[i]] = x
		}
	}
	result := make([]data, len(p.Main.Outputs))
	for i, v := range p.Main.Outputs {
		result[i] = values[v]
	}
	return result
}

// byPhase cuts a program in two: forward with backward, and apply.
func byPhase(p *ir.Program) []*ir.Segment {
	apply := func(op *ir.Op) bool { return op.Phase == ir.Apply }
	before := func(op *ir.Op) bool { return !apply(op) }
	return []*ir.Segment{
		ir.Cut(p.Main, "forward and backward", before, ir.Crossing(p.Main, before)),
		ir.Cut(p.Main, "apply", apply, ir.Crossing(p.Main, apply)),
	}
}

func TestATrainStepCutByPhaseGivesTheBitsOfTheWhole(t *testing.T) {
	text, err := os.ReadFile(filepath.FromSlash("../ir/testdata/train.txt"))
	if err != nil {
		t.Fatal(err)
	}
	p := parse(t, string(text))
	b := newBackend(t)
	rng := rand.New(rand.NewPCG(1, 2))
	for range 3 {
		var in []data
		for _, v := range p.Main.Params {
			in = append(in, random(rng, v.Shape))
		}
		want, got := whole(t, b, p, in...), piecewise(t, b, p, byPhase(p), in...)
		if !reflect.DeepEqual(want, got) {
			t.Errorf("the whole gives %v, the pieces %v", want, got)
		}
	}
}

// Programs with functions, what they are given, and what comes out.
var withFunctions = []struct {
	name, text string
	in, out    []data
}{
	{"a branch captures values, or hands them out", `program "if"
input %0
input %1
main {
  %0 = Parameter() {Name: "arg0", Shape: float32[2]} -> float32[2] : forward
  %1 = Parameter() {Name: "arg1", Shape: bool[]} -> bool[] : forward
  %2 = Add(%0, %0) -> float32[2] : forward
  %3 = If(%1) [closure 0 {
    return %2, %0
  }, closure 1 {
    %4 = Mul(%0, %2) -> float32[2] : forward
    %5 = Neg(%4) -> float32[2] : forward
    return %4, %5
  }] -> float32[2], float32[2] : forward
  %6 = Sub(%3, %3.1) -> float32[2] : apply
  return %6, %3.1
}
`, []data{[]float32{1, 3}, []bool{false}}, []data{[]float32{4, 36}, []float32{-2, -18}}},

	{"a loop", `program "while"
input %0
input %1
main {
  %0 = Parameter() {Name: "arg0", Shape: float32[2]} -> float32[2] : forward
  %1 = Parameter() {Name: "arg1", Shape: int32[]} -> int32[] : forward
  %2 = Constant() {Value: int32[](1)} -> int32[] : forward
  %3 = Exp(%0) -> float32[2] : forward
  %4 = While(%1, %0) [closure 0 {
    %5 = Parameter() {Name: "n", Shape: int32[]} -> int32[] : forward
    %6 = Parameter() {Name: "x", Shape: float32[2]} -> float32[2] : forward
    %7 = GreaterOrEqual(%5, %2) -> bool[] : forward
    return %7
  }, closure 1 {
    %8 = Parameter() {Name: "n", Shape: int32[]} -> int32[] : forward
    %9 = Parameter() {Name: "x", Shape: float32[2]} -> float32[2] : forward
    %10 = Sub(%8, %2) -> int32[] : forward
    %11 = Add(%9, %3) -> float32[2] : forward
    return %10, %11
  }] -> int32[], float32[2] : apply
  return %4.1, %4
}
`, []data{[]float32{0, 0}, []int32{3}}, []data{[]float32{3, 3}, []int32{0}}},

	{"a sort by a comparison", `program "sort"
input %0
input %1
main {
  %0 = Parameter() {Name: "arg0", Shape: float32[4]} -> float32[4] : forward
  %1 = Parameter() {Name: "arg1", Shape: int32[4]} -> int32[4] : forward
  %2 = Neg(%0) -> float32[4] : forward
  %3 = Sort(%2, %1) [closure 0 {
    %4 = Parameter() {Name: "a", Shape: float32[]} -> float32[] : forward
    %5 = Parameter() {Name: "b", Shape: float32[]} -> float32[] : forward
    %6 = Parameter() {Name: "i", Shape: int32[]} -> int32[] : forward
    %7 = Parameter() {Name: "j", Shape: int32[]} -> int32[] : forward
    %8 = LessThan(%4, %5) -> bool[] : forward
    return %8
  }] -> float32[4], int32[4] : apply
  return %3, %3.1
}
`, []data{[]float32{1, 4, 2, 3}, []int32{0, 1, 2, 3}}, []data{[]float32{-4, -3, -2, -1}, []int32{1, 3, 2, 0}}},

	{"closures in closures", `program "nested"
input %0
input %1
main {
  %0 = Parameter() {Name: "arg0", Shape: float32[2]} -> float32[2] : forward
  %1 = Parameter() {Name: "arg1", Shape: bool[]} -> bool[] : forward
  %2 = Add(%0, %0) -> float32[2] : forward
  %3 = If(%1) [closure 0 {
    %4 = Mul(%2, %2) -> float32[2] : forward
    %5 = If(%1) [closure 1 {
      %6 = Add(%4, %0) -> float32[2] : forward
      return %6
    }, closure 2 {
      return %2
    }] -> float32[2] : forward
    return %5
  }, closure 3 {
    return %0
  }] -> float32[2] : apply
  return %3
}
`, []data{[]float32{1, 3}, []bool{true}}, []data{[]float32{5, 39}}},

	{"a closure that two ops share", `program "shared"
input %0
input %1
main {
  %0 = Parameter() {Name: "arg0", Shape: float32[2]} -> float32[2] : forward
  %1 = Parameter() {Name: "arg1", Shape: bool[]} -> bool[] : forward
  %2 = LogicalNot(%1) -> bool[] : forward
  %3 = If(%1) [closure 0 {
    %4 = Add(%0, %0) -> float32[2] : forward
    return %4
  }, closure 1 {
    return %0
  }] -> float32[2] : forward
  %5 = If(%2) [closure 0, closure 1] -> float32[2] : apply
  return %3, %5
}
`, []data{[]float32{1, 3}, []bool{true}}, []data{[]float32{2, 6}, []float32{1, 3}}},

	{"named functions, one of which calls the other", `program "call"
input %0
func "double" {
  %1 = Parameter() {Name: "a", Shape: float32[2]} -> float32[2] : forward
  %2 = Add(%1, %1) -> float32[2] : forward
  return %2
}
func "both" {
  %3 = Parameter() {Name: "a", Shape: float32[2]} -> float32[2] : forward
  %4 = Parameter() {Name: "b", Shape: float32[2]} -> float32[2] : forward
  %5 = Call(%3) [func "double"] -> float32[2] : forward
  %6 = Sub(%5, %4) -> float32[2] : forward
  return %6, %5
}
main {
  %0 = Parameter() {Name: "arg0", Shape: float32[2]} -> float32[2] : forward
  %7 = Call(%0) [func "double"] -> float32[2] : forward
  %8 = Call(%7, %0) [func "both"] -> float32[2], float32[2] : apply
  %9 = Call(%8) [func "double"] -> float32[2] : apply
  return %9, %8.1
}
`, []data{[]float32{1, 3}}, []data{[]float32{6, 18}, []float32{4, 12}}},
}

func TestFunctionsAndClosuresComputeWhatTheySay(t *testing.T) {
	for _, c := range withFunctions {
		t.Run(c.name, func(t *testing.T) {
			if got := whole(t, newBackend(t), parse(t, c.text), c.in...); !reflect.DeepEqual(got, c.out) {
				t.Errorf("got %v, want %v", got, c.out)
			}
		})
	}
}

func TestFunctionsAndClosuresComputeTheSameInASegment(t *testing.T) {
	for _, c := range withFunctions {
		t.Run(c.name, func(t *testing.T) {
			p := parse(t, c.text)
			if got := piecewise(t, newBackend(t), p, byPhase(p), c.in...); !reflect.DeepEqual(got, c.out) {
				t.Errorf("got %v, want %v", got, c.out)
			}
		})
	}
}

const shared = `program "shared"
input %0
main {
  %0 = Parameter() {Name: "arg0", Shape: float32[2]} -> float32[2] : forward
  %1 = Constant() {Value: float32[2](2, 3)} -> float32[2] : forward
  %2 = Mul(%0, %1) -> float32[2] : forward
  %3 = Add(%2, %1) -> float32[2] : backward
  %4 = Sub(%2, %3) -> float32[2] : apply
  return %4, %2
}
`

func TestASegmentPerOpGivesTheBitsOfTheWhole(t *testing.T) {
	b := newBackend(t)
	for _, text := range []string{shared, withFunctions[0].text, withFunctions[1].text, withFunctions[5].text} {
		p := parse(t, text)
		var segments []*ir.Segment
		for _, op := range p.Main.Ops {
			if !op.IsLeaf() {
				segments = append(segments, ir.Cut(p.Main, op.String(), func(o *ir.Op) bool { return o == op }, op.Outputs))
			}
		}
		in := []data{[]float32{0.5, -2}}
		for _, c := range withFunctions {
			if c.text == text {
				in = c.in
			}
		}
		want, got := whole(t, b, p, in...), piecewise(t, b, p, segments, in...)
		if !reflect.DeepEqual(want, got) {
			t.Errorf("%s: the whole gives %v, the pieces %v", p.Name, want, got)
		}
	}
}

func TestASegmentHandsThroughAndRepeatsOutputs(t *testing.T) {
	p := parse(t, shared)
	b := newBackend(t)
	in, constant, product := val(t, p, "%0"), val(t, p, "%1"), val(t, p, "%2")
	s := ir.Cut(p.Main, "piece", func(op *ir.Op) bool { return op.Phase == ir.Forward }, []*ir.Value{product, in, constant, product, in})
	exec, err := emit.Segment(b, s)
	if err != nil {
		t.Fatal(err)
	}
	x, c, m := []float32{5, 7}, []float32{2, 3}, []float32{10, 21}
	if got, want := run(t, b, exec, x), []data{m, x, c, m, x}; !reflect.DeepEqual(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

func TestTheExecutableTakesTheParametersByNameAndInOrder(t *testing.T) {
	exec, err := emit.Program(newBackend(t), parse(t, withFunctions[1].text))
	if err != nil {
		t.Fatal(err)
	}
	names, in := exec.Inputs()
	if !slices.Equal(names, []string{"arg0", "arg1"}) || ir.ShapeText(in[0]) != "float32[2]" || ir.ShapeText(in[1]) != "int32[]" {
		t.Errorf("it takes %v %v", names, in)
	}
	if out := exec.Outputs(); len(out) != 2 || ir.ShapeText(out[0]) != "float32[2]" {
		t.Errorf("it returns %v", out)
	}
}

func TestWhatCannotBeEmittedIsAnErrorThatNamesTheOp(t *testing.T) {
	b := newBackend(t)
	p := parse(t, shared)
	product, sum := val(t, p, "%2"), val(t, p, "%3")
	// broken is the program with another op in the place of %3.
	broken := func(a ir.Attrs, out ...shapes.Shape) *ir.Program {
		p := parse(t, shared)
		op := val(t, p, "%3").Op
		op.Attrs = a
		for i, s := range out {
			op.Outputs = append(op.Outputs[:i], &ir.Value{Op: op, Index: i, Shape: s})
		}
		p.Main.Outputs = []*ir.Value{op.Outputs[0]}
		return p
	}
	vector := shapes.Make(dtypes.Float32, 2)
	for _, c := range []struct {
		what     string
		compile  func() (compute.Executable, error)
		mentions []string
	}{
		{"an input is missing", func() (compute.Executable, error) {
			return emit.Segment(b, &ir.Segment{Name: "piece", Ops: []*ir.Op{sum.Op}, Outputs: []*ir.Value{sum}})
		}, []string{`"piece"`, "Add %3", "%2"}},
		{"an output is missing", func() (compute.Executable, error) {
			return emit.Segment(b, &ir.Segment{Name: "piece", Inputs: []*ir.Value{product}, Outputs: []*ir.Value{sum}})
		}, []string{`"piece"`, "%3"}},
		{"the backend refuses an op", func() (compute.Executable, error) {
			return emit.Program(b, broken(&ir.DotGeneral{LHSContractingAxes: []int{5}}))
		}, []string{`"shared"`, "DotGeneral %3"}},
		{"a shape is wrong", func() (compute.Executable, error) {
			return emit.Program(b, broken(&ir.Add{}, shapes.Make(dtypes.Float32, 2, 1)))
		}, []string{`"shared"`, "Add %3", "float32[2,1]", "float32[2]"}},
		{"a type is wrong", func() (compute.Executable, error) {
			return emit.Program(b, broken(&ir.Equal{}, vector))
		}, []string{`"shared"`, "Equal %3", "float32[2]", "bool[2]"}},
		{"there are too many outputs", func() (compute.Executable, error) {
			return emit.Program(b, broken(&ir.Add{}, vector, vector))
		}, []string{`"shared"`, "Add %3", "2 outputs"}},
	} {
		_, err := c.compile()
		if err == nil {
			t.Errorf("%s: no error", c.what)
			continue
		}
		for _, m := range append(c.mentions, "epl: ") {
			if !strings.Contains(fmt.Sprint(err), m) {
				t.Errorf("%s: the error does not mention %q: %v", c.what, m, err)
			}
		}
	}
}

// The pure-Go backend's generator leaves a word of its state as it finds it in memory.
func TestTheStateOfRandomNumbersHasNothingOfOldMemory(t *testing.T) {
	b := newBackend(t)
	p := parse(t, `program "random"
variable "/#rngState" %0 update %1
main {
  %0 = Parameter() {Name: "/#rngState", Shape: uint64[3]} -> uint64[3] : forward
  %1 = RNGBitGenerator(%0) {Shape: uint32[5]} -> uint64[3], uint32[5] : forward
  return %1, %1.1
}
`)
	x, err := emit.Program(b, p)
	if err != nil {
		t.Fatal(err)
	}
	state := func(words ...uint64) compute.Buffer {
		s, err := b.BufferFromFlatData(0, words, shapes.Make(dtypes.Uint64, 3))
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	var old []compute.Buffer
	for range 4 { // the next ones of this size lie there
		old = append(old, state(7, 7, 7))
	}
	for _, s := range old {
		if err := s.Finalize(); err != nil {
			t.Fatal(err)
		}
	}
	outs, err := x.Execute([]compute.Buffer{state(1, 2, 3)}, nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	flat, err := outs[0].Data()
	if err != nil {
		t.Fatal(err)
	}
	if got := flat.([]uint64); got[2] != 3 || got[0] == 1 || got[1] == 2 {
		t.Errorf("the state after [1 2 3] is %v, its third word is not 3", got)
	}
}
