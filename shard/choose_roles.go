package shard

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/easyparallel/epl/ir"
)

// chooser chooses shardings of variables. It looks at forward and backward only: what the optimizer does with a part of a
// variable needs nothing of the others, and costs as much as there is of it.
type chooser struct {
	*problem // of forward and backward

	vars    []*variable    // that may be sharded, in the order of the program
	shared  []*ir.Variable // that may not, because other stages read them
	named   map[*ir.Variable]*variable
	readers [][]use // by value, in forward
	makers  []*task // by value

	known     map[string]estimate // by state
	reference float64             // how long a step takes, about: see price
}

// variable is one that may be sharded.
type variable struct {
	v       *ir.Variable // of the program
	twin    *ir.Variable // in the part that is looked at
	index   int          // among those that may be sharded
	number  int          // of its value
	k       int          // devices
	bytes   int64        // with what the optimizer keeps for it
	ways    []way        // whole first, unless it is pinned
	pinned  bool
	follows *tie // it is sharded if another one is
}

// way is a placement that a variable may have.
type way struct {
	Placement
	why string
}

// tie says that a dim of a variable, the only one, goes along with that of another: a bias goes along with its weights.
type tie struct {
	to  *variable
	dim int
}

// use is an input of a task.
type use struct {
	t     *task
	input int
}

func newChooser(p *ir.Program) (*chooser, error) {
	whole, err := newProblem(p)
	if err != nil {
		return nil, err
	}
	small, twins := withoutApply(p)
	x, err := newProblem(small)
	if err != nil {
		return nil, err
	}
	c := &chooser{problem: x, named: map[*ir.Variable]*variable{}, known: map[string]estimate{}}
	c.readers, c.makers = make([][]use, len(x.values)), make([]*task, len(x.values))
	for _, t := range x.tasks {
		for _, v := range t.out {
			c.makers[v] = t
		}
		for i, v := range t.in {
			if v >= 0 && t.op.Phase == ir.Forward {
				c.readers[v] = append(c.readers[v], use{t, i})
			}
		}
	}
	for _, v := range p.Variables {
		c.add(v, twins[v], whole)
	}
	for _, x := range c.vars {
		if x.v.Param.Shape.Rank() == 1 {
			x.follows = c.tieOf(x)
		}
	}
	return c, nil
}

// withoutApply is the program without the ops of the optimizer, and its variables. It shares all ops with the program.
func withoutApply(p *ir.Program) (*ir.Program, map[*ir.Variable]*ir.Variable) {
	q, main, twins := *p, *p.Main, map[*ir.Variable]*ir.Variable{}
	applies := func(v *ir.Value) bool { return v != nil && !v.Op.IsLeaf() && v.Op.Phase == ir.Apply }
	main.Ops = slices.DeleteFunc(slices.Clone(main.Ops), func(op *ir.Op) bool { return !op.IsLeaf() && op.Phase == ir.Apply })
	q.Main, q.Variables, q.Gradients, q.Outputs, q.Collections = &main, nil, nil, nil, nil
	for _, v := range p.Variables {
		w := *v
		if applies(w.Update) {
			w.Update = nil
		}
		twins[v] = &w
		q.Variables = append(q.Variables, &w)
	}
	for _, g := range p.Gradients {
		if !applies(g.Value) {
			q.Gradients = append(q.Gradients, ir.Gradient{Variable: twins[g.Variable], Value: g.Value})
		}
	}
	main.Outputs = nil
	for i, o := range p.Outputs {
		if v := p.Main.Outputs[i]; !applies(v) {
			main.Outputs = append(main.Outputs, v)
			q.Outputs = append(q.Outputs, ir.Output{Updates: twins[o.Updates]})
		}
	}
	return &q, twins
}

// add takes a variable, if it may be sharded: it is one of a split TaskGraph, no other stage needs it, and it is trained, or a
// matrix that stays as it is.
func (c *chooser) add(v, twin *ir.Variable, whole *problem) {
	g, s := whole.of[v.TaskGraph], v.Param.Shape
	if v.TaskGraph == nil || v.TaskGraph.Kind != ir.Split || len(g.places) == 1 || s.IsDynamic() || s.DType.IsPacked() ||
		!v.Trainable && (v.Update != nil || s.Rank() < 2) {
		return
	}
	x := &variable{v: v, twin: twin, number: c.problem.number[v.Param], k: len(g.places), bytes: v.Param.Bytes(), ways: []way{{}}}
	for _, slot := range whole.slots[v] {
		x.bytes += slot.Param.Bytes()
	}
	if slices.ContainsFunc(append([]*ir.Variable{v}, whole.slots[v]...), func(v *ir.Variable) bool { return whole.foreign[v] }) {
		c.shared = append(c.shared, v)
		return
	}
	for d, n := range s.Dimensions {
		unit := c.unitFor(x.number, d)
		if !fits(n, unit, x.k) {
			unit = 1
		}
		if fits(n, unit, x.k) {
			x.ways = append(x.ways, way{shardOf(d, unit), c.why(x.number, d)})
		}
	}
	x.index = len(c.vars)
	c.vars = append(c.vars, x)
	c.named[twin] = x
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

var digits = regexp.MustCompile(`[0-9]+`)

// readersOf describes what reads a variable, a few ops far, and what ways it has: variables with the same description have the
// same part in their layers.
func (c *chooser) readersOf(x *variable) string {
	var b strings.Builder
	fmt.Fprint(&b, x.k, x.v.Param.Shape, x.pinned)
	for _, w := range x.ways {
		fmt.Fprint(&b, w.Placement)
	}
	var readers func(v, far int)
	readers = func(v, far int) {
		for _, u := range c.readers[v] {
			fmt.Fprint(&b, " ", u.t.op.Type(), u.input)
			for _, o := range u.t.out {
				fmt.Fprint(&b, c.values[o].v.Shape)
				if far > 0 {
					b.WriteString("(")
					readers(o, far-1)
					b.WriteString(")")
				}
			}
		}
	}
	readers(x.number, 2)
	return b.String()
}
