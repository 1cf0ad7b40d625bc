// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package shard

import "slices"

// What the second round of propagation learns from the first: where Partial values are reduced best.

// wish says what the users of a Partial value want.
type wish struct {
	whole bool // some need it whole, or in different placements
	p     Placement
}

// note remembers what a Partial value is needed as.
func (r *propagation) note(v int, to Placement, here bool) {
	if r.before != nil {
		return
	}
	w := &r.wishes[v]
	switch {
	case to.Kind == Replicated || !here || w.p.Kind == Sharded && w.p != to:
		w.whole = true
	default:
		w.p = to
	}
}

// bill is what it costs to reduce a value later.
type bill struct {
	items int
	bytes int64
}

// gatherWishes finds the Partial values that are reduced several times after they have passed through other ops: it is cheaper
// to reduce them once, before.
func (r *propagation) gatherWishes() {
	r.bills = r.memory.bills.take(len(r.values))
	later := r.bills
	for _, s := range slices.Backward(r.steps) {
		if s.kind != opStep || len(s.out) != 1 || s.out[0].Kind != Partial {
			continue
		}
		v := s.out[0].value
		b, w, bytes := later[v], &r.wishes[v], r.values[v].bytes
		switch {
		case w.whole:
			b = bill{b.items + 1, b.bytes + 2*bytes}
		case w.p.Kind == Sharded:
			b = bill{b.items + 1, b.bytes + bytes}
		}
		if b.items > 1 && b.bytes >= 2*bytes {
			w.whole = true
			b = bill{1, 2 * bytes}
		}
		for _, h := range s.in {
			if h != nil && h.Kind == Partial && b.items > 0 {
				later[h.value].items++
				later[h.value].bytes += b.bytes
			}
		}
	}
}

// isMixed tells whether several terms of a sum must still be reduced, and others are sharded: it is cheaper to add up the
// former before they are reduced.
func (r *propagation) isMixed(s *sum) bool {
	partial, sharded := 0, false
	g, phase := s.tasks[0].g, s.tasks[0].op.Phase
	for _, v := range s.terms {
		kinds := r.kinds(v, g, phase)
		made := r.at(v, g)
		if kinds&(1<<Replicated) != 0 || made == nil {
			continue
		}
		if made.Kind == Partial {
			partial++
		}
		sharded = sharded || made.Kind == Sharded
	}
	return partial > 1 && sharded
}

// sum adds up many values, first those that must still be reduced.
func (r *propagation) sum(s *sum) {
	g, phase := s.tasks[0].g, s.tasks[0].op.Phase
	isPartial := func(v int) bool { return r.kinds(v, g, phase) == 1<<Partial }
	rest, terms := slices.DeleteFunc(slices.Clone(s.terms), isPartial), slices.Clone(s.terms)
	terms = append(slices.DeleteFunc(terms, func(v int) bool { return !isPartial(v) }), rest...)
	acc := terms[0]
	for i, t := range s.tasks {
		again := *t
		again.in = []int{acc, terms[i+1]}
		r.task(&again)
		acc = t.out[0]
	}
}
