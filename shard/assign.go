// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package shard

import (
	"reflect"

	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/shapes"

	"github.com/easyparallel/epl/ir"
	"github.com/easyparallel/epl/ir/analysis"
)

// assign writes the program down as the plan says: every op once, for all devices of its stage, with placements of its results,
// and a Reshard wherever a value is needed in another placement. It drops what nobody needs.
func (x *problem) assign(vars *sharding, todo *plan) {
	a := &assignment{problem: x, todo: todo, written: map[*ir.Op]bool{}, made: map[any]*ir.Value{}}
	old := x.p.Main.Ops
	x.p.Main.Ops = nil
	for _, op := range old {
		op.Twin, op.Of = nil, nil
		if op.IsLeaf() {
			x.p.Main.Ops = append(x.p.Main.Ops, op)
		}
	}
	for _, v := range x.p.Variables {
		if p := vars.of(v); p.Kind == Sharded {
			v.Param.SetDivided(ir.Model, p, x.of[v.TaskGraph].Division)
		}
	}
	for _, s := range todo.steps {
		a.step(s)
	}
	next := 0
	x.results(func(v **ir.Value, _ *ir.Variable) {
		if h := todo.leaving[next]; h != nil {
			*v = h.v
		}
		next++
	})
	if x.p.Loss != nil {
		x.p.Loss = a.someValue(x.p.Loss)
	}
	for _, c := range x.p.Collections {
		for i, v := range c.Values {
			c.Values[i] = a.someValue(v)
		}
	}
	analysis.Sweep(x.p)
}

type assignment struct {
	*problem
	todo    *plan
	written map[*ir.Op]bool   // ops that are in the new program
	made    map[any]*ir.Value // numbers and positions that several ops need
}

// once makes a value for all who need it.
func (a *assignment) once(key any, make func() *ir.Value) *ir.Value {
	if a.made[key] == nil {
		a.made[key] = make()
	}
	return a.made[key]
}

// step writes a step down.
func (a *assignment) step(s *step) {
	if s.kind == opStep {
		for i, v := range a.op(s) {
			s.out[i].v = v
		}
		return
	}
	from, to := s.in[0], s.out[0]
	if len(from.g.places) == 1 && len(to.g.places) == 1 {
		to.v = from.v // an op that reads a value of another device is all there is to a transfer
		return
	}
	v := from.v
	if from.g != to.g && a.loose[from.value] { // made of variables alone: everyone computes it who needs it
		if v = a.again(from.value, s, map[*task]*ir.Op{}); to.Placement == (Placement{}) {
			to.v = v
			return
		}
	}
	to.v = a.reshard(a.siteOf(s), s.g, to.Placement, v)
}

// again computes a value of another stage here, whole: as the program says, not as the devices of that stage do it.
func (a *assignment) again(value int, s *step, copies map[*task]*ir.Op) *ir.Value {
	x := &a.values[value]
	t := x.by
	if t == nil {
		return x.v
	}
	if copies[t] == nil {
		in := make([]*ir.Value, len(t.in))
		for i, v := range t.in {
			if v >= 0 {
				in[i] = a.again(v, s, copies)
			}
		}
		own := len(t.op.Inputs)
		c := a.p.CopyOp(t.op, in[:own:own])
		if c.Funcs != nil {
			here, i := map[*ir.Value]*ir.Value{}, own
			t.op.Captures(func(v *ir.Value) { here[v], i = in[i], i+1 })
			c.Funcs = a.p.CopyFuncs(c.Funcs, here)
		}
		a.put(c, a.siteOf(s), s.g, Placement{})
		rephase(c.Funcs, c.Phase)
		copies[t] = c
	}
	return copies[t].Outputs[x.v.Index]
}

// rephase moves the ops of closures to the phase of the op that they belong to: what they capture may be of that phase.
func rephase(funcs []*ir.Func, phase ir.Phase) {
	for _, f := range funcs {
		if f.Parent == nil {
			continue // of the program, not of one op
		}
		for _, op := range f.Ops {
			op.Phase = phase
			rephase(op.Funcs, phase)
		}
	}
}

