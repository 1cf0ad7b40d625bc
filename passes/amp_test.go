// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package passes_test

import (
	"math"
	"math/rand"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/gomlx/compute"
	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/shapes"

	"github.com/easyparallel/epl/emit"
	"github.com/easyparallel/epl/ir"
	"github.com/easyparallel/epl/passes"
)

// mixed runs the pass alone, but for what it needs.
func mixed(t *testing.T, p *ir.Program, o passes.Options) (log []string) {
	t.Helper()
	o.AMPLog = func(line string) { log = append(log, line) }
	p.Passes = []string{"taskgraphs"}
	if _, err := passes.Run(p, passes.Set{"amp": true}, o, nil); err != nil {
		t.Fatal(err)
	}
	return log
}

// A layer of a transformer: an embedding, norm, attention, a residual connection, and a second one around a dense layer. It is
// made as for XLA, with barriers behind what is rounded.
func TestMixedPrecisionOfABlockIsThatOfTheGoldenFile(t *testing.T) {
	const file = "testdata/amp/block.txt"
	before, after := golden(t, file)
	p := parse(t, before)
	mixed(t, p, passes.Options{AMP: dtypes.BFloat16, AMPBarriers: true})
	if *update {
		after = p.String()
		if err := os.WriteFile(file, []byte("-- before --\n"+before+"-- after --\n"+after), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if p.String() != after {
		t.Errorf("run with -update if this is right:\n%s", p)
	}
}

func programs(t *testing.T) map[string]string {
	t.Helper()
	mlp, _ := golden(t, "testdata/amp.txt")
	block, _ := golden(t, "testdata/amp/block.txt")
	return map[string]string{"mlp": mlp, "block": block}
}

func TestMixedPrecisionKeepsFloat32WhereItMatters(t *testing.T) {
	for name, text := range programs(t) {
		p := parse(t, text)
		mixed(t, p, passes.Options{AMP: dtypes.Float16})
		is := func(v *ir.Value, d dtypes.DType, what string) {
			if v.Shape.DType != d {
				t.Errorf("%s: %s %s is %s", name, what, v, v.Shape.DType)
			}
		}
		for _, op := range p.Main.Ops {
			for _, in := range op.Inputs {
				switch {
				case in == nil:
				case op.Phase == ir.Apply && in.Shape.DType.IsFloat():
					is(in, dtypes.Float32, "what the optimizer reads,")
				case strings.HasPrefix(string(op.Type()), "Reduce"):
					is(in, dtypes.Float32, "what is summed up,")
				case op.Type() == ir.OpDotGeneral:
					is(in, dtypes.Float16, "the operand of a dot,")
				}
			}
		}
		for _, g := range p.Gradients {
			is(g.Value, dtypes.Float32, "the gradient")
		}
		is(p.Loss, dtypes.Float32, "the loss")
	}
}

func TestMixedPrecisionComputesNearlyTheSame(t *testing.T) {
	for name, text := range programs(t) {
		want := runTyped(t, parse(t, text))
		for d, tolerance := range map[dtypes.DType]float64{dtypes.BFloat16: 3e-2, dtypes.Float16: 4e-3} {
			for _, barriers := range []bool{false, true} {
				p := parse(t, text)
				mixed(t, p, passes.Options{AMP: d, AMPBarriers: barriers})
				for i, got := range runTyped(t, p) {
					var diff, norm float64
					for j := range got {
						diff += math.Pow(got[j]-want[i][j], 2)
						norm += want[i][j] * want[i][j]
					}
					if !(math.Sqrt(diff) <= tolerance*(math.Sqrt(norm)+1e-3)) {
						t.Errorf("%s in %s: output %d differs by %g at a norm of %g", name, d, i, math.Sqrt(diff), math.Sqrt(norm))
					}
				}
			}
		}
	}
}

// runTyped runs a program on random floats, and on integers from 1.
func runTyped(t *testing.T, p *ir.Program) (results [][]float64) {
	t.Helper()
	backend, err := compute.NewWithConfig("go:ops_sequential")
	if err != nil {
		t.Fatal(err)
	}
	exec, err := emit.Program(backend, p)
	if err != nil {
		t.Fatal(err)
	}
	r := rand.New(rand.NewSource(1))
	var ins []compute.Buffer
	for _, v := range p.Main.Params {
		var flat any
		switch v.Shape.DType {
		case dtypes.Int64:
			x := make([]int64, v.Shape.Size())
			for i := range x {
				x[i] = int64(i + 1)
			}
			flat = x
		default:
			x := make([]float32, v.Shape.Size())
			for i := range x {
				x[i] = r.Float32()*2 - 1
			}
			flat = x
		}
		in, err := backend.BufferFromFlatData(0, flat, v.Shape)
		if err != nil {
			t.Fatal(err)
		}
		ins = append(ins, in)
	}
	outs, err := exec.Execute(ins, nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	for i, o := range outs {
		var result []float64
		if s := p.Main.Outputs[i].Shape; s.DType == dtypes.Float32 {
			flat := make([]float32, s.Size())
			if err := o.ToFlatData(flat); err != nil {
				t.Fatal(err)
			}
			for _, x := range flat {
				result = append(result, float64(x))
			}
		}
		results = append(results, result)
	}
	return results
}

// Prediction has no gradients, and stays as it is.
func TestOnlyTrainingIsMixed(t *testing.T) {
	const text = `program "predict"
passes "taskgraphs" "amp"
input %0
outputs result
main {
  %0 = Parameter() {Name: "arg0", Shape: float32[4,4]} -> float32[4,4] : forward
  %1 = DotGeneral(%0, %0) {LHSContractingAxes: [1], RHSContractingAxes: [0]} -> float32[4,4] : forward
  return %1
}
`
	p := parse(t, text)
	mixed(t, p, passes.Options{AMP: dtypes.BFloat16})
	if p.String() != text {
		t.Errorf("it became\n%s", p)
	}
}

// GoMLX differentiates dots of bfloat16 in float32: the casts that it records around them go.
func TestCastsOfTheModelAreNotRepeated(t *testing.T) {
	p := parse(t, `program "cast"
taskgraph 0 "" replicate(1)
variable "/w" %1 trainable update %9 taskgraph 0
input %0
gradient %1 = %8
loss %11
outputs update %1 result
main {
  %0 = Parameter() {Name: "arg0", Shape: bfloat16[4,4]} -> bfloat16[4,4] : forward taskgraph 0
  %1 = Parameter() {Name: "/w", Shape: float32[4,4]} -> float32[4,4] : forward taskgraph 0
  %2 = ConvertDType(%1) {DType: bfloat16} -> bfloat16[4,4] : forward taskgraph 0
  %3 = DotGeneral(%0, %2) {LHSContractingAxes: [1], RHSContractingAxes: [0], Config: {AccumulatorDType: float32}} -> bfloat16[4,4] : forward taskgraph 0
  %4 = ConvertDType(%3) {DType: float32} -> float32[4,4] : forward taskgraph 0
  %11 = ReduceSum(%4) {Axes: [0, 1]} -> float32[] : forward taskgraph 0
  %5 = ConvertDType(%0) {DType: float32} -> float32[4,4] : backward taskgraph 0
  %6 = ConvertDType(%3) {DType: float32} -> float32[4,4] : backward taskgraph 0
  %7 = DotGeneral(%5, %6) {LHSContractingAxes: [0], RHSContractingAxes: [0]} -> float32[4,4] : backward taskgraph 0
  %10 = ConvertDType(%7) {DType: bfloat16} -> bfloat16[4,4] : backward taskgraph 0
  %8 = ConvertDType(%10) {DType: float32} -> float32[4,4] : backward taskgraph 0
  %9 = Sub(%1, %8) -> float32[4,4] : apply taskgraph 0
  return %9, %11
}
`)
	mixed(t, p, passes.Options{AMP: dtypes.BFloat16})
	var dots, casts int
	for _, op := range p.Main.Ops {
		switch {
		case op.Phase != ir.Backward:
		case op.Type() == ir.OpDotGeneral:
			dots++
			if !op.Inputs[0].Op.IsLeaf() || op.Outputs[0].Shape.DType != dtypes.BFloat16 {
				t.Errorf("the dot of backward is\n%s", p)
			}
		default:
			casts++
		}
	}
	if dots != 1 || casts != 1 { // of the gradient, at the end
		t.Errorf("backward has %d dots and %d casts:\n%s", dots, casts, p)
	}
}

// A mask of attention adds a number that would be infinite in float16, and two of them NaN. What keeps a logarithm finite would be 0.
func TestNumbersThatTheLowTypeLacksStayFloat32(t *testing.T) {
	const text = `program "mask"
taskgraph 0 "" replicate(1)
variable "/w" %1 trainable update %9 taskgraph 0
input %0
gradient %1 = %8
loss %7
outputs update %1 result
main {
  %0 = Parameter() {Name: "arg0", Shape: float32[4,4]} -> float32[4,4] : forward taskgraph 0
  %1 = Parameter() {Name: "/w", Shape: float32[4,4]} -> float32[4,4] : forward taskgraph 0
  %2 = DotGeneral(%0, %1) {LHSContractingAxes: [1], RHSContractingAxes: [0]} -> float32[4,4] : forward taskgraph 0
  %3 = Constant() {Value: float32[](NUMBER)} -> float32[] : forward taskgraph 0
  %4 = BroadcastInDim(%3) {OutputShape: float32[4,4]} -> float32[4,4] : forward taskgraph 0
  %5 = Add(%2, %4) -> float32[4,4] : forward taskgraph 0
  %6 = Mul(%5, %5) -> float32[4,4] : forward taskgraph 0
  %7 = ReduceSum(%6) {Axes: [0, 1]} -> float32[] : forward taskgraph 0
  %8 = DotGeneral(%0, %5) {LHSContractingAxes: [0], RHSContractingAxes: [0]} -> float32[4,4] : backward taskgraph 0
  %9 = Sub(%1, %8) -> float32[4,4] : apply taskgraph 0
  return %9, %7
}
`
	both := []dtypes.DType{dtypes.Float16, dtypes.BFloat16}
	for number, lacking := range map[string][]dtypes.DType{"-1e+09": both[:1], "1e-08": both[:1], "-3.4028235e+38": both, "-3.3e+38": both[:1], "2": nil} {
		for _, d := range both {
			p := parse(t, strings.Replace(text, "NUMBER", number, 1))
			mixed(t, p, passes.Options{AMP: d})
			for _, op := range p.Main.Ops {
				if op.Type() == ir.OpAdd && (op.Outputs[0].Shape.DType == dtypes.Float32) != slices.Contains(lacking, d) {
					t.Errorf("with %s a sum with %s is %s", d, number, op.Outputs[0].Shape.DType)
				}
			}
		}
	}
}

// The result of a dot is added to something else, and read by the next dot: only what is exact keeps that sum in float32.
func TestLabelsAndIntegersAreNotRounded(t *testing.T) {
	const text = `program "sum"
taskgraph 0 "" replicate(1)
variable "/w" %1 trainable update %9 taskgraph 0
input %0
input %2
gradient %1 = %8
loss %7
outputs update %1 result
main {
  %0 = Parameter() {Name: "arg0", Shape: float32[4,4]} -> float32[4,4] : forward taskgraph 0
  %1 = Parameter() {Name: "/w", Shape: float32[4,4]} -> float32[4,4] : forward taskgraph 0
  %2 = Parameter() {Name: "arg1", Shape: TYPE[4,4]} -> TYPE[4,4] : forward taskgraph 0
  %3 = DotGeneral(%0, %1) {LHSContractingAxes: [1], RHSContractingAxes: [0]} -> float32[4,4] : forward taskgraph 0
  CAST
  %5 = Add(%3, %4) -> float32[4,4] : forward taskgraph 0
  %6 = Mul(%5, %5) -> float32[4,4] : forward taskgraph 0
  %7 = ReduceSum(%6) {Axes: [0, 1]} -> float32[] : forward taskgraph 0
  %8 = DotGeneral(%0, %5) {LHSContractingAxes: [0], RHSContractingAxes: [0]} -> float32[4,4] : backward taskgraph 0
  %9 = Sub(%1, %8) -> float32[4,4] : apply taskgraph 0
  return %9, %7
}
`
	const cast = "%4 = ConvertDType(%2) {DType: float32} -> float32[4,4] : forward taskgraph 0"
	for _, c := range []struct {
		name, dtype, op string
		sum             dtypes.DType
	}{
		{"labels", "float32", "%4 = Neg(%2) -> float32[4,4] : forward taskgraph 0", dtypes.Float32},
		{"data that a dot reads", "float32", "%4 = Neg(%0) -> float32[4,4] : forward taskgraph 0", dtypes.BFloat16},
		{"integers", "int32", cast, dtypes.Float32},
		{"a mask", "bool", cast, dtypes.BFloat16},
	} {
		p := parse(t, strings.NewReplacer("TYPE", c.dtype, "CAST", c.op).Replace(text))
		log := mixed(t, p, passes.Options{AMP: dtypes.BFloat16})
		for _, op := range p.Main.Ops {
			if op.Type() == ir.OpAdd && op.Outputs[0].Shape.DType != c.sum {
				t.Errorf("%s: the sum is %s:\n%s", c.name, op.Outputs[0].Shape.DType, strings.Join(log, "\n"))
			}
		}
	}
}

func TestTheLogTellsTheTypeOfEveryOpAndWhy(t *testing.T) {
	p := parse(t, programs(t)["block"])
	var ops int
	for _, op := range p.Main.Ops {
		float := func(v *ir.Value) bool { return v != nil && v.Shape.DType == dtypes.Float32 }
		if op.Phase != ir.Apply && !op.IsLeaf() && (slices.ContainsFunc(op.Inputs, float) || slices.ContainsFunc(op.Outputs, float)) {
			ops++
		}
	}
	log := mixed(t, p, passes.Options{AMP: dtypes.BFloat16})
	if len(log) != ops {
		t.Errorf("%d lines about %d ops", len(log), ops)
	}
	const file = "testdata/amp/log.txt"
	text := strings.Join(log, "\n") + "\n"
	if *update {
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if want, err := os.ReadFile(file); err != nil || text != string(want) {
		t.Errorf("run with -update if this is right: %v\n%s", err, text)
	}
}

// The lists hold what the pure-Go backend can compute in half precision.
func TestThePureGoBackendComputesTheListsInHalfPrecision(t *testing.T) {
	b, err := compute.NewWithConfig("go:ops_sequential")
	if err != nil {
		t.Fatal(err)
	}
	conv := &ir.ConvGeneral{Axes: compute.ConvolveAxesConfig{InputBatch: 0, InputSpatial: []int{1}, InputChannels: 2, KernelSpatial: []int{0},
		KernelInputChannels: 1, KernelOutputChannels: 2, OutputBatch: 0, OutputSpatial: []int{1}, OutputChannels: 2},
		Strides: []int{1}, Paddings: [][2]int{{0, 0}}, InputDilations: []int{1}, KernelDilations: []int{1}, ChannelGroupCount: 1, BatchGroupCount: 1}
	for _, d := range []dtypes.DType{dtypes.Float16, dtypes.BFloat16} {
		half := func(dims ...int) shapes.Shape { return shapes.Make(d, dims...) }
		ints := func(dims ...int) shapes.Shape { return shapes.Make(dtypes.Int64, dims...) }
		x := half(2, 3)
		cases := map[ir.OpType]struct {
			attrs ir.Attrs
			in    []shapes.Shape
			out   shapes.Shape
		}{}
		add := func(a ir.Attrs, out shapes.Shape, in ...shapes.Shape) {
			cases[a.OpType()] = struct {
				attrs ir.Attrs
				in    []shapes.Shape
				out   shapes.Shape
			}{a, in, out}
		}
		add(&ir.DotGeneral{LHSContractingAxes: []int{1}, RHSContractingAxes: []int{1},
			Config: compute.DotGeneralConfig{AccumulatorDType: dtypes.Float32, OutputDType: d}}, half(2, 2), x, x)
		add(conv, half(1, 3, 2), half(1, 4, 2), half(2, 2, 2))
		for _, a := range []ir.Attrs{&ir.Abs{}, &ir.Neg{}, &ir.Identity{}, &ir.OptimizationBarrier{}} {
			add(a, x, x)
		}
		for _, a := range []ir.Attrs{&ir.Add{}, &ir.Sub{}, &ir.Mul{}, &ir.Max{}, &ir.Min{}, &ir.SchedulingBarrier{}} {
			add(a, x, x, x)
		}
		add(&ir.Clamp{}, x, half(), x, half())
		add(&ir.Where{}, x, shapes.Make(dtypes.Bool, 2, 3), x, x)
		add(&ir.Gather{IndexVectorAxis: 1, OffsetOutputAxes: []int{1}, CollapsedSliceAxes: []int{0}, StartIndexMap: []int{0}, SliceSizes: []int{1, 3}},
			half(4, 3), x, ints(4, 1))
		add(&ir.Pad{AxesConfig: []compute.PadAxis{{Start: 1}, {End: 2}}}, half(3, 5), x, half())
		add(&ir.BroadcastInDim{OutputShape: half(4, 2, 3), BroadcastAxes: []int{1, 2}}, half(4, 2, 3), x)
		add(&ir.Concatenate{Axis: 0}, half(4, 3), x, x)
		add(&ir.Reshape{Dimensions: []int{6}}, half(6), x)
		add(&ir.Reverse{Axes: []int{0}}, x, x)
		add(&ir.Slice{Starts: []int{0, 1}, Limits: []int{2, 3}, Strides: []int{1, 1}}, half(2, 2), x)
		add(&ir.Transpose{Permutation: []int{1, 0}}, half(3, 2), x)
		for _, name := range passes.HalfOps() {
			c, ok := cases[name]
			if !ok {
				t.Errorf("%s is not tested", name)
				continue
			}
			p := ir.NewProgram(string(name))
			var in []*ir.Value
			var buffers []compute.Buffer
			for i, s := range c.in {
				op := p.NewOp(&ir.Parameter{Name: "arg" + string(rune('0'+i)), Shape: s}, nil, s)
				p.Main.Append(op)
				in = append(in, op.Outputs[0])
				buffer, _, err := b.NewSharedBuffer(0, s)
				if err != nil {
					t.Fatal(err)
				}
				buffers = append(buffers, buffer)
			}
			op := p.NewOp(c.attrs, in, c.out)
			p.Main.Append(op)
			p.Main.Outputs = op.Outputs
			exec, err := emit.Program(b, p)
			if err != nil {
				t.Errorf("%s in %s: %v", name, d, err)
				continue
			}
			if _, err := exec.Execute(buffers, nil, 0); err != nil {
				t.Errorf("%s in %s: %v", name, d, err)
			}
		}
	}
}
