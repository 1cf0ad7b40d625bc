// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package shard

import (
	"slices"

	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/shapes"

	"github.com/easyparallel/epl/ir"
)

// Rule says how an op can be sharded.
type Rule struct {
	Factors []*Factor
	Linear  Linearity
}

// Factor is an index of the op's iteration space: in a dot bik,bkj→bij the factors are b, i, j and k. Sharding it shards the
// dims that it maps to.
type Factor struct {
	Size    int
	In, Out []Ref        // per input and output
	Reduce  ir.Reduction // the op reduces over this factor: sharding it makes the outputs Partial
}

// Ref maps a factor to a dim of an operand. One step of the factor is Mul rows of the dim.
type Ref struct{ Dim, Mul int }

// Operands that have no dim for a factor.
const (
	whole = -1 // every device needs all of it
	term  = -2 // it is added to the result: it must be added once only
)

// Linearity says which Partial inputs an op passes through to its output.
type Linearity uint8

// The linearities.
const (
	NotLinear Linearity = iota
	Moves               // it only moves elements: any Partial
	Sums                // it is linear in its input: Partial sums
	Adds                // it is linear in all inputs together: Partial sums, all of them
	Scales              // it is linear in each input: a Partial sum times a number
	Divides             // it is linear in the first input: a Partial sum divided by a number
	Keeps               // it is linear in the second input: a Partial sum, or zeros
)

// RuleOf returns the rule of an op, nil if there is none: it is then computed on whole values. Some
// operations have no rule at all; others have none if a shape is known only when the program runs, or if elements are smaller
// than a byte.
func RuleOf(op *ir.Op) *Rule {
	odd := func(v *ir.Value) bool { return v != nil && (v.Shape.IsDynamic() || v.Shape.DType.IsPacked()) }
	if slices.ContainsFunc(op.Inputs, odd) || slices.ContainsFunc(op.Outputs, odd) {
		return nil
	}
	captures := false
	op.Captures(func(*ir.Value) { captures = true })
	if make := rules[op.Type()]; make != nil && !captures {
		return make(op)
	}
	return nil
}

// factor adds a factor, with a dim per input and then per output; inputs that are absent have none. Factors that reduce what
// cannot be reduced between devices are left out.
func (r *Rule) factor(op *ir.Op, size int, reduce ir.Reduction, to ...int) {
	if size < 2 || reduce != 0 && !reducible(op.Outputs[0].Shape.DType) {
		return
	}
	refs, n := make([]Ref, len(to)), len(op.Inputs)
	for i, v := range slices.Concat(op.Inputs, op.Outputs) {
		switch {
		case v == nil:
			refs[i] = Ref{whole, 1}
		case to[i] < 0:
			refs[i] = Ref{to[i], 1}
		default:
			refs[i] = Ref{to[i], dims(v)[to[i]] / size}
		}
	}
	r.Factors = append(r.Factors, &Factor{Size: size, In: refs[:n:n], Out: refs[n:], Reduce: reduce})
}

// reducible tells whether devices can reduce values of the type.
func reducible(t dtypes.DType) bool { return t.IsFloat() || t.IsInt() }

// sameDims is the rule of an op whose dims chosen by ok are the same in its first n inputs and all outputs; other inputs are
// needed whole.
func sameDims(op *ir.Op, n int, ok func(dim int) bool) *Rule {
	r := &Rule{}
	for d, size := range dims(op.Outputs[0]) {
		if ok(d) {
			to := slices.Repeat([]int{d}, len(op.Inputs)+len(op.Outputs))
			for i := n; i < len(op.Inputs); i++ {
				to[i] = whole
			}
			r.factor(op, size, 0, to...)
		}
	}
	return r
}

// allBut is sameDims for all inputs, and all dims but some.
func allBut(op *ir.Op, axes ...int) *Rule {
	return sameDims(op, len(op.Inputs), func(d int) bool { return !slices.Contains(axes, d) })
}

// passing is the rule with the Partial inputs that it passes through.
func (r *Rule) passing(l Linearity) *Rule {
	r.Linear = l
	return r
}

// others are the dims, of so many, that are in none of the lists.
func others(rank int, taken ...[]int) []int {
	dims := make([]int, 0, rank)
	for d := range rank {
		if !slices.ContainsFunc(taken, func(axes []int) bool { return slices.Contains(axes, d) }) {
			dims = append(dims, d)
		}
	}
	return dims
}

// at is the element of a list that may be shorter: then it is what is usual.
func at[T any](list []T, i int, usual T) T {
	if i < len(list) {
		return list[i]
	}
	return usual
}

func dims(v *ir.Value) []int { return v.Shape.Dimensions }

// where is the first factor for which something holds, nil if there is none.
func (r *Rule) where(holds func(f *Factor) bool) *Factor {
	if r != nil {
		if n := slices.IndexFunc(r.Factors, holds); n >= 0 {
			return r.Factors[n]
		}
	}
	return nil
}

