package shard

import "slices"

// trace finds the variable of which a weight is another form, and its dim that becomes one of the weight; nil if it is none of
// those that may be sharded.
func (c *chooser) trace(v, dim int) (*variable, int) {
	for c.values[v].of == nil {
		t := c.makers[v]
		if t == nil || !c.values[v].weight || len(t.in) != 1 {
			return nil, 0
		}
		n := slices.IndexFunc(t.rule.Factors, func(f Factor) bool { return f.Out[0].Dim == dim && f.In[0].Dim >= 0 })
		if n < 0 {
			return nil, 0
		}
		v, dim = t.in[0], t.rule.Factors[n].In[0].Dim
	}
	return c.named[c.values[v].of], dim
}

// tieOf finds the weights whose columns a vector goes along with: it is added to what is computed with them.
func (c *chooser) tieOf(x *variable) *tie {
	v, dim := x.number, 0
	for {
		if len(c.readers[v]) != 1 {
			return nil
		}
		u := c.readers[v][0]
		n := slices.IndexFunc(u.t.rule.Factors, func(f Factor) bool { return f.In[u.input].Dim == dim && f.Reduce == 0 })
		if n < 0 {
			return nil
		}
		f := &u.t.rule.Factors[n]
		if c.values[u.t.out[0]].weight {
			if v, dim = u.t.out[0], f.Out[0].Dim; dim < 0 {
				return nil
			}
			continue
		}
		for i, r := range f.In {
			if w := u.t.in[i]; i != u.input && w >= 0 && r.Dim >= 0 {
				return c.columns(w, r.Dim, x)
			}
		}
		return nil
	}
}

// columns finds the weights whose columns, one for each element of a vector, are a dim of a value: it is a weight, or computed
// with one.
func (c *chooser) columns(v, dim int, x *variable) *tie {
	for {
		if c.values[v].weight {
			to, d := c.trace(v, dim)
			if to == nil || to.v.Param.Shape.Rank() == 1 || dims(to.v.Param)[d] != dims(x.v.Param)[0] || c.of[to.v.TaskGraph] != c.of[x.v.TaskGraph] {
				return nil
			}
			return &tie{to, d}
		}
		t := c.makers[v]
		if t == nil {
			return nil
		}
		at := slices.IndexFunc(t.rule.Factors, func(f Factor) bool { return f.Out[0].Dim == dim && f.Reduce == 0 })
		if at < 0 {
			return nil
		}
		f := &t.rule.Factors[at]
		v = -1
		for i, r := range f.In {
			if w := t.in[i]; w >= 0 && r.Dim >= 0 && (reshapes(t.op) || c.values[w].weight && c.multiplies(t)) {
				v, dim = w, r.Dim
			}
		}
		if v < 0 {
			return nil
		}
	}
}
