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
	u.keepResults(p)
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

// keepResults leaves alone what leaves the program.
func (u unflattening) keepResults(p *ir.Program) {
	for _, v := range p.Main.Outputs {
		delete(u, v)
	}
	for _, v := range p.Variables {
		delete(u, v.Update)
	}
	for _, g := range p.Gradients {
		delete(u, g.Value)
	}
	for _, c := range p.Collections {
		for _, v := range c.Values {
			delete(u, v)
		}
	}
}

// follow tells which dim of an op's output stands for two, given its inputs; and whether the op can do with two dims.
func (u unflattening) follow(op *ir.Op) (out flat, ok bool) {
	if len(op.Outputs) != 1 || len(op.Funcs) > 0 || len(op.Inputs) == 0 || slices.Contains(op.Inputs, nil) {
		return out, false
	}
	in := u[op.Inputs[0]]
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
	case *ir.Transpose:
		if in != (flat{}) {
			in.dim = slices.Index(a.Permutation, in.dim)
		}
		return in, true
	case *ir.ReduceSum:
		if in == (flat{}) || len(a.Axes) == 0 || slices.Contains(a.Axes, in.dim) {
			return out, in == (flat{}) || len(a.Axes) > 0
		}
		before := 0
		for _, d := range a.Axes {
			if d < in.dim {
				before++
			}
		}
		in.dim -= before
		return in, true
	case *ir.DotGeneral:
		return u.followDot(op, a)
	}
	if !op.IsElementwise() {
		return out, false
	}
	for _, v := range op.Inputs {
		if v.Shape.Rank() > 0 {
			out = u[v]
		}
	}
	return out, !slices.ContainsFunc(op.Inputs, func(v *ir.Value) bool { return v.Shape.Rank() > 0 && u[v] != out })
}

// followDot: what is contracted, or the same on both sides, must be so in both inputs.
func (u unflattening) followDot(op *ir.Op, a *ir.DotGeneral) (out flat, ok bool) {
	left, right := u[op.Inputs[0]], u[op.Inputs[1]]
	paired := func(x, y []int) (at int, ok bool) { // the same on both sides
		i, j := slices.Index(x, left.dim), slices.Index(y, right.dim)
		if left == (flat{}) {
			i = -1
		}
		if right == (flat{}) {
			j = -1
		}
		return i, i == j && (i < 0 || left.samples == right.samples && left.words == right.words)
	}
	batch, ok1 := paired(a.LHSBatchAxes, a.RHSBatchAxes)
	contracted, ok2 := paired(a.LHSContractingAxes, a.RHSContractingAxes)
	if !ok1 || !ok2 {
		return out, false
	}
	if batch >= 0 || contracted >= 0 {
		if batch >= 0 {
			out, out.dim = left, batch
		}
		return out, true
	}
	if left != (flat{}) && right != (flat{}) {
		return out, false
	}
	at := len(a.LHSBatchAxes)
	for side, v := range op.Inputs {
		batchAxes, contracting := a.LHSBatchAxes, a.LHSContractingAxes
		if side == 1 {
			batchAxes, contracting = a.RHSBatchAxes, a.RHSContractingAxes
		}
		for d := range dims(v) {
			if slices.Contains(batchAxes, d) || slices.Contains(contracting, d) {
				continue
			}
			if f := u[v]; f != (flat{}) && f.dim == d {
				f.dim = at
				return f, true
			}
			at++
		}
	}
	return out, true
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
