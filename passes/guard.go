// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package passes

import (
	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/shapes"

	"github.com/easyparallel/epl/ir"
)

// guard lets variables keep their values in a step that does not count, by the verdict that the optimizer wrapper recorded. Each is selected right after its new
// value is there, so that an engine can do both at once, and no two values live for long. A result that is the new value of a variable, as a moving average is,
// is selected with it.
func guard(p *ir.Program, _ Options) (int, error) {
	verdict := p.Guard()
	if verdict == nil {
		return 0, nil
	}
	after := map[*ir.Op][]*ir.Op{} // what follows an op
	add := func(next *ir.Op, like ir.Attribution, a ir.Attrs, shape shapes.Shape, in ...*ir.Value) *ir.Value {
		op := p.NewOp(a, in, shape)
		op.Attribution, op.Func = like, p.Main
		op.Phase = ir.Apply
		after[next] = append(after[next], op)
		return op.Outputs[0]
	}
	scalar := ir.Literal{Shape: verdict.Shape, Flat: []int32{ir.Counts}}
	zero := add(verdict.Op, verdict.Op.Attribution, &ir.Constant{Value: scalar}, verdict.Shape)
	ok := add(verdict.Op, verdict.Op.Attribution, &ir.Equal{}, shapes.Make(dtypes.Bool), verdict, zero)
	position := map[*ir.Op]int{}
	for i, op := range p.Main.Ops {
		position[op] = i
	}
	selected := map[merged]*ir.Value{}
	for i, o := range p.Outputs {
		x := o.Updates
		if x == nil || o.Always || x.Update == x.Param {
			continue
		}
		next, like := x.Update.Op, x.Update.Op.Attribution
		if next.IsLeaf() {
			like.TaskGraph = x.TaskGraph
		}
		for _, op := range []*ir.Op{verdict.Op, x.Param.Op} {
			if position[op] > position[next] {
				next = op
			}
		}
		x.Update = add(next, like, &ir.Where{}, x.Param.Shape, ok, x.Update, x.Param)
		selected[mergedOf(p.Main.Outputs[i])] = x.Update
		p.Main.Outputs[i] = x.Update
	}
	for i, o := range p.Outputs {
		if s := selected[mergedOf(p.Main.Outputs[i])]; s != nil && o.Updates == nil && !o.Guard {
			p.Main.Outputs[i] = s
		}
	}
	var ops []*ir.Op
	for _, op := range p.Main.Ops {
		ops = append(append(ops, op), after[op]...)
	}
	p.Main.Ops = ops
	return len(selected), nil
}

// merged is a value, and how instances are merged to it. GoMLX returns what else is the new value of a variable by way of an Identity.
type merged struct {
	of  *ir.Value
	way ir.Merge
}

func mergedOf(v *ir.Value) (m merged) {
	for {
		switch a := v.Op.Attrs.(type) {
		case *ir.Identity:
		case *ir.Merge:
			m.way = *a
		default:
			m.of = v
			return m
		}
		v = v.Op.Inputs[0]
	}
}
