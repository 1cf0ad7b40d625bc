package shard

import (
	"slices"

	"github.com/gomlx/compute"

	"github.com/easyparallel/epl/ir"
)

func init() {
	rules[ir.OpFusedGelu] = elementwise
	rules[ir.OpFusedSoftmax] = func(op *ir.Op) *Rule { return sameDims(op, func(int) bool { return true }) }
	rules[ir.OpFusedLayerNorm] = func(op *ir.Op) *Rule {
		return sameDims(op, func(d int) bool { return !slices.Contains(op.Attrs.(*ir.FusedLayerNorm).Axes, d) }, 1, 2)
	}
	rules[ir.OpFusedDense] = dense
	rules[ir.OpFusedAttentionQKVProjection] = func(op *ir.Op) *Rule { // the same for every row: all dims but the last
		wholes := rangeOf(len(op.Inputs))[1:]
		return sameDims(op, func(d int) bool { return d < op.Inputs[0].Shape.Rank()-1 }, wholes...)
	}
	rules[ir.OpBatchNormForInference] = func(op *ir.Op) *Rule {
		r := features(op, op.Attrs.(*ir.BatchNormForInference).FeatureAxis)
		for d, n := range dims(op.Inputs[0]) {
			if d != channel(op, op.Attrs.(*ir.BatchNormForInference).FeatureAxis) {
				r.factor(op, n, 0, d, whole, whole, whole, whole, d)
			}
		}
		return r
	}
	rules[ir.OpBatchNormForTraining] = func(op *ir.Op) *Rule { return features(op, op.Attrs.(*ir.BatchNormForTraining).FeatureAxis) }
	rules[ir.OpBatchNormGradient] = func(op *ir.Op) *Rule { return features(op, op.Attrs.(*ir.BatchNormGradient).FeatureAxis) }
	rules[ir.OpFFT] = func(op *ir.Op) *Rule {
		free := op.Inputs[0].Shape.Rank() - len(op.Attrs.(*ir.FFT).FFTLength)
		return sameDims(op, func(d int) bool { return d < free })
	}
}

// channel is the dim of features.
func channel(op *ir.Op, axis int) int {
	if axis < 0 {
		axis += op.Inputs[0].Shape.Rank()
	}
	return axis
}

// features is the rule of batch normalisation, which treats every feature by itself: what is no vector of features has a dim for
// them.
func features(op *ir.Op, axis int) *Rule {
	axis = channel(op, axis)
	var refs []int
	for _, v := range slices.Concat(op.Inputs, op.Outputs) {
		if v.Shape.Rank() == 1 {
			refs = append(refs, 0)
		} else {
			refs = append(refs, axis)
		}
	}
	r := &Rule{}
	r.factor(op, dims(op.Inputs[0])[axis], 0, refs...)
	return r
}

// dense: rows of the input and features of the output are free. What is contracted is summed up, the bias once, if nothing
// follows.
func dense(op *ir.Op) *Rule {
	r := &Rule{}
	o := op.Attrs.(*ir.FusedDense).Options
	x, weight, out := dims(op.Inputs[0]), dims(op.Inputs[1]), dims(op.Outputs[0])
	last, contracted, first := len(x)-1, 0, 1 // of the weight: the dim that is contracted, and the first one of features
	if o.WeightLayout == compute.DenseLayoutOutputsInput {
		contracted, first = len(weight)-1, 0
	}
	for d := range last {
		r.factor(op, x[d], 0, d, whole, whole, d)
	}
	for i := range len(out) - last {
		r.factor(op, out[last+i], 0, whole, first+i, i, last+i)
	}
	if o.Activation == compute.ActivationNone {
		r.factor(op, x[last], ir.ReduceBySum, last, contracted, term, whole)
	}
	return r
}
