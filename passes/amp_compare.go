// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package passes

import (
	"slices"

	"github.com/gomlx/compute"
	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/dtypes/bfloat16"
	"github.com/gomlx/compute/dtypes/float16"

	"github.com/easyparallel/epl/ir"
)

// Values that are compared must be rounded alike, or not at all. GoMLX's gradient of a maximum looks for the elements that equal
// it: if one of the two is rounded and the other is not, it finds none, or too many.
//
// So nothing is rounded between where a value is computed and where it is compared. From the comparisons, comparing ops are found
// upwards, through all that only selects or moves elements. These ops
//   - read what others computed as everybody else does: rounded if it is rounded behind its op;
//   - read what other comparing ops give as they give it, also if dots read a rounded copy of it;
//   - read in backward what they read in forward, and no copy that was rounded to save memory;
//   - compute in float32, unless all that they read is in the low type already.
//
// The sign of a value survives rounding, so comparisons with zero ask for nothing: that of a ReLU's gradient, above all.

// elements are the ops whose results consist of elements of what they read, or of their absolute values or negatives.
var elements = map[ir.OpType]bool{
	ir.OpAbs: true, ir.OpNeg: true,
	ir.OpMax: true, ir.OpMin: true, ir.OpClamp: true, ir.OpReduceMax: true, ir.OpReduceMin: true,
	ir.OpScatterMax: true, ir.OpScatterMin: true, ir.OpSort: true, ir.OpWhere: true,
	ir.OpGather: true, ir.OpPad: true, ir.OpDynamicPad: true, ir.OpDynamicSlice: true, ir.OpDynamicUpdateSlice: true,
	ir.OpBroadcastInDim: true, ir.OpDynamicBroadcastInDim: true, ir.OpConcatenate: true, ir.OpIdentity: true, ir.OpReshape: true,
	ir.OpDynamicReshape: true, ir.OpReverse: true, ir.OpSlice: true, ir.OpTranspose: true,
	ir.OpSchedulingBarrier: true, ir.OpOptimizationBarrier: true,
}

// comparisons are the ops that compare their two operands.
var comparisons = map[ir.OpType]bool{
	ir.OpEqual: true, ir.OpNotEqual: true, ir.OpGreaterOrEqual: true, ir.OpGreaterThan: true, ir.OpLessOrEqual: true, ir.OpLessThan: true,
	ir.OpEqualTotalOrder: true, ir.OpNotEqualTotalOrder: true, ir.OpGreaterOrEqualTotalOrder: true, ir.OpGreaterThanTotalOrder: true,
	ir.OpLessOrEqualTotalOrder: true, ir.OpLessThanTotalOrder: true,
}

// isElements tells whether results of the op consist of elements of what it reads.
func isElements(op *ir.Op) bool {
	switch t := op.Attrs.(type) {
	case *ir.ReduceWindow:
		return t.ReductionType == compute.ReduceOpMax || t.ReductionType == compute.ReduceOpMin
	case *ir.ConvertDType:
		return t.DType == dtypes.Float64
	}
	return elements[op.Type()]
}

// comparing is what is known of comparisons.
type comparing struct {
	readers, signs map[*ir.Value]int  // how many read it, and how many of them only its sign
	values         map[*ir.Value]bool // it is compared with others
	ops            map[*ir.Op]bool    // comparing ops
	whole          map[*ir.Value]bool // backward compares what forward computes
	copied         map[*ir.Value]bool // a comparing op gave it in float32; the low type has a rounded copy
}

// look notes what the op compares. It has seen all who read the op's results.
func (c *comparing) look(op *ir.Op) {
	op.Uses(func(v *ir.Value) { c.readers[v]++ })
	// A difference whose sign alone is read is a comparison, too.
	signed := !slices.ContainsFunc(op.Outputs, func(v *ir.Value) bool { return c.signs[v] < max(c.readers[v], 1) })
	valued := slices.ContainsFunc(op.Outputs, func(v *ir.Value) bool { return c.values[v] })
	switch t := op.Type(); {
	case comparisons[t]:
		c.pair(op)
	case t == ir.OpSign:
		c.sign(op.Inputs[0])
	case t == ir.OpArgMinMax, t == ir.OpSelectAndScatterMax, t == ir.OpSelectAndScatterMin:
		c.value(op, op.Inputs[0])
	case signed && t == ir.OpSub:
		c.pair(op)
	case t == ir.OpSort, valued && isElements(op):
		for _, v := range op.Inputs {
			c.value(op, v)
		}
	case signed && (t == ir.OpMul || isElements(op)):
		for _, v := range op.Inputs {
			c.sign(v)
		}
	}
}

// pair notes that two operands are compared, perhaps by way of their difference.
func (c *comparing) pair(op *ir.Op) {
	x, y := op.Inputs[0], op.Inputs[1]
	switch {
	case isZeros(y):
		c.sign(x)
	case isZeros(x):
		c.sign(y)
	default:
		c.value(op, x)
		c.value(op, y)
	}
}

func (c *comparing) sign(v *ir.Value) { c.signs[v]++ }

func (c *comparing) value(op *ir.Op, v *ir.Value) {
	if is32(v) {
		c.values[v], c.ops[op] = true, true
		c.whole[v] = c.whole[v] || v.Op.Phase < op.Phase
	}
}

// constant is the constant that a value repeats, or nil.
func constant(v *ir.Value) []float32 {
	switch t := v.Op.Attrs.(type) {
	case *ir.Constant:
		flat, _ := t.Value.Flat.([]float32)
		return flat
	case *ir.BroadcastInDim, *ir.Reshape:
		return constant(v.Op.Inputs[0])
	}
	return nil
}

// isLow tells whether a float32 value is one of the low type, so that casting it loses nothing.
func (a *mixer) isLow(v *ir.Value) bool {
	if a.state[v] == rounded {
		return !a.compared.copied[v]
	}
	if flat := constant(v); flat != nil {
		return !a.lacked(v) && !slices.ContainsFunc(flat, func(x float32) bool {
			if a.dtype == dtypes.Float16 {
				return float16.FromFloat32(x).Float32() != x
			}
			return bfloat16.FromFloat32(x).Float32() != x
		})
	}
	return ofBools(v.Op)
}

// notLow is something that the op reads and that is not of the low type; nil if all is.
func (a *mixer) notLow(op *ir.Op) *ir.Value {
	for _, v := range op.Inputs {
		if is32(v) && !a.isLow(v) {
			return v
		}
	}
	return nil
}
