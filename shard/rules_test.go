package shard_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/gomlx/compute"
	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/shapes"

	"github.com/easyparallel/epl/ir"
	"github.com/easyparallel/epl/shard"
)

// operation is one to be sharded in every way that its rule knows.
type operation struct {
	attrs   ir.Attrs
	inputs  []shapes.Shape
	indices int    // integers are below it; 0: below 100
	sort    bool   // it has a comparator
	name    string // "": that of the operation
}

func f32(dims ...int) shapes.Shape { return shapes.Make(dtypes.Float32, dims...) }
func i32(dims ...int) shapes.Shape { return shapes.Make(dtypes.Int32, dims...) }
func b(dims ...int) shapes.Shape   { return shapes.Make(dtypes.Bool, dims...) }

func operations() []operation {
	x := []shapes.Shape{f32(5, 7, 6)}
	xy := []shapes.Shape{f32(5, 7, 6), f32(5, 7, 6)}
	nn := []shapes.Shape{i32(5, 7), i32(5, 7)}
	all := []operation{
		{attrs: &ir.BroadcastInDim{OutputShape: f32(5, 4, 7), BroadcastAxes: []int{0, 2}}, inputs: []shapes.Shape{f32(5, 7)}},
		{attrs: &ir.BroadcastInDim{OutputShape: f32(5, 7), BroadcastAxes: []int{0, 1}}, inputs: []shapes.Shape{f32(5, 1)}},
		{attrs: &ir.Transpose{Permutation: []int{2, 0, 1}}, inputs: x},
		{attrs: &ir.Reshape{Dimensions: []int{35, 6}}, inputs: x},
		{attrs: &ir.Reshape{Dimensions: []int{5, 42}}, inputs: x},
		{attrs: &ir.Reshape{Dimensions: []int{5, 1, 7, 2, 3}}, inputs: x},
		{attrs: &ir.Reshape{Dimensions: []int{5, 7, 6}}, inputs: []shapes.Shape{f32(35, 6)}},
		{attrs: &ir.Reshape{Dimensions: []int{6, 10}}, inputs: []shapes.Shape{f32(12, 5)}},
		{attrs: &ir.Reshape{Dimensions: []int{20, 3}}, inputs: []shapes.Shape{f32(10, 6)}},
		{attrs: &ir.Bitcast{TargetDType: dtypes.Int32}, inputs: x},
		{attrs: &ir.Slice{Starts: []int{0, 2, 0}, Limits: []int{5, 6, 6}, Strides: []int{1, 2, 1}}, inputs: x},
		{attrs: &ir.Pad{AxesConfig: []compute.PadAxis{{}, {Start: 1, End: 2}, {}}}, inputs: []shapes.Shape{f32(5, 7, 6), f32()}},
		{attrs: &ir.Concatenate{Axis: 1}, inputs: []shapes.Shape{f32(5, 7, 6), f32(5, 2, 6), f32(5, 3, 6)}},
		{attrs: &ir.Reverse{Axes: []int{1}}, inputs: x},
		{attrs: &ir.ReduceSum{Axes: []int{1}}, inputs: x},
		{attrs: &ir.ReduceSum{}, inputs: x},
		{attrs: &ir.ReduceSum{Axes: []int{0}}, inputs: []shapes.Shape{i32(5, 7)}},
		{attrs: &ir.ReduceMax{Axes: []int{0, 2}}, inputs: x},
		{attrs: &ir.ReduceMin{Axes: []int{1}}, inputs: x},
		{attrs: &ir.ReduceProduct{Axes: []int{1}}, inputs: x},
		{attrs: &ir.ReduceLogicalAnd{Axes: []int{1}}, inputs: []shapes.Shape{b(5, 3)}},
		{attrs: &ir.ReduceLogicalOr{Axes: []int{0}}, inputs: []shapes.Shape{b(3, 5)}},
		{attrs: &ir.ArgMinMax{Axis: 1, OutputDType: dtypes.Int32}, inputs: x},
		{attrs: &ir.CumSum{Axis: 1}, inputs: x},
		{attrs: &ir.Sort{Axis: 1}, inputs: x, sort: true},
		{attrs: &ir.DotGeneral{LHSContractingAxes: []int{1}, RHSContractingAxes: []int{0}}, inputs: []shapes.Shape{f32(5, 7), f32(7, 6)}},
		{attrs: &ir.DotGeneral{LHSContractingAxes: []int{0}, RHSContractingAxes: []int{0}}, inputs: []shapes.Shape{f32(5, 7), f32(5, 6)}},
		{attrs: &ir.DotGeneral{LHSBatchAxes: []int{0, 2}, RHSBatchAxes: []int{1, 0}, LHSContractingAxes: []int{3}, RHSContractingAxes: []int{3}},
			inputs: []shapes.Shape{f32(5, 4, 7, 6), f32(7, 5, 8, 6)}},
		{attrs: &ir.Gather{IndexVectorAxis: 2, OffsetOutputAxes: []int{2}, CollapsedSliceAxes: []int{0}, StartIndexMap: []int{0}, SliceSizes: []int{1, 6}},
			inputs: []shapes.Shape{f32(9, 6), i32(5, 7, 1)}, indices: 9},
		{attrs: &ir.Gather{IndexVectorAxis: 0, OffsetOutputAxes: []int{0, 2}, CollapsedSliceAxes: []int{1}, StartIndexMap: []int{1}, SliceSizes: []int{5, 1, 6}},
			inputs: []shapes.Shape{f32(5, 9, 6), i32(1, 7)}, indices: 9},
		{attrs: &ir.ScatterSum{IndexVectorAxis: 2, UpdateWindowAxes: []int{2}, InsertedWindowAxes: []int{0}, ScatterAxesToOperandAxes: []int{0}},
			inputs: []shapes.Shape{f32(9, 6), i32(5, 7, 1), f32(5, 7, 6)}, indices: 9},
		{attrs: &ir.ScatterMax{IndexVectorAxis: 1, UpdateWindowAxes: []int{1}, InsertedWindowAxes: []int{0}, ScatterAxesToOperandAxes: []int{0}},
			inputs: []shapes.Shape{f32(9, 6), i32(7, 1), f32(7, 6)}, indices: 9},
		{attrs: &ir.ScatterMin{IndexVectorAxis: 1, UpdateWindowAxes: []int{1}, InsertedWindowAxes: []int{0}, ScatterAxesToOperandAxes: []int{0}},
			inputs: []shapes.Shape{f32(9, 6), i32(7, 1), f32(7, 6)}, indices: 9},
		{attrs: &ir.ReduceWindow{ReductionType: compute.ReduceOpMax, WindowDimensions: []int{1, 2, 2, 1}, Strides: []int{1, 2, 2, 1}},
			inputs: []shapes.Shape{f32(5, 4, 6, 7)}},
		{attrs: &ir.SelectAndScatterMax{WindowDimensions: []int{1, 2, 2, 1}, WindowStrides: []int{1, 2, 2, 1}},
			inputs: []shapes.Shape{f32(5, 4, 6, 7), f32(5, 2, 3, 7)}},
		{attrs: &ir.SelectAndScatterMin{WindowDimensions: []int{1, 2, 2, 1}, WindowStrides: []int{1, 2, 2, 1}},
			inputs: []shapes.Shape{f32(5, 4, 6, 7), f32(5, 2, 3, 7)}},
		{attrs: &ir.ConvGeneral{Axes: nhwc, Strides: []int{2, 1}, Paddings: [][2]int{{1, 1}, {0, 1}}, ChannelGroupCount: 1, BatchGroupCount: 1},
			inputs: []shapes.Shape{f32(5, 6, 7, 4), f32(3, 2, 4, 6)}},
		{attrs: &ir.ConvGeneral{Axes: nhwc, ChannelGroupCount: 2, BatchGroupCount: 1}, inputs: []shapes.Shape{f32(5, 4, 4, 6), f32(3, 3, 3, 8)}, name: "grouped"},
		{attrs: &ir.FusedGelu{Exact: true}, inputs: x},
		{attrs: &ir.FusedSoftmax{Axis: 1}, inputs: x},
		{attrs: &ir.FusedLayerNorm{Axes: []int{2}, Epsilon: 1e-5}, inputs: []shapes.Shape{f32(5, 7, 6), f32(6), f32(6)}},
		{attrs: &ir.FusedDense{}, inputs: []shapes.Shape{f32(5, 7, 6), f32(6, 4), f32(4)}},
		{attrs: &ir.FusedAttentionQKVProjection{QueryDim: 4, KeyValueDim: 2}, inputs: []shapes.Shape{f32(7, 6), f32(6, 8), f32(4), f32(2), f32(2)}},
		{attrs: &ir.Clamp{}, inputs: []shapes.Shape{f32(), f32(5, 7), f32()}},
		{attrs: &ir.Where{}, inputs: []shapes.Shape{b(5, 7), f32(5, 7), f32()}},
		{attrs: &ir.Where{}, inputs: []shapes.Shape{b(5, 7), f32(5, 7), f32(5, 7)}},
		{attrs: &ir.ConvertDType{DType: dtypes.Int32}, inputs: x},
		{attrs: &ir.LogicalNot{}, inputs: []shapes.Shape{b(5, 7)}},
		{attrs: &ir.Add{}, inputs: []shapes.Shape{f32(5, 7), f32()}, name: "Add a number"},
	}
	for _, a := range []ir.Attrs{&ir.Abs{}, &ir.Ceil{}, &ir.Cos{}, &ir.Erf{}, &ir.Exp{}, &ir.Expm1{}, &ir.Floor{}, &ir.Identity{}, &ir.IsFinite{},
		&ir.IsNaN{}, &ir.Logistic{}, &ir.Neg{}, &ir.Round{}, &ir.Sign{}, &ir.Sin{}, &ir.Tanh{}} {
		all = append(all, operation{attrs: a, inputs: x})
	}
	for _, a := range []ir.Attrs{&ir.Add{}, &ir.Sub{}, &ir.Mul{}, &ir.Div{}, &ir.Max{}, &ir.Min{}, &ir.Equal{}, &ir.GreaterThan{}, &ir.LessOrEqual{}, &ir.Rem{}} {
		all = append(all, operation{attrs: a, inputs: xy})
	}
	for _, a := range []ir.Attrs{&ir.BitwiseAnd{}, &ir.BitwiseXor{}, &ir.NotEqual{}} {
		all = append(all, operation{attrs: a, inputs: nn})
	}
	return all
}

