// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package shard

import (
	"slices"

	"github.com/gomlx/compute"

	"github.com/easyparallel/epl/ir"
)

func broadcast(op *ir.Op) *Rule {
	in, out := op.Inputs[0], op.Outputs[0]
	r := &Rule{}
	if in.Shape.Size() == out.Shape.Size() { // else it is cheaper to reduce the smaller value
		r.Linear = Moves
	}
	axes := op.Attrs.(*ir.BroadcastInDim).BroadcastAxes
	for d, n := range dims(out) {
		if i := slices.Index(axes, d); i >= 0 && dims(in)[i] == n {
			r.factor(op, n, 0, i, d)
		} else {
			r.factor(op, n, 0, whole, d)
		}
	}
	return r
}

func transpose(op *ir.Op) *Rule {
	r := &Rule{Linear: Moves}
	for d, from := range op.Attrs.(*ir.Transpose).Permutation {
		r.factor(op, dims(op.Outputs[0])[d], 0, from, d)
	}
	return r
}

// reshape: dims fall into groups with the same number of elements on both sides. Of a group only the first dim can be
// sharded, in steps that are whole rows on both sides.
func reshape(op *ir.Op) *Rule {
	r := &Rule{Linear: Moves}
	in, out := dims(op.Inputs[0]), dims(op.Outputs[0])
	if op.Outputs[0].Shape.Size() == 0 {
		return r
	}
	for i, j := 0, 0; ; {
		for i < len(in) && in[i] == 1 {
			i++
		}
		for j < len(out) && out[j] == 1 {
			j++
		}
		if i == len(in) || j == len(out) {
			return r
		}
		first, last := i, j
		a, b := in[i], out[j]
		for i, j = i+1, j+1; a != b; {
			if a < b {
				a, i = a*in[i], i+1
			} else {
				b, j = b*out[j], j+1
			}
		}
		rowIn, rowOut := a/in[first], b/out[last] // elements of one row
		r.factor(op, a/(rowIn/gcd(rowIn, rowOut)*rowOut), 0, first, last)
	}
}

func gcd(a, b int) int {
	for b != 0 {
		a, b = b, a%b
	}
	return a
}

// slice: dims that are taken whole, and those of which every so many rows are taken. What else is taken out of a sharded dim
// is made of the rows of several devices: if it is not much, each gives what it has.
func slice(op *ir.Op) *Rule {
	a := op.Attrs.(*ir.Slice)
	in, out := dims(op.Inputs[0]), dims(op.Outputs[0])
	r := sameDims(op, 1, func(d int) bool { return in[d] == out[d] }).passing(Moves)
	for d, n := range out {
		switch {
		case n == in[d]:
		case in[d] == n*strideOf(a, d):
			r.factor(op, n, 0, d, d)
		case 8*n <= in[d]:
			r.factor(op, in[d], ir.ReduceBySum, d, whole)
		}
	}
	return r
}

func strideOf(a *ir.Slice, dim int) int { return at(a.Strides, dim, 1) }

// pad: dims without padding, and those where every row gets as much. With padding at the ends only, a device can make its rows
// from the whole.
func pad(op *ir.Op) *Rule {
	in, out := dims(op.Inputs[0]), dims(op.Outputs[0])
	r := &Rule{}
	for d, n := range in {
		switch a := at(op.Attrs.(*ir.Pad).AxesConfig, d, compute.PadAxis{}); {
		case a.Start < 0 || a.End < 0:
		case a.Start+a.End == a.Interior:
			r.factor(op, n, 0, d, whole, d)
		case a.Interior == 0:
			r.factor(op, out[d], 0, whole, whole, d)
		}
	}
	return r
}

// concatenate: other dims. Along its own, a device can make its rows from whole inputs.
func concatenate(op *ir.Op) *Rule {
	axis := op.Attrs.(*ir.Concatenate).Axis
	r := allBut(op, axis).passing(Adds)
	refs := append(slices.Repeat([]int{whole}, len(op.Inputs)), axis)
	r.factor(op, dims(op.Outputs[0])[axis], 0, refs...)
	return r
}
