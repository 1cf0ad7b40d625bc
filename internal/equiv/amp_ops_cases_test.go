// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package equiv

import (
	"github.com/gomlx/compute"
	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/shapes"
	. "github.com/gomlx/gomlx/core/graph"
)

// opCase is a function of a matrix [16, 24]. What it gives has 16 rows, too.
type opCase struct {
	name string
	of   func(x *Node) *Node
}

// inEveryModel have no operands, or are no ops.
var inEveryModel = []NodeType{NodeTypeInvalid, NodeTypeConstant, NodeTypeParameter}

// differentiable are functions by the op that they are about.
var differentiable = map[NodeType][]opCase{
	NodeTypeConvertDType: {{"", func(x *Node) *Node { return ConvertDType(ConvertDType(x, dtypes.Float64), dtypes.Float32) }}},
	NodeTypeWhere:        {{"", func(x *Node) *Node { return Where(ConvertDType(columns(x, 2), dtypes.Bool), x, Square(x)) }}},
	NodeTypeNeg:          {{"", Neg}},
	NodeTypeAbs:          {{"", Abs}},
	NodeTypeExp:          {{"", Exp}},
	NodeTypeLog:          {{"", func(x *Node) *Node { return Log(AddScalar(Abs(x), 0.5)) }}},
	NodeTypeLog1p:        {{"", func(x *Node) *Node { return Log1p(Abs(x)) }}},
	NodeTypeCos:          {{"", Cos}},
	NodeTypeSin:          {{"", Sin}},
	NodeTypeTanh:         {{"", Tanh}},
	NodeTypeErf:          {{"", Erf}},
	NodeTypeLogistic:     {{"", Logistic}},
	NodeTypeAdd:          {{"", func(x *Node) *Node { return Add(x, Square(x)) }}},
	NodeTypeSub:          {{"", func(x *Node) *Node { return Sub(x, Square(x)) }}},
	NodeTypeMul:          {{"", func(x *Node) *Node { return Mul(x, turned(x)) }}},
	NodeTypeDiv:          {{"", func(x *Node) *Node { return Div(x, OnePlus(Abs(turned(x)))) }}},
	NodeTypePow:          {{"", func(x *Node) *Node { return Pow(OnePlus(Abs(x)), AddScalar(Logistic(x), 1)) }}},
	NodeTypeSqrt:         {{"", func(x *Node) *Node { return Sqrt(AddScalar(Square(x), 0.5)) }}},

	NodeTypeBatchNormForTraining: {{"", func(x *Node) *Node {
		g := x.Graph()
		y, _, _ := InternalBatchNormForTraining(x, Ones(g, shapes.Make(dtypes.Float32, 24)), Zeros(g, shapes.Make(dtypes.Float32, 24)), 1e-3, -1)
		return y
	}}},
	NodeTypeFusedScaledDotProductAttention: {{"", func(x *Node) *Node {
		y := Reshape(x, 16, 2, 3, 4)
		y, _ = BackendFusedScaledDotProductAttention(y, y, y, compute.AttentionAxesLayoutBHSD, &compute.ScaledDotProductAttentionConfig{Scale: 0.5})
		return y
	}}},

	NodeTypeLogicalAnd: {{"", bools(LogicalAnd)}},
	NodeTypeLogicalOr:  {{"", bools(LogicalOr)}},
	NodeTypeLogicalXor: {{"", bools(LogicalXor)}},
	NodeTypeLogicalNot: {{"", bools(func(p, _ *Node) *Node { return LogicalNot(p) })}},
	NodeTypeBitwiseAnd: {{"", integers(BitwiseAnd)}},
	NodeTypeBitwiseOr:  {{"", integers(BitwiseOr)}},
	NodeTypeBitwiseXor: {{"", integers(BitwiseXor)}},
	NodeTypeBitwiseNot: {{"", integers(func(p, q *Node) *Node { return BitwiseNot(Add(p, q)) })}},

	NodeTypeComplex: {{"", complexes(func(z *Node) *Node { return z })}},
	NodeTypeReal:    {{"", complexes(func(z *Node) *Node { return Mul(z, z) })}},
	NodeTypeImag:    {{"", complexes(func(z *Node) *Node { return Mul(z, z) })}},
	NodeTypeConj:    {{"", complexes(Conj)}},
	NodeTypeFFT:     {{"", complexes(func(z *Node) *Node { return FFT(z) })}},

	NodeTypeMax: {
		{"", func(x *Node) *Node { return Max(x, turned(x)) }},
		{"ties", func(x *Node) *Node { return Max(twice(x), twice(turned(turned(x)))) }},
		{"a number", func(x *Node) *Node { return MaxScalar(x, 0.1) }},
		{"clipped", func(x *Node) *Node { return ClipScalar(x, -0.7, 0.7) }},
		{"clipped twice", func(x *Node) *Node { return ClipScalar(ClipScalar(x, -0.7, 0.7), -0.7, 0.7) }},
		{"leaky", func(x *Node) *Node { return Max(x, MulScalar(x, 0.3)) }},
	},
	NodeTypeMin: {
		{"", func(x *Node) *Node { return Min(x, turned(x)) }},
		{"ties", func(x *Node) *Node { return Min(twice(x), twice(turned(turned(x)))) }},
	},
	NodeTypeReduceSum: {{"", func(x *Node) *Node { return ReduceSum(squares(x), 1) }}},
	NodeTypeReduceMax: {
		{"", func(x *Node) *Node { return ReduceMax(squares(x), 1) }},
		{"ties", func(x *Node) *Node { return ReduceMax(twice(squares(x)), 1) }},
		{"moved", func(x *Node) *Node { return ReduceMax(Transpose(squares(x), 1, 2), 2) }},
		{"of a maximum", func(x *Node) *Node { return ReduceMax(ReduceMax(squares(x), 1), 1) }},
		{"of a part", func(x *Node) *Node {
			return Add(ReduceMax(squares(x), 1), Reshape(Slice(x, AxisRange(), AxisRange(0, 6)), 16, 6))
		}},
		{"masked", func(x *Node) *Node {
			return MaskedReduceMax(squares(x), ConvertDType(Reshape(columns(x, 5), 16, 4, 6), dtypes.Bool), 1)
		}},
		{"compared", func(x *Node) *Node { // and added where it is the largest
			largest := ReduceAndKeep(x, ReduceMax, -1)
			return Add(largest, Where(Equal(x, BroadcastToShape(largest, x.Shape())), Square(x), x))
		}},
		{"beside what it is of", func(x *Node) *Node { return Concatenate([]*Node{x, ReduceAndKeep(x, ReduceMax, -1)}, -1) }},
	},
	NodeTypeReduceMin: {
		{"", func(x *Node) *Node { return ReduceMin(squares(x), 1) }},
		{"ties", func(x *Node) *Node { return ReduceMin(twice(squares(x)), 1) }},
	},
	NodeTypeScatterMax: {
		{"", scattered(ScatterMax)},
		{"into what has values", func(x *Node) *Node {
			return scatter(ScatterMax, x, MulScalar(Slice(x, AxisRange(), AxisRange(0, 6)), 0.9))
		}},
		{"ties", func(x *Node) *Node {
			return scatter(ScatterMax, Concatenate([]*Node{x, x}, -1), Zeros(x.Graph(), shapes.Make(dtypes.Float32, 16, 6)))
		}},
	},
	NodeTypeScatterMin: {{"", scattered(ScatterMin)}},
	NodeTypeScatterSum: {{"", scattered(ScatterSum)}},
	NodeTypeReduceWindow: {
		{"maximum", func(x *Node) *Node { return MaxPool(squares(x)).Window(2).Done() }},
		{"minimum", func(x *Node) *Node { return MinPool(squares(x)).Window(2).Done() }},
		{"sum", func(x *Node) *Node { return SumPool(squares(x)).Window(2).Done() }},
		{"mean", func(x *Node) *Node { return MeanPool(squares(x)).Window(2).Done() }},
		{"overlapping", func(x *Node) *Node { return MaxPool(squares(x)).Window(3).Strides(1).PadSame().Done() }},
		{"ties", func(x *Node) *Node { return MaxPool(twice(squares(x))).Window(4).Strides(2).Done() }},
	},

	NodeTypeReshape:        {{"", func(x *Node) *Node { return Reshape(x, 16, 4, 3, 2) }}},
	NodeTypeTranspose:      {{"", func(x *Node) *Node { return Transpose(squares(x), 1, 2) }}},
	NodeTypeBroadcastInDim: {{"", func(x *Node) *Node { return BroadcastToDims(InsertAxes(x, 1), 16, 3, 24) }}},
	NodeTypeSlice:          {{"", func(x *Node) *Node { return Slice(x, AxisRange(), AxisRange(3, 19).Stride(2)) }}},
	NodeTypeConcatenate:    {{"", func(x *Node) *Node { return Concatenate([]*Node{x, Square(x)}, 1) }}},
	NodeTypeGather: {{"", func(x *Node) *Node {
		return Gather(x, Const(x.Graph(), [][]int32{{3}, {0}, {3}, {7}, {1}, {2}, {4}, {4}, {4}, {5}, {6}, {8}, {9}, {15}, {11}, {12}}))
	}}},
	NodeTypeDotGeneral: {{"", func(x *Node) *Node { return Einsum("bi,bj->bij", x, turned(x)) }}},
	NodeTypeConvGeneral: {{"", func(x *Node) *Node {
		return Convolve(squares(x), Reshape(Slice(x, AxisRange(0, 3)), 2, 6, 6)).PadSame().Done()
	}}},
	NodeTypeDynamicSlice: {{"", func(x *Node) *Node { return DynamicSlice(x, starts(x), []int{16, 5}) }}},
	NodeTypeDynamicUpdateSlice: {{"", func(x *Node) *Node {
		return DynamicUpdateSlice(x, Square(Slice(x, AxisRange(), AxisRange(0, 5))), starts(x))
	}}},
	NodeTypeDynamicDimensionSize: {{"", func(x *Node) *Node {
		return Mul(x, DivScalar(ConvertDType(DynamicDimensionSize(x, 1), dtypes.Float32), 24))
	}}},
	NodeTypeDynamicShape: {{"", func(x *Node) *Node {
		return Mul(x, DivScalar(ConvertDType(ReduceAllSum(DynamicShape(x)), dtypes.Float32), 40))
	}}},
	NodeTypeOptimizationBarrier: {{"", OptimizationBarrier}},
	NodeTypeSchedulingBarrier:   {{"", func(x *Node) *Node { return SchedulingBarrier(x, Square(x)) }}},
}

