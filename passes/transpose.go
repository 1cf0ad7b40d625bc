// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package passes

import (
	"cmp"
	"slices"

	"github.com/easyparallel/epl/ir"
	"github.com/easyparallel/epl/ir/analysis"
)

// transposes drops transposes that do nothing: identity permutations, and pairs that undo each other. Two that follow
// each other become one. One that moves only axes of size 1 becomes a reshape, which costs nothing. So does one that does nothing
// to a value that collections merge in another way than its result: the two stay apart.
func transposes(p *ir.Program) int {
	ways := waysOf(p)
	by := map[*ir.Value]*ir.Value{}
	changed := 0
	for _, op := range p.Main.Ops {
		t, ok := op.Attrs.(*ir.Transpose)
		if !ok {
			continue
		}
		in := cmp.Or(by[op.Inputs[0]], op.Inputs[0])
		op.Inputs[0] = in
		perm := t.Permutation
		if inner, ok := in.Op.Attrs.(*ir.Transpose); ok && in.Op.TaskGraph == op.TaskGraph {
			perm = make([]int, len(t.Permutation))
			for i, axis := range t.Permutation {
				perm[i] = inner.Permutation[axis]
			}
			op.Attrs, op.Inputs[0] = &ir.Transpose{Permutation: perm}, in.Op.Inputs[0]
			changed++
		}
		shape := op.Inputs[0].Shape
		switch {
		case shape.IsDynamic() || moves(perm, shape.Dimensions):
		case op.Outputs[0].Shape.Equal(shape) && ways[op.Outputs[0]] == ways[op.Inputs[0]]:
			by[op.Outputs[0]] = op.Inputs[0]
		default:
			op.Attrs = &ir.Reshape{Dimensions: slices.Clone(op.Outputs[0].Shape.Dimensions)}
			changed++
		}
	}
	n := replace(p, by)
	if n == 0 && changed > 0 {
		analysis.Sweep(p)
	}
	return n + changed
}

// moves tells whether a permutation changes the order of elements: axes of size 1 may go anywhere.
func moves(perm, dims []int) bool {
	last := -1
	for _, axis := range perm {
		if dims[axis] == 1 {
			continue
		}
		if axis < last {
			return true
		}
		last = axis
	}
	return false
}
