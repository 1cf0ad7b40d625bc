// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package shard

import (
	"slices"

	"github.com/easyparallel/epl/cost"
	"github.com/easyparallel/epl/ir"
)

// problem is a program as those see it who choose placements: what does not depend on the choice, found once.
type problem struct {
	p      *ir.Program
	batch  int // how many samples a micro-batch has; 0 if there is no telling
	of     map[*ir.TaskGraph]*group
	groups []*group // by index; of ops outside every TaskGraph

	tasks  []*task // ops that are no leaves, in order
	values []value
	number map[*ir.Value]int // in values
	// slots are the variables that the optimizer keeps for a variable.
	slots   map[*ir.Variable][]*ir.Variable
	data    []datum               // that a choice may shard
	foreign map[*ir.Variable]bool // other stages read them
	loose   []bool                // values that are made of variables alone

	memory arena
}

// group is the devices of a stage.
type group struct {
	places []int
	index  int           // among the groups of a model replica
	first  *ir.TaskGraph // of the stage
	split  bool          // a TaskGraph of the stage is split
	ir.Division
}

// task is an op.
type task struct {
	op    *ir.Op
	g     *group
	rule  *Rule
	in    []int // numbers of inputs, and then of what functions capture; -1: absent
	out   []int
	flops int64
	deals bool  // its TaskGraph deals data to devices by samples
	data  bool  // it does something cheap to data: its users say which rows they need
	fused bool  // it makes each element from a few others
	sum   *sum  // it adds up more than two values, together with others
	more  int64 // tasks of other layers that it stands for, besides itself
}

// sum is an addition of several values: additions of which each but the last is for another one only.
type sum struct {
	tasks []*task // in order
	terms []int
}

// datum is an input that a split stage reads, or what another stage makes for it; the reader is the first op that does.
type datum struct {
	value  int
	reader *task
}

// value is one of the program.
type value struct {
	v      *ir.Value
	by     *task  // nil: it is a leaf
	home   *group // of the task
	bytes  int64
	uses   int
	deal   Placement    // how data, or what is made of data alone by moving them, are dealt by samples; or whole
	pure   bool         // made of data and constants alone, by ops that are cheap
	number bool         // all elements are the same
	moved  *task        // that makes it of one other value by moving elements
	of     *ir.Variable // it is a weight: the variable, or another form of it
	grad   *ir.Variable // of which it is the gradient
	split  bool         // made in a split TaskGraph, and a row for each sample
	more   int64        // values of other layers that it stands for, besides itself
}

// newProblem reads a program, without the ops of phases after the last one.
func newProblem(p *ir.Program, last ir.Phase) (*problem, error) {
	x, err := readProgram(p, last, (*problem).read)
	if err != nil {
		return nil, err
	}
	others := []*ir.Value{p.Loss}
	for _, c := range p.Collections {
		others = append(others, c.Values...)
	}
	x.results(func(v **ir.Value, _ *ir.Variable) { others = append(others, *v) })
	for _, v := range others {
		if n, ok := x.number[v]; ok {
			x.values[n].uses++
		}
	}
	x.findSums()
	x.findSlots()
	x.findForeign()
	x.findData()
	return x, nil
}

// newOwners reads a program for what belongs to its variables: slots, and whether they are foreign.
func newOwners(p *ir.Program) (*problem, error) {
	x, err := readProgram(p, ir.Apply, (*problem).link)
	if err == nil {
		x.findSlots()
		x.findForeign()
	}
	return x, err
}

// readProgram reads stages, leaves and, each by a function, ops up to the last phase.
func readProgram(p *ir.Program, last ir.Phase, read func(x *problem, op *ir.Op, gradients map[*ir.Value]*ir.Variable)) (*problem, error) {
	x := &problem{p: p, of: map[*ir.TaskGraph]*group{}, number: make(map[*ir.Value]int, len(p.Main.Ops)), values: make([]value, 0, len(p.Main.Ops))}
	if err := x.readStages(); err != nil {
		return nil, err
	}
	variables, gradients := map[*ir.Value]*ir.Variable{}, map[*ir.Value]*ir.Variable{}
	for _, v := range p.Variables {
		variables[v.Param] = v
	}
	for _, g := range p.Gradients {
		gradients[g.Value] = g.Variable
	}
	for _, op := range p.Main.Ops {
		if op.IsLeaf() {
			for _, v := range op.Outputs {
				info := value{v: v, of: variables[v], pure: variables[v] == nil}
				if slices.Contains(p.Inputs, v) && x.hasSamples(v) {
					info.deal = shardOf(0, 1)
				}
				x.add(info, gradients[v])
			}
		} else if op.Phase <= last {
			read(x, op, gradients)
		}
	}
	return x, nil
}

