package shard

import (
	"slices"

	"github.com/easyparallel/epl/ir"
)

// unitFor finds how many rows of a dim of a variable stay together: those of a head, if what is computed with the dim is
// reshaped to heads, or comes from there.
func (c *chooser) unitFor(v, dim int) int {
	type place struct{ v, dim int }
	type visit struct {
		place
		rows, of int // so many rows of the variable are so many of the value
	}
	const far = 6 // ops away
	seen := map[place]bool{{v, dim}: true}
	now := []visit{{place{v, dim}, 1, 1}}
	for range far {
		var next []visit
		for _, at := range now {
			unit := 1
			c.touches(at.v, at.dim, func(t *task, f *Factor, ref Ref) {
				if n := ref.Mul * at.rows; n%at.of == 0 && n > at.of && unit == 1 {
					unit = n / at.of
				}
				follow := func(v int, r Ref) {
					if p := (place{v, r.Dim}); v >= 0 && r.Dim >= 0 && !seen[p] {
						seen[p] = true
						next = append(next, visit{p, at.rows * ref.Mul, at.of * r.Mul})
					}
				}
				for i, r := range f.In {
					follow(t.in[i], r)
				}
				for i, r := range f.Out {
					follow(t.out[i], r)
				}
			})
			if unit > 1 {
				return unit
			}
		}
		now = next
	}
	return 1
}

// touches finds the factors of forward ops that a dim of a value belongs to.
func (c *chooser) touches(v, dim int, visit func(t *task, f *Factor, ref Ref)) {
	if t := c.makers[v]; t != nil && t.op.Phase == ir.Forward {
		for n := range t.rule.Factors {
			f := &t.rule.Factors[n]
			for i, r := range f.Out {
				if t.out[i] == v && r.Dim == dim {
					visit(t, f, r)
				}
			}
		}
	}
	for _, u := range c.readers[v] {
		for n := range u.t.rule.Factors {
			f := &u.t.rule.Factors[n]
			if u.input < len(f.In) && f.In[u.input].Dim == dim {
				visit(u.t, f, f.In[u.input])
			}
		}
	}
}

// why says what a dim of a variable is for the first op that reads it.
func (c *chooser) why(v, dim int) string {
	for dim >= 0 && len(c.readers[v]) > 0 {
		u := c.readers[v][0]
		n := slices.IndexFunc(u.t.rule.Factors, func(f Factor) bool { return f.In[u.input].Dim == dim })
		if n < 0 {
			return ""
		}
		f := &u.t.rule.Factors[n]
		if c.values[u.t.out[0]].weight {
			v, dim = u.t.out[0], f.Out[0].Dim
			continue
		}
		op := string(u.t.op.Type())
		if u.t.op.Source != "" {
			op += " (" + string(u.t.op.Source) + ")"
		}
		switch c.partIn(f, u.t) {
		case summed:
			return op + " sums over it: each device adds up what it has"
		case picked:
			return op + " picks rows of it: each device gives those that it has"
		case shared:
			return op + " does something else for each row of it: each device does so for its own"
		}
		return "each device makes a part of the output of " + op
	}
	return ""
}

// part is what a factor is for an op that reads a weight.
type part uint8

const (
	free   part = iota // a dim of the output
	summed             // the op sums over it, together with another input
	picked             // the op sums over it alone: it picks rows
	shared             // a dim of the output, and of another input
)

// partIn tells what a factor is for an op that reads a weight. That another weight has it, too, does not matter.
func (c *chooser) partIn(f *Factor, t *task) part {
	other := false
	for i, r := range f.In {
		other = other || t.in[i] >= 0 && r.Dim >= 0 && !c.values[t.in[i]].weight
	}
	switch {
	case f.Reduce != 0 && other:
		return summed
	case f.Reduce != 0:
		return picked
	case other:
		return shared
	}
	return free
}

// multiplies tells whether an op computes a product with a weight: it has a factor that it sums over together with another
// input.
func (c *chooser) multiplies(t *task) bool {
	return slices.ContainsFunc(t.rule.Factors, func(f Factor) bool { return c.partIn(&f, t) == summed })
}
