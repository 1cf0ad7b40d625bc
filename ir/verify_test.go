// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package ir_test

import (
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/shapes"

	"github.com/easyparallel/epl/ir"
)

// everything is a valid program that has one of everything but a local view.
const everything = `program "everything"
taskgraph 0 "first" replicate(1) default "model.go:10"
taskgraph 1 "head" split(2) pin "weights" 1 "model.go:20"
variable "/w" %1 trainable update %14 taskgraph 0
variable "/step" %2 update %16
input %0
gradient %1 = %12
loss %11
outputs update %1 update %2 result
collection "GlobalMean" %11
func "twice" {
  %20 = Parameter() {Name: "a", Shape: float32[2,2]} -> float32[2,2] : forward
  %21 = Add(%20, %20) -> float32[2,2] : forward
  return %21
}
main {
  %0 = Parameter() {Name: "arg0", Shape: float32[2,2]} -> float32[2,2] : forward
  %1 = Parameter() {Name: "/w", Shape: float32[2,2]} -> float32[2,2] : forward taskgraph 0
  %2 = Parameter() {Name: "/step", Shape: int64[]} -> int64[] : apply
  %3 = DotGeneral(%0, %1) {LHSContractingAxes: [1], RHSContractingAxes: [0]} -> float32[2,2] : forward taskgraph 0 in "/block/dense" "model.go:11"
  %4 = Erf(%3) -> float32[2,2] : forward taskgraph 0 "model.go:12"
  %5 = FusedGelu(%3) {Exact: true} -> float32[2,2] : forward taskgraph 0 twin %4 "model.go:12"
  %6 = FusedLayerNorm(%5, _, _) {Axes: [1], Epsilon: 0.001} -> float32[2,2] : forward taskgraph 0
  %7 = Constant() {Value: bool[](true)} -> bool[] : forward
  %8 = If(%7) [closure 0 {
    %30 = Sub(%6, %3) -> float32[2,2] : forward
    return %30
  }, closure 1 {
    return %6
  }] -> float32[2,2] : forward taskgraph 1
  %9 = Call(%8) [func "twice"] -> float32[2,2] : forward taskgraph 1
  %10 = Concatenate(%9, %8) {Axis: 1} -> float32[2,4] : forward taskgraph 1
  %11 = ReduceSum(%10) {Axes: [0, 1]} -> float32[] : forward taskgraph 1
  %12 = Tanh(%3) -> float32[2,2] : backward taskgraph 0 by vjp
  %13 = Mul(%12, %12) -> float32[2,2] : apply taskgraph 0 by variable
  %14 = Sub(%1, %13) -> float32[2,2] : apply taskgraph 0 by variable
  %15 = Constant() {Value: int64[](1)} -> int64[] : apply
  %16 = Add(%2, %15) -> int64[] : apply
  return %14, %16, %11
}
`

// instances is a valid program with a local view.
const instances = `program "instances"
passes "taskgraphs" "local-view"
instances 2 3 shares 3 1
taskgraph 0 "" replicate(1) implicit
variable "/w" %1 trainable update %7 taskgraph 0
input %0
gradient %1 = %5
outputs update %1
main {
  %0 = Parameter() {Name: "arg0", Shape: float32[2]} -> float32[2] : forward varying taskgraph 0
  %1 = Parameter() {Name: "/w", Shape: float32[2]} -> float32[2] : forward taskgraph 0
  %2 = Instance() -> uint64[] : forward varying
  %3 = InstanceCount() -> float32[] : forward
  %4 = Mul(%0, %1) -> float32[2] : backward varying taskgraph 0
  %5 = Merge(%4) {How: "mean"} -> float32[2] : backward taskgraph 0
  %6 = ConvertDType(%2) {DType: float32} -> float32[] : forward varying taskgraph 0
  %7 = Sub(%1, %5) -> float32[2] : apply taskgraph 0
  return %7
}
`

