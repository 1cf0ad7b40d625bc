package shard

import "github.com/easyparallel/epl/ir"

// copyFuncs copies the functions of an op of main, with what they capture replaced. Named functions capture nothing and
// are shared.
func (e *expansion) copyFuncs(funcs []*ir.Func, by map[*ir.Value]*ir.Value) []*ir.Func {
	r := make([]*ir.Func, len(funcs))
	for i, f := range funcs {
		if r[i] = f; f.Parent != nil {
			values := map[*ir.Value]*ir.Value{}
			for v, w := range by {
				values[v] = w
			}
			r[i] = e.copyFunc(f, e.p.Main, values)
		}
	}
	return r
}

func (e *expansion) copyFunc(f, parent *ir.Func, values map[*ir.Value]*ir.Value) *ir.Func {
	c := &ir.Func{Name: f.Name, Parent: parent}
	translated := func(vs []*ir.Value) []*ir.Value {
		r := make([]*ir.Value, len(vs))
		for i, v := range vs {
			if r[i] = v; values[v] != nil {
				r[i] = values[v]
			}
		}
		return r
	}
	for _, op := range f.Ops {
		d := e.p.CopyOp(op, translated(op.Inputs))
		d.Funcs = nil
		for _, g := range op.Funcs {
			if g.Parent != nil {
				g = e.copyFunc(g, c, values)
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
