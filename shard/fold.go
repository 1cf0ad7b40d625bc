// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package shard

import (
	"slices"

	"github.com/easyparallel/epl/ir"
)

// A model repeats its layers, and what is found for one is found for the next. An estimate adds up what its steps cost, so that it is
// enough to look at a few layers, and to count one of them as often as there are others. That is exact: a problem is folded only
// where layers are equal, and an estimate of a folded problem counts only if all layers around the fold came out the same.
//
//	0 1 2 3 4 5 6 7 8 9  →  0 1 2 7 8 9, 2 counts for 2 to 6
//
// Propagation goes over all ops, from the first layer to the last or from the last to the first, several times, and what it does in
// a layer depends on what it has found for values of this layer and of those beside it. If that is the same for the layers on both
// sides of the fold, then it is for each layer between them.
const (
	foldSlack = 1 // layers at both ends that may come out otherwise
	foldEnds  = 2 // layers on both sides of the fold that must come out the same
	foldLeast = 2 // layers that must be left out, or it is not worth it
)

// fold is a problem without most of its layers. Values have the numbers that they have in the whole problem.
type fold struct {
	*problem
	*layering
	ends       [2 * foldEnds]int // layers that must come out the same
	first, end int               // of the equal layers: the first, and that after the last
	from, to   int               // of those that are left out
	shared     []int             // what ops of equal layers read that belongs to none

	steps [2 * foldEnds][]*step // of these layers; memory for one look after the other
}

// folded is a problem without layers that are equal to others; nil if there are none.
func (x *problem) folded() *fold {
	const stay = 2 * (foldSlack + foldEnds)
	l := x.findLayers(stay + foldLeast)
	if l == nil {
		return nil
	}
	first, end := l.equal()
	f := &fold{layering: l, first: first, end: end, from: first + stay/2, to: end - stay/2}
	if f.to-f.from < foldLeast {
		return nil
	}
	for i := range foldEnds {
		f.ends[i], f.ends[foldEnds+i] = f.from-foldEnds+i, f.to+i
	}
	if !f.build() {
		return nil
	}
	return f
}

// build leaves layers out, if nothing else needs them. What is read of them is read of those on the other side of the fold.
func (f *fold) build() bool {
	left := f.to - f.from
	isOut := func(n int) bool { return n >= f.from && n < f.to }
	x := *f.whole
	x.tasks, x.values, x.number, x.memory = nil, slices.Clone(x.values), make(map[*ir.Value]int, len(x.values)), arena{}
	for i := range x.values {
		if n := f.layer[i]; !isOut(n) {
			x.number[x.values[i].v] = i
		}
	}
	ok := true
	moved := func(n, v int) int { // what a task of layer n reads for v
		if v < 0 || !isOut(f.layer[v]) {
			return v
		}
		at := -1
		if n >= f.to {
			at = f.layer[v] - left
		} else if n >= 0 {
			at = f.layer[v] + left
		}
		if isOut(at) || at < f.first || at >= f.end {
			ok = false
			return v
		}
		return f.lists[at][f.place[v]]
	}
	copies, sums := map[*task]*task{}, map[*sum]*sum{}
	seen := make([]bool, len(x.values))
	for _, t := range f.whole.tasks {
		n := f.layerOf(t)
		if isOut(n) {
			continue
		}
		u := *t
		u.in = make([]int, len(t.in))
		for i, v := range t.in {
			u.in[i] = moved(n, v)
			if n >= f.first && n < f.end && v >= 0 && f.layer[v] < 0 && x.values[v].by != nil && !seen[v] {
				seen[v] = true
				f.shared = append(f.shared, v)
			}
		}
		if n >= f.first && n < f.end {
			u.rule = f.ops[f.first][slices.Index(f.ops[n], t)].rule // the same for all layers
		}
		if n == f.from-1 {
			u.more = int64(left)
		}
		if t.sum != nil {
			if sums[t.sum] == nil {
				s := &sum{}
				for _, v := range t.sum.terms {
					s.terms = append(s.terms, moved(n, v))
				}
				sums[t.sum] = s
			}
			u.sum = sums[t.sum]
			u.sum.tasks = append(u.sum.tasks, &u)
		}
		copies[t] = &u
		x.tasks = append(x.tasks, &u)
	}
	for old, s := range sums {
		ok = ok && len(s.tasks) == len(old.tasks)
	}
	for i := range x.values {
		v := &x.values[i]
		if v.by != nil {
			v.by = copies[v.by]
		}
		if v.moved != nil {
			v.moved = copies[v.moved]
		}
		if v.by != nil {
			v.more = v.by.more
		} else if f.layer[i] == f.from-1 { // a weight of the layer
			v.more = int64(left)
		}
	}
	f.problem = &x
	return ok
}

