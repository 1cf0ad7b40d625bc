package shard

import (
	"slices"

	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/shapes"
	"github.com/pkg/errors"

	"github.com/easyparallel/epl/ir"
	"github.com/easyparallel/epl/ir/analysis"
)

// expand writes the ops of every device down, as the plan says, and drops those that nobody needs.
func (x *problem) expand(vars *sharding, todo *plan) error {
	e := &expansion{problem: x, vars: vars, todo: todo, plan: map[*ir.Op]*step{}, zeros: map[dtypes.DType]*ir.Value{}}
	old := x.p.Main.Ops
	x.p.Main.Ops = nil
	for _, op := range old {
		op.Twin, op.Of = nil, nil
		if op.IsLeaf() {
			x.p.Main.Ops = append(x.p.Main.Ops, op)
		}
	}
	e.shards()
	for _, s := range todo.steps {
		if s.kind == opStep {
			e.plan[s.task.op] = s
		}
	}
	for _, s := range todo.steps {
		e.step(s)
	}
	e.results()
	analysis.Sweep(x.p)
	return e.err
}

type expansion struct {
	*problem
	vars  *sharding
	todo  *plan
	plan  map[*ir.Op]*step // of ops
	zeros map[dtypes.DType]*ir.Value
	err   error
}

// shards lets each device have a part of the variables that are sharded.
func (e *expansion) shards() {
	for _, x := range e.p.Variables {
		p := e.vars.of(x)
		if p.Kind != Sharded {
			continue
		}
		g := e.of[x.TaskGraph]
		for j, place := range g.places {
			from, to := p.rows(x.Param.Shape, j, len(g.places))
			op := e.p.NewOp(&ir.ShardOf{Dim: p.Dim, Start: from, Size: to - from}, []*ir.Value{x.Param}, p.local(x.Param.Shape, j, len(g.places)))
			e.put(op, siteOf(x.Param.Op), place)
			x.Shards = append(x.Shards, op.Outputs[0])
		}
	}
}

// step writes a step down.
func (e *expansion) step(s *step) {
	for _, h := range s.in {
		if h != nil && h.by == nil && h.values == nil {
			e.give(h)
		}
	}
	switch {
	case s.kind != opStep:
		s.out[0].values = e.reshard(s)
	case len(s.g.places) == 1:
		e.keep(s)
	default:
		outs := e.spread(s)
		for i, h := range s.out {
			h.values = outs[i]
		}
	}
}

// give lets devices have what is given.
func (e *expansion) give(h *held) {
	v := e.values[h.value]
	if h.Kind == Sharded {
		h.values = v.of.Shards
	} else {
		h.values = slices.Repeat([]*ir.Value{v.v}, len(h.g.places))
	}
}

// site is where and when a new op runs.
type site struct {
	ir.Attribution
	keep bool
}

func siteOf(op *ir.Op) site { return site{op.Attribution, op.Keep} }

// add appends an op on a device.
func (e *expansion) add(at site, place int, a ir.Attrs, inputs []*ir.Value, outputs ...shapes.Shape) *ir.Op {
	op := e.p.NewOp(a, inputs, outputs...)
	e.put(op, at, place)
	return op
}

// put appends an op that has all it reads.
func (e *expansion) put(op *ir.Op, at site, place int) {
	op.Attribution, op.Keep = at.Attribution, at.keep
	op.Place = place
	op.SetVarying()
	e.p.Main.Append(op)
}

// keep leaves an op of a stage with one device as it is, but for what it reads.
func (e *expansion) keep(s *step) {
	op := s.task.op
	changed := map[*ir.Value]*ir.Value{}
	for i, h := range s.in {
		if h != nil {
			changed[e.values[s.task.in[i]].v] = h.values[0]
		}
	}
	for i, v := range op.Inputs {
		if v != nil {
			op.Inputs[i] = changed[v]
		}
	}
	captures := false
	op.Captures(func(v *ir.Value) { captures = captures || changed[v] != v })
	if captures {
		op.Funcs = e.copyFuncs(op.Funcs, changed)
	}
	e.p.Main.Ops = append(e.p.Main.Ops, op)
	for i, h := range s.out {
		h.values = []*ir.Value{op.Outputs[i]}
	}
}

// spread writes an op down for each device of its stage, and returns the values of each output per device.
func (e *expansion) spread(s *step) [][]*ir.Value {
	ins := make([][]*ir.Value, len(s.in))
	for i, h := range s.in {
		if h != nil {
			ins[i] = h.values
		}
	}
	op := s.task.op
	if m, ok := op.Attrs.(*ir.Merge); ok {
		return [][]*ir.Value{e.merge(op, m, s.g, s.s, ins[0])}
	}
	return e.compute(op, s.site(), s.g, s.s, ins)
}

// compute writes an op down for each device, given what they have of inputs and captured values.
func (e *expansion) compute(op *ir.Op, at site, g *group, s strategy, all [][]*ir.Value) [][]*ir.Value {
	k := len(g.places)
	ins := all[:len(op.Inputs)]
	if outs := e.special(op, g, s, ins); outs != nil {
		return outs
	}
	outs := make([][]*ir.Value, len(op.Outputs))
	for j := range k {
		inputs := make([]*ir.Value, len(ins))
		for i := range ins {
			if ins[i] != nil {
				inputs[i] = ins[i][j]
			}
		}
		local := make([]shapes.Shape, len(outs))
		for i, v := range op.Outputs {
			local[i] = s.out[i].local(v.Shape, j, k)
		}
		d := e.p.NewOp(localAttrs(op.Attrs, inputs, local), inputs, local...)
		if op.Funcs != nil {
			here := map[*ir.Value]*ir.Value{}
			n := len(ins)
			op.Captures(func(v *ir.Value) {
				here[v] = all[n][j]
				n++
			})
			d.Funcs = e.copyFuncs(op.Funcs, here)
		}
		e.put(d, at, g.places[j])
		for i, v := range d.Outputs {
			outs[i] = append(outs[i], v)
		}
	}
	return outs
}

