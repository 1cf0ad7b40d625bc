// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package ir

import (
	"cmp"
	"maps"
)

// CopyFuncs copies the functions of an op of main, with what they capture replaced. Named functions capture nothing and
// are shared.
func (p *Program) CopyFuncs(funcs []*Func, by map[*Value]*Value) []*Func {
	r := make([]*Func, len(funcs))
	for i, f := range funcs {
		if r[i] = f; f.Parent != nil {
			values := map[*Value]*Value{}
			maps.Copy(values, by)
			r[i] = p.copyFunc(f, p.Main, values)
		}
	}
	return r
}

func (p *Program) copyFunc(f, parent *Func, values map[*Value]*Value) *Func {
	c := &Func{Name: f.Name, Parent: parent}
	translated := func(vs []*Value) []*Value {
		return Through(vs, func(v *Value) *Value { return cmp.Or(values[v], v) })
	}
	for _, op := range f.Ops {
		d := p.CopyOp(op, translated(op.Inputs))
		d.Funcs = nil
		for _, g := range op.Funcs {
			if g.Parent != nil {
				g = p.copyFunc(g, c, values)
			}
			d.Funcs = append(d.Funcs, g)
		}
		for i, v := range op.Outputs {
			values[v] = d.Outputs[i]
		}
		c.Append(d)
	}
	c.Outputs = translated(f.Outputs)
	return c
}
