// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package shard

import (
	"slices"

	"github.com/easyparallel/epl/ir"
)

// factor is that of the op which a dim of the input belongs to, nil if there is none.
func (u use) factor(dim int) *Factor {
	return u.t.rule.where(func(f *Factor) bool { return u.input < len(f.In) && f.In[u.input].Dim == dim })
}

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
			touch := func(t *task, f *Factor, ref Ref) {
				if n := ref.Mul * at.rows; n%at.of == 0 && n > at.of && unit == 1 {
					unit = n / at.of
				}
				operands := slices.Concat(t.in, t.out)
				for i, r := range slices.Concat(f.In, f.Out) {
					if p := (place{operands[i], r.Dim}); p.v >= 0 && r.Dim >= 0 && !seen[p] {
						seen[p] = true
						next = append(next, visit{p, at.rows * ref.Mul, at.of * r.Mul})
					}
				}
			}
			if t := c.values[at.v].by; t != nil && t.op.Phase == ir.Forward {
				out := slices.Index(t.out, at.v)
				if f := t.rule.where(func(f *Factor) bool { return f.Out[out].Dim == at.dim }); f != nil {
					touch(t, f, f.Out[out])
				}
			}
			for _, u := range c.readers[at.v] {
				if f := u.factor(at.dim); f != nil {
					touch(u.t, f, f.In[u.input])
				}
			}
			if unit > 1 {
				return unit
			}
		}
		now = next
	}
	return 1
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
		other = other || t.in[i] >= 0 && r.Dim >= 0 && c.values[t.in[i]].of == nil
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
	return t.rule.where(func(f *Factor) bool { return c.partIn(f, t) == summed }) != nil
}

// trace finds the variable of which a weight is another form, and its dim that becomes one of the weight; nil if it is none of
// those that may be sharded.
func (c *chooser) trace(v, dim int) (*variable, int) {
	for c.values[v].by != nil {
		t := c.values[v].by
		f := t.rule.where(func(f *Factor) bool { return f.Out[0].Dim == dim && f.In[0].Dim >= 0 })
		if f == nil {
			return nil, 0
		}
		v, dim = t.in[0], f.In[0].Dim
	}
	return c.named[c.values[v].of], dim
}

// tieOf finds the weights whose columns a vector goes along with: it is added to what is computed with them.
func (c *chooser) tieOf(x *variable) (to *variable, dim int) {
	for v, dim := x.number, 0; len(c.readers[v]) == 1 && dim >= 0; {
		u := c.readers[v][0]
		f := u.factor(dim)
		if f == nil || f.Reduce != 0 {
			return nil, 0
		}
		if c.values[u.t.out[0]].of != nil {
			v, dim = u.t.out[0], f.Out[0].Dim
			continue
		}
		for i, r := range f.In {
			if w := u.t.in[i]; i != u.input && w >= 0 && r.Dim >= 0 {
				return c.columns(w, r.Dim, x)
			}
		}
		return nil, 0
	}
	return nil, 0
}

// columns finds the weights whose columns, one for each element of a vector, are a dim of a value: it is a weight, or computed
// with one.
func (c *chooser) columns(v, dim int, x *variable) (to *variable, d int) {
	for c.values[v].of == nil {
		t := c.values[v].by
		if t == nil {
			return nil, 0
		}
		f := t.rule.where(func(f *Factor) bool { return f.Out[0].Dim == dim && f.Reduce == 0 })
		if f == nil {
			return nil, 0
		}
		v = -1
		for i, r := range f.In {
			if w := t.in[i]; w >= 0 && r.Dim >= 0 && (reshapes(t.op) || c.values[w].of != nil && c.multiplies(t)) {
				v, dim = w, r.Dim
			}
		}
		if v < 0 {
			return nil, 0
		}
	}
	to, d = c.trace(v, dim)
	if to == nil || to.v.Param.Shape.Rank() == 1 || dims(to.v.Param)[d] != dims(x.v.Param)[0] || c.of[to.v.TaskGraph] != c.of[x.v.TaskGraph] {
		return nil, 0
	}
	return to, d
}
