// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

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
	*problem       // of forward and backward
	fold     *fold // of them; nil: no layers are equal

	all       []*variable // what may be sharded: variables in the order of the program, and then data
	variables int         // how many of them are variables
	shared    []string    // variables that may not, because other stages read them
	kept      int64       // bytes that forward keeps for backward
	named     map[*ir.Variable]*variable
	readers   [][]use // by value, in forward

	known     map[string]estimate // by state
	lanes     []*chooser          // that look at choices at the same time, each with memory of its own
	reference float64             // how long a step takes, about: see price
}

func (c *chooser) vars() []*variable   { return c.all[:c.variables] }
func (c *chooser) inputs() []*variable { return c.all[c.variables:] }

// variable is one that may be sharded; or data of a split stage, without a variable of the program.
type variable struct {
	v      *ir.Variable // of the program
	name   string
	index  int // among all that may be sharded
	number int // of its value
	ir.Division
	bytes  int64       // with what the optimizer keeps for it
	ways   []Placement // whole first, unless it is pinned
	pinned bool
	// A bias follows its weights: it is sharded if these are along a dim.
	follows *variable
	dim     int
}

// use is an input of a task.
type use struct {
	t     *task
	input int
}

func newChooser(p *ir.Program) (*chooser, error) {
	whole, err := newOwners(p)
	if err != nil {
		return nil, err
	}
	x, err := newProblem(p, ir.Backward)
	if err != nil {
		return nil, err
	}
	c := &chooser{problem: x, named: map[*ir.Variable]*variable{}, known: map[string]estimate{}, readers: make([][]use, len(x.values))}
	for _, t := range x.tasks {
		for i, v := range t.in {
			if v >= 0 && t.op.Phase == ir.Forward {
				c.readers[v] = append(c.readers[v], use{t, i})
			}
		}
	}
	for i, name := range p.VariableNames() {
		c.add(p.Variables[i], name, whole)
	}
	c.variables = len(c.all)
	c.addData()
	c.kept = x.kept()
	for _, x := range c.vars() {
		if x.v.Param.Shape.Rank() == 1 {
			x.follows, x.dim = c.tieOf(x)
		}
	}
	return c, nil
}

// add takes a variable, if it may be sharded: it is one of a split TaskGraph, no other stage needs it, and it is trained, or a
// matrix that stays as it is.
func (c *chooser) add(v *ir.Variable, name string, whole *problem) {
	g, s := whole.of[v.TaskGraph], v.Param.Shape
	if v.TaskGraph == nil || v.TaskGraph.Kind != ir.Split || len(g.places) == 1 || s.IsDynamic() || s.DType.IsPacked() ||
		!v.Trainable && (v.Update != nil || s.Rank() < 2) {
		return
	}
	x := &variable{v: v, name: name, index: len(c.all), number: c.number[v.Param], Division: g.Division, ways: []Placement{{}}}
	for _, y := range whole.withSlots(v) {
		if x.bytes += y.Param.Bytes(); whole.foreign[y] {
			c.shared = append(c.shared, name)
			return
		}
	}
	for d, n := range s.Dimensions {
		unit := c.unitFor(x.number, d)
		if !fits(n, unit, x.Devices) {
			unit = 1
		}
		if fits(n, unit, x.Devices) {
			x.ways = append(x.ways, shardOf(d, unit))
		}
	}
	c.all = append(c.all, x)
	c.named[v] = x
}

// addData takes data that meet weights; labels do not. Samples are not dealt to the devices of a split: who wants that writes
// replicate.
func (c *chooser) addData() {
	meets := make([]bool, len(c.values))
	for _, t := range slices.Backward(c.tasks) {
		found := t.op.Phase == ir.Forward && (meets[t.out[0]] || slices.ContainsFunc(t.in, func(v int) bool { return v >= 0 && c.values[v].of != nil }))
		for _, v := range t.in {
			if v >= 0 {
				meets[v] = meets[v] || found
			}
		}
	}
	for _, d := range c.data {
		if !meets[d.value] || slices.ContainsFunc(c.inputs(), func(x *variable) bool { return x.number == d.value }) {
			continue
		}
		x := &variable{index: len(c.all), number: d.value, ways: []Placement{{}}}
		for dim, n := range dims(c.values[d.value].v)[1:] {
			if fits(n, 1, len(d.reader.g.places)) {
				x.ways = append(x.ways, shardOf(dim+1, 1))
			}
		}
		if len(x.ways) > 1 {
			c.all = append(c.all, x)
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
			if v >= 0 && !seen[v] && x.values[v].by != nil && x.values[v].by.op.Phase == ir.Forward {
				seen[v] = true
				n += x.values[v].bytes
			}
		}
	}
	return n
}

var digits = regexp.MustCompile(`[0-9]+`)

// readersOf describes what reads a variable, a few ops far, and what ways it has: variables with the same description have the
// same part in their layers.
func (c *chooser) readersOf(x *variable) string {
	var b strings.Builder
	fmt.Fprint(&b, x.Devices, x.v.Param.Shape, x.pinned)
	for _, w := range x.ways {
		fmt.Fprint(&b, w)
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