func parse(t testing.TB, text string) *ir.Program {
	t.Helper()
	p, err := ir.Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// op finds an op of any function by its number.
func op(p *ir.Program, id int) *ir.Op {
	var find func(f *ir.Func) *ir.Op
	find = func(f *ir.Func) *ir.Op {
		for _, o := range f.Ops {
			if o.ID == id {
				return o
			}
			for _, g := range o.Funcs {
				if g.Parent == f {
					if r := find(g); r != nil {
						return r
					}
				}
			}
		}
		return nil
	}
	for _, f := range append(slices.Clone(p.Funcs), p.Main) {
		if r := find(f); r != nil {
			return r
		}
	}
	panic("no such op")
}

// val is the first output of an op.
func val(p *ir.Program, id int) *ir.Value { return op(p, id).Outputs[0] }

// matrix is the shape of most values in everything.
func matrix() shapes.Shape { return shapes.Make(dtypes.Float32, 2, 2) }

// appendOp adds an op at the end of main.
func appendOp(p *ir.Program, phase ir.Phase, a ir.Attrs, out shapes.Shape, in ...*ir.Value) *ir.Op {
	o := p.NewOp(a, in, out)
	o.Phase = phase
	p.Main.Append(o)
	return o
}

func TestValidProgramsVerify(t *testing.T) {
	for _, text := range append(examples(t), everything, instances) {
		if err := parse(t, text).Verify(); err != nil {
			t.Errorf("%v\n%s", err, text)
		}
	}
}

// Each case breaks one invariant, by the number it has in the documentation of Verify, and says what the error must
// mention.
func TestVerifyNamesWhatBreaksAnInvariant(t *testing.T) {
	cases := []struct {
		invariant int
		what      string
		text      string // everything if empty
		damage    func(p *ir.Program)
		mentions  []string
	}{
		{1, "two ops have one number", "", func(p *ir.Program) { op(p, 4).ID = 3 }, []string{"Erf %3", "DotGeneral %3"}},
		{1, "ops of two functions have one number", "", func(p *ir.Program) { op(p, 21).ID = 3 }, []string{"Add %3", "DotGeneral %3"}},

		{2, "an op does not know its function", "", func(p *ir.Program) { op(p, 4).Func = p.Funcs[0] }, []string{"Erf %4", "function"}},
		{2, "an output does not know its op", "", func(p *ir.Program) { val(p, 4).Op = op(p, 3) }, []string{"Erf %4", "output 0"}},
		{2, "an output does not know its index", "", func(p *ir.Program) { val(p, 4).Index = 1 }, []string{"Erf %4", "output 0"}},

		{3, "a parameter is not listed", "", func(p *ir.Program) { p.Main.Params = p.Main.Params[:2] }, []string{`"main"`, "parameters"}},
		{3, "parameters are out of order", "", func(p *ir.Program) { slices.Reverse(p.Main.Params) }, []string{`"main"`, "order"}},
		{3, "another value is listed", "", func(p *ir.Program) { p.Funcs[0].Params[0] = val(p, 21) }, []string{`"twice"`}},

		{4, "an input is defined later", "", func(p *ir.Program) { op(p, 3).Inputs[0] = val(p, 4) }, []string{"DotGeneral %3 (model.go:11)", "%4"}},
		{4, "an input is of a closure", "", func(p *ir.Program) { op(p, 9).Inputs[0] = val(p, 30) }, []string{"Call %9", "%30"}},
		{4, "a named function uses a value of main", "", func(p *ir.Program) { op(p, 21).Inputs[0] = val(p, 0) }, []string{`"twice"`, "Add %21", "%0"}},
		{4, "a closure uses what is defined after it", "", func(p *ir.Program) { op(p, 30).Inputs[0] = val(p, 9) }, []string{"If %8", "Sub %30", "%9"}},
		{4, "an op reads itself", "", func(p *ir.Program) { op(p, 4).Inputs[0] = val(p, 4) }, []string{"Erf %4", "input 0"}},
		{4, "main uses a value of a function", "", func(p *ir.Program) { op(p, 9).Inputs[0] = val(p, 21) }, []string{"Call %9", "%21"}},
		{4, "an input is no output of its op", "", func(p *ir.Program) { x := *val(p, 3); op(p, 4).Inputs[0] = &x }, []string{"Erf %4", "%3"}},
		{4, "an output is not defined", "", func(p *ir.Program) { p.Funcs[0].Outputs[0] = val(p, 3) }, []string{`"twice"`, "output 0", "%3"}},
		{4, "an output of a closure is not defined", "", func(p *ir.Program) { op(p, 8).Funcs[1].Outputs[0] = val(p, 10) }, []string{"If %8", "%10"}},
		{4, "an output is missing", "", func(p *ir.Program) { p.Main.Outputs[2] = nil }, []string{`"main"`, "output 2"}},

		{5, "an input is missing", "", func(p *ir.Program) { op(p, 3).Inputs = op(p, 3).Inputs[:1] }, []string{"DotGeneral %3", "1 inputs"}},
		{5, "there is an input too many", "", func(p *ir.Program) { op(p, 4).Inputs = append(op(p, 4).Inputs, val(p, 0)) }, []string{"Erf %4", "2 inputs"}},
		{5, "a required input is absent", "", func(p *ir.Program) { op(p, 3).Inputs[1] = nil }, []string{"DotGeneral %3", "input 1"}},
		{5, "an input of a list is absent", "", func(p *ir.Program) { op(p, 10).Inputs[1] = nil }, []string{"Concatenate %10", "input 1"}},
		{5, "the first input of an op with optional ones is absent", "", func(p *ir.Program) { op(p, 6).Inputs[0] = nil }, []string{"FusedLayerNorm %6", "input 0"}},
		{5, "a function is missing", "", func(p *ir.Program) { op(p, 8).Funcs = op(p, 8).Funcs[:1] }, []string{"If %8", "1 functions"}},
		{5, "there is a function too many", "", func(p *ir.Program) { op(p, 4).Funcs = p.Funcs }, []string{"Erf %4", "1 functions"}},
		{5, "an op has no attributes", "", func(p *ir.Program) { op(p, 4).Attrs = nil }, []string{"%4", "attributes"}},

		{6, "a closure belongs to another function", "", func(p *ir.Program) { op(p, 8).Funcs[0].Parent = p.Funcs[0] }, []string{"If %8", "closure"}},
		{6, "a function is not listed", "", func(p *ir.Program) { p.Funcs = nil }, []string{"Call %9", `"twice"`}},
		{6, "a closure is listed", "", func(p *ir.Program) { p.Funcs[0].Parent = p.Main }, []string{`"twice"`, "closure"}},
		{6, "there is no main", "", func(p *ir.Program) { p.Main = nil }, []string{"main"}},

		{7, "a value has no shape", "", func(p *ir.Program) { val(p, 4).Shape = shapes.Shape{} }, []string{"Erf %4", "shape"}},
		{7, "a value is a tuple", "", func(p *ir.Program) { val(p, 4).Shape = shapes.MakeTuple([]shapes.Shape{matrix()}) }, []string{"Erf %4", "shape"}},

		{8, "a parameter is neither variable nor input", "", func(p *ir.Program) { p.Inputs = nil }, []string{"%0", "0 times"}},
		{8, "a parameter is variable and input", "", func(p *ir.Program) { p.Inputs = append(p.Inputs, val(p, 1)) }, []string{"%1", "2 times"}},
		{8, "an input is no parameter", "", func(p *ir.Program) { p.Inputs = append(p.Inputs, val(p, 3)) }, []string{"%3", "not a parameter"}},
		{8, "two variables have one path", "", func(p *ir.Program) { p.Variables[1].Path = "/w" }, []string{`"/w"`, "two variables"}},
		{8, "a variable has no path", "", func(p *ir.Program) { p.Variables[1].Path = "" }, []string{"path"}},
		{8, "a variable has no parameter", "", func(p *ir.Program) { p.Variables[0].Param = nil }, []string{`"/w"`, "parameter"}},

		{9, "a new value has another shape", "", func(p *ir.Program) { p.Variables[0].Update = val(p, 10) }, []string{`"/w"`, "float32[2,2]", "float32[2,4]"}},
		{9, "a new value is not in main", "", func(p *ir.Program) { p.Variables[0].Update = val(p, 30) }, []string{`"/w"`, "not in main"}},

		{10, "a gradient is of no variable", "", func(p *ir.Program) { p.Gradients[0].Variable = nil }, []string{"%12"}},
		{10, "a gradient is of a variable of another program", "", func(p *ir.Program) { p.Gradients[0].Variable = &ir.Variable{Path: "/other"} }, []string{"%12"}},
		{10, "a variable has two gradients", "", func(p *ir.Program) { p.Gradients = append(p.Gradients, p.Gradients[0]) }, []string{`"/w"`, "two gradients"}},
		{10, "a variable with a gradient is not trainable", "", func(p *ir.Program) { p.Variables[0].Trainable = false }, []string{`"/w"`, "not trainable"}},
		{10, "a gradient is missing", "", func(p *ir.Program) { p.Gradients[0].Value = nil }, []string{`"/w"`, "not in main"}},
		{10, "a gradient is in a closure", "", func(p *ir.Program) { p.Gradients[0].Value = val(p, 30) }, []string{`"/w"`, "not in main"}},
		{10, "a gradient has another shape", "", func(p *ir.Program) { p.Gradients[0].Value = val(p, 10) }, []string{`"/w"`, "float32[2,2]", "float32[2,4]"}},
		{10, "a gradient is computed in apply", "", func(p *ir.Program) { p.Gradients[0].Value = val(p, 13) }, []string{`"/w"`, "apply"}},

		{11, "the loss is not in main", "", func(p *ir.Program) { p.Loss = val(p, 21) }, []string{"loss %21", "not in main"}},
		{11, "the loss is no scalar", "", func(p *ir.Program) { p.Loss = val(p, 10) }, []string{"loss %10", "float32[2,4]"}},
		{11, "the loss is an integer", "", func(p *ir.Program) { p.Loss = val(p, 2) }, []string{"loss %2", "int64[]"}},
		{11, "the loss is computed in backward", "", func(p *ir.Program) { op(p, 11).Phase = ir.Backward }, []string{"loss %11", "backward"}},

		{12, "an output is not described", "", func(p *ir.Program) { p.Outputs = p.Outputs[:2] }, []string{"3 outputs", "2 are described"}},
		{12, "an update is described as that of another variable", "", func(p *ir.Program) { p.Outputs[0].Updates = p.Variables[1] }, []string{"output 0", `"/step"`}},

		{13, "an op reads a value of a later phase", "", func(p *ir.Program) { appendOp(p, ir.Forward, &ir.Tanh{}, matrix(), val(p, 12)) }, []string{"Tanh %31", "%12", "backward"}},
		{13, "an op of a closure reads a value of a later phase", "", func(p *ir.Program) {
			op(p, 30).Phase = ir.Apply
			op(p, 4).Phase = ir.Apply
			op(p, 30).Inputs[0] = val(p, 4)
			op(p, 5).Twin = nil
		}, []string{"If %8", "%4", "apply"}},
		{13, "a closure hands out a value of a later phase", "", func(p *ir.Program) {
			op(p, 4).Phase = ir.Apply
			op(p, 8).Funcs[1].Outputs[0] = val(p, 4)
			op(p, 5).Twin = nil
		}, []string{"If %8", "%4", "apply"}},

		{14, "a TaskGraph has another number", "", func(p *ir.Program) { p.TaskGraphs[1].ID = 7 }, []string{`"head"`, "7"}},
		{14, "a TaskGraph has no devices", "", func(p *ir.Program) { p.TaskGraphs[1].Devices = 0 }, []string{`"head"`, "0 devices"}},
		{14, "the TaskGraph of an op is not listed", "", func(p *ir.Program) { op(p, 4).TaskGraph = &ir.TaskGraph{Name: "stray", Devices: 1} }, []string{"Erf %4", `"stray"`}},
		{14, "the TaskGraph of a variable is not listed", "", func(p *ir.Program) { p.Variables[0].TaskGraph = &ir.TaskGraph{Name: "stray", Devices: 1} }, []string{`"/w"`, `"stray"`}},

		{15, "a collection holds a value of a function", "", func(p *ir.Program) { p.Collections[0].Values[0] = val(p, 21) }, []string{`"GlobalMean"`, "%21"}},

		{16, "a twin has another shape", "", func(p *ir.Program) { val(p, 4).Shape = shapes.Make(dtypes.Float32, 4) }, []string{"FusedGelu %5", "%4"}},
		{16, "a twin comes later", "", func(p *ir.Program) { op(p, 5).Twin[0] = val(p, 6) }, []string{"FusedGelu %5", "%6"}},
		{16, "a twin has too many values", "", func(p *ir.Program) { op(p, 5).Twin = append(op(p, 5).Twin, val(p, 4)) }, []string{"FusedGelu %5", "twin"}},

		{17, "an op varies without a local view", "", func(p *ir.Program) { op(p, 4).Varying = true }, []string{"Erf %4", "varying"}},
		{17, "an op belongs to a local view that there is not", "", func(p *ir.Program) { appendOp(p, ir.Forward, &ir.InstanceCount{}, shapes.Make(dtypes.Float32)) }, []string{"InstanceCount %31", "local view"}},
		{17, "there is no local view to merge in", instances, func(p *ir.Program) { p.Local = nil }, []string{"%0", "varying"}},
		{17, "a model replica has no share", instances, func(p *ir.Program) { p.Local.Shares = []int{3} }, []string{"2 model replicas", "[3]"}},
		{17, "a model replica has more micro-batches than there are", instances, func(p *ir.Program) { p.Local.Shares[1] = 4 }, []string{"3 micro-batches", "[3 4]"}},
		{17, "an input does not vary", instances, func(p *ir.Program) { op(p, 0).Varying = false }, []string{"Parameter %0", "varying"}},
		{17, "a variable varies", instances, func(p *ir.Program) { op(p, 1).Varying = true }, []string{"Parameter %1", "varying"}},
		{17, "an op of varying values does not", instances, func(p *ir.Program) { op(p, 4).Varying = false }, []string{"Mul %4", "varying"}},
		{17, "a merge varies", instances, func(p *ir.Program) { op(p, 5).Varying = true }, []string{"Merge %5", "varying"}},
		{17, "a value is merged twice", instances, func(p *ir.Program) {
			appendOp(p, ir.Backward, &ir.Merge{How: ir.Sum}, val(p, 4).Shape, val(p, 4))
		}, []string{"Merge %8", "Merge %5"}},
		{17, "an op of a function varies", "", func(p *ir.Program) { op(p, 21).Varying = true }, []string{"Add %21", "varying"}},
		{17, "what leaves the program varies", instances, func(p *ir.Program) {
			p.Main.Outputs = append(p.Main.Outputs, val(p, 4))
			p.Outputs = append(p.Outputs, ir.Output{})
		}, []string{"output 1", "%4"}},

		{18, "a TaskGraph is in no stage", "", func(p *ir.Program) { p.Stages = []ir.Stage{{Places: []int{0}}} }, []string{"is in no stage"}},
		{18, "a TaskGraph is in two stages", "", func(p *ir.Program) {
			p.Stages = []ir.Stage{{TaskGraphs: p.TaskGraphs, Places: []int{0}}, {TaskGraphs: p.TaskGraphs, Places: []int{1}}}
		}, []string{"stage 1", "two stages"}},
		{18, "a stage has no device", "", func(p *ir.Program) { p.Stages = []ir.Stage{{TaskGraphs: p.TaskGraphs}} }, []string{"stage 0", "no device"}},
		{18, "an op is on a device that there is not", "", func(p *ir.Program) { op(p, 4).Place = 1 }, []string{"Erf %4", "group 1"}},

		{19, "a parameter is of another shape", "", func(p *ir.Program) { val(p, 0).Shape = shapes.Make(dtypes.Float32, 4) }, []string{"Parameter %0", "float32[4]", "float32[2,2]"}},
		{19, "a parameter has no output", "", func(p *ir.Program) { op(p, 20).Outputs = nil }, []string{"Parameter %20", "output"}},
		{19, "a constant is of another shape", "", func(p *ir.Program) { val(p, 7).Shape = shapes.Make(dtypes.Bool, 1) }, []string{"Constant %7", "bool[1]", "bool[]"}},
		{19, "a constant has two outputs", "", func(p *ir.Program) {
			op(p, 7).Outputs = append(op(p, 7).Outputs, &ir.Value{Op: op(p, 7), Index: 1, Shape: matrix()})
		}, []string{"Constant %7", "output"}},
		{19, "a constant lacks elements", "", func(p *ir.Program) {
			op(p, 7).Attrs = &ir.Constant{Value: ir.Literal{Shape: val(p, 7).Shape, Flat: []bool{}}}
		}, []string{"Constant %7", "0 elements"}},
		{19, "a constant has elements of another type", "", func(p *ir.Program) {
			op(p, 7).Attrs = &ir.Constant{Value: ir.Literal{Shape: val(p, 7).Shape, Flat: []float32{1}}}
		}, []string{"Constant %7", "[]float32"}},
		{19, "a constant has no elements", "", func(p *ir.Program) { op(p, 7).Attrs = &ir.Constant{Value: ir.Literal{Shape: val(p, 7).Shape}} }, []string{"Constant %7", "nil"}},

		{20, "a placement is along an axis that there is not", "", func(p *ir.Program) { val(p, 4).SetOn(ir.Model, ir.Placement{Kind: ir.Each}, 2) }, []string{"Erf %4", "model"}},
		{20, "a value is sharded along a dim that it lacks", "", func(p *ir.Program) {
			p.Stages = []ir.Stage{{TaskGraphs: p.TaskGraphs, Places: []int{0, 1}}}
			val(p, 4).SetOn(ir.Model, ir.Placement{Kind: ir.Sharded, Dim: 0, Unit: 3}, 2)
		}, []string{"Erf %4", "sharded(0 by 3)"}},
	}
	tested := map[int]bool{}
	for _, c := range cases {
		t.Run(c.what, func(t *testing.T) {
			text := c.text
			if text == "" {
				text = everything
			}
			p := parse(t, text)
			c.damage(p)
			err := p.Verify()
			if err == nil {
				t.Fatalf("a program that breaks invariant %d verifies", c.invariant)
			}
			for _, m := range c.mentions {
				if !strings.Contains(err.Error(), m) {
					t.Errorf("the error does not mention %q: %v", m, err)
				}
			}
		})
		tested[c.invariant] = true
	}
	for i := 1; i <= invariants(t); i++ {
		if !tested[i] {
			t.Errorf("invariant %d has no test", i)
		}
	}
}

// invariants counts those in the documentation of Verify.
func invariants(t *testing.T) int {
	src, err := os.ReadFile("verify.go")
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for strings.Contains(string(src), "\n//  "+strconv.Itoa(n+1)+". ") {
		n++
	}
	return n
}
