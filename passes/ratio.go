// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package passes

import (
	"slices"

	"github.com/gomlx/compute/dtypes"

	"github.com/easyparallel/epl/ir"
)

// A loss over masked samples is a ratio: Σ loss·mask / Σ mask. The mean of such ratios is not the ratio over all samples: each must count
// as much as its own divisor. This file finds the divisor of a value, if it depends on data alone.

// ratio is what a value is divided by.
type ratio struct {
	by  *ir.Value // the divisor, of one element
	sum *ir.Value // what is added up over samples to get it; the divisor is that, or follows from it: max(sum, 1)
}

// kind says how a value depends on the samples of its batch.
type kind int

const (
	fixed  kind = iota // it does not depend on the batch
	plain              // it does, and is divided by nothing that the batch decides
	shared             // it is divided by a ratio's divisor, or has terms that do not depend on the batch besides
	mixed              // it has several such divisors, or one that is no sum over data alone
)

// verdict is what was found out about a value.
type verdict struct {
	kind  kind
	ratio ratio // if it is shared
}

// ratios finds the divisors of values. It knows of every op whether it varies.
type ratios struct {
	p     *ir.Program
	known map[*ir.Value]verdict
	data  map[*ir.Value]bool // does a value depend on data alone?
}

// of follows a value down as long as it is linear in what it is computed from.
func (r *ratios) of(v *ir.Value) verdict {
	if _, known := r.known[v]; !known && v.Op.Varying {
		r.known[v] = r.find(v)
	}
	return r.known[v]
}

func (r *ratios) find(v *ir.Value) verdict {
	in := v.Op.Inputs
	switch v.Op.Attrs.(type) {
	case *ir.Identity, *ir.OptimizationBarrier, *ir.SchedulingBarrier:
		return r.of(in[v.Index])
	case *ir.ConvertDType, *ir.Neg, *ir.Reshape, *ir.Transpose, *ir.BroadcastInDim, *ir.ReduceSum:
		return r.of(in[0])
	case *ir.Add, *ir.Sub:
		return plus(r.of(in[0]), r.of(in[1]))
	case *ir.Where:
		return plus(r.branch(in[0], in[1]), r.branch(in[0], in[2]))
	case *ir.Mul, *ir.DotGeneral:
		return r.times(in[0], in[1])
	case *ir.Div:
		return r.over(in[0], in[1])
	}
	return verdict{kind: plain}
}

// branch is a value where a condition holds, and 0 elsewhere: how often a constant counts depends on the condition.
func (r *ratios) branch(condition, v *ir.Value) verdict {
	x := r.of(v)
	if x.kind == fixed && condition.Op.Varying && !isZeros(v) {
		x.kind = plain
	}
	return x
}

// plus is a sum of two values.
func plus(a, b verdict) verdict {
	switch {
	case a.kind == fixed || a == b:
		return b
	case b.kind == fixed:
		return a
	}
	return verdict{kind: mixed}
}

// times is a product of two values, element by element or added up.
func (r *ratios) times(a, b *ir.Value) verdict {
	x, y := r.of(a), r.of(b)
	switch {
	case x.kind == fixed:
		return y
	case y.kind == fixed:
		return x
	case x.kind == shared && y.kind == plain && r.scales(a, b):
		return x
	case y.kind == shared && x.kind == plain && r.scales(b, a):
		return y
	case x.kind == plain && y.kind == plain:
		return x
	}
	return verdict{kind: mixed}
}

// scales tells whether a product of something that is divided and something else is divided in the same way: if both are numbers of
// the whole batch, one must be of the data alone.
func (r *ratios) scales(divided, by *ir.Value) bool { return by.Shape.Rank() > 0 || r.isData(divided) }

// over is a quotient.
func (r *ratios) over(a, b *ir.Value) verdict {
	x := r.of(a)
	d, whole := r.divisor(b)
	switch {
	case !b.Op.Varying:
		return x
	case !whole: // each sample has its own
		x.kind = max(x.kind, plain)
		return x
	case d == nil || x.kind == shared || x.kind == mixed:
		return verdict{kind: mixed}
	}
	return verdict{shared, *d}
}

