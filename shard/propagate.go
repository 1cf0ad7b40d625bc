package shard

import (
	"slices"

	"github.com/easyparallel/epl/ir"
)

// strategy is a way to compute an op on the devices of its stage: the placements of what it reads and makes.
type strategy struct{ in, out []Placement }

// propagate chooses a strategy for every op of a stage with several devices, in program order: the cheapest among
// sharding a factor that is sharded already in an input, passing a Partial through, and computing it on whole values. It
// also returns the ops for which sharded inputs must be gathered.
//
// A Partial that somebody needs whole may have passed through other ops before. The second round knows: it reduces such
// values at once, so that all users have the whole.
func (x *partition) propagate() (plan map[*ir.Op]strategy, gathered []*ir.Op) {
	reduced := map[*ir.Value]bool{}
	for range 2 {
		r := &propagation{partition: x, held: map[key]holdings{}, reduced: reduced, plan: map[*ir.Op]strategy{}}
		for _, op := range x.p.Main.Ops {
			if !op.IsLeaf() {
				r.op(op)
			}
		}
		plan, gathered = r.plan, r.gathered
	}
	return plan, gathered
}

type propagation struct {
	*partition
	held     map[key]holdings
	reduced  map[*ir.Value]bool // Partial values that are needed whole
	plan     map[*ir.Op]strategy
	gathered []*ir.Op
}

func (r *propagation) op(op *ir.Op) {
	g := r.groupOf(op)
	s := r.choose(op, g)
	for i, v := range op.Inputs {
		if v != nil {
			r.take(v, g, s.in[i], op.Phase)
		}
	}
	op.Captures(func(v *ir.Value) { r.take(v, g, Placement{}, op.Phase) })
	for i, v := range op.Outputs {
		r.hold(v, g, s.out[i], op.Phase)
		if s.out[i].Kind == Partial && r.reduced[v] {
			r.hold(v, g, Placement{}, op.Phase)
		}
	}
	r.plan[op] = s
}

// replicated is the strategy of an op that every device computes as a whole.
func replicated(op *ir.Op) strategy {
	return strategy{make([]Placement, len(op.Inputs)), make([]Placement, len(op.Outputs))}
}

// between is how much more a byte between devices costs than one that a device reads or writes.
const between = 10

func (r *propagation) choose(op *ir.Op, g *group) strategy {
	best := replicated(op)
	if len(g.places) == 1 {
		return best
	}
	switch a := op.Attrs.(type) {
	case *ir.Merge:
		if sum := partialOf(ir.ReduceBySum); a.How.Adds() && !a.Worker && r.offered(op.Inputs[0], g, op.Phase).kind(Replicated, op.Phase) == nil &&
			r.price(op.Inputs[0], g, sum, op.Phase) == 0 {
			best.in[0] = sum
		}
		return best
	case *ir.OptimizationBarrier, *ir.SchedulingBarrier:
		return r.asTheyAre(op, g)
	}
	rule := RuleOf(op)
	if rule == nil {
		rule = &Rule{}
	}
	lowest, whole := r.cost(op, g, best), true
	for _, s := range append(r.sharded(op, g, rule), r.partial(op, g, rule)...) {
		if c := r.cost(op, g, s); c < lowest {
			best, lowest, whole = s, c, false
		}
	}
	gathers := false
	op.Uses(func(v *ir.Value) { gathers = gathers || r.isSharded(v, g, op.Phase) })
	if whole && gathers {
		r.gathered = append(r.gathered, op)
	}
	return best
}

// isSharded tells whether no device has the whole value, but each some rows of it.
func (r *propagation) isSharded(v *ir.Value, g *group, phase ir.Phase) bool {
	h := r.offered(v, g, phase)
	return h.kind(Sharded, phase) != nil && h.kind(Replicated, phase) == nil
}

// asTheyAre is the strategy of an op that hands its inputs through.
func (r *propagation) asTheyAre(op *ir.Op, g *group) strategy {
	s := replicated(op)
	for i, v := range op.Inputs {
		h := r.offered(v, g, op.Phase)
		for _, kind := range []Kind{Partial, Replicated, Sharded} {
			if x := h.kind(kind, op.Phase); x != nil {
				s.in[i] = x.Placement
			}
		}
	}
	copy(s.out, s.in)
	return s
}

// sharded lists the strategies that shard a factor as one of the inputs has it.
func (r *propagation) sharded(op *ir.Op, g *group, rule *Rule) (all []strategy) {
	k := len(g.places)
	for _, f := range rule.Factors {
		var units []int
		for i, ref := range f.In {
			if ref.Dim < 0 {
				continue
			}
			for _, h := range r.offered(op.Inputs[i], g, op.Phase) {
				if h.Kind != Sharded || h.Dim != ref.Dim {
					continue
				}
				if unit, ok := f.unitOf(ref, h.Placement, op.Inputs[i].Shape, k); ok && !slices.Contains(units, unit) {
					units = append(units, unit)
					all = append(all, strategy{f.inputs(unit), f.outputs(unit)})
				}
			}
		}
	}
	return all
}

