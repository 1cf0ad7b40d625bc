// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package passes

import (
	"slices"

	"github.com/gomlx/compute"
	"github.com/pkg/errors"

	"github.com/easyparallel/epl/ir"
	"github.com/easyparallel/epl/ir/analysis"
)

// writeOut chooses how attention is computed that was recorded both as one op and written out. As recorded, the result is that of the one op and
// gradients go through what it is written out as. An engine that has the op gets its gradient as one op, too, unless something else
// needs what attention computes inside, such as the gradient of a bias; any other engine gets both written out.
//
// Other fused ops that the engine lacks give way to their twins, too.
func writeOut(p *ir.Program, o Options) (int, error) {
	n := writeOutFused(p, o.Fused)
	all := attentions(p)
	if len(all) == 0 {
		return n, nil
	}
	before, by := len(p.Main.Ops), map[*ir.Value]*ir.Value{}
	for _, a := range all {
		if a.kept = o.Attention != nil && o.Attention(a.op); a.kept {
			for result, twin := range a.gradients {
				by[twin] = result
			}
		}
	}
	for _, op := range p.Main.Ops {
		if attentionOf(op) != nil {
			op.Twin = nil // they are in all
		}
	}
	n += len(by)
	p.ReplaceUses(by)
	sortOps(p)
	live := analysis.Live(p)
	by = map[*ir.Value]*ir.Value{}
	for _, a := range all {
		if a.kept && !computed(a.parts, live) || a.twin == nil {
			continue
		}
		by[a.result] = a.twin
		if a.kept {
			for result, twin := range a.gradients {
				by[result] = twin
			}
		}
	}
	p.ReplaceUses(by)
	dropUnused(p)
	for _, op := range p.Main.Ops {
		if isAttention(op) && (o.Attention == nil || !o.Attention(op)) {
			return 0, errors.Wrapf(compute.ErrNotImplemented, "epl: %s: what runs the program has no attention as one op, and nothing was recorded that it could be written out as; "+
				"build it by GoMLX's package attention", op)
		}
	}
	return n + len(by) + before - len(p.Main.Ops), nil
}

// writeOutFused replaces fused ops other than attention, also those of closures, by their twins, unless the engine has them.
func writeOutFused(p *ir.Program, has func(*ir.Op) bool) int {
	if has == nil {
		return 0
	}
	by, done := map[*ir.Value]*ir.Value{}, map[*ir.Func]bool{}
	var body func(f *ir.Func)
	body = func(f *ir.Func) {
		if done[f] {
			return
		}
		done[f] = true
		f.Ops = slices.DeleteFunc(f.Ops, func(op *ir.Op) bool {
			for _, g := range op.Funcs {
				body(g)
			}
			if op.Twin == nil || attentionOf(op) != nil || has(op) {
				return false
			}
			for i, v := range op.Outputs {
				by[v] = op.Twin[i]
			}
			return true
		})
	}
	for _, f := range append(slices.Clone(p.Funcs), p.Main) {
		body(f)
	}
	p.ReplaceUses(by)
	return len(by)
}

// attention is one that was recorded as one op.
type attention struct {
	op           *ir.Op
	result, twin *ir.Value               // in the type of the model; twin is nil if it is not written out
	gradients    map[*ir.Value]*ir.Value // results of the gradient as one op to what they are written out as
	parts        map[*ir.Op]bool         // what computes the twin
	kept         bool
}

// attentions finds those of main, in order.
func attentions(p *ir.Program) (all []*attention) {
	of := map[*ir.Op]*attention{}
	for _, op := range p.Main.Ops {
		fused := attentionOf(op)
		if fused == nil {
			continue
		}
		if _, forward := fused.Attrs.(*ir.FusedScaledDotProductAttention); forward {
			a := of[fused]
			if a == nil {
				a = &attention{op: fused, gradients: map[*ir.Value]*ir.Value{}}
				of[fused], all = a, append(all, a)
			}
			if op.Twin != nil {
				a.result, a.twin, a.parts = op.Outputs[0], op.Twin[0], WrittenOut(op)
			}
			continue
		}
		if a := of[fused.Inputs[len(fused.Inputs)-2].Op]; a != nil { // its state
			for i, v := range op.Twin {
				a.gradients[op.Outputs[i]] = v
			}
		}
	}
	return all
}

func isAttention(op *ir.Op) bool {
	switch op.Attrs.(type) {
	case *ir.FusedScaledDotProductAttention, *ir.FusedScaledDotProductAttentionVJP:
		return true
	}
	return false
}

// attentionOf is the attention, or its gradient, that an op is, or whose result it casts; nil: none.
func attentionOf(op *ir.Op) *ir.Op {
	if _, cast := op.Attrs.(*ir.ConvertDType); cast {
		op = op.Inputs[0].Op
	}
	if isAttention(op) {
		return op
	}
	return nil
}

// WrittenOut are the ops that compute the twin of an op from its operands. Those of an attention in half precision are cast for it.
func WrittenOut(op *ir.Op) map[*ir.Op]bool {
	operands := op.Inputs
	if a := attentionOf(op); a != nil {
		operands = nil
		for _, v := range a.Inputs {
			for v != nil {
				operands = append(operands, v)
				switch v.Op.Attrs.(type) {
				case *ir.ConvertDType, *ir.Max: // the latter bounds a bias
					v = v.Op.Inputs[0]
				default:
					v = nil
				}
			}
		}
	}
	parts, _ := ir.Between(op.Twin, operands)
	return parts
}

// dropUnused drops attentions that nothing needs, what depends on them, and the casts in front of them. Other dead code stays: the twins of fused
// ops may be in it.
func dropUnused(p *ir.Program) {
	live, drop, casts, used := analysis.Live(p), map[*ir.Op]bool{}, map[*ir.Op]bool{}, map[*ir.Op]bool{}
	var before func(v *ir.Value)
	before = func(v *ir.Value) {
		switch v.Op.Attrs.(type) {
		case *ir.ConvertDType, *ir.Max, *ir.Constant:
			casts[v.Op] = !live[v.Op]
			v.Op.Uses(before)
		}
	}
	for _, op := range p.Main.Ops {
		drop[op] = isAttention(op) && !live[op]
		op.Uses(func(v *ir.Value) { drop[op] = drop[op] || drop[v.Op] })
		if drop[op] && isAttention(op) {
			op.Uses(before)
		}
	}
	for _, op := range slices.Backward(p.Main.Ops) {
		if drop[op] = drop[op] || casts[op] && !used[op]; !drop[op] {
			op.Uses(func(v *ir.Value) { used[v.Op] = true })
			for _, v := range op.Twin {
				used[v.Op] = true
			}
		}
	}
	p.Main.Ops = slices.DeleteFunc(p.Main.Ops, func(op *ir.Op) bool { return drop[op] })
}

// sortOps moves ops of main in front of those that use their results.
func sortOps(p *ir.Program) {
	in, done := map[*ir.Op]bool{}, map[*ir.Op]bool{}
	for _, op := range p.Main.Ops {
		in[op] = true
	}
	sorted := make([]*ir.Op, 0, len(p.Main.Ops))
	var add func(op *ir.Op)
	add = func(op *ir.Op) {
		if in[op] && !done[op] {
			done[op] = true
			op.Uses(func(v *ir.Value) { add(v.Op) })
			sorted = append(sorted, op)
		}
	}
	for _, op := range p.Main.Ops {
		add(op)
	}
	p.Main.Ops = slices.Clip(sorted)
}
