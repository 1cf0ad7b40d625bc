// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package shard

import (
	"slices"

	"github.com/easyparallel/epl/ir"
)

// strategy is a way to compute an op on the devices of its stage: the placements of what it reads and makes.
type strategy struct {
	in, out []Placement
	factor  *Factor // that is sharded; nil: none
	unit    int     // its steps that stay together
}

// choose finds the best strategy for an op.
func (r *propagation) choose(t *task) {
	r.dealt = t.deals
	n, m := len(t.op.Inputs), len(t.out)
	r.best.reset(n, m)
	if len(t.g.places) == 1 {
		return
	}
	switch a := t.op.Attrs.(type) {
	case *ir.Merge:
		r.chooseMerge(t, a)
		return
	case *ir.OptimizationBarrier, *ir.SchedulingBarrier:
		for i, v := range t.in {
			r.best.in[i] = r.asItIs(v, t.g, t.op.Phase)
		}
		copy(r.best.out, r.best.in)
		return
	}
	if r.takesOffer(t) || r.allWhole(t) {
		return
	}
	lowest, whole := r.cost(t, &r.best, 1<<62), true
	try := func(atMost int64) {
		if c := r.cost(t, &r.next, atMost); c <= atMost {
			r.best, r.next = r.next, r.best
			lowest, whole = c, false
		}
	}
	r.factors(t, func() { try(lowest - 1) })
	r.partials(t, func() {
		atMost := lowest - 1
		if whole {
			atMost = lowest // a Partial can still be added to others
		}
		try(atMost)
	})
	if whole && slices.ContainsFunc(t.in, func(v int) bool { return v >= 0 && r.onlySharded(v, t.g, t.op.Phase) }) {
		r.gathered = append(r.gathered, t.op)
	}
}

// allWhole tells whether the devices have all inputs of an op whole, and in no other way: there is nothing to choose.
func (r *propagation) allWhole(t *task) bool {
	if t.deals && !t.data {
		return false
	}
	for _, v := range t.in {
		if v < 0 {
			continue
		}
		if home := r.values[v].home; home != nil && home != t.g {
			return false
		}
		for h := r.at(v, t.g); h != nil; h = h.next {
			if h.Kind != Replicated {
				return false
			}
		}
	}
	return true
}

// chooseMerge: the merge of a gradient gives what the variable is. Terms are added up on the way; rows are merged by the device
// that has them.
func (r *propagation) chooseMerge(t *task, m *ir.Merge) {
	v, phase := t.in[0], t.op.Phase
	rowsOK := m.How.Adds() && phase == ir.Backward
	if grad := r.values[t.out[0]].grad; grad != nil && rowsOK && r.sameDevices(grad, t) {
		if p := r.vars.of(grad); p.Kind == Sharded {
			r.best.in[0], r.best.out[0] = p, p
			return
		}
	}
	if r.kinds(v, t.g, phase)&(1<<Replicated) != 0 {
		return
	}
	for h := r.at(v, t.g); h != nil; h = h.next {
		switch {
		case !h.usable(t.g, phase):
		case h.Placement == partialOf(ir.ReduceBySum) && m.How.Adds() && !m.Worker:
			r.best.in[0] = h.Placement
			return
		case h.Kind == Sharded && (rowsOK || m.How == ir.Concat && phase == ir.Backward && h.Dim > 0):
			r.best.in[0], r.best.out[0] = h.Placement, h.Placement
			return
		}
	}
}

// asItIs is a placement in which the devices have a value: rather sharded than whole, and whole than Partial.
func (r *propagation) asItIs(v int, g *group, phase ir.Phase) (p Placement) {
	order := [...]int{Replicated: 1, Sharded: 2, Partial: 0}
	best := -1
	for h := r.at(v, g); h != nil; h = h.next {
		if h.usable(g, phase) && order[h.Kind] > best {
			best, p = order[h.Kind], h.Placement
		}
	}
	return p
}

// onlySharded tells whether no device has the whole value, but each some rows of it.
func (r *propagation) onlySharded(v int, g *group, phase ir.Phase) bool {
	kinds := r.kinds(v, g, phase)
	if home := r.values[v].home; home != nil && home != g {
		kinds |= r.kinds(v, home, phase)
	}
	return kinds&(1<<Sharded) != 0 && kinds&(1<<Replicated) == 0
}

// reset makes it the strategy of an op that every device computes as a whole.
func (s *strategy) reset(n, m int) {
	s.in, s.out = slices.Grow(s.in[:0], n)[:n], slices.Grow(s.out[:0], m)[:m]
	clear(s.in)
	clear(s.out)
	s.factor, s.unit = nil, 0
}