// partial lists the strategies that pass a Partial through.
func (r *propagation) partial(op *ir.Op, g *group, rule *Rule) (all []strategy) {
	add := func(p Placement, inputs ...int) {
		s := replicated(op)
		for _, i := range inputs {
			s.in[i] = p
		}
		s.out[0] = p
		all = append(all, s)
	}
	sum := partialOf(ir.ReduceBySum)
	for i, v := range op.Inputs {
		if v == nil {
			continue
		}
		h := r.offered(v, g, op.Phase).kind(Partial, op.Phase)
		if h == nil || h.Placement != sum && rule.Linear != Moves {
			continue
		}
		grows := v.Shape.Size() < op.Outputs[0].Shape.Size() // it is cheaper to reduce the smaller value
		switch rule.Linear {
		case Moves, Sums:
			add(h.Placement, i)
		case Adds:
			if _, concat := op.Attrs.(*ir.Concatenate); concat || !grows {
				add(sum, rangeOf(len(op.Inputs))...)
			}
		case Scales:
			if isNumber(op.Inputs[1-i]) && !grows {
				add(sum, i)
			}
		case Divides:
			if i == 0 && isNumber(op.Inputs[1]) && !grows {
				add(sum, 0)
			}
		}
	}
	return all
}

func rangeOf(n int) []int {
	r := make([]int, n)
	for i := range r {
		r[i] = i
	}
	return r
}

// cost is what a strategy costs: bytes to read and write, and bytes between devices.
func (r *propagation) cost(op *ir.Op, g *group, s strategy) int64 {
	c := r.work(op, g, s)
	for i, v := range op.Inputs {
		if v != nil {
			c += between * r.price(v, g, s.in[i], op.Phase)
		}
	}
	return c
}

// work is what a device reads and writes.
func (r *propagation) work(op *ir.Op, g *group, s strategy) (c int64) {
	local := func(v *ir.Value, p Placement) int64 {
		if p.Kind == Sharded {
			return v.Bytes() / int64(len(g.places))
		}
		return v.Bytes()
	}
	for i, v := range op.Inputs {
		if v != nil {
			c += local(v, s.in[i])
		}
	}
	for i, v := range op.Outputs {
		c += local(v, s.out[i])
	}
	return c
}

// hold notes that the devices have a value so.
func (r *propagation) hold(v *ir.Value, g *group, p Placement, phase ir.Phase) {
	at := key{v, g}
	if r.held[at].find(p, v.Shape, len(g.places), phase) == nil {
		r.held[at] = append(r.held[at], holding{Placement: p, phase: phase})
	}
}

// offered lists the placements in which the devices have a value, or can fetch it from another stage.
func (r *propagation) offered(v *ir.Value, g *group, phase ir.Phase) holdings {
	k := len(g.places)
	if v.Op.IsLeaf() {
		h := holdings{{phase: phase}}
		if r.isBatch(v) && k > 1 {
			h = append(h, holding{Placement: shardOf(0, 1), phase: phase})
		}
		return h
	}
	h := slices.Clone(r.held[key{v, g}])
	if home := r.groupOf(v.Op); home != g {
		for _, x := range r.held[key{v, home}] {
			if x.Kind == Sharded && fits(dims(v)[x.Dim], x.Unit, k) {
				h = append(h, x)
			}
		}
	}
	return h
}

// price is how many bytes must cross between devices until those of g have a value so.
func (r *propagation) price(v *ir.Value, g *group, p Placement, phase ir.Phase) int64 {
	k := len(g.places)
	h := r.held[key{v, g}]
	switch {
	case v.Op.IsLeaf(), h.find(p, v.Shape, k, phase) != nil:
		return 0
	case h.kind(Replicated, phase) != nil:
		return 0 // the rest is left out
	case h.kind(Sharded, phase) != nil:
		return v.Bytes()
	case h.kind(Partial, phase) != nil:
		return 2 * v.Bytes()
	}
	home := r.held[key{v, r.groupOf(v.Op)}]
	bytes := v.Bytes()
	if home.kind(Replicated, phase) == nil && home.kind(Sharded, phase) == nil {
		bytes *= 3
	}
	if p.Kind == Sharded {
		return bytes
	}
	return bytes * int64(k)
}

// take notes that a value is needed so, and what the devices have on the way to it.
func (r *propagation) take(v *ir.Value, g *group, p Placement, phase ir.Phase) {
	h := r.held[key{v, g}]
	if v.Op.IsLeaf() || h.find(p, v.Shape, len(g.places), phase) != nil {
		return
	}
	from := g
	if home := r.groupOf(v.Op); home != g && len(h) == 0 {
		from = home
		h = r.held[key{v, home}]
	} else {
		r.hold(v, g, Placement{}, phase) // every other placement is made from the whole
	}
	if h.kind(Replicated, phase) == nil && h.kind(Sharded, phase) == nil { // it is reduced where it was made
		r.reduced[v] = true
		r.hold(v, from, Placement{}, phase)
	}
	r.hold(v, g, p, phase)
}