// unitOf translates the rows of an operand that stay together into steps of the factor, if the operand is sharded along its dim.
func (f *Factor) unitOf(r Ref, p Placement, s shapes.Shape, d ir.Division) (unit int, ok bool) {
	switch {
	case p.Kind != Sharded || p.Dim != r.Dim:
		return 0, false
	case p.Unit%r.Mul == 0:
		return p.Unit / r.Mul, fits(s.Dimensions[r.Dim], p.Unit, d.Devices)
	}
	// Units that do not fit may still give whole steps.
	return 1, fits(f.Size, 1, d.Devices) && same(p, shardOf(r.Dim, r.Mul), s, d)
}

// placement is that of an operand when the factor is sharded in the given units.
func (f *Factor) placement(r Ref, unit int) Placement {
	switch r.Dim {
	case whole:
		return Placement{}
	case term:
		return partialOf(ir.ReduceBySum)
	}
	return shardOf(r.Dim, unit*r.Mul)
}

// rules holds how the rule of each operation is made.
var rules = map[ir.OpType]func(*ir.Op) *Rule{
	ir.OpDotGeneral:  dot,
	ir.OpConvGeneral: convolution,

	ir.OpBroadcastInDim: broadcast,
	ir.OpTranspose:      transpose,
	ir.OpReshape:        reshape,
	ir.OpSlice:          slice,
	ir.OpPad:            pad,
	ir.OpConcatenate:    concatenate,
	ir.OpIota:           func(op *ir.Op) *Rule { return allBut(op) }, // along the dim that counts, a device counts from its first row
	ir.OpBitcast: func(op *ir.Op) *Rule { // it changes the last dim, if any
		return sameDims(op, 1, func(d int) bool { return d < op.Inputs[0].Shape.Rank() })
	},
	ir.OpReverse: func(op *ir.Op) *Rule { return allBut(op, op.Attrs.(*ir.Reverse).Axes...).passing(Moves) },

	ir.OpGather:             gather,
	ir.OpScatterSum:         scatter,
	ir.OpScatterMax:         scatter,
	ir.OpScatterMin:         scatter,
	ir.OpDynamicSlice:       dynamicSlice,
	ir.OpDynamicUpdateSlice: dynamicUpdate,

	ir.OpReduceSum: reduce,
	ir.OpReduceMax: reduce,
	ir.OpReduceMin: reduce,
	ir.OpArgMinMax: argMinMax,
	ir.OpCumSum:    func(op *ir.Op) *Rule { return allBut(op, op.Attrs.(*ir.CumSum).Axis).passing(Sums) },
	ir.OpSort:      order,
	ir.OpReduceWindow: func(op *ir.Op) *Rule {
		a := op.Attrs.(*ir.ReduceWindow)
		return outsideWindow(op, a.WindowDimensions, a.Paddings, a.Strides, a.InputDilations, a.WindowDilations)
	},
	ir.OpSelectAndScatterMax: func(op *ir.Op) *Rule {
		a := op.Attrs.(*ir.SelectAndScatterMax)
		return outsideWindow(op, a.WindowDimensions, a.Paddings, a.WindowStrides)
	},
	ir.OpSelectAndScatterMin: func(op *ir.Op) *Rule {
		a := op.Attrs.(*ir.SelectAndScatterMin)
		return outsideWindow(op, a.WindowDimensions, a.Paddings, a.WindowStrides)
	},

	ir.OpFusedGelu:    elementwise,
	ir.OpFusedDense:   dense,
	ir.OpFusedSoftmax: func(op *ir.Op) *Rule { return allBut(op) },
	ir.OpFusedLayerNorm: func(op *ir.Op) *Rule {
		return sameDims(op, 1, func(d int) bool { return !slices.Contains(op.Attrs.(*ir.FusedLayerNorm).Axes, d) })
	},
	ir.OpFusedAttentionQKVProjection: func(op *ir.Op) *Rule { // the same for every row: all dims but the last
		return sameDims(op, 1, func(d int) bool { return d < op.Inputs[0].Shape.Rank()-1 })
	},
	ir.OpFusedScaledDotProductAttention:    attentionForward,
	ir.OpFusedScaledDotProductAttentionVJP: attentionVJP,
	ir.OpBatchNormForInference:             batchNormInference,
	ir.OpBatchNormForTraining:              func(op *ir.Op) *Rule { return features(op, op.Attrs.(*ir.BatchNormForTraining).FeatureAxis) },
	ir.OpBatchNormGradient:                 func(op *ir.Op) *Rule { return features(op, op.Attrs.(*ir.BatchNormGradient).FeatureAxis) },
	ir.OpFFT: func(op *ir.Op) *Rule {
		return sameDims(op, 1, func(d int) bool { return d < op.Inputs[0].Shape.Rank()-len(op.Attrs.(*ir.FFT).FFTLength) })
	},
}

func init() {
	for _, t := range ir.ElementwiseTypes {
		rules[t] = elementwise
	}
	for _, t := range stackedReductions {
		rules[t], specials[t] = reduce, (*writing).reduce
	}
}