var nhwc = compute.ConvolveAxesConfig{InputBatch: 0, InputSpatial: []int{1, 2}, InputChannels: 3, KernelSpatial: []int{0, 1}, KernelInputChannels: 2,
	KernelOutputChannels: 3, OutputBatch: 0, OutputSpatial: []int{1, 2}, OutputChannels: 3}

// single makes a program of one op, on k devices. If there is a factor, what it shards is data; everything else is a
// variable.
func single(t *testing.T, o operation, f *shard.Factor, k int) (*ir.Program, *ir.Op) {
	t.Helper()
	p := ir.NewProgram("op")
	tg := &ir.TaskGraph{Name: "all", Devices: k}
	p.TaskGraphs = []*ir.TaskGraph{tg}
	add := func(a ir.Attrs, in []*ir.Value, out ...shapes.Shape) *ir.Op {
		op := p.NewOp(a, in, out...)
		op.TaskGraph = tg
		p.Main.Append(op)
		return op
	}
	param := func(name string, s shapes.Shape) *ir.Value {
		return add(&ir.Parameter{Name: name, Shape: s}, nil, s).Outputs[0]
	}
	var in []*ir.Value
	for i, s := range o.inputs {
		if f == nil || f.In[i].Dim < 0 {
			v := param(fmt.Sprintf("/%d", i), s)
			p.Variables = append(p.Variables, &ir.Variable{Path: fmt.Sprintf("/%d", i), Param: v, TaskGraph: tg})
			in = append(in, v)
			continue
		}
		// The sharded dim comes first in the data, cut into steps; then it is brought to where the op wants it.
		d, mul := f.In[i].Dim, f.In[i].Mul
		front := slices.Clone(s.Dimensions)
		front = append([]int{s.Dimensions[d]}, slices.Delete(front, d, d+1)...)
		v := param(fmt.Sprintf("arg%d", i), shapes.Make(s.DType, append([]int{f.Size, mul}, front[1:]...)...))
		p.Inputs = append(p.Inputs, v)
		v = add(&ir.Reshape{Dimensions: front}, []*ir.Value{v}, shapes.Make(s.DType, front...)).Outputs[0]
		var permutation []int
		for j := range s.Rank() {
			switch {
			case j == d:
				permutation = append(permutation, 0)
			case j < d:
				permutation = append(permutation, j+1)
			default:
				permutation = append(permutation, j)
			}
		}
		in = append(in, add(&ir.Transpose{Permutation: permutation}, []*ir.Value{v}, s).Outputs[0])
	}
	op := add(o.attrs, in)
	if o.sort {
		op.Funcs = []*ir.Func{descending(p)}
	}
	for i, s := range outputShapes(t, o) {
		op.Outputs = append(op.Outputs, &ir.Value{Op: op, Index: i, Shape: s})
		p.Main.Outputs, p.Outputs = append(p.Main.Outputs, op.Outputs[i]), append(p.Outputs, ir.Output{})
	}
	p.Stages = []ir.Stage{{TaskGraphs: p.TaskGraphs}}
	for j := range k {
		p.Stages[0].Places = append(p.Stages[0].Places, j)
	}
	if err := p.Verify(); err != nil {
		t.Fatal(err)
	}
	return p, op
}

