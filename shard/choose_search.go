// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package shard

import (
	"cmp"
	"slices"
)

// What a choice costs is
//
//	time + reference · (memoryPrice · whole + keptPrice · kept + gatherPrice · gathered)
//
// where time is that of forward and backward of all micro-batches, estimated for a [machine]: operations of the busiest
// device or the bytes that it touches, elementwise ops aside, bytes exchanged, and a latency for each exchange. The others are
// in units of the reference, the time of the fastest seed that shards variables, so that small models are sharded as large
// ones are: who writes split wants memory to fall. whole is which part of the variables, and of what the optimizer keeps for
// them, is on every device; a layer norm is next to nothing of it. If data are sharded it is a part of that and of what forward
// keeps for backward together, of which all variables are next to nothing where sequences are long. kept is which part of the
// latter is on every device; recomputing would save it, too, so that it matters less. gathered is how many weights are gathered,
// which nobody asked for.
const (
	memoryPrice = 4
	keptPrice   = 0.1
	gatherPrice = 10
)

// work limits the search: so many ops are looked at in all estimates together, about a second's worth; but a few choices are
// compared in any case.
const (
	work  = 1_000_000
	least = 16
	worth = 0.01 // of the price, that a change must save: less is within what estimates are wrong by
)

// search finds a choice.
func (c *chooser) search() *Chosen {
	c.fold = c.folded()
	budget := max(work/max(len(c.tasks), 1), least)
	best, start := c.start()
	groups, moves := c.groups()
	for improved := true; improved; {
		improved = false
		for _, m := range moves {
			for _, next := range c.tries(best, m, budget) {
				if c.price(next) < c.price(best)*(1-worth) {
					best, improved = next, true
				}
			}
		}
	}
	for _, x := range c.inputs() { // what is sharded for nothing comes whole
		if next := best.with(0, x.index); c.price(next) <= c.price(best) {
			best = next
		}
	}
	return c.explain(best, start, groups)
}

// tries are the states that a move leads to, estimated: those that the budget allows.
func (c *chooser) tries(from state, move []int, budget int) (states []state) {
	n := len(c.known)
	for way := range c.all[move[0]].ways {
		if n >= budget {
			break
		}
		next := from.with(way, move...)
		if _, known := c.known[string(next)]; !known {
			n++
		}
		states = append(states, next)
	}
	c.lookAt(states)
	return states
}

// with is the state with another way of some.
func (s state) with(way int, of ...int) state {
	s = slices.Clone(s)
	for _, i := range of {
		s[i] = uint8(way)
	}
	return s
}

// start finds the best seed, and the reference.
func (c *chooser) start() (best state, name string) {
	seeds := c.seeds()
	states := make([]state, len(seeds))
	for i, s := range seeds {
		states[i] = s.state
	}
	c.lookAt(states)
	for _, s := range seeds {
		if slices.ContainsFunc(s.state[:c.variables], func(n uint8) bool { return n > 0 }) {
			if t := c.estimate(s.state).time.Seconds(); c.reference == 0 || t < c.reference {
				c.reference = t
			}
		}
	}
	for _, s := range seeds {
		if best == nil || c.price(s.state) < c.price(best) {
			best, name = s.state, s.name
		}
	}
	return best, name
}

// price is what a choice costs, in seconds.
func (c *chooser) price(s state) float64 {
	e := c.estimate(s)
	return e.time.Seconds() + c.reference*(memoryPrice*e.whole+keptPrice*e.kept+gatherPrice*float64(e.gathered))
}

// placement is how something is sharded in a choice.
func (c *chooser) placement(s state, x *variable) Placement {
	if x.follows == nil {
		return x.ways[s[x.index]]
	}
	if p := c.placement(s, x.follows); isAlong(p, x.dim) {
		return shardOf(0, p.Unit)
	}
	return Placement{}
}

// choice is that of a state.
func (c *chooser) choice(s state) Choice {
	r := Choice{}
	for _, x := range c.all {
		if p := c.placement(s, x); p.Kind == Sharded {
			r[c.values[x.number].v] = p
		}
	}
	return r
}

// groups puts variables together that have the same part in repeated layers, by their indices. Moves are what is changed
// together: groups, and groups that only differ by name, such as query, key and value. Both are in the order of their bytes.
func (c *chooser) groups() (groups, moves [][]int) {
	var all []int
	parts := map[int]string{}
	for i, x := range c.vars() {
		if x.follows == nil {
			all, parts[i] = append(all, i), c.readersOf(x)
		}
	}
	groups = grouped(all, func(i int) string { return parts[i] + digits.ReplaceAllString(c.all[i].v.Path, "#") })
	bytes := func(group []int) (n int64) {
		for _, i := range group {
			n += c.all[i].bytes
		}
		return n
	}
	larger := func(a, b []int) int { return cmp.Compare(bytes(b), bytes(a)) }
	slices.SortStableFunc(groups, larger)
	moves = slices.Clone(groups)
	for _, k := range grouped(all, func(i int) string { return parts[i] }) {
		if !slices.ContainsFunc(groups, func(g []int) bool { return len(g) == len(k) && g[0] == k[0] }) {
			moves = append(moves, k)
		}
	}
	slices.SortStableFunc(moves, larger)
	for _, x := range c.inputs() {
		moves = append(moves, []int{x.index})
	}
	return groups, slices.DeleteFunc(moves, func(m []int) bool { return len(c.all[m[0]].ways) == 1 })
}

// grouped puts together what has the same key, in the order of the first ones.
func grouped[T any, K comparable](list []T, key func(T) K) (groups [][]T) {
	at := map[K]int{}
	for _, x := range list {
		n, seen := at[key(x)]
		if !seen {
			n = len(groups)
			at[key(x)], groups = n, append(groups, nil)
		}
		groups[n] = append(groups[n], x)
	}
	return groups
}