// factors tries the strategies that shard a factor as one of the inputs has it.
func (r *propagation) factors(t *task, try func()) {
	k := len(t.g.places)
	for _, f := range t.rule.Factors {
		var units [4]int
		tried := 0
		use := func(p Placement, ref Ref, v int) {
			unit, ok := f.unitOf(ref, p, r.values[v].v.Shape, t.g.Division)
			if !ok || tried == len(units) || slices.Contains(units[:tried], unit) {
				return
			}
			units[tried] = unit
			tried++
			r.next.reset(len(t.op.Inputs), len(t.out))
			f.fill(&r.next, unit)
			try()
		}
		for i, ref := range f.In {
			if ref.Dim < 0 || t.in[i] < 0 {
				continue
			}
			v := t.in[i]
			info := &r.values[v]
			for h := r.at(v, t.g); h != nil; h = h.next {
				if h.Kind == Sharded && h.Dim == ref.Dim && h.usable(t.g, t.op.Phase) && r.isReason(h, t) {
					use(h.Placement, ref, v)
				}
			}
			if home := info.home; home != nil && home != t.g {
				for h := r.first[v]; h != nil; h = h.next {
					if h.g == home && h.Kind == Sharded && h.Dim == ref.Dim && h.usable(home, t.op.Phase) && fits(dims(info.v)[h.Dim], h.Unit, k) {
						use(h.Placement, ref, v)
					}
				}
			}
			switch {
			case !t.deals || t.data:
			case info.deal.Kind == Sharded && info.deal.Dim == ref.Dim:
				use(info.deal, ref, v)
			case info.split && ref.Dim == 0 && fits(r.batch, 1, k):
				use(shardOf(0, 1), ref, v)
			}
		}
	}
}

// isReason tells whether an op may be sharded because an input is there so. That rows were cut out of a whole value is no reason to
// reduce another one in parts, or to update a variable so; and what is offered is for forward, which backward follows.
func (r *propagation) isReason(h *held, t *task) bool {
	switch {
	case h.offer:
		return t.op.Phase == ir.Forward
	case h.isCut():
		return !(t.op.Phase == ir.Apply && r.values[h.value].by == nil || r.readsPartial(t))
	}
	return true
}

// readsPartial tells whether an input of an op must still be reduced.
func (r *propagation) readsPartial(t *task) bool {
	return slices.ContainsFunc(t.in, func(v int) bool { return v >= 0 && r.kinds(v, t.g, t.op.Phase) == 1<<Partial })
}

// fill makes the strategy that of a sharded factor.
func (f *Factor) fill(s *strategy, unit int) {
	s.factor, s.unit = f, unit
	for i, ref := range f.In {
		s.in[i] = f.placement(ref, unit)
	}
	for i, ref := range f.Out {
		if s.out[i] = f.placement(ref, unit); f.Reduce != 0 {
			s.out[i] = partialOf(f.Reduce)
		}
	}
}

// partials tries the strategies that pass a Partial through.
func (r *propagation) partials(t *task, try func()) {
	if t.rule.Linear == NotLinear {
		return
	}
	sum := partialOf(ir.ReduceBySum)
	out := r.values[t.out[0]].v.Shape.Size()
	for i := range t.op.Inputs {
		v := t.in[i]
		if v < 0 {
			continue
		}
		var p Placement
		for h := r.at(v, t.g); h != nil; h = h.next {
			if h.Kind == Partial && h.usable(t.g, t.op.Phase) {
				p = h.Placement
			}
		}
		if p.Kind != Partial || p != sum && t.rule.Linear != Moves {
			continue
		}
		grows := r.values[v].v.Shape.Size() < out // it is cheaper to reduce the smaller value
		passes := true
		switch t.rule.Linear {
		case Adds:
			_, concat := t.op.Attrs.(*ir.Concatenate)
			passes = !grows || concat
		case Scales:
			passes = !grows && r.values[t.in[1-i]].number
		case Divides:
			passes = !grows && i == 0 && r.values[t.in[1]].number
		case Keeps:
			passes = !grows && i == 1
		}
		if !passes {
			continue
		}
		all := t.rule.Linear == Adds
		r.next.reset(len(t.op.Inputs), len(t.out))
		for j := range r.next.in {
			if all || j == i {
				r.next.in[j] = p
			}
		}
		r.next.out[0] = p
		try()
		if all {
			return
		}
	}
}

// What a strategy costs, in bytes that a device reads or writes.
const (
	between   = 10      // a byte between devices
	flops     = 32      // so many operations
	forbidden = 1 << 50 // a weight between devices
)

// cost is what a strategy costs; it may stop counting above a limit.
func (r *propagation) cost(t *task, s *strategy, limit int64) int64 {
	k := int64(len(t.g.places))
	c := t.flops / flops
	if s.factor != nil {
		c /= k
	}
	local := func(v int, p Placement) {
		if p.Kind == Sharded {
			c += r.values[v].bytes / k
		} else {
			c += r.values[v].bytes
		}
	}
	for i := range t.op.Inputs {
		if v := t.in[i]; v >= 0 {
			local(v, s.in[i])
		}
	}
	for i, v := range t.out {
		local(v, s.out[i])
		if s.out[i].Kind == Partial && !r.free[v] {
			c += 2 * between * r.values[v].bytes
		}
	}
	for i := range t.op.Inputs {
		if v := t.in[i]; v >= 0 && c <= limit {
			bytes, _, _ := r.reach(v, t.g, s.in[i], t.op.Phase)
			c += between * bytes
		}
	}
	return c
}
