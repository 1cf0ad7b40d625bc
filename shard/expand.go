package shard

import (
	"slices"

	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/shapes"

	"github.com/easyparallel/epl/ir"
)

// expand writes the ops of every device down, as the plan says, and drops those that nobody needs.
func (x *partition) expand(plan map[*ir.Op]strategy) {
	e := &expansion{partition: x, plan: plan, held: map[key]holdings{}, zeros: map[dtypes.DType]*ir.Value{}}
	old := x.p.Main.Ops
	x.p.Main.Ops = nil
	for _, op := range old {
		op.Twin, op.Of = nil, nil
		g := x.groupOf(op)
		switch {
		case op.IsLeaf():
			x.p.Main.Ops = append(x.p.Main.Ops, op)
		case len(g.places) == 1:
			e.keep(op, g)
		default:
			e.spread(op, g)
		}
	}
	e.results()
	dropDead(x.p)
}

type expansion struct {
	*partition
	plan  map[*ir.Op]strategy
	held  map[key]holdings
	zeros map[dtypes.DType]*ir.Value
}

// site is where and when a new op runs.
type site struct {
	taskGraph *ir.TaskGraph
	phase     ir.Phase
	origin    ir.Origin
	source    ir.Source
}

func siteOf(op *ir.Op) site { return site{op.TaskGraph, op.Phase, op.Origin, op.Source} }

// add appends an op on a device.
func (e *expansion) add(at site, place int, a ir.Attrs, inputs []*ir.Value, outputs ...shapes.Shape) *ir.Op {
	op := e.p.NewOp(a, inputs, outputs...)
	e.put(op, at, place)
	return op
}

// put appends an op that has all it reads.
func (e *expansion) put(op *ir.Op, at site, place int) {
	op.TaskGraph, op.Phase, op.Origin, op.Source, op.Place = at.taskGraph, at.phase, at.origin, at.source, place
	if _, merges := op.Attrs.(*ir.Merge); !merges {
		op.Uses(func(v *ir.Value) { op.Varying = op.Varying || v.Op.Varying })
	}
	e.p.Main.Append(op)
}

// hold notes the values that the devices of g have of v.
func (e *expansion) hold(v *ir.Value, g *group, p Placement, phase ir.Phase, values []*ir.Value) {
	at := key{v, g}
	e.held[at] = append(e.held[at], holding{p, phase, values})
}

// keep leaves an op of a stage with one device as it is, but for what it reads.
func (e *expansion) keep(op *ir.Op, g *group) {
	at := siteOf(op)
	changed := map[*ir.Value]*ir.Value{}
	op.Uses(func(v *ir.Value) {
		if w := e.want(v, g, Placement{}, at)[0]; w != v {
			changed[v] = w
		}
	})
	for i, v := range op.Inputs {
		if w := changed[v]; w != nil {
			op.Inputs[i] = w
		}
	}
	captures := false
	op.Captures(func(v *ir.Value) { captures = captures || changed[v] != nil })
	if captures {
		op.Funcs = e.copyFuncs(op.Funcs, changed)
	}
	e.p.Main.Ops = append(e.p.Main.Ops, op)
	for _, v := range op.Outputs {
		e.hold(v, g, Placement{}, op.Phase, []*ir.Value{v})
	}
}

// spread writes an op down for each device of its stage.
func (e *expansion) spread(op *ir.Op, g *group) {
	s := e.plan[op]
	if m, ok := op.Attrs.(*ir.Merge); ok {
		e.merge(op, m, g, s.in[0])
		return
	}
	outs := e.compute(op, g, s)
	for i, v := range op.Outputs {
		e.hold(v, g, s.out[i], op.Phase, outs[i])
	}
}

