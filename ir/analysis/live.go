// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package analysis

import (
	"slices"

	"github.com/easyparallel/epl/ir"
)

// Live finds the ops of main that something needs: an output, what is known of a variable, a gradient, the loss, a check, or
// the weight of instances, until these are merged.
func Live(p *ir.Program) map[*ir.Op]bool {
	live := make(map[*ir.Op]bool, len(p.Main.Ops))
	need := func(v *ir.Value) { live[v.Op] = true }
	p.Results(func(v **ir.Value, _ *ir.Variable) { need(*v) })
	if p.Loss != nil {
		need(p.Loss)
	}
	if p.IsTraining() && p.Local == nil {
		for _, v := range p.Collection("InstanceWeight") {
			need(v)
		}
	}
	for _, op := range slices.Backward(p.Main.Ops) {
		if m, merges := op.Attrs.(*ir.Merge); merges && m.How == ir.Check {
			live[op] = true // it may stop the step
		}
		if live[op] {
			op.Uses(need)
		}
	}
	return live
}

// Sweep drops the ops of main that are not live, and returns how many. Parameters stay: they are the program's interface. A
// value that dies leaves its collections, too.
func Sweep(p *ir.Program) int {
	live := Live(p)
	before := len(p.Main.Ops)
	dead := func(op *ir.Op) bool {
		_, isParam := op.Attrs.(*ir.Parameter)
		return !live[op] && !isParam
	}
	deadValue := func(v *ir.Value) bool { return dead(v.Op) }
	p.Main.Ops = slices.DeleteFunc(p.Main.Ops, dead)
	for _, op := range p.Main.Ops {
		if slices.ContainsFunc(op.Twin, deadValue) {
			op.Twin = nil
		}
	}
	for i := range p.Collections {
		c := &p.Collections[i]
		c.Values = slices.DeleteFunc(c.Values, deadValue)
	}
	return before - len(p.Main.Ops)
}
