// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package shard

import (
	"slices"

	"github.com/easyparallel/epl/ir"
)

// propagate makes a plan from the placements of variables. Every op of a stage with several devices takes the cheapest
// strategy, in program order: sharding a factor that is sharded already in an input, passing a Partial through, or
// computing it on whole values.
//
// A Partial that somebody needs whole may have passed through other ops before. The second round knows: it reduces such
// values at once, so that all users have the whole. It also knows which sums have terms that must still be reduced, and
// adds those up first.
func (x *problem) propagate(vars *sharding) *plan {
	first := x.round(vars, nil)
	first.gatherWishes()
	second := x.round(vars, first)
	second.prune()
	second.sink()
	return &second.plan
}

// propagation is one round.
type propagation struct {
	plan
	*problem
	vars   *sharding
	before *propagation // the round before
	wishes []wish       // by value: in which placements a Partial was needed; of the first round
	bills  []bill       // by value: what it costs to reduce it later; of the first round
	free   []bool       // by value: if it is Partial, nobody has to reduce it
	mixed  map[*sum]bool
	dealt  bool // of the op at hand: data are dealt by samples

	best, next strategy // of the op at hand
}

func (x *problem) round(vars *sharding, before *propagation) *propagation {
	m, n := &x.memory, len(x.values)
	m.reset()
	r := &propagation{problem: x, vars: vars, before: before, free: m.marks.take(n), mixed: map[*sum]bool{}}
	if r.first, r.steps = m.inputs.take(n), m.list[:0]; before == nil {
		r.wishes = m.wishes.take(n)
	}
	r.findFree()
	for _, t := range x.tasks {
		last := t.sum != nil && t == t.sum.tasks[len(t.sum.tasks)-1]
		if t.sum == nil || before == nil || !before.mixed[t.sum] {
			r.task(t)
		} else if last {
			r.sum(t.sum)
		}
		if last && before == nil {
			r.mixed[t.sum] = r.isMixed(t.sum)
		}
	}
	r.keepResults()
	m.list = r.steps
	return r
}

// findFree finds the values whose Partial terms are added up by a merge in the end.
func (r *propagation) findFree() {
	for i := range r.free {
		r.free[i] = r.values[i].grad == nil
	}
	for _, v := range r.p.Main.Outputs {
		if n, ok := r.number[v]; ok {
			r.free[n] = false
		}
	}
	for _, t := range slices.Backward(r.tasks) {
		passes := r.free[t.out[0]] && (t.rule.Linear != NotLinear || isBarrier(t.op))
		if m, ok := t.op.Attrs.(*ir.Merge); ok {
			passes = m.How.Adds() && !m.Worker && r.vars.of(r.values[t.out[0]].grad).Kind == Replicated
		}
		for _, v := range t.in {
			if v >= 0 && !passes {
				r.free[v] = false
			}
		}
	}
}

func isBarrier(op *ir.Op) bool {
	switch op.Attrs.(type) {
	case *ir.OptimizationBarrier, *ir.SchedulingBarrier:
		return true
	}
	return false
}

// kinds are the kinds of placements in which devices have a value, as bits.
func (r *propagation) kinds(v int, g *group, phase ir.Phase) (kinds uint) {
	for h := r.at(v, g); h != nil; h = h.next {
		if h.usable(g, phase) {
			kinds |= 1 << h.Kind
		}
	}
	return kinds
}

// task chooses how to compute an op.
func (r *propagation) task(t *task) {
	for _, o := range r.vars.offers[t.op] {
		r.get(o.value, t.g, o.Placement, t.op, t.op.Phase).offer = true
	}
	r.choose(t)
	s := r.newStep(opStep, t.op, t.op.Phase, t.g, len(t.in), len(t.out))
	s.task = t
	s.s = strategy{in: r.keep(r.best.in...), out: r.keep(r.best.out...), factor: r.best.factor, unit: r.best.unit}
	for i, v := range t.in {
		if v >= 0 {
			s.in[i] = r.get(v, t.g, at(s.s.in, i, Placement{}), t.op, t.op.Phase)
		}
	}
	r.add(s)
	for i, v := range t.out {
		s.out[i] = r.hold(v, t.g, s.s.out[i], s)
		r.settle(v, s.out[i], t)
	}
	r.offerOn(t, s.out[0])
}

// takesOffer tells whether an op does something cheap to data that are offered in rows. It is computed whole, since nobody knows
// yet which rows are needed: a mask of words is one for queries, and one for keys.
func (r *propagation) takesOffer(t *task) bool {
	return len(r.vars.offers) > 0 && r.values[t.out[0]].pure && slices.ContainsFunc(t.in, func(v int) bool { return r.offered(v, t) != nil })
}

