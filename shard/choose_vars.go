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
	inputs  []*input       // data that may be sharded
	kept    int64          // bytes that forward keeps for backward
	named   map[*ir.Variable]*variable
	readers [][]use // by value, in forward
	makers  []*task // by value

	known     map[string]estimate // by state
	marks     []bool              // by value
	reference float64             // how long a step takes, about: see price
}

// variable is one that may be sharded.
type variable struct {
	v       *ir.Variable // of the program
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

// input is data of a split stage that may be sharded.
type input struct {
	v    *ir.Value
	ways []Placement // whole first
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
	c.addData()
	c.kept = x.kept()
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
	x := &variable{v: v, number: c.problem.number[v.Param], k: len(g.places), bytes: v.Param.Bytes(), ways: []way{{}}}
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

// addData takes data that meet weights; labels do not. Samples are not dealt to the devices of a split: who wants that writes
// replicate.
func (c *chooser) addData() {
	meets := make([]bool, len(c.values))
	for i := len(c.tasks) - 1; i >= 0; i-- {
		t := c.tasks[i]
		found := t.op.Phase == ir.Forward && (meets[t.out[0]] || slices.ContainsFunc(t.in, func(v int) bool { return v >= 0 && c.values[v].weight }))
		for _, v := range t.in {
			if v >= 0 {
				meets[v] = meets[v] || found
			}
		}
	}
	for _, d := range c.data {
		v := c.values[d.value].v
		if !meets[d.value] || slices.ContainsFunc(c.inputs, func(x *input) bool { return x.v == v }) {
			continue
		}
		x := &input{v: v, ways: []Placement{{}}}
		for dim, n := range dims(v)[1:] {
			if fits(n, 1, len(d.reader.g.places)) {
				x.ways = append(x.ways, shardOf(dim+1, 1))
			}
		}
		if len(x.ways) > 1 {
			c.inputs = append(c.inputs, x)
		}
	}
}

// kept is how many bytes split stages compute in forward, and read in backward.
func (x *problem) kept() (n int64) {
	seen := make([]bool, len(x.values))
	for _, t := range x.tasks {
		if t.op.Phase != ir.Backward || !t.g.split {
			continue
		}
		for _, v := range t.in {
			if v < 0 || seen[v] || x.values[v].leaf || x.values[v].v.Op.Phase != ir.Forward {
				continue
			}
			seen[v] = true
			n += x.values[v].bytes
		}
	}
	return n
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
