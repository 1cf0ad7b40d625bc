// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package shard

import (
	"math"

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