// offered is a value as it is offered in rows, nil if it is not.
func (r *propagation) offered(v int, t *task) *held {
	if v < 0 {
		return nil
	}
	h := r.first[v]
	for h != nil && !(h.offer && h.usable(t.g, t.op.Phase)) {
		h = h.next
	}
	return h
}

// offerOn offers rows of what is made of data that are offered in rows: of what was computed whole, and of what must be reduced in
// any case, as that which a table gives that is sharded.
func (r *propagation) offerOn(t *task, out *held) {
	if len(r.vars.offers) == 0 || t.op.Phase != ir.Forward || out.Kind != Partial && !r.takesOffer(t) {
		return
	}
	for _, f := range t.rule.Factors {
		for i, ref := range f.In {
			h := r.offered(t.in[i], t)
			if h == nil || f.Out[0].Dim < 0 || f.Reduce != 0 {
				continue
			}
			if unit, ok := f.unitOf(ref, h.Placement, r.values[t.in[i]].v.Shape, t.g.Division); ok {
				r.get(t.out[0], t.g, f.placement(f.Out[0], unit), t.op, t.op.Phase).offer = true
			}
		}
	}
}

// settle makes the placements in which everybody wants a new value.
func (r *propagation) settle(v int, h *held, t *task) {
	if r.before != nil && h.Kind == Partial && r.before.wishes[v].whole {
		r.get(v, t.g, Placement{}, t.op, t.op.Phase)
	}
	if grad := r.values[v].grad; grad != nil && len(t.g.places) > 1 && r.sameDevices(grad, t) { // the optimizer gets it as the variable is, and not otherwise
		h = r.get(v, t.g, r.vars.of(grad), t.op, t.op.Phase)
		r.first[v], h.next = h, nil
	}
}

// sameDevices tells whether those that have a variable compute an op. A gradient may come from another stage, if it depends on
// the gradients of all.
func (r *propagation) sameDevices(x *ir.Variable, t *task) bool {
	return r.vars.of(x).Kind == Replicated || r.of[x.TaskGraph] == t.g
}

// keepResults takes what leaves the program, on the devices of the variable, if it belongs to one that is sharded.
func (r *propagation) keepResults() {
	r.results(func(v **ir.Value, of *ir.Variable) {
		n := r.number[*v]
		info := &r.values[n]
		g, phase, p := info.home, (*v).Op.Phase, r.vars.of(of)
		if info.by == nil {
			if r.vars.byNum[n].Kind != Sharded || info.of == of {
				r.leaving = append(r.leaving, nil)
				return
			}
			g, phase = r.of[info.of.TaskGraph], ir.Apply // the old value of a variable that is sharded
		}
		if p.Kind == Sharded {
			g = r.of[of.TaskGraph]
		}
		h := r.get(n, g, p, (*v).Op, phase)
		h.result = true
		r.leaving = append(r.leaving, h)
	})
	if l := r.p.Loss; l != nil && !l.Op.IsLeaf() {
		r.someOf(r.number[l]).result = true
	}
}

// someOf is a value as its devices have it: whole, if they do.
func (r *plan) someOf(v int) *held {
	for h := r.first[v]; h != nil; h = h.next {
		if h.Kind == Replicated {
			return h
		}
	}
	return r.first[v]
}

func (r *propagation) keep(p ...Placement) []Placement {
	kept := r.memory.placements.take(len(p))
	copy(kept, p)
	return kept
}

// newStep makes a step that reads and makes so many values.
func (r *propagation) newStep(kind stepKind, op *ir.Op, phase ir.Phase, g *group, in, out int) *step {
	s := r.memory.steps.one()
	s.kind, s.op, s.phase, s.g = kind, op, phase, g
	s.in, s.out = r.memory.inputs.take(in), r.memory.inputs.take(out)
	return s
}

func (r *propagation) add(s *step) {
	s.index = len(r.steps)
	r.steps = append(r.steps, s)
}

// hold notes that the devices of g have a value so.
func (r *propagation) hold(v int, g *group, p Placement, by *step) *held {
	h := r.memory.held.one()
	h.Placement, h.value, h.g, h.by = p, v, g, by
	if by == nil {
		h.v = r.values[v].v
	} else {
		h.phase = by.phase
	}
	last := &r.first[v]
	for *last != nil {
		last = &(*last).next
	}
	*last = h
	return h
}
