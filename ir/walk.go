// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package ir

// Captures calls visit for every value that the functions of op, or functions within those, take from the functions
// around them.
func (op *Op) Captures(visit func(*Value)) {
	for _, f := range op.Funcs {
		if f.Parent != nil {
			f.captures(map[*Func]bool{}, visit)
		}
	}
}

func (f *Func) captures(inside map[*Func]bool, visit func(*Value)) {
	inside[f] = true
	see := func(v *Value) {
		if v != nil && !inside[v.Op.Func] {
			visit(v)
		}
	}
	for _, op := range f.Ops {
		for _, in := range op.Inputs {
			see(in)
		}
		for _, g := range op.Funcs {
			if g.Parent != nil {
				g.captures(inside, visit)
			}
		}
	}
	for _, o := range f.Outputs {
		see(o)
	}
	delete(inside, f)
}

// Uses calls visit for every value that op needs: its inputs and what its closures capture. A value may come twice.
func (op *Op) Uses(visit func(*Value)) {
	for _, in := range op.Inputs {
		if in != nil {
			visit(in)
		}
	}
	op.Captures(visit)
}

// Results calls visit for every value that leaves the program: new values of variables, outputs and gradients, with the variable
// that each is for, if any. Visit may replace them.
func (p *Program) Results(visit func(v **Value, of *Variable)) {
	for _, x := range p.Variables {
		if x.Update != nil {
			visit(&x.Update, x)
		}
	}
	for i := range p.Main.Outputs {
		visit(&p.Main.Outputs[i], p.Outputs[i].Updates)
	}
	for i, g := range p.Gradients {
		visit(&p.Gradients[i].Value, g.Variable)
	}
}

// Through are values, each replaced by what to makes of it; nil stays nil.
func Through(vs []*Value, to func(*Value) *Value) []*Value {
	r := make([]*Value, len(vs))
	for i, v := range vs {
		if v != nil {
			r[i] = to(v)
		}
	}
	return r
}

// ReplaceUses makes every user of a value use another instead: inputs of ops in main and in closures, outputs,
// variable updates, gradients, the loss and collections. Keys of the map are replaced by what they map to; chains
// are followed.
func (p *Program) ReplaceUses(by map[*Value]*Value) {
	if len(by) == 0 {
		return
	}
	to := func(v *Value) *Value {
		for by[v] != nil {
			v = by[v]
		}
		return v
	}
	done := map[*Func]bool{}
	var body func(f *Func)
	body = func(f *Func) {
		if done[f] {
			return
		}
		done[f] = true
		for _, op := range f.Ops {
			for i, in := range op.Inputs {
				op.Inputs[i] = to(in)
			}
			for i, v := range op.Twin {
				op.Twin[i] = to(v)
			}
			for _, g := range op.Funcs {
				body(g)
			}
		}
		for i, o := range f.Outputs {
			f.Outputs[i] = to(o)
		}
	}
	for _, f := range p.Funcs {
		body(f)
	}
	body(p.Main)
	for _, v := range p.Variables {
		v.Update = to(v.Update)
	}
	for i := range p.Gradients {
		p.Gradients[i].Value = to(p.Gradients[i].Value)
	}
	p.Loss = to(p.Loss)
	for _, c := range p.Collections {
		for i, v := range c.Values {
			c.Values[i] = to(v)
		}
	}
}

// Between returns the ops of main that compute values from the given inputs: those between the two. ok is false if
// values also depend on something else that is not a constant.
func Between(values, inputs []*Value) (ops map[*Op]bool, ok bool) {
	stop := map[*Value]bool{}
	for _, v := range inputs {
		stop[v] = true
	}
	ops, ok = map[*Op]bool{}, true
	var visit func(v *Value)
	visit = func(v *Value) {
		if stop[v] || ops[v.Op] {
			return
		}
		if v.Op.IsLeaf() {
			if _, isParam := v.Op.Attrs.(*Parameter); isParam {
				ok = false
			}
			return
		}
		ops[v.Op] = true
		v.Op.Uses(visit)
	}
	for _, v := range values {
		visit(v)
	}
	return ops, ok
}