// reshard is a value in another placement. What a device takes of something whole depends on where it is.
func (a *assignment) reshard(at site, g *group, p Placement, v *ir.Value) *ir.Value {
	in := []*ir.Value{v}
	if v.On(ir.Model).Kind == Replicated && (v.Op.IsLeaf() || a.of[v.Op.TaskGraph] == g) {
		in = append(in, a.position(g))
	}
	return a.add(at, g, p, &ir.Reshard{}, v.Shape, in...)
}

// position is where a device is in its group.
func (a *assignment) position(g *group) *ir.Value {
	return a.once(g, func() *ir.Value { return a.add(site{}, g, each, &ir.Position{Axis: ir.Model}, ir.PositionShape) })
}

// op writes an op down, and returns its results.
func (a *assignment) op(s *step) []*ir.Value {
	op := s.task.op
	if a.written[op] {
		op = a.p.CopyOp(op, append([]*ir.Value(nil), op.Inputs...))
		op.Keep = s.task.op.Keep
	}
	a.written[s.task.op] = true
	op.Phase = s.phase
	changed := map[*ir.Value]*ir.Value{} // what functions capture
	for i, h := range s.in {
		switch {
		case h == nil:
		case i < len(op.Inputs):
			op.Inputs[i] = h.v
		default:
			changed[a.values[s.task.in[i]].v] = h.v
		}
	}
	captures := false
	op.Captures(func(v *ir.Value) { captures = captures || changed[v] != v })
	if captures {
		op.Funcs = a.p.CopyFuncs(op.Funcs, changed)
		rephase(op.Funcs, op.Phase)
	}
	if len(s.g.places) > 1 {
		if op.IsMerge() {
			if v := op.Inputs[0]; v.Op.IsReshard() { // a value is merged after the segment that computes it
				op.Inputs[0] = a.add(a.siteOf(s), s.g, s.s.in[0], &ir.Identity{}, v.Shape, v)
			}
		} else if write := specials[op.Type()]; write != nil {
			if outs := write(&writing{assignment: a, op: op, g: s.g, strategy: s.s}); outs != nil {
				return outs
			}
		}
		for i, v := range op.Outputs {
			v.SetDivided(ir.Model, s.s.out[i], s.g.Division)
		}
	}
	op.SetVarying()
	a.p.Main.Append(op)
	return op.Outputs
}

// site is where and when a new op runs.
type site struct {
	ir.Attribution
	keep bool
}

func siteOf(op *ir.Op) site { return site{op.Attribution, op.Keep} }

// siteOf is where and when the ops of a step run.
func (a *assignment) siteOf(s *step) site {
	at := siteOf(s.op)
	at.Phase = s.phase
	if a.of[at.TaskGraph] != s.g && s.g.first != nil {
		at.TaskGraph, at.Place = s.g.first, s.g.index
	}
	return at
}

// put appends an op that has all it reads.
func (a *assignment) put(op *ir.Op, at site, g *group, p Placement) {
	op.Attribution, op.Keep = at.Attribution, at.keep
	for _, v := range op.Outputs {
		v.SetDivided(ir.Model, p, g.Division)
	}
	op.SetVarying()
	a.p.Main.Append(op)
}

// add appends an op of all devices of a stage, with one result.
func (a *assignment) add(at site, g *group, p Placement, attrs ir.Attrs, s shapes.Shape, in ...*ir.Value) *ir.Value {
	op := a.p.NewOp(attrs, in, s)
	a.put(op, at, g, p)
	return op.Outputs[0]
}

// zero is a constant.
func (a *assignment) zero(t dtypes.DType) *ir.Value {
	return a.once(t, func() *ir.Value { return a.constant(reflect.Zero(t.GoType()).Interface()) })
}

// constant is a number.
func (a *assignment) constant(x any) *ir.Value {
	n := ir.NumberOf(x)
	return a.add(site{}, &group{}, Placement{}, &ir.Constant{Value: n}, n.Shape)
}

// someValue is a value as the devices of its stage have it: whole, if they do.
func (a *assignment) someValue(v *ir.Value) *ir.Value {
	if v.Op.IsLeaf() {
		return v
	}
	some := v // nobody needs it: it is dropped
	found := false
	for h := a.todo.first[a.number[v]]; h != nil; h = h.next {
		if h.v != nil && (!found || h.Kind == Replicated) {
			some, found = h.v, true
		}
	}
	return some
}