// copy is the same problem with memory of its own.
func (f *fold) copy() *fold {
	if f == nil {
		return nil
	}
	g, x := *f, *f.problem
	g.problem, x.memory = &x, arena{}
	g.steps = [2 * foldEnds][]*step{}
	return &g
}

// fits tells whether variables are sharded alike in all layers.
func (f *fold) fits(vars *sharding) bool {
	for place, v := range f.lists[f.first] {
		if f.values[v].by != nil {
			continue
		}
		for n := f.first + 1; n < f.end; n++ {
			if vars.byNum[f.lists[n][place]] != vars.byNum[v] {
				return false
			}
		}
	}
	return true
}

// propagate makes a plan of the layers that there are, if it is the same for those at the ends.
func (f *fold) propagate(vars *sharding) (*plan, bool) {
	if !f.fits(vars) {
		return nil, false
	}
	first := f.round(vars, nil)
	first.gatherWishes()
	if !f.steady(first) {
		return nil, false
	}
	second := f.round(vars, first)
	second.prune()
	if !f.steady(second) {
		return nil, false
	}
	second.sink()
	return &second.plan, f.steady(second)
}

// steady tells whether propagation has found the same for the layers at the ends.
func (f *fold) steady(r *propagation) bool {
	for _, v := range f.shared { // which layer reduces it, or how many do, would matter
		for h := r.first[v]; h != nil; h = h.next {
			if h.Kind == Partial {
				return false
			}
		}
	}
	for i := range f.steps {
		f.steps[i] = f.steps[i][:0]
	}
	for _, s := range r.steps {
		if i := slices.Index(f.ends[:], f.layerOfStep(s)); i >= 0 {
			f.steps[i] = append(f.steps[i], s)
		}
	}
	for i, n := range f.ends[1:] {
		if !slices.EqualFunc(f.steps[0], f.steps[i+1], func(s, t *step) bool { return f.sameStep(s, t, f.ends[0], n) }) {
			return false
		}
		for place, v := range f.lists[f.ends[0]] {
			if !r.alike(v, f.lists[n][place]) {
				return false
			}
		}
	}
	return true
}

// layerOfStep is the layer that a step belongs to.
func (f *fold) layerOfStep(s *step) int {
	if s.task != nil {
		return f.layer[s.task.out[0]]
	}
	return f.layer[f.number[s.op.Outputs[0]]]
}

// sameStep tells whether a step is for layer n what another one is for layer m.
func (f *fold) sameStep(s, t *step, n, m int) bool {
	same := func(h, i *held) bool {
		if h == nil || i == nil {
			return h == i
		}
		if !h.like(i) {
			return false
		}
		if f.layer[h.value] < 0 || f.layer[i.value] < 0 {
			return h.value == i.value
		}
		return f.place[h.value] == f.place[i.value] && f.apart(h.value, n) == f.apart(i.value, m)
	}
	return s.kind == t.kind && s.g == t.g && s.phase == t.phase && s.dead == t.dead && (s.task == nil) == (t.task == nil) &&
		(s.task == nil || f.place[s.task.out[0]] == f.place[t.task.out[0]]) &&
		s.s.factor == t.s.factor && s.s.unit == t.s.unit && slices.Equal(s.s.in, t.s.in) && slices.Equal(s.s.out, t.s.out) &&
		slices.EqualFunc(s.in, t.in, same) && slices.EqualFunc(s.out, t.out, same)
}

// apart is how many layers a value is away from one, in the problem as it is now.
func (f *fold) apart(v, n int) int {
	at := func(n int) int {
		if n >= f.to {
			n -= f.to - f.from
		}
		return n
	}
	return at(f.layer[v]) - at(n)
}

// alike tells whether two values are there in the same ways, and needed so.
func (r *propagation) alike(v, w int) bool {
	if r.free[v] != r.free[w] {
		return false
	}
	if r.before == nil && (r.wishes[v] != r.wishes[w] || r.bills[v] != r.bills[w]) {
		return false
	}
	if t, u := r.values[v].by, r.values[w].by; r.before == nil && t != nil && t.sum != nil && r.mixed[t.sum] != r.mixed[u.sum] {
		return false
	}
	h, i := r.first[v], r.first[w]
	for ; h != nil && i != nil; h, i = h.next, i.next {
		if !h.like(i) {
			return false
		}
	}
	return h == nil && i == nil
}

// like tells whether devices have two values in the same way, by the same step, and use them as often.
func (h *held) like(i *held) bool {
	if (h.by == nil) != (i.by == nil) || h.by != nil && (h.by.kind != i.by.kind || h.by.dead != i.by.dead) {
		return false
	}
	return h.Placement == i.Placement && h.g == i.g && h.phase == i.phase && h.brief == i.brief && h.result == i.result && h.uses == i.uses &&
		(h.cut == nil) == (i.cut == nil) && h.offer == i.offer
}