// compute writes an op down for each device, and returns the values of each output per device.
func (e *expansion) compute(op *ir.Op, g *group, s strategy) [][]*ir.Value {
	at, k := siteOf(op), len(g.places)
	ins := make([][]*ir.Value, len(op.Inputs))
	for i, v := range op.Inputs {
		if v != nil {
			ins[i] = e.want(v, g, s.in[i], at)
		}
	}
	captured := map[*ir.Value][]*ir.Value{}
	op.Captures(func(v *ir.Value) { captured[v] = e.want(v, g, Placement{}, at) })
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
			for v, all := range captured {
				here[v] = all[j]
			}
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

// merge writes the merge of instances down. The terms of a Partial value are added up on the way; of a whole value every
// device merges its copy with those of the same device of other model replicas.
func (e *expansion) merge(op *ir.Op, m *ir.Merge, g *group, p Placement) {
	at := siteOf(op)
	ins := e.want(op.Inputs[0], g, p, at)
	out := op.Outputs[0]
	var merged []*ir.Value
	if p.Kind == Partial {
		all := *m
		all.Places = g.places
		d := e.add(at, g.places[0], &all, ins, slices.Repeat([]shapes.Shape{out.Shape}, len(ins))...)
		merged = d.Outputs
	} else {
		for j, v := range ins {
			_, exchanged := v.Op.Attrs.(*ir.Exchange)
			if exchanged || slices.Contains(ins[:j], v) { // a value is merged once, after the segment that computes it
				v = e.add(at, g.places[j], &ir.Identity{}, []*ir.Value{v}, v.Shape).Outputs[0]
			}
			merged = append(merged, e.add(at, g.places[j], m, []*ir.Value{v}, out.Shape).Outputs[0])
		}
	}
	e.hold(out, g, Placement{}, op.Phase, merged)
}

// results lets what the program says about values refer to those of the devices.
func (e *expansion) results() {
	p := e.p
	for _, v := range p.Variables {
		if v.Update != nil {
			all := e.whole(v.Update)
			v.Update, v.Copies = all[0], all[1:]
			if len(v.Copies) == 0 {
				v.Copies = nil
			}
		}
	}
	for i, o := range p.Main.Outputs {
		p.Main.Outputs[i] = e.whole(o)[0]
	}
	for i := range p.Gradients {
		p.Gradients[i].Value = e.whole(p.Gradients[i].Value)[0]
	}
	if p.Loss != nil {
		p.Loss = e.first(p.Loss)
	}
	for _, c := range p.Collections {
		for i, v := range c.Values {
			c.Values[i] = e.first(v)
		}
	}
}

// whole is a value on all devices of its stage; a leaf is one for all.
func (e *expansion) whole(v *ir.Value) []*ir.Value {
	if v.Op.IsLeaf() {
		return []*ir.Value{v}
	}
	return e.want(v, e.groupOf(v.Op), Placement{}, siteOf(v.Op))
}

// first is what the first device of its stage has of a value: all of it, if it has that.
func (e *expansion) first(v *ir.Value) *ir.Value {
	if v.Op.IsLeaf() {
		return v
	}
	h := e.held[key{v, e.groupOf(v.Op)}]
	if whole := h.kind(Replicated, v.Op.Phase); whole != nil {
		return whole.values[0]
	}
	return h[0].values[0]
}

// dropDead drops the ops that no result needs. Parameters stay: they are the program's interface.
func dropDead(p *ir.Program) {
	live := map[*ir.Op]bool{}
	need := func(v *ir.Value) { live[v.Op] = true }
	for _, o := range p.Main.Outputs {
		need(o)
	}
	for _, v := range p.Variables {
		if v.Update != nil {
			need(v.Update)
		}
		for _, c := range v.Copies {
			need(c)
		}
	}
	for _, g := range p.Gradients {
		need(g.Value)
	}
	if p.Loss != nil {
		need(p.Loss)
	}
	for i := len(p.Main.Ops) - 1; i >= 0; i-- {
		if op := p.Main.Ops[i]; live[op] {
			op.Uses(need)
		}
	}
	dead := func(op *ir.Op) bool {
		_, isParam := op.Attrs.(*ir.Parameter)
		return !live[op] && !isParam
	}
	p.Main.Ops = slices.DeleteFunc(p.Main.Ops, dead)
	for i := range p.Collections {
		c := &p.Collections[i]
		c.Values = slices.DeleteFunc(c.Values, func(v *ir.Value) bool { return dead(v.Op) })
	}
}
