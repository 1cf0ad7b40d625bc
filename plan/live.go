package plan

import (
	"github.com/easyparallel/epl/ir"
	"github.com/easyparallel/epl/ir/analysis"
	"github.com/easyparallel/epl/passes"
)

// view is the program as it will run: without what nothing needs, and with fused ops or the written-out twins that
// GoMLX recorded for gradients, not both.
type view struct {
	p    *ir.Program
	live map[*ir.Op]bool
	// stead maps what does not run to what runs in its stead: a fused op to its twin, or the ops of a twin to the fused
	// op.
	stead map[*ir.Op]*ir.Op
	by    map[*ir.Value]*ir.Value // results of fused ops that do not run to those of their twins
}

// viewOf finds what the passes will make of fused ops.
func viewOf(p *ir.Program) *view {
	v := &view{p: p, stead: map[*ir.Op]*ir.Op{}, by: map[*ir.Value]*ir.Value{}}
	v.live = analysis.Live(p, v.of)
	for _, op := range p.Main.Ops {
		if op.Twin == nil {
			continue
		}
		if passes.WritesOut(op, v.live) {
			v.stead[op] = op.Twin[0].Op
			for i, out := range op.Outputs {
				v.by[out] = op.Twin[i]
			}
			continue
		}
		parts, _ := ir.Between(op.Twin, op.Inputs)
		for o := range parts {
			v.stead[o] = op
		}
	}
	v.live = analysis.Live(p, v.of)
	return v
}

// of is the value that is read in the place of x.
func (v *view) of(x *ir.Value) *ir.Value {
	for v.by[x] != nil {
		x = v.by[x]
	}
	return x
}

// uses calls visit for every value that the op will read.
func (v *view) uses(op *ir.Op, visit func(*ir.Value)) {
	op.Uses(func(x *ir.Value) { visit(v.of(x)) })
}

// runs is the op that runs in the place of op; nil if none does.
func (v *view) runs(op *ir.Op) *ir.Op {
	for op != nil && !v.live[op] {
		op = v.stead[op]
	}
	return op
}