// descending is a comparator for sorting.
func descending(p *ir.Program) *ir.Func {
	f := &ir.Func{Parent: p.Main}
	var in []*ir.Value
	for _, name := range []string{"a", "b"} {
		op := p.NewOp(&ir.Parameter{Name: name, Shape: f32()}, nil, f32())
		f.Append(op)
		in = append(in, op.Outputs[0])
	}
	op := p.NewOp(&ir.GreaterThan{}, in, b())
	f.Append(op)
	f.Outputs = op.Outputs
	return f
}

// outputShapes asks the backend.
func outputShapes(t *testing.T, o operation) (all []shapes.Shape) {
	t.Helper()
	if o.sort {
		return o.inputs
	}
	main := newBackend(t).Builder("shapes").Main()
	var in ir.Operands
	for i, s := range o.inputs {
		v, err := main.Parameter(fmt.Sprint(i), s, nil)
		if err != nil {
			t.Fatal(err)
		}
		in.Values = append(in.Values, v)
	}
	out, err := o.attrs.Emit(main, &in)
	if err != nil {
		t.Fatalf("%s: %v", o.attrs.OpType(), err)
	}
	for _, v := range out {
		s, err := main.Shape(v)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, s)
	}
	return all
}

func draw(p *ir.Program, rng *rand.Rand, limit int) map[string]tensor {
	if limit == 0 {
		limit = 100
	}
	given := map[string]tensor{}
	for _, v := range p.Main.Params {
		given[v.Op.Attrs.(*ir.Parameter).Name] = random(rng, v.Shape, limit)
	}
	return given
}