// localAttrs are the attributes of an op on one device: those that repeat the shapes of operands are those of what it has.
func localAttrs(a ir.Attrs, inputs []*ir.Value, outputs []shapes.Shape) ir.Attrs {
	switch a := a.(type) {
	case *ir.Reshape:
		return &ir.Reshape{Dimensions: outputs[0].Dimensions}
	case *ir.BroadcastInDim:
		return &ir.BroadcastInDim{OutputShape: outputs[0], BroadcastAxes: a.BroadcastAxes}
	case *ir.Iota:
		return &ir.Iota{Shape: outputs[0], IotaAxis: a.IotaAxis}
	case *ir.Slice:
		limits := slices.Clone(a.Limits)
		for d, n := range dims(inputs[0]) {
			limits[d] = min(limits[d], n) // a dim that is sharded is taken whole
		}
		return &ir.Slice{Starts: a.Starts, Limits: limits, Strides: a.Strides}
	case *ir.Gather:
		sizes := slices.Clone(a.SliceSizes)
		for d, n := range dims(inputs[0]) {
			sizes[d] = min(sizes[d], n)
		}
		b := *a
		b.SliceSizes = sizes
		return &b
	}
	return a
}

// merge writes the merge of instances down. The terms of a Partial value are added up on the way; of what else it is, every
// device merges what it has with those of the same device of other model replicas.
func (e *expansion) merge(op *ir.Op, m *ir.Merge, g *group, s strategy, ins []*ir.Value) (merged []*ir.Value) {
	at, out := siteOf(op), op.Outputs[0]
	if s.in[0].Kind == Partial {
		all := *m
		all.Places = g.places
		return e.add(at, g.places[0], &all, ins, slices.Repeat([]shapes.Shape{out.Shape}, len(ins))...).Outputs
	}
	for j, v := range ins {
		_, exchanged := v.Op.Attrs.(*ir.Exchange)
		if exchanged || slices.Contains(ins[:j], v) { // a value is merged once, after the segment that computes it
			v = e.add(at, g.places[j], &ir.Identity{}, []*ir.Value{v}, v.Shape).Outputs[0]
		}
		merged = append(merged, e.add(at, g.places[j], m, []*ir.Value{v}, s.out[0].local(out.Shape, j, len(ins))).Outputs[0])
	}
	return merged
}

// results lets what the program says about values refer to those of the devices.
func (e *expansion) results() {
	p := e.p
	outputs := make([]*ir.Value, len(p.Main.Outputs))
	for i, v := range p.Main.Outputs {
		outputs[i] = e.resultOf(v, p.Outputs[i].Updates)[0]
	}
	for _, v := range p.Variables {
		if v.Update == nil {
			continue
		}
		all := e.resultOf(v.Update, v)
		if v.Update == v.Param && v.Shards != nil {
			all = v.Shards
		}
		v.Update, v.Copies = all[0], all[1:]
		if len(v.Copies) == 0 {
			v.Copies = nil
		}
	}
	for i, x := range p.Outputs {
		if x.Updates != nil {
			outputs[i] = x.Updates.Update
		}
	}
	p.Main.Outputs = outputs
	for i, g := range p.Gradients {
		p.Gradients[i].Value = e.resultOf(g.Value, g.Variable)[0]
	}
	if p.Loss != nil {
		p.Loss = e.someValue(p.Loss)
	}
	for _, c := range p.Collections {
		for i, v := range c.Values {
			c.Values[i] = e.someValue(v)
		}
	}
}

// resultOf is a value that leaves the program, maybe for a variable, on all devices that have it; a leaf is one for
// all, unless it is sharded.
func (e *expansion) resultOf(v *ir.Value, of *ir.Variable) []*ir.Value {
	if n := e.number[v]; v.Op.IsLeaf() && (e.vars.byNum[n].Kind != Sharded || e.values[n].of == of) {
		return []*ir.Value{v}
	}
	g, p := e.resultAt(e.vars, v, of), e.vars.of(of)
	for h := e.todo.first[e.number[v]]; h != nil; h = h.next {
		if h.result && h.g == g && h.values != nil && h.same(p, v.Shape, len(g.places)) {
			return h.values
		}
	}
	e.err = errors.Errorf("epl: internal error: %s, of %s, is not there as %s", v, v.Op, p)
	return []*ir.Value{v}
}

// someValue is what the first device of its stage has of a value: all of it, if it has that.
func (e *expansion) someValue(v *ir.Value) *ir.Value {
	if v.Op.IsLeaf() {
		return v
	}
	var some *ir.Value
	for h := e.todo.first[e.number[v]]; h != nil; h = h.next {
		if h.values != nil && h.by != nil && (some == nil || h.Kind == Replicated) {
			some = h.values[0]
		}
	}
	if some == nil {
		return v // nobody needs it: it is dropped
	}
	return some
}
