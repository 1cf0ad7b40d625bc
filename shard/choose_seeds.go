// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package shard

import (
	"slices"

	"github.com/easyparallel/epl/ir"
)

// state is a choice: for each variable, and then for all data, the index of its way. Those that follow another one are 0 in it.
type state []uint8

// seed is a plan that the search may start with.
type seed struct {
	name string
	state
}

// seeds are plans that are known to be good for some models.
func (c *chooser) seeds() []seed {
	none := make(state, len(c.all)) // but what is pinned
	seeds := []seed{
		{"columns, then rows", c.alternate(false)},
		{"experts", c.alternate(true)},
		{"columns", slices.Clone(none)},
		{"rows", slices.Clone(none)},
		{"whole", none},
	}
	for i, x := range c.vars() {
		if rank := x.v.Param.Shape.Rank(); rank > 1 && !x.pinned {
			seeds[2].state[i] = uint8(max(x.along(rank-1), 0))
			seeds[3].state[i] = uint8(min(1, len(x.ways)-1))
		}
	}
	if len(c.inputs()) > 0 { // along the first dim after that of samples, of words mostly
		var data []int
		for _, x := range c.inputs() {
			data = append(data, x.index)
		}
		seeds = append(seeds, seed{"sequence", none.with(1, data...)}, seed{"columns, then rows, and sequence", seeds[0].with(1, data...)})
	}
	return seeds
}

// alternate follows the data through forward. The first matrix that meets a whole value is sharded along a dim of the output;
// the next one, which meets a sharded value, along the dim that is summed up, and the sum is whole again. Tables are sharded
// along the rows that are picked. With experts, a dim that weights share with data is taken first, where the op does
// something else for each row.
func (c *chooser) alternate(experts bool) state {
	f := &flow{chooser: c, experts: experts, at: make([]Placement, len(c.values)), begun: make([]bool, len(c.values)),
		state: make(state, len(c.all)), done: map[*variable]bool{}}
	for _, x := range c.vars() {
		if x.pinned {
			f.decide(x, 0)
		}
	}
	for _, t := range c.tasks {
		if t.op.Phase == ir.Forward && len(t.g.places) > 1 {
			f.task(t)
		}
	}
	return f.state
}

// flow is how values are placed when matrices alternate.
type flow struct {
	*chooser
	experts bool
	at      []Placement // by value
	begun   []bool      // by value: the last matrix was sharded along its columns, so that the next one takes rows
	state   state
	done    map[*variable]bool // it is decided
}

// decide lets a variable be sharded so.
func (f *flow) decide(x *variable, way int) {
	f.state[x.index] = uint8(way)
	f.at[x.number] = x.ways[way]
	f.done[x] = true
}

// open tells whether a value is a variable that is not decided yet, in some form.
func (f *flow) open(v int) bool {
	x := f.named[f.values[v].of]
	return x != nil && !f.done[x]
}

// task follows an op.
func (f *flow) task(t *task) {
	if f.open(t.out[0]) {
		return
	}
	begun := slices.ContainsFunc(t.in, func(v int) bool { return v >= 0 && f.begun[v] })
	best, unit := f.given(t)
	if first, u := f.first(t, begun, best != nil); first != nil {
		best, unit = first, u
	}
	if best != nil {
		for i, r := range best.In {
			if v := t.in[i]; v >= 0 && r.Dim >= 0 && f.open(v) {
				if x, n, p, ok := f.wayOf(v, r.Dim); ok && x.follows == nil {
					f.decide(x, n)
					f.at[v] = p
				}
				if f.multiplies(t) {
					begun = best.Reduce == 0
				}
			}
		}
		for i, r := range best.Out {
			if best.Reduce == 0 {
				f.at[t.out[i]] = best.placement(r, unit)
			}
		}
	}
	for _, v := range t.out {
		f.begun[v] = begun
	}
}

// given finds a factor that is sharded already in what an op reads, if possible in all.
func (f *flow) given(t *task) (best *Factor, unit int) {
	most := 0
	for _, x := range t.rule.Factors {
		count, u := 0, 0
		for i, r := range x.In {
			if v := t.in[i]; v >= 0 {
				if w, ok := x.unitOf(r, f.at[v], f.values[v].v.Shape, t.g.Division); ok {
					count, u = count+1, w
				}
			}
		}
		if count > most && !f.adds(t, x) {
			best, most, unit = x, count, u
		}
	}
	return best, unit
}

// adds tells whether an op adds what is sharded along a factor to something that is whole: to what went past the matrices, which
// stays whole.
func (f *flow) adds(t *task, x *Factor) bool {
	if _, ok := t.op.Attrs.(*ir.Add); !ok {
		return false
	}
	for i, r := range x.In {
		if v := &f.values[t.in[i]]; r.Dim >= 0 && v.of == nil && !v.pure && f.at[t.in[i]].Kind == Replicated {
			return true
		}
	}
	return false
}

// first finds the factor along which an undecided weight is sharded for an op. If another factor is given, only that of experts
// is better.
func (f *flow) first(t *task, begun, given bool) (best *Factor, unit int) {
	multiplies := f.multiplies(t)
	rank := func(x *Factor) int {
		switch part := f.partIn(x, t); {
		case part == shared && f.experts && multiplies:
			return 4
		case given:
		case part == picked, part == summed && begun:
			return 3
		case part == free && multiplies:
			return 2
		case part == summed:
			return 1
		}
		return 0
	}
	highest := 1
	for _, x := range t.rule.Factors {
		for i, r := range x.In {
			v := t.in[i]
			if v < 0 || r.Dim < 0 || rank(x) < highest || !f.open(v) {
				continue
			}
			if _, _, p, ok := f.wayOf(v, r.Dim); ok {
				if u, ok := x.unitOf(r, p, f.values[v].v.Shape, t.g.Division); ok {
					best, unit, highest = x, u, rank(x)
				}
			}
		}
	}
	return best, unit
}

// wayOf finds how a variable is sharded if a dim of it, maybe in another form, is; and the placement of that form.
func (f *flow) wayOf(v, dim int) (x *variable, way int, p Placement, ok bool) {
	x = f.named[f.values[v].of]
	for way, w := range x.ways {
		if p, ok := f.form(v, w); ok && isAlong(p, dim) {
			return x, way, p, true
		}
	}
	return x, 0, p, false
}

// form is the placement of another form of a variable that is sharded.
func (f *flow) form(v int, p Placement) (Placement, bool) {
	t := f.values[v].by
	if t == nil {
		return p, true
	}
	p, _ = f.form(t.in[0], p)
	for _, x := range t.rule.Factors {
		if unit, ok := x.unitOf(x.In[0], p, f.values[t.in[0]].v.Shape, t.g.Division); ok && x.Out[0].Dim >= 0 {
			return x.placement(x.Out[0], unit), true
		}
	}
	return Placement{}, false
}
