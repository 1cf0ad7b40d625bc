package passes

import (
	"slices"

	"github.com/easyparallel/epl/ir"
)

// deadCode drops the ops of main that are not live. Parameters stay: they are the program's
// interface. A value that dies leaves its collections, too.
func deadCode(p *ir.Program) int {
	live := liveOps(p)
	before := len(p.Main.Ops)
	dead := func(op *ir.Op) bool {
		_, isParam := op.Attrs.(*ir.Parameter)
		return !live[op] && !isParam
	}
	p.Main.Ops = slices.DeleteFunc(p.Main.Ops, dead)
	for _, op := range p.Main.Ops {
		if slices.ContainsFunc(op.Twin, func(v *ir.Value) bool { return dead(v.Op) }) {
			op.Twin = nil
		}
	}
	for i := range p.Collections {
		c := &p.Collections[i]
		c.Values = slices.DeleteFunc(c.Values, func(v *ir.Value) bool { return dead(v.Op) })
	}
	return before - len(p.Main.Ops)
}

// liveOps are the ops of main that an output, a gradient, the loss or the weight of instances needs.
func liveOps(p *ir.Program) map[*ir.Op]bool {
	live := map[*ir.Op]bool{}
	need := func(v *ir.Value) { live[v.Op] = true }
	for _, o := range p.Main.Outputs {
		need(o)
	}
	for _, g := range p.Gradients {
		need(g.Value)
	}
	if p.Loss != nil {
		need(p.Loss)
	}
	if p.IsTraining() {
		for _, v := range p.Collection("InstanceWeight") {
			need(v)
		}
	}
	for i := len(p.Main.Ops) - 1; i >= 0; i-- {
		if op := p.Main.Ops[i]; live[op] {
			op.Uses(need)
		}
	}
	return live
}

// replace makes users of the keys use what they map to, and drops what dies of it. It returns the number of
// replacements.
func replace(p *ir.Program, by map[*ir.Value]*ir.Value) int {
	if len(by) > 0 {
		p.ReplaceUses(by)
		deadCode(p)
	}
	return len(by)
}

// users counts, for every value of main, the ops that use it (closures included), the outputs, gradients and loss.
func users(p *ir.Program) map[*ir.Value]int {
	n := map[*ir.Value]int{}
	count := func(v *ir.Value) { n[v]++ }
	for _, op := range p.Main.Ops {
		op.Uses(count)
	}
	for _, o := range p.Main.Outputs {
		count(o)
	}
	for _, g := range p.Gradients {
		count(g.Value)
	}
	if p.Loss != nil {
		count(p.Loss)
	}
	return n
}
