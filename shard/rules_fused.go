package shard

import (
	"slices"

	"github.com/easyparallel/epl/ir"
)

func init() {
	rules[ir.OpFusedGelu] = elementwise
	rules[ir.OpFusedSoftmax] = func(op *ir.Op) *Rule {
		return sameDims(op, func(d int) bool { return d != op.Attrs.(*ir.FusedSoftmax).Axis })
	}
	rules[ir.OpFusedLayerNorm] = func(op *ir.Op) *Rule {
		return sameDims(op, func(d int) bool { return !slices.Contains(op.Attrs.(*ir.FusedLayerNorm).Axes, d) }, 1, 2)
	}
	rules[ir.OpFusedDense] = rowwise
	rules[ir.OpFusedAttentionQKVProjection] = rowwise
}

// rowwise is the rule of an op that does the same to every row of its first input: all dims but the last are free.
func rowwise(op *ir.Op) *Rule {
	wholes := rangeOf(len(op.Inputs))[1:]
	return sameDims(op, func(d int) bool { return d < op.Inputs[0].Shape.Rank()-1 }, wholes...)
}