// add adds a value.
func (x *problem) add(info value, grad *ir.Variable) {
	info.bytes, info.number, info.grad = info.v.Bytes(), isNumber(info.v), grad
	x.number[info.v] = len(x.values)
	x.values = append(x.values, info)
}

// read reads an op; what it reads has been seen.
func (x *problem) read(op *ir.Op, gradients map[*ir.Value]*ir.Variable) {
	t := x.task(op)
	t.rule, t.flops, t.deals = &Rule{}, cost.Of(op).Flops, op.TaskGraph != nil && op.TaskGraph.Kind == ir.Replicate
	if len(t.g.places) > 1 {
		if r := RuleOf(op); r != nil {
			t.rule = r
		}
	}
	t.fused = len(op.Outputs) == 1 && fuses(t.rule)
	for _, v := range op.Outputs {
		info := value{v: v, by: t, home: t.g}
		if len(t.in) == 1 && reshapes(op) {
			info.of = x.values[t.in[0]].of
			if len(t.g.places) > 1 {
				info.moved = t
			}
		}
		info.split = op.TaskGraph != nil && op.TaskGraph.Kind == ir.Split && op.Varying && x.hasSamples(v)
		info.pure, info.deal = x.dealt(t)
		t.data = info.deal.Kind == Sharded
		t.out = append(t.out, len(x.values))
		x.add(info, gradients[v])
	}
}

// task makes the task of an op, with what it reads.
func (x *problem) task(op *ir.Op) *task {
	t := &task{op: op, g: x.groupOf(op), in: make([]int, 0, len(op.Inputs))}
	x.tasks = append(x.tasks, t)
	use := func(v *ir.Value) {
		n, ok := x.number[v]
		if !ok {
			n = -1
		} else {
			x.values[n].uses++
		}
		t.in = append(t.in, n)
	}
	for _, v := range op.Inputs {
		use(v)
	}
	op.Captures(use)
	return t
}

// link reads of an op what it reads and makes.
func (x *problem) link(op *ir.Op, gradients map[*ir.Value]*ir.Variable) {
	t := x.task(op)
	for _, v := range op.Outputs {
		t.out = append(t.out, len(x.values))
		x.add(value{v: v, by: t, home: t.g}, gradients[v])
	}
}

// hasSamples tells whether a value has a row for each sample.
func (x *problem) hasSamples(v *ir.Value) bool {
	return v.Shape.Rank() > 0 && !v.Shape.IsDynamic() && dims(v)[0] == x.batch
}

// results are those of the program, without the phases that were not read.
func (x *problem) results(visit func(v **ir.Value, of *ir.Variable)) {
	x.p.Results(func(v **ir.Value, of *ir.Variable) {
		if _, ok := x.number[*v]; ok {
			visit(v, of)
		}
	})
}

// dealt tells whether an op does something cheap to data and constants, and how the result is dealt by samples. In a stage that
// has a split TaskGraph it is left to its users which rows of it are needed: those of the batch, or of the classes of labels.
func (x *problem) dealt(t *task) (pure bool, p Placement) {
	const few = 32 // operations for each element
	if !t.g.split || len(t.op.Outputs) != 1 || t.flops > few*int64(t.op.Outputs[0].Shape.Size()) {
		return false, Placement{}
	}
	for _, v := range t.in {
		if v < 0 || !x.values[v].pure || x.values[v].v.Shape.Size() > t.op.Outputs[0].Shape.Size() {
			return false, Placement{}
		}
	}
	for _, f := range t.rule.Factors {
		for i, ref := range f.In {
			v := &x.values[t.in[i]]
			if unit, ok := f.unitOf(ref, v.deal, v.v.Shape, t.g.Division); ok && f.Out[0].Dim >= 0 && f.Reduce == 0 {
				return true, f.placement(f.Out[0], unit)
			}
		}
	}
	return true, Placement{}
}

// reshapes tells whether an op gives a value another form.
func reshapes(op *ir.Op) bool {
	switch op.Attrs.(type) {
	case *ir.Reshape, *ir.Transpose, *ir.ConvertDType, *ir.Identity, *ir.BroadcastInDim:
		return true
	}
	return false
}