// divisor looks at what something is divided by. whole: it is one number for the whole batch. The ratio is nil if that is no sum
// over data alone.
func (r *ratios) divisor(v *ir.Value) (_ *ratio, whole bool) {
	for t := v.Op.Type(); t == ir.OpBroadcastInDim || t == ir.OpReshape || t == ir.OpIdentity; t = v.Op.Type() {
		v = v.Op.Inputs[0]
	}
	if !v.Op.Varying || v.Shape.IsDynamic() || v.Shape.Size() != 1 {
		return nil, false
	}
	sum := r.summed(v)
	if sum == nil {
		return nil, v.Shape.Rank() == 0
	}
	if !r.isData(v) || !follows(v, sum) {
		return nil, true
	}
	return &ratio{by: v, sum: sum}, true
}

// summed goes from a divisor of one element through guards against 0 and scales to the sum over samples; nil if there is none.
func (r *ratios) summed(v *ir.Value) *ir.Value {
	for v.Op.Varying && v.Shape.Size() == 1 {
		in, sum := v.Op.Inputs, false
		switch a := v.Op.Attrs.(type) {
		case *ir.Parameter:
			sum = v.Shape.Rank() == 0 // a count that the dataset gives
		case *ir.ReduceSum:
			sum = len(a.Axes) == 0 || slices.Contains(a.Axes, 0) // the first dim is that of samples
		case *ir.DotGeneral:
			sum = slices.Contains(a.LHSContractingAxes, 0) && slices.Contains(a.RHSContractingAxes, 0)
		case *ir.Identity, *ir.ConvertDType, *ir.Reshape, *ir.BroadcastInDim, *ir.Sub, *ir.Div:
			v = in[0]
			continue
		case *ir.Max, *ir.Add, *ir.Mul, *ir.Where:
			in = in[len(in)-2:] // without the condition
			if v = in[0]; !v.Op.Varying {
				v = in[1]
			}
			continue
		}
		if sum {
			return v
		}
		break
	}
	return nil
}

// follows tells whether a value is computed from a sum and from what is the same for all instances.
func follows(v, sum *ir.Value) bool {
	if v == sum || !v.Op.Varying {
		return true
	}
	return len(v.Op.Inputs) > 0 && len(v.Op.Funcs) == 0 && !slices.ContainsFunc(v.Op.Inputs, func(in *ir.Value) bool { return !follows(in, sum) })
}

// isData tells whether a value is computed from inputs of the program alone: without variables, without random numbers.
func (r *ratios) isData(v *ir.Value) bool {
	if data, ok := r.data[v]; ok {
		return data
	}
	data := true
	switch v.Op.Attrs.(type) {
	case *ir.Parameter:
		data = slices.Contains(r.p.Inputs, v)
	case *ir.Instance, *ir.RNGBitGenerator:
		data = false
	default:
		v.Op.Uses(func(x *ir.Value) { data = data && r.isData(x) })
	}
	r.data[v] = data
	return data
}

// unweighted looks for a division of what follows from variables by a number of the whole batch, which depends on data alone or in
// which a mask has part. Nil if there is none.
func (r *ratios) unweighted(v *ir.Value) *ir.Value {
	return firstOf(v, func(v *ir.Value) bool {
		if v.Op.Type() != ir.OpDiv || r.isData(v.Op.Inputs[0]) {
			return false
		}
		by := v.Op.Inputs[1]
		_, whole := r.divisor(by)
		return whole && (r.isData(by) || r.isMasked(by))
	})
}

// isMasked tells whether a value depends on an input of booleans.
func (r *ratios) isMasked(v *ir.Value) bool {
	return firstOf(v, func(v *ir.Value) bool { return v.Shape.DType == dtypes.Bool && slices.Contains(r.p.Inputs, v) }) != nil
}

// firstOf is the first value that is found, of v and of what it is computed from; nil if there is none.
func firstOf(v *ir.Value, is func(*ir.Value) bool) (found *ir.Value) {
	seen := map[*ir.Value]bool{}
	var look func(v *ir.Value)
	look = func(v *ir.Value) {
		if seen[v] || found != nil {
			return
		}
		seen[v] = true
		if is(v) {
			found = v
			return
		}
		v.Op.Uses(look)
	}
	look(v)
	return found
}
