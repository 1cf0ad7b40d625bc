// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package shard

import (
	"slices"

	"github.com/easyparallel/epl/ir"
)

// Models multiply all words of all samples by a matrix at once: they reshape [samples, words, features] to [samples · words,
// features], and back. Sharding words would leave a device every so many rows of that, which no placement says. So, where data
// are sharded, such values keep both dims.

// flat says which dim of a value stands for two, and their sizes. The zero flat is that of a value of which none does.
type flat struct{ dim, samples, words int }

// unflatten gives values back the two dims that were made one, wherever all ops that read or make them can do with that, and
// returns how many there are. Ops and values stay, but for shapes.
func unflatten(p *ir.Program) int {
	u := unflattening{}
	wide := map[*ir.TaskGraph]bool{}
	for _, s := range p.Stages {
		split := slices.ContainsFunc(s.TaskGraphs, func(t *ir.TaskGraph) bool { return t.Kind == ir.Split })
		for _, t := range s.TaskGraphs {
			wide[t] = split && len(s.Places) > 1
		}
	}
	for _, op := range p.Main.Ops {
		if f, ok := u.follow(op); ok && f != (flat{}) && wide[op.TaskGraph] {
			u[op.Outputs[0]] = f
		}
	}
	p.Results(func(v **ir.Value, _ *ir.Variable) { delete(u, *v) }) // what leaves the program stays as it is
	for _, c := range p.Collections {
		for _, v := range c.Values {
			delete(u, v)
		}
	}
	for dropped := true; dropped; {
		dropped = false
		for _, op := range p.Main.Ops {
			dropped = u.drop(op) || dropped
		}
	}
	for _, op := range p.Main.Ops {
		u.rewrite(op)
	}
	for v, f := range u {
		v.Shape = v.Shape.Clone()
		v.Shape.Dimensions = f.dims(v)
	}
	return len(u)
}

// unflattening holds values with a dim that stands for two.
type unflattening map[*ir.Value]flat

// follow tells which dim of an op's output stands for two, given its inputs; and whether the op can do with two dims.
func (u unflattening) follow(op *ir.Op) (out flat, ok bool) {
	if len(op.Outputs) != 1 || len(op.Funcs) > 0 || len(op.Inputs) == 0 || slices.Contains(op.Inputs, nil) {
		return out, false
	}
	side := max(0, slices.IndexFunc(op.Inputs, func(v *ir.Value) bool { return u[v] != flat{} }))
	in := u[op.Inputs[side]]
	switch a := op.Attrs.(type) {
	case *ir.Reshape:
		if in != (flat{}) { // back
			return out, slices.Equal(a.Dimensions, in.dims(op.Inputs[0]))
		}
		x, y := dims(op.Inputs[0]), a.Dimensions
		if len(x) > 2 && len(y) == len(x)-1 && x[0] > 1 && x[1] > 1 && slices.Equal(x[2:], y[1:]) {
			out = flat{0, x[0], x[1]}
		}
		return out, true
	case *ir.ReduceSum:
		if len(a.Axes) == 0 {
			return out, in == (flat{})
		}
	case *ir.Transpose, *ir.DotGeneral:
	default:
		if !op.IsElementwise() {
			return out, false
		}
	}
	if in == (flat{}) {
		return out, true
	}
	f := RuleOf(op).where(func(f *Factor) bool { return f.In[side].Dim == in.dim })
	if f == nil {
		return out, false
	}
	as := func(r Ref) flat {
		if r.Dim < 0 {
			return flat{}
		}
		return flat{r.Dim, in.samples, in.words}
	}
	for i, v := range op.Inputs { // what is contracted, or the same on both sides, must be so in all inputs
		if u[v] != as(f.In[i]) || f.In[i].Dim < 0 && v.Shape.Rank() > 0 && op.IsElementwise() {
			return out, false
		}
	}
	return as(f.Out[0]), true
}

// touches tells whether an op reads or makes such a value.
func (u unflattening) touches(op *ir.Op) bool {
	found := slices.ContainsFunc(op.Outputs, func(v *ir.Value) bool { return u[v] != flat{} })
	op.Uses(func(v *ir.Value) { found = found || u[v] != flat{} })
	return found
}

// drop lets the values of an op be as they are, if it cannot do otherwise.
func (u unflattening) drop(op *ir.Op) bool {
	if !u.touches(op) {
		return false
	}
	if out, ok := u.follow(op); ok && u[op.Outputs[0]] == out {
		return false
	}
	op.Uses(func(v *ir.Value) { delete(u, v) })
	for _, v := range op.Outputs {
		delete(u, v)
	}
	return true
}

// rewrite changes the attributes of an op; shapes are still as they were.
func (u unflattening) rewrite(op *ir.Op) {
	if !u.touches(op) {
		return
	}
	in := u[op.Inputs[0]]
	switch a := op.Attrs.(type) {
	case *ir.Reshape:
		op.Attrs = &ir.Reshape{Dimensions: u[op.Outputs[0]].dims(op.Outputs[0])}
	case *ir.Transpose:
		op.Attrs = &ir.Transpose{Permutation: in.axes(a.Permutation)}
	case *ir.ReduceSum:
		op.Attrs = &ir.ReduceSum{Axes: in.axes(a.Axes)}
	case *ir.DotGeneral:
		b, right := *a, u[op.Inputs[1]]
		b.LHSBatchAxes, b.LHSContractingAxes = in.axes(a.LHSBatchAxes), in.axes(a.LHSContractingAxes)
		b.RHSBatchAxes, b.RHSContractingAxes = right.axes(a.RHSBatchAxes), right.axes(a.RHSContractingAxes)
		op.Attrs = &b
	}
}

// dims are those of the value with two instead of one.
func (f flat) dims(v *ir.Value) []int {
	d := slices.Clone(dims(v))
	if f == (flat{}) {
		return d
	}
	return slices.Replace(d, f.dim, f.dim+1, f.samples, f.words)
}

// axes are the same ones, counted with two dims instead of one.
func (f flat) axes(axes []int) (r []int) {
	for _, a := range axes {
		switch {
		case f == (flat{}) || a < f.dim:
			r = append(r, a)
		case a == f.dim:
			r = append(r, a, a+1)
		default:
			r = append(r, a+1)
		}
	}
	return r
}
