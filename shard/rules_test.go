// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package shard_test

import (
	"fmt"
	"math"
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
	inputs  []shapes.Shape // without a shape: absent
	outputs []shapes.Shape // nil: the backend knows
	lowest  int            // integers are from here
	indices int            // and below this; 0: below 100
	values  []float64      // what floats are drawn from; nil: between -1 and 1
	sort    bool           // it has a comparator
	name    string         // "": that of the operation
}

func f32(dims ...int) shapes.Shape { return shapes.Make(dtypes.Float32, dims...) }
func i32(dims ...int) shapes.Shape { return shapes.Make(dtypes.Int32, dims...) }
func b(dims ...int) shapes.Shape   { return shapes.Make(dtypes.Bool, dims...) }

// of makes a shape of any type.
func of(t dtypes.DType, dims ...int) shapes.Shape { return shapes.Make(t, dims...) }

// extremes are numbers that are equal often, or not comparable.
var extremes = []float64{-1, 0, 1, 1, math.Inf(1), math.Inf(-1), math.NaN()}

func operations() []operation {
	x := []shapes.Shape{f32(5, 9, 6)}
	xy := []shapes.Shape{f32(5, 9, 6), f32(5, 9, 6)}
	nn := []shapes.Shape{i32(5, 7), i32(5, 7)}
	all := []operation{
		{attrs: &ir.BroadcastInDim{OutputShape: f32(5, 4, 7), BroadcastAxes: []int{0, 2}}, inputs: []shapes.Shape{f32(5, 7)}},
		{attrs: &ir.BroadcastInDim{OutputShape: f32(5, 7), BroadcastAxes: []int{0, 1}}, inputs: []shapes.Shape{f32(5, 1)}},
		{attrs: &ir.Transpose{Permutation: []int{2, 0, 1}}, inputs: x},
		{attrs: &ir.Reshape{Dimensions: []int{45, 6}}, inputs: x},
		{attrs: &ir.Reshape{Dimensions: []int{5, 54}}, inputs: x},
		{attrs: &ir.Reshape{Dimensions: []int{5, 1, 9, 2, 3}}, inputs: x},
		{attrs: &ir.Reshape{Dimensions: []int{5, 7, 6}}, inputs: []shapes.Shape{f32(35, 6)}},
		{attrs: &ir.Reshape{Dimensions: []int{6, 10}}, inputs: []shapes.Shape{f32(12, 5)}},
		{attrs: &ir.Reshape{Dimensions: []int{20, 3}}, inputs: []shapes.Shape{f32(10, 6)}},
		{attrs: &ir.Bitcast{TargetDType: dtypes.Int32}, inputs: x},
		{attrs: &ir.Bitcast{TargetDType: dtypes.Int8}, inputs: x},
		{attrs: &ir.Bitcast{TargetDType: dtypes.Int32}, inputs: []shapes.Shape{of(dtypes.Int8, 5, 9, 4)}},
		{attrs: &ir.Iota{Shape: i32(5, 9), IotaAxis: 1}},
		{attrs: &ir.Iota{Shape: f32(9, 3), IotaAxis: 0}},
		{attrs: &ir.Iota{Shape: of(dtypes.BFloat16, 9), IotaAxis: 0}},
		{attrs: &ir.Iota{Shape: of(dtypes.Uint8, 2, 300), IotaAxis: 1}},
		{attrs: &ir.Slice{Starts: []int{0, 2, 0}, Limits: []int{5, 6, 6}, Strides: []int{1, 2, 1}}, inputs: x},
		{attrs: &ir.Slice{Starts: []int{9, 0}, Limits: []int{11, 6}, Strides: []int{1, 1}}, inputs: []shapes.Shape{f32(17, 6)}, values: extremes},
		{attrs: &ir.Slice{Starts: []int{0, 12}, Limits: []int{3, 13}, Strides: []int{1, 1}}, inputs: []shapes.Shape{i32(3, 13)}},
		{attrs: &ir.Slice{Starts: []int{1}, Limits: []int{27}, Strides: []int{9}}, inputs: []shapes.Shape{f32(29)}},
		{attrs: &ir.Slice{Starts: []int{1}, Limits: []int{18}, Strides: []int{2}}, inputs: []shapes.Shape{f32(18)}},
		{attrs: &ir.Slice{Starts: []int{0, 0}, Limits: []int{17, 7}, Strides: []int{2, 1}}, inputs: []shapes.Shape{f32(18, 7)}},
		{attrs: &ir.Pad{AxesConfig: []compute.PadAxis{{Interior: 1, End: 1}, {Start: 1}}}, inputs: []shapes.Shape{f32(9, 6), f32()}},
		{attrs: &ir.Pad{AxesConfig: []compute.PadAxis{{}, {Start: 2, Interior: 2}}}, inputs: []shapes.Shape{f32(6, 9), f32()}},
		{attrs: &ir.Pad{AxesConfig: []compute.PadAxis{{Interior: 1}, {}}}, inputs: []shapes.Shape{f32(9, 6), f32()}},
		{attrs: &ir.Pad{AxesConfig: []compute.PadAxis{{Start: 5}}}, inputs: []shapes.Shape{f32(3, 6), f32()}},
		{attrs: &ir.Pad{AxesConfig: []compute.PadAxis{{Start: 3, End: 4}, {Start: 1, Interior: 1}}}, inputs: []shapes.Shape{f32(2, 6), f32()}},
		{attrs: &ir.Pad{AxesConfig: []compute.PadAxis{{}, {Start: 1, End: 2}, {}}}, inputs: []shapes.Shape{f32(5, 7, 6), f32()}},
		{attrs: &ir.Concatenate{Axis: 1}, inputs: []shapes.Shape{f32(5, 7, 6), f32(5, 2, 6), f32(5, 3, 6)}},
		{attrs: &ir.Concatenate{Axis: 0}, inputs: []shapes.Shape{i32(1, 6), i32(11, 6)}},
		{attrs: &ir.Reverse{Axes: []int{1}}, inputs: x},
		{attrs: &ir.ReduceSum{Axes: []int{1}}, inputs: x},
		{attrs: &ir.ReduceSum{}, inputs: x},
		{attrs: &ir.ReduceSum{Axes: []int{0}}, inputs: []shapes.Shape{i32(5, 7)}},
		{attrs: &ir.ReduceMax{Axes: []int{0, 2}}, inputs: x},
		{attrs: &ir.ReduceMin{Axes: []int{1}}, inputs: x},
		{attrs: &ir.ReduceProduct{Axes: []int{1}}, inputs: x},
		{attrs: &ir.ReduceLogicalAnd{Axes: []int{1}}, inputs: []shapes.Shape{b(5, 3)}},
		{attrs: &ir.ReduceLogicalOr{Axes: []int{0}}, inputs: []shapes.Shape{b(3, 5)}},
		{attrs: &ir.ReduceSum{Axes: []int{1}}, inputs: []shapes.Shape{of(dtypes.Int64, 5, 9)}, lowest: 1 << 53, indices: 1<<53 + 1000},
		{attrs: &ir.ReduceMax{Axes: []int{0}}, inputs: []shapes.Shape{of(dtypes.Uint64, 9, 5)}, lowest: 1 << 60, indices: 1<<60 + 20},
		{attrs: &ir.ReduceMin{}, inputs: []shapes.Shape{of(dtypes.Int8, 9, 5)}, lowest: -100},
		{attrs: &ir.ReduceMax{Axes: []int{1}}, inputs: x, values: extremes},
		{attrs: &ir.ReduceProduct{}, inputs: []shapes.Shape{i32(9, 5)}},
		{attrs: &ir.ReduceBitwiseAnd{Axes: []int{0}}, inputs: []shapes.Shape{i32(9, 5)}},
		{attrs: &ir.ReduceBitwiseOr{Axes: []int{1}}, inputs: []shapes.Shape{of(dtypes.Uint8, 5, 9)}},
		{attrs: &ir.ReduceBitwiseXor{Axes: []int{0, 2}}, inputs: []shapes.Shape{i32(5, 3, 9)}, lowest: -100},
		{attrs: &ir.ReduceLogicalAnd{}, inputs: []shapes.Shape{b(3, 2)}},
		{attrs: &ir.ReduceLogicalXor{Axes: []int{1}}, inputs: []shapes.Shape{b(5, 9)}},
		{attrs: &ir.ArgMinMax{Axis: 1, OutputDType: dtypes.Int32}, inputs: x},
		{attrs: &ir.ArgMinMax{Axis: 1, OutputDType: dtypes.Int64, IsMin: true}, inputs: x, values: extremes},
		{attrs: &ir.ArgMinMax{Axis: 1, OutputDType: dtypes.Uint8}, inputs: []shapes.Shape{f32(40, 11)}, values: extremes},
		{attrs: &ir.ArgMinMax{Axis: 1, OutputDType: dtypes.Int32}, inputs: []shapes.Shape{of(dtypes.BFloat16, 40, 11)}, values: extremes},
		{attrs: &ir.ArgMinMax{Axis: 0, OutputDType: dtypes.Int32, IsMin: true}, inputs: []shapes.Shape{of(dtypes.Float16, 13, 40)}, values: extremes},
		{attrs: &ir.ArgMinMax{Axis: 0, OutputDType: dtypes.Int8}, inputs: []shapes.Shape{of(dtypes.Int64, 300, 5)}, lowest: 1 << 53, indices: 1<<53 + 3},
		{attrs: &ir.ArgMinMax{Axis: 0, OutputDType: dtypes.Int32}, inputs: []shapes.Shape{of(dtypes.Uint64, 13)}, lowest: 1 << 62, indices: 1<<62 + 2},
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
		{attrs: &ir.Gather{IndexVectorAxis: 2, OffsetOutputAxes: []int{2}, CollapsedSliceAxes: []int{0}, StartIndexMap: []int{0}, SliceSizes: []int{1, 6}},
			inputs: []shapes.Shape{f32(11, 6), i32(5, 7, 1)}, lowest: -5, indices: 16, values: extremes, name: " out of bounds"},
		{attrs: &ir.Gather{IndexVectorAxis: 1, OffsetOutputAxes: []int{1}, CollapsedSliceAxes: []int{1}, StartIndexMap: []int{1}, SliceSizes: []int{3, 1}},
			inputs: []shapes.Shape{of(dtypes.Int64, 3, 300), of(dtypes.Uint8, 20, 1)}, indices: 256, name: " of narrow indices"},
		{attrs: &ir.Gather{IndexVectorAxis: 0, OffsetOutputAxes: []int{1, 2, 3}, CollapsedSliceAxes: []int{2}, StartIndexMap: []int{2, 0, 3}, SliceSizes: []int{1, 4, 1, 2}},
			inputs: []shapes.Shape{f32(9, 4, 11, 5), of(dtypes.Int64, 3, 17)}, lowest: -3, indices: 14, name: " by vectors"},
		{attrs: &ir.ScatterSum{IndexVectorAxis: 2, UpdateWindowAxes: []int{2}, InsertedWindowAxes: []int{0}, ScatterAxesToOperandAxes: []int{0}},
			inputs: []shapes.Shape{f32(9, 6), i32(5, 7, 1), f32(5, 7, 6)}, indices: 9},
		{attrs: &ir.ScatterMax{IndexVectorAxis: 1, UpdateWindowAxes: []int{1}, InsertedWindowAxes: []int{0}, ScatterAxesToOperandAxes: []int{0}},
			inputs: []shapes.Shape{f32(9, 6), i32(7, 1), f32(7, 6)}, indices: 9},
		{attrs: &ir.ScatterMin{IndexVectorAxis: 1, UpdateWindowAxes: []int{1}, InsertedWindowAxes: []int{0}, ScatterAxesToOperandAxes: []int{0}},
			inputs: []shapes.Shape{f32(9, 6), i32(7, 1), f32(7, 6)}, indices: 9},
		{attrs: &ir.ScatterSum{IndexVectorAxis: 1, UpdateWindowAxes: []int{1}, InsertedWindowAxes: []int{1}, ScatterAxesToOperandAxes: []int{1}, UniqueIndices: true},
			inputs: []shapes.Shape{of(dtypes.Int64, 3, 300), of(dtypes.Uint8, 20), of(dtypes.Int64, 20, 3)}, indices: 256, name: " by narrow indices"},
		{attrs: &ir.ScatterSum{IndexVectorAxis: 0, UpdateWindowAxes: []int{1, 2}, InsertedWindowAxes: []int{2}, ScatterAxesToOperandAxes: []int{2, 0}},
			inputs: []shapes.Shape{f32(9, 4, 11), i32(2, 17), f32(17, 1, 4)}, indices: 9, name: " by vectors"},
		{attrs: &ir.ScatterMax{IndexVectorAxis: 1, UpdateWindowAxes: []int{1}, InsertedWindowAxes: []int{0}, ScatterAxesToOperandAxes: []int{0}},
			inputs: []shapes.Shape{i32(9, 3), i32(30, 1), i32(30, 3)}, indices: 9, name: " of integers"},
		{attrs: &ir.ScatterMin{IndexVectorAxis: 1, UpdateWindowAxes: []int{1}, InsertedWindowAxes: []int{0}, ScatterAxesToOperandAxes: []int{0}},
			inputs: []shapes.Shape{f32(9, 6), i32(7, 1), f32(7, 6)}, indices: 9, values: extremes, name: " of extremes"},
		{attrs: &ir.DynamicSlice{SliceDims: []int{9, 2, 5}}, inputs: []shapes.Shape{f32(9, 6, 5), i32(), i32(), i32()}, outputs: []shapes.Shape{f32(9, 2, 5)},
			lowest: -2, indices: 7},
		{attrs: &ir.DynamicUpdateSlice{}, inputs: []shapes.Shape{f32(9, 6, 5), f32(9, 2, 5), i32(), i32(), i32()}, outputs: []shapes.Shape{f32(9, 6, 5)},
			lowest: -2, indices: 7},
		{attrs: &ir.BatchNormForInference{Epsilon: 2, FeatureAxis: 1}, inputs: []shapes.Shape{f32(9, 10, 3), f32(10), f32(10), f32(10), f32(10)},
			outputs: []shapes.Shape{f32(9, 10, 3)}},
		{attrs: &ir.BatchNormForTraining{Epsilon: 1e-3, FeatureAxis: 2}, inputs: []shapes.Shape{f32(4, 3, 9), f32(9), f32(9)},
			outputs: []shapes.Shape{f32(4, 3, 9), f32(9), f32(9)}},
		{attrs: &ir.BatchNormGradient{Epsilon: 2, FeatureAxis: 1}, inputs: []shapes.Shape{f32(4, 9, 3), f32(9), f32(9), f32(9), f32(4, 9, 3)},
			outputs: []shapes.Shape{f32(4, 9, 3), f32(9), f32(9)}},
		{attrs: &ir.FFT{FFTType: compute.FFTForward, FFTLength: []int{5}}, inputs: []shapes.Shape{f32(3, 9, 5)}, outputs: []shapes.Shape{f32(3, 9, 5)}},
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
		{attrs: &ir.FusedSoftmax{Axis: 0}, inputs: []shapes.Shape{f32(9, 4)}, values: []float64{-1000, -3, 0, 90, 88}},
		{attrs: &ir.FusedLayerNorm{Axes: []int{2}, Epsilon: 1e-5}, inputs: []shapes.Shape{f32(5, 7, 6), f32(6), f32(6)}},
		{attrs: &ir.FusedDense{}, inputs: []shapes.Shape{f32(5, 7, 6), f32(6, 9), f32(9)}},
		{attrs: &ir.FusedDense{Options: compute.DenseConfig{WeightLayout: compute.DenseLayoutOutputsInput}}, inputs: []shapes.Shape{f32(5, 9), f32(6, 9), {}}},
		{attrs: &ir.FusedDense{Options: compute.DenseConfig{Activation: compute.ActivationRelu}}, inputs: []shapes.Shape{f32(5, 9), f32(9, 3, 8), f32(3, 8)}},
		{attrs: &ir.FusedAttentionQKVProjection{QueryDim: 4, KeyValueDim: 2}, inputs: []shapes.Shape{f32(7, 6), f32(6, 8), f32(4), f32(2), f32(2)}},
		{attrs: &ir.Clamp{}, inputs: []shapes.Shape{f32(), f32(5, 7), f32()}},
		{attrs: &ir.Where{}, inputs: []shapes.Shape{b(5, 7), f32(5, 7), f32()}},
		{attrs: &ir.Where{}, inputs: []shapes.Shape{b(5, 7), f32(5, 7), f32(5, 7)}},
		{attrs: &ir.ConvertDType{DType: dtypes.Int32}, inputs: x},
		{attrs: &ir.LogicalNot{}, inputs: []shapes.Shape{b(5, 7)}},
		{attrs: &ir.Add{}, inputs: []shapes.Shape{f32(5, 7), f32()}, name: "Add a number"},
	}
	all = append(all, attentions()...)
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

func attentions() (all []operation) {
	var none shapes.Shape
	bshd, bhsd := compute.AttentionAxesLayoutBSHD, compute.AttentionAxesLayoutBHSD
	for _, c := range []struct {
		layout  compute.AttentionAxesLayout
		options *compute.ScaledDotProductAttentionConfig
		q, kv   shapes.Shape
		more    []shapes.Shape
		state   shapes.Shape
	}{
		{bshd, nil, f32(5, 9, 8, 2), f32(5, 3, 4, 2), nil, f32(5, 8, 9)},
		{bhsd, &compute.ScaledDotProductAttentionConfig{}, f32(9, 3, 4, 2), f32(9, 3, 5, 2), []shapes.Shape{none, none, f32(9, 1, 4, 5), f32(4, 5)}, f32(9, 3, 4)},
		{bhsd, &compute.ScaledDotProductAttentionConfig{}, f32(3, 8, 5, 2), f32(3, 8, 5, 2), []shapes.Shape{i32(3), i32(3), f32(3, 8, 5, 5), none}, f32(3, 8, 5)},
		{bshd, &compute.ScaledDotProductAttentionConfig{}, f32(5, 6, 4, 2), f32(5, 6, 4, 2), []shapes.Shape{none, none, none, f32(5, 6, 4, 6)}, f32(5, 4, 6)},
		{bshd, &compute.ScaledDotProductAttentionConfig{}, f32(5, 6, 4, 2), f32(5, 6, 4, 2), []shapes.Shape{none, none, f32(5, 1, 1, 6), f32(1, 1, 4, 6)}, f32(5, 4, 6)},
		{bshd, &compute.ScaledDotProductAttentionConfig{Causal: true}, f32(3, 9, 4, 2), f32(3, 9, 2, 2), []shapes.Shape{none, none, none, f32(9, 9)}, f32(3, 4, 9)},
	} {
		in := append([]shapes.Shape{c.q, c.kv, c.kv}, c.more...)
		all = append(all,
			operation{attrs: &ir.FusedScaledDotProductAttention{AxesLayout: c.layout, Options: c.options}, inputs: in, outputs: []shapes.Shape{c.q, c.state},
				lowest: 1, indices: 5},
			operation{attrs: &ir.FusedScaledDotProductAttentionVJP{AxesLayout: c.layout, Options: c.options},
				inputs: slices.Concat(in, []shapes.Shape{c.q, c.state, c.q}), outputs: []shapes.Shape{c.q, c.kv, c.kv}, lowest: 1, indices: 5})
	}
	return all
}

var nhwc = compute.ConvolveAxesConfig{InputBatch: 0, InputSpatial: []int{1, 2}, InputChannels: 3, KernelSpatial: []int{0, 1}, KernelInputChannels: 2,
	KernelOutputChannels: 3, OutputBatch: 0, OutputSpatial: []int{1, 2}, OutputChannels: 3}

// single makes a program of one op, on k devices. Its inputs are variables; if there is a factor, they are sharded as it says,
// so many steps together. If it shards no input, the outputs are used together with variables that are sharded as they should
// be.
func single(t *testing.T, o operation, f *shard.Factor, steps, k int) (*ir.Program, *ir.Op, shard.Choice) {
	t.Helper()
	p, choice := ir.NewProgram("op"), shard.Choice{}
	tg := &ir.TaskGraph{Name: "all", Kind: ir.Split, Devices: k}
	p.TaskGraphs = []*ir.TaskGraph{tg}
	add := func(a ir.Attrs, in []*ir.Value, out ...shapes.Shape) *ir.Op {
		op := p.NewOp(a, in, out...)
		op.TaskGraph = tg
		p.Main.Append(op)
		return op
	}
	variable := func(s shapes.Shape, refs []shard.Ref, i int) *ir.Value {
		name := fmt.Sprintf("/%d", len(p.Variables))
		v := add(&ir.Parameter{Name: name, Shape: s}, nil, s).Outputs[0]
		x := &ir.Variable{Path: name, Param: v, TaskGraph: tg}
		if refs != nil && refs[i].Dim >= 0 {
			choice[v] = shard.Placement{Kind: shard.Sharded, Dim: refs[i].Dim, Unit: steps * refs[i].Mul}
		}
		p.Variables = append(p.Variables, x)
		return v
	}
	var ins, outs []shard.Ref
	if f != nil {
		ins, outs = f.In, f.Out
	}
	var in []*ir.Value
	for i, s := range o.inputs {
		if s.Ok() {
			in = append(in, variable(s, ins, i))
		} else {
			in = append(in, nil)
		}
	}
	op := add(o.attrs, in)
	if o.sort {
		op.Funcs = []*ir.Func{descending(p)}
	}
	for i, s := range outputShapes(t, o) {
		v := &ir.Value{Op: op, Index: i, Shape: s}
		op.Outputs = append(op.Outputs, v)
		if f != nil && !shardsInput(f) {
			v = add(&ir.Sub{}, []*ir.Value{v, variable(s, outs, i)}, s).Outputs[0]
		}
		p.Main.Outputs, p.Outputs = append(p.Main.Outputs, v), append(p.Outputs, ir.Output{})
	}
	p.Stages = []ir.Stage{{TaskGraphs: p.TaskGraphs}}
	for j := range k {
		p.Stages[0].Places = append(p.Stages[0].Places, j)
	}
	if err := p.Verify(); err != nil {
		t.Fatal(err)
	}
	return p, op, choice
}

func shardsInput(f *shard.Factor) bool {
	return slices.ContainsFunc(f.In, func(r shard.Ref) bool { return r.Dim >= 0 })
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
	if o.outputs != nil {
		return o.outputs
	}
	main := newBackend(t).Builder("shapes").Main()
	var in ir.Operands
	for i, s := range o.inputs {
		if !s.Ok() {
			in.Values = append(in.Values, nil)
			continue
		}
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
func partitioned(t *testing.T, p *ir.Program, choice shard.Choice, given map[string]tensor) (want, got []tensor, r *shard.Report) {
	t.Helper()
	backend := newBackend(t)
	before := evaluate(t, backend, p, given)
	for _, v := range p.Main.Outputs {
		want = append(want, before[v])
	}
	r, err := expanded(p, choice)
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
	return want, got, r
}

// given draws the operands of an op.
func (o operation) given(p *ir.Program, rng *rand.Rand) map[string]tensor {
	limit := o.indices
	if limit == 0 {
		limit = 100
	}
	given := draw(p, rng, limit-o.lowest)
	for _, x := range given {
		for i := range x.flat.Len() {
			switch at := x.flat.Index(i); {
			case x.shape.DType.IsUnsigned():
				at.SetUint(at.Uint() + uint64(o.lowest))
			case x.shape.DType.IsInt():
				at.SetInt(at.Int() + int64(o.lowest))
			case reals(x.shape.DType) && o.values != nil:
				setFloat(at, o.values[rng.IntN(len(o.values))])
			}
		}
	}
	return given
}

func TestEveryRuleShardsEveryFactorExactly(t *testing.T) {
	for i, o := range operations() {
		_, op, _ := single(t, o, nil, 1, 1)
		rule := shard.RuleOf(op)
		if rule == nil || len(rule.Factors) == 0 {
			t.Errorf("%s has no rule", op)
			continue
		}
		for n, f := range rule.Factors {
			for _, c := range []struct{ k, steps int }{{2, 1}, {3, 1}, {4, 1}, {8, 1}, {2, 2}, {3, 2}} {
				if f.Size%c.steps != 0 || f.Size/c.steps < c.k {
					continue
				}
				t.Run(fmt.Sprintf("%s%s/%d/factor %d by %d over %d", o.attrs.OpType(), o.name, i, n, c.steps, c.k), func(t *testing.T) {
					p, _, choice := single(t, o, f, c.steps, c.k)
					want, got, r := partitioned(t, p, choice, o.given(p, rand.New(rand.NewPCG(uint64(i), uint64(n)))))
					for i := range want {
						same(t, fmt.Sprintf("output %d", i), want[i], got[i])
					}
					gathers, reductions := 0, 0
					for _, ref := range f.Out {
						switch {
						case f.Reduce != 0 || ref.Dim == -2:
							reductions++
						case ref.Dim >= 0:
							gathers++
						default:
							return // devices exchange something on the way
						}
					}
					if a, ok := o.attrs.(*ir.FusedSoftmax); ok && f.In[0].Dim == a.Axis {
						reductions = 2
					}
					if r.Exchanges[ir.AllGatherOf].Count != gathers || r.Exchanges[ir.AllReduceOf].Count != reductions || len(r.Gathered) > 0 {
						t.Errorf("the outputs alone should be exchanged: %v\n%s", r.Lines(), p)
					}
				})
			}
		}
	}
}
