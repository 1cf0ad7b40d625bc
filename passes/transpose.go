package passes

import (
	"github.com/easyparallel/epl/ir"
)

// transposes drops transposes that do nothing: identity permutations, and pairs that undo each other. Two that follow
// each other become one.
func transposes(p *ir.Program) int {
	by := map[*ir.Value]*ir.Value{}
	composed := 0
	for _, op := range p.Main.Ops {
		t, ok := op.Attrs.(*ir.Transpose)
		if !ok {
			continue
		}
		in := op.Inputs[0]
		if to := by[in]; to != nil {
			in = to
			op.Inputs[0] = to
		}
		perm := t.Permutation
		if inner, ok := in.Op.Attrs.(*ir.Transpose); ok && in.Op.TaskGraph == op.TaskGraph {
			perm = make([]int, len(t.Permutation))
			for i, axis := range t.Permutation {
				perm[i] = inner.Permutation[axis]
			}
			op.Attrs, op.Inputs[0] = &ir.Transpose{Permutation: perm}, in.Op.Inputs[0]
			composed++
		}
		if moves(perm, op.Inputs[0].Shape.Dimensions) {
			continue
		}
		by[op.Outputs[0]] = op.Inputs[0]
	}
	n := replace(p, by)
	if n == 0 && composed > 0 {
		deadCode(p)
	}
	return n + composed
}

// moves tells whether a permutation changes the order of elements or the shape: axes of size 1 may go anywhere only
// if the shape stays the same.
func moves(perm, dims []int) bool {
	for i, axis := range perm {
		if dims[i] != dims[axis] {
			return true
		}
	}
	// The shape stays: the order of the axes larger than 1 must, too.
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
