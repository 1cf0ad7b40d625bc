// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package shard

import (
	"maps"
	"math"
	"math/rand/v2"

	"github.com/easyparallel/epl/ir"
)

// Prices returns what the choice of [Search] costs, and what the best of all choices does.
func Prices(p *ir.Program) (found, best float64) {
	c, err := newChooser(p)
	if err != nil {
		panic(err)
	}
	choice, err := c.search().In(p)
	if err != nil {
		panic(err)
	}
	clear(c.known)
	s := make(state, len(c.all))
	for i, x := range c.all {
		x.follows = nil
		if p := choice[c.values[x.number].v]; p.Kind == Sharded {
			s[i] = uint8(x.along(p.Dim))
		}
	}
	found, best = c.price(s), math.Inf(1)
	clear(s)
	for {
		best = min(best, c.price(s))
		i := 0
		for ; i < len(s); i++ {
			if s[i]++; int(s[i]) < len(c.all[i].ways) {
				break
			}
			s[i] = 0
		}
		if i == len(s) {
			return found, best
		}
	}
}

// Estimated is how many exchanges of each kind a choice is taken to need.
func Estimated(p *ir.Program, choice Choice) map[ir.Collective]int {
	x, err := newProblem(p, ir.Apply)
	if err != nil {
		panic(err)
	}
	vars, err := x.shard(choice)
	if err != nil {
		panic(err)
	}
	n := map[ir.Collective]int{}
	x.exchanges(x.propagate(vars), func(_ ir.Phase, how ir.Collective, _ int64) { n[how]++ })
	return n
}

// Folded returns how many layers the search of a program leaves out, and compares random choices: it returns how many were
// estimated, how many of them with those layers left out, and how many of these came out otherwise than in the whole program.
func Folded(p *ir.Program, seed uint64, tries int) (left, folded, wrong int) {
	c, err := newChooser(p)
	if err != nil {
		panic(err)
	}
	if err := c.pin(); err != nil {
		panic(err)
	}
	_, moves := c.groups()
	if c.fold = c.folded(); c.fold == nil {
		return 0, 0, 0
	}
	f := c.fold
	random := rand.New(rand.NewPCG(seed, 0))
	states := []state{}
	for _, s := range c.seeds() {
		states = append(states, s.state)
	}
	for range tries {
		s := make(state, len(c.all))
		for _, m := range moves {
			if random.IntN(3) > 0 {
				s = s.with(random.IntN(len(c.all[m[0]].ways)), m...)
			}
		}
		what := random.IntN(8)
		for i, x := range c.all {
			n := f.layer[x.number]
			outside := n < f.first || n >= f.end
			if x.follows == nil && (what == 0 && random.IntN(4) == 0 || what < 3 && outside) { // layers that are not alike, or what is in none of them
				s[i] = uint8(random.IntN(len(x.ways)))
			}
		}
		states = append(states, s)
	}
	for _, s := range states {
		vars, err := c.shard(c.choice(s))
		if err != nil {
			panic(err)
		}
		todo, ok := f.propagate(vars)
		if !ok {
			continue
		}
		folded++
		c.fold = f
		got := c.look(s)
		c.fold = nil
		if got != c.look(s) || !maps.Equal(f.sent(todo), c.sent(c.propagate(vars))) {
			wrong++
		}
	}
	return f.to - f.from, folded, wrong
}

// Unflattened is what the search reads of a program if data may be sharded; nil: the program itself.
func Unflattened(p *ir.Program) *ir.Program {
	q := p.Clone()
	if unflatten(q) == 0 {
		return nil
	}
	return q
}

// sent is how many bytes a plan exchanges, by phase and kind.
func (x *problem) sent(todo *plan) map[string]int64 {
	bytes := map[string]int64{}
	x.exchanges(todo, func(phase ir.Phase, how ir.Collective, n int64) { bytes[phase.String()+how.String()] += n })
	return bytes
}
