// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package passes

import (
	"cmp"
	"fmt"
	"math"

	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/shapes"

	"github.com/easyparallel/epl/ir"
)

// withoutCopies repeats backward, to be left as it is: what it reads of forward is kept. It returns what became of each value.
func (r *recomputer) withoutCopies(note func(string)) map[*ir.Value]*ir.Value {
	to := map[*ir.Value]*ir.Value{}
	var ops []*ir.Op
	for _, op := range r.p.Main.Ops {
		ops = append(ops, op)
		if op.IsLeaf() || op.Phase != ir.Backward || !op.Varying {
			continue
		}
		captures := false // the copy of an op has the same functions
		op.Captures(func(v *ir.Value) { captures = captures || to[v] != nil })
		if captures {
			note(fmt.Sprintf("gradient_checkpoint.check_gradients: a function of %s reads gradients, so that what follows from it is not compared", op))
			continue
		}
		c := r.copyOf(op, op.Region, func(in *ir.Value) *ir.Value { return cmp.Or(to[in], in) })
		c.Origin = op.Origin
		for i, v := range op.Outputs {
			to[v] = c.Outputs[i]
		}
		r.plain[c] = true
		ops = append(ops, c)
	}
	r.p.Main.Ops = ops
	return to
}

// check lets every instance compare what it adds to gradients with what it would be without recompute: no element may differ by
// more than a small part of the largest. On one backend no bit should; a compiler may round elsewhere.
func (r *recomputer) check(plain map[*ir.Value]*ir.Value) {
	for _, op := range r.p.Main.Ops {
		if !op.IsMerge() || op.Phase != ir.Backward {
			continue
		}
		v := op.Inputs[0]
		d := v.Shape.DType
		if !d.IsFloat() || plain[v] == nil {
			continue
		}
		limit := 1e-4
		if d.IsHalfPrecision() {
			limit = 5e-2
		}
		r.compare(op, v, plain[v], &ir.Merge{How: ir.Check, Limit: limit, Of: r.gradient(op)})
	}
}

// gradient says what a merge of backward is for.
func (r *recomputer) gradient(op *ir.Op) string {
	for _, g := range r.p.Gradients {
		if g.Value.Op == op {
			return fmt.Sprintf("the gradient of %q", g.Variable.Path)
		}
	}
	return fmt.Sprintf("%s, a gradient,", op.Inputs[0].Op)
}

// compare merges by how much x differs from y, in parts of the largest element of y.
func (r *recomputer) compare(site *ir.Op, x, y *ir.Value, how *ir.Merge) {
	like := x // devices compare what each of them has
	add := func(a ir.Attrs, shape shapes.Shape, in ...*ir.Value) *ir.Value {
		op := r.p.NewOp(a, in, shape)
		op.Attribution = ir.Attribution{TaskGraph: site.TaskGraph, Phase: ir.Backward, Source: site.Source, Place: site.Place}
		op.Uses(func(v *ir.Value) {
			if v.Op.Phase == ir.Backward {
				op.Region = max(op.Region, v.Op.Region)
			}
		})
		op.SetVarying()
		if v := op.Outputs[0]; !op.IsLeaf() && like.IsPlaced() {
			op.PerShard = !op.IsMerge()
			if v.Shape.Rank() == like.Shape.Rank() && v.Shape.Rank() > 0 {
				v.PlaceLike(like)
			} else {
				v.SetDivided(ir.Model, ir.Placement{Kind: ir.Each}, like.Division(ir.Model))
			}
		}
		r.p.Main.Append(op)
		return op.Outputs[0]
	}
	number := shapes.Make(dtypes.Float32)
	constant := func(f float32) *ir.Value {
		return add(&ir.Constant{Value: ir.Literal{Shape: number, Flat: []float32{f}}}, number)
	}
	s, yes := typed(x.Shape, dtypes.Float32), typed(x.Shape, dtypes.Bool)
	if x.Shape.DType != dtypes.Float32 {
		x, y = add(&ir.ConvertDType{DType: dtypes.Float32}, s, x), add(&ir.ConvertDType{DType: dtypes.Float32}, s, y)
	}
	zeros := constant(0)
	if s.Rank() > 0 {
		zeros = add(&ir.BroadcastInDim{OutputShape: s}, s, zeros)
	}
	same := add(&ir.Equal{}, yes, x, y) // infinities, too
	nan := add(&ir.LogicalAnd{}, yes, add(&ir.IsNaN{}, yes, x), add(&ir.IsNaN{}, yes, y))
	off := add(&ir.Where{}, s, add(&ir.LogicalOr{}, yes, same, nan), zeros, add(&ir.Abs{}, s, add(&ir.Sub{}, s, x, y)))
	largest := add(&ir.Abs{}, s, y)
	if s.Rank() > 0 {
		off, largest = add(&ir.ReduceMax{}, number, off), add(&ir.ReduceMax{}, number, largest)
	}
	share := add(&ir.Div{}, number, off, add(&ir.Max{}, number, largest, constant(math.SmallestNonzeroFloat32*1e10)))
	none := add(&ir.Equal{}, shapes.Make(dtypes.Bool), off, constant(0)) // the largest may be no number
	add(how, number, add(&ir.Where{}, number, none, constant(0), share))
}