func squares(x *Node) *Node { return Reshape(x, 16, 4, 6) }

// turned has the second half of the columns first.
func turned(x *Node) *Node {
	return Concatenate([]*Node{Slice(x, AxisRange(), AxisRange(12)), Slice(x, AxisRange(), AxisRange(0, 12))}, 1)
}

// twice repeats what is next to each other, as a text repeats a word.
func twice(x *Node) *Node { return Concatenate([]*Node{x, x}, 1) }

// columns are 0 and 1 by turns, n of each.
func columns(x *Node, n int) *Node {
	i := Iota(x.Graph(), shapes.Make(dtypes.Int32, 16, 24), 1)
	return Mod(Div(i, Scalar(x.Graph(), dtypes.Int32, n)), Scalar(x.Graph(), dtypes.Int32, 2))
}

// bools and integers scale x by what is computed from its signs.
func bools(op func(p, q *Node) *Node) func(*Node) *Node {
	return integers(func(p, q *Node) *Node {
		return ConvertDType(op(ConvertDType(p, dtypes.Bool), ConvertDType(q, dtypes.Bool)), dtypes.Int32)
	})
}

func integers(op func(p, q *Node) *Node) func(*Node) *Node {
	return func(x *Node) *Node {
		signs := func(x *Node) *Node { return ConvertDType(IsPositive(x), dtypes.Int32) }
		return Mul(x, OnePlus(ConvertDType(op(signs(x), signs(turned(x))), dtypes.Float32)))
	}
}

func complexes(op func(z *Node) *Node) func(*Node) *Node {
	return func(x *Node) *Node {
		z := op(Complex(x, turned(x)))
		return Add(Real(z), Imag(z))
	}
}

type scatterFunc = func(operand, indices, updates *Node, sorted, unique bool) *Node

func scattered(op scatterFunc) func(*Node) *Node {
	return func(x *Node) *Node { return scatter(op, x, Zeros(x.Graph(), shapes.Make(dtypes.Float32, 16, 6))) }
}

// scatter puts every column in one of six.
func scatter(op scatterFunc, x, into *Node) *Node {
	n := x.Shape().Dim(1)
	at := Mod(Iota(x.Graph(), shapes.Make(dtypes.Int32, n, 1), 0), Scalar(x.Graph(), dtypes.Int32, 6))
	return Transpose(op(Transpose(into, 0, 1), at, Transpose(x, 0, 1), false, false), 0, 1)
}

func starts(x *Node) []*Node {
	return []*Node{Scalar(x.Graph(), dtypes.Int32, 0), Scalar(x.Graph(), dtypes.Int32, 7)}
}