// partitioned computes the outputs of a program before and after it is partitioned.
func partitioned(t *testing.T, p *ir.Program, given map[string]tensor) (want, got []tensor, r *shard.Report) {
	t.Helper()
	backend := newBackend(t)
	before := evaluate(t, backend, p, given)
	for _, v := range p.Main.Outputs {
		want = append(want, before[v])
	}
	r, err := shard.Partition(p)
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Verify(); err != nil {
		t.Fatalf("%v\n%s", err, p)
	}
	after := evaluate(t, backend, p, given)
	for _, v := range p.Main.Outputs {
		got = append(got, after[v])
	}
	for _, v := range p.Variables {
		for _, c := range v.Copies {
			same(t, "a copy of "+v.Path, after[v.Update], after[c])
		}
	}
	return want, got, r
}

func TestEveryRuleShardsEveryFactorExactly(t *testing.T) {
	for i, o := range operations() {
		_, op := single(t, o, nil, 1)
		rule := shard.RuleOf(op)
		if rule == nil || len(rule.Factors) == 0 {
			t.Errorf("%s has no rule", op)
			continue
		}
		for n := range rule.Factors {
			f := &rule.Factors[n]
			if !slices.ContainsFunc(f.In, func(r shard.Ref) bool { return r.Dim >= 0 }) {
				continue // nothing would be sharded
			}
			for k := 2; k <= min(4, f.Size); k++ {
				t.Run(fmt.Sprintf("%s%s/%d/factor %d over %d", o.attrs.OpType(), o.name, i, n, k), func(t *testing.T) {
					p, _ := single(t, o, f, k)
					want, got, r := partitioned(t, p, draw(p, rand.New(rand.NewPCG(uint64(i), uint64(n))), o.indices))
					for i := range want {
						same(t, fmt.Sprintf("output %d", i), want[i], got[i])
					}
					gathers, reductions := r.Exchanges[ir.AllGatherOf].Count, r.Exchanges[ir.AllReduceOf].Count
					if f.Reduce == 0 && (gathers != len(want) || reductions != 0) || f.Reduce != 0 && (gathers != 0 || reductions != len(want)) || len(r.Gathered) > 0 {
						t.Errorf("the outputs alone should be exchanged: %v\n%s", r.Lines(), p)
					}
				})
			}
		}
	}
}
