package shard

import (
	"math"
	"slices"

	"github.com/easyparallel/epl/ir"
)

// Prices returns what the choice of [Search] costs, and what the best of all choices does.
func Prices(p *ir.Program) (found, best float64) {
	c, err := newChooser(p)
	if err != nil {
		panic(err)
	}
	chosen := c.search().Choice
	for _, x := range c.vars {
		x.follows = nil
	}
	clear(c.known)
	s := c.none()
	for i, x := range c.vars {
		s[i] = uint8(slices.IndexFunc(x.ways, func(w way) bool { return w.Placement == chosen[x.v.Param] }))
	}
	for i, x := range c.inputs {
		s[len(c.vars)+i] = uint8(slices.Index(x.ways, chosen[x.v]))
	}
	found, best = c.price(s), math.Inf(1)
	clear(s)
	for {
		best = min(best, c.price(s))
		i := 0
		for ; i < len(s); i++ {
			if s[i]++; int(s[i]) < c.ways(i) {
				break
			}
			s[i] = 0
		}
		if i == len(s) {
			return found, best
		}
	}
}
