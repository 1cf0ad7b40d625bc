// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package ir

import "slices"

// Clone returns a copy of the program that shares only what never changes: attributes and shapes.
func (p *Program) Clone() *Program {
	c := cloner{values: make(map[*Value]*Value, p.nextID), funcs: map[*Func]*Func{}, taskGraphs: map[*TaskGraph]*TaskGraph{}, variables: map[*Variable]*Variable{}}
	q := &Program{Name: p.Name, OutputsKnown: p.OutputsKnown, Passes: slices.Clone(p.Passes), nextID: p.nextID}
	if p.Local != nil {
		local := *p.Local
		local.Shares = slices.Clone(local.Shares)
		q.Local = &local
	}
	for _, t := range p.TaskGraphs {
		d := *t
		d.Pins = slices.Clone(t.Pins)
		c.taskGraphs[t] = &d
		q.TaskGraphs = append(q.TaskGraphs, &d)
	}
	for _, s := range p.Stages {
		stage := Stage{Places: slices.Clone(s.Places), Axes: slices.Clone(s.Axes), Weights: slices.Clone(s.Weights)}
		for _, t := range s.TaskGraphs {
			stage.TaskGraphs = append(stage.TaskGraphs, c.taskGraphs[t])
		}
		q.Stages = append(q.Stages, stage)
	}
	for _, f := range p.Funcs { // all exist before any body refers to them
		c.funcs[f] = &Func{Name: f.Name}
		q.Funcs = append(q.Funcs, c.funcs[f])
	}
	for _, f := range p.Funcs {
		c.body(f, c.funcs[f])
	}
	q.Main = &Func{Name: p.Main.Name}
	c.body(p.Main, q.Main)
	for _, v := range p.Variables {
		d := &Variable{Path: v.Path, Param: c.values[v.Param], Trainable: v.Trainable, Update: c.values[v.Update], TaskGraph: c.taskGraphs[v.TaskGraph]}
		c.variables[v] = d
		q.Variables = append(q.Variables, d)
	}
	q.Inputs = c.list(p.Inputs)
	for _, g := range p.Gradients {
		q.Gradients = append(q.Gradients, Gradient{c.variables[g.Variable], c.values[g.Value]})
	}
	q.Loss = c.values[p.Loss]
	for _, o := range p.Outputs {
		q.Outputs = append(q.Outputs, Output{c.variables[o.Updates], o.Always, o.Guard})
	}
	for _, l := range p.Collections {
		q.Collections = append(q.Collections, Collection{l.Key, c.list(l.Values)})
	}
	return q
}

// cloner maps the old to the new; nil maps to nil.
type cloner struct {
	values     map[*Value]*Value
	funcs      map[*Func]*Func
	taskGraphs map[*TaskGraph]*TaskGraph
	variables  map[*Variable]*Variable
}

func (c *cloner) list(vs []*Value) []*Value {
	var r []*Value
	for _, v := range vs {
		r = append(r, c.values[v])
	}
	return r
}

func (c *cloner) body(f, g *Func) {
	g.Ops = slices.Grow(g.Ops, len(f.Ops))
	for _, op := range f.Ops {
		d := op.Copy(c.list(op.Inputs))
		d.TaskGraph, d.Keep, d.Twin, d.Of = c.taskGraphs[op.TaskGraph], op.Keep, c.list(op.Twin), c.values[op.Of]
		d.Funcs = nil
		for _, h := range op.Funcs {
			if c.funcs[h] == nil { // a closure, met for the first time
				c.funcs[h] = &Func{Name: h.Name, Parent: g}
				c.body(h, c.funcs[h])
			}
			d.Funcs = append(d.Funcs, c.funcs[h])
		}
		for i, v := range op.Outputs {
			c.values[v] = d.Outputs[i]
		}
		g.Append(d)
	}
	g.Outputs = c.list(f.Outputs)
}
