// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package shard

import (
	"github.com/easyparallel/epl/ir"
)

// usable tells whether the devices of g can use it in a phase.
func (h *held) usable(g *group, phase ir.Phase) bool {
	return h.g == g && (h.phase <= phase && !h.brief || h.phase == phase)
}

// at is the first of what there is of a value; what is given is there when somebody asks.
func (r *propagation) at(v int, g *group) *held {
	if r.values[v].by != nil {
		return r.first[v]
	}
	for h := r.first[v]; h != nil; h = h.next {
		if h.g == g {
			return r.first[v]
		}
	}
	r.hold(v, g, r.vars.byNum[v], nil)
	return r.first[v]
}

// direct is the step from one placement of a value to another, and how many bytes each device gets or gives for it.
func direct(from, to Placement, bytes, k int64) (stepKind, int64) {
	switch {
	case from.Kind == Replicated && to.Kind == Sharded:
		return rowsStep, 0
	case from.Kind == Replicated && to == partialOf(ir.ReduceBySum):
		return maskStep, 0
	case from.Kind == Partial && to.Kind == Replicated:
		return reduceStep, 2 * bytes
	case from.Kind == Partial && to.Kind == Sharded:
		return scatterStep, bytes
	case from.Kind == Sharded && to.Kind == Replicated:
		return gatherStep, bytes
	case from.Kind == Sharded && to.Kind == Sharded && from.Dim != to.Dim:
		return turnStep, bytes / k
	case from.Kind == Sharded:
		return twoSteps, bytes
	}
	return twoSteps, 2 * bytes
}

// reach finds the cheapest way for the devices of g to have a value so: how many bytes each gets from others, from what,
// and by which step.
func (r *propagation) reach(v int, g *group, to Placement, phase ir.Phase) (lowest int64, from *held, by stepKind) {
	info := &r.values[v]
	k := len(g.places)
	lowest = 1 << 60
	for h := r.at(v, g); h != nil; h = h.next {
		if !h.usable(g, phase) {
			continue
		}
		if same(h.Placement, to, info.v.Shape, g.Division) {
			if r.dealt && info.deal.Kind == Sharded && to.Kind == Replicated && k > 1 { // rows of the batch are sent to those who need them
				return info.bytes, h, noStep
			}
			return 0, h, noStep
		}
		kind, bytes := direct(h.Placement, to, info.bytes, int64(k))
		if info.of != nil && h.Kind == Sharded {
			bytes += forbidden / between
		}
		if bytes < lowest {
			lowest, from, by = bytes, h, kind
		}
	}
	if home := info.home; home != nil && home != g {
		if bytes, h, kind := r.reachFar(v, home, k, to, phase); bytes < lowest {
			lowest, from, by = bytes, h, kind
		}
	} else if p, ok := r.again(info.moved, to); ok && lowest > 0 {
		if bytes, h, _ := r.reach(info.moved.in[0], g, p, phase); bytes < lowest {
			lowest, from, by = bytes, h, opStep
		}
	}
	return lowest, from, by
}

// again tells how an op that moves elements must have its input to make its output so, by being computed once more.
func (r *propagation) again(t *task, to Placement) (in Placement, ok bool) {
	if t == nil || to.Kind == Partial {
		return in, false
	}
	if to.Kind == Replicated {
		return in, true
	}
	for _, f := range t.rule.Factors {
		if unit, ok := f.unitOf(f.Out[0], to, r.values[t.out[0]].v.Shape, t.g.Division); ok && f.In[0].Dim >= 0 {
			return f.placement(f.In[0], unit), true
		}
	}
	return in, false
}

// move computes an op that moves elements once more, so that its output is there as it is needed.
func (r *propagation) move(t *task, to Placement, phase ir.Phase) *held {
	in, _ := r.again(t, to)
	s := r.newStep(opStep, t.op, phase, t.g, 1, 1)
	s.task, s.s = t, strategy{in: r.keep(in), out: r.keep(to)}
	s.in[0] = r.get(t.in[0], t.g, in, t.op, phase)
	r.add(s)
	s.out[0] = r.hold(t.out[0], t.g, to, s)
	return s.out[0]
}

// reachFar finds the way from the devices of another stage.
func (r *propagation) reachFar(v int, home *group, k int, to Placement, phase ir.Phase) (lowest int64, from *held, by stepKind) {
	bytes := r.values[v].bytes
	lowest = 1 << 60
	for h := r.first[v]; h != nil; h = h.next {
		if !h.usable(home, phase) {
			continue
		}
		kind, c := fetchStep, bytes*int64(k)
		switch {
		case to.Kind == Partial:
			kind = twoSteps
		case to.Kind == Sharded:
			c = bytes
		}
		switch {
		case h.Kind == Partial:
			c += 2 * bytes // it is reduced where it was made
		case h.Kind == Sharded && to.Kind == Sharded && h.Dim != to.Dim:
			c += bytes
		}
		if c < lowest || c == lowest && h.Kind == Replicated {
			lowest, from, by = c, h, kind
		}
	}
	return lowest, from, by
}

// get gives the devices of g a value so, for an op.
func (r *propagation) get(v int, g *group, to Placement, op *ir.Op, phase ir.Phase) *held {
	_, from, by := r.reach(v, g, to, phase)
	if from.Kind == Partial && to.Kind != Partial && by != opStep {
		r.note(v, to, from.g == g)
	}
	switch by {
	case noStep:
		return from
	case opStep:
		return r.move(r.values[v].moved, to, phase)
	case twoSteps:
		from = r.get(v, g, Placement{}, op, phase)
		if by = maskStep; to.Kind == Sharded {
			by = rowsStep
		}
	case fetchStep:
		if from.Kind == Partial || from.Kind == Sharded && to.Kind == Sharded && from.Dim != to.Dim {
			from = r.get(v, from.g, Placement{}, r.values[v].v.Op, from.phase)
		}
	}
	s := r.newStep(by, op, phase, g, 1, 1)
	s.in[0] = from
	r.add(s)
	h := r.hold(v, g, to, s)
	h.brief = by == gatherStep && r.values[v].of != nil && phase != ir.Apply
	s.out[0] = h
	return h
}