// findSums finds additions of more than two values, which gradients are that several ops contribute to.
func (x *problem) findSums() {
	by := map[int]*task{} // results of additions, for one use
	for _, t := range x.tasks {
		fits := func(n int) bool { return x.values[t.in[n]].v.Shape.Equal(t.op.Outputs[0].Shape) }
		if _, ok := t.op.Attrs.(*ir.Add); !ok || len(t.g.places) == 1 || !fits(0) || !fits(1) {
			continue
		}
		s := &sum{}
		for _, v := range t.in {
			if u := by[v]; u != nil && u.g == t.g && u.op.Phase == t.op.Phase {
				s.tasks, s.terms = append(s.tasks, u.sum.tasks...), append(s.terms, u.sum.terms...)
			} else {
				s.terms = append(s.terms, v)
			}
		}
		s.tasks = append(s.tasks, t)
		for _, u := range s.tasks {
			u.sum = s
		}
		if x.values[t.out[0]].uses == 1 {
			by[t.out[0]] = t
		}
	}
	for _, t := range x.tasks {
		if t.sum != nil && len(t.sum.terms) < 3 {
			t.sum = nil
		}
	}
}

// findData finds the data of split stages: what has samples, and rows of something else for each.
func (x *problem) findData() {
	for _, t := range x.tasks {
		if t.op.Phase != ir.Forward || len(t.g.places) == 1 || t.op.TaskGraph == nil || t.op.TaskGraph.Kind != ir.Split {
			continue
		}
		for _, n := range t.in {
			if n < 0 || slices.ContainsFunc(x.data, func(d datum) bool { return d.value == n && d.reader.g == t.g }) {
				continue
			}
			v := &x.values[n]
			if !x.hasSamples(v.v) || v.v.Shape.Rank() < 2 || v.v.Shape.DType.IsPacked() {
				continue
			}
			if slices.Contains(x.p.Inputs, v.v) || v.by != nil && v.home != t.g && v.v.Op.Varying {
				x.data = append(x.data, datum{n, t})
			}
		}
	}
}

// findSlots finds the variables that the optimizer keeps for another one: they have its shape, and their new value is
// computed from its gradient or new value, element by element.
func (x *problem) findSlots() {
	x.slots = map[*ir.Variable][]*ir.Variable{}
	owner := make([]*ir.Variable, len(x.values))
	for i := range x.values {
		if v := &x.values[i]; v.grad != nil {
			owner[i] = v.grad
		} else if v.by == nil && v.of != nil && v.of.Trainable {
			owner[i] = v.of
		}
	}
	for _, t := range x.tasks {
		if t.op.Phase != ir.Apply {
			continue
		}
		for _, o := range t.out {
			for _, v := range t.in {
				if v >= 0 && owner[v] != nil && owner[o] == nil && owner[v].Param.Shape.EqualDimensions(x.values[o].v.Shape) {
					owner[o] = owner[v]
				}
			}
		}
	}
	for _, s := range x.p.Variables {
		n, ok := x.number[s.Update]
		if !ok || s.Trainable {
			continue
		}
		of := owner[n]
		if of == nil || of == s || !of.Param.Shape.EqualDimensions(s.Param.Shape) {
			continue
		}
		// Variables without gradients may share the zeros in place of these, also those of different devices.
		if s.TaskGraph == nil || x.of[s.TaskGraph] == x.of[of.TaskGraph] {
			x.slots[of] = append(x.slots[of], s)
		}
	}
}

func (x *problem) readStages() error {
	for _, in := range x.p.Inputs {
		if in.Shape.Rank() > 0 && !in.Shape.IsDynamic() {
			x.batch = dims(in)[0]
			break
		}
	}
	groups := x.p.Groups()
	x.groups = make([]*group, len(groups))
	for _, s := range x.p.Stages {
		index := slices.IndexFunc(groups, func(places []int) bool { return places[0] == s.Places[0] })
		g := x.groups[index] // stages may share their devices
		if g == nil {
			g = &group{places: s.Places, index: index, first: s.TaskGraphs[0], Division: s.Division(ir.Model)}
			x.groups[index] = g
		}
		for _, t := range s.TaskGraphs {
			x.of[t] = g
			g.split = g.split || t.Kind == ir.Split
			if err := x.check(t, len(s.Places)); err != nil {
				return err
			}
		}
	}
	return nil
}

// groupOf is the devices that compute an op.
func (x *problem) groupOf(op *ir.Op) *group {
	if op.TaskGraph != nil {
		return x.of[op.TaskGraph]
	}
	return x.groups[op.Place]
}
