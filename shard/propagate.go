package shard

import (
	"slices"

	"github.com/easyparallel/epl/ir"
)

// strategy is a way to compute an op on the devices of its stage: the placements of what it reads and makes.
type strategy struct {
	in, out []Placement
	factor  *Factor // that is sharded; nil: none
	unit    int     // its steps that stay together
}

// propagate makes a plan from the placements of variables. Every op of a stage with several devices takes the cheapest
// strategy, in program order: sharding a factor that is sharded already in an input, passing a Partial through, or
// computing it on whole values.
//
// A Partial that somebody needs whole may have passed through other ops before. The second round knows: it reduces such
// values at once, so that all users have the whole. It also knows which sums have terms that must still be reduced, and
// adds those up first.
func (x *problem) propagate(vars *sharding) *plan {
	first := x.round(vars, nil)
	first.gatherWishes()
	second := x.round(vars, first)
	second.prune()
	second.sink()
	return &second.plan
}

// propagation is one round.
type propagation struct {
	plan
	*problem
	vars   *sharding
	before *propagation // the round before
	wishes []wish       // by value: in which placements a Partial was needed
	free   []bool       // by value: if it is Partial, nobody has to reduce it
	mixed  map[*sum]bool
	dealt  bool // of the op at hand: data are dealt by samples

	best, next strategy // of the op at hand
}

// wish says what the users of a Partial value want.
type wish struct {
	whole bool // some need it whole, or in different placements
	p     Placement
}

func (x *problem) round(vars *sharding, before *propagation) *propagation {
	m := &x.memory
	m.held.reset()
	m.steps.reset()
	m.inputs.reset()
	m.placements.reset()
	m.first, m.free = cleared(m.first, len(x.values)), cleared(m.free, len(x.values))
	n := 0
	if before != nil {
		n = 1
	}
	m.wishes[n] = cleared(m.wishes[n], len(x.values))
	r := &propagation{problem: x, vars: vars, before: before, wishes: m.wishes[n], free: m.free, mixed: map[*sum]bool{}}
	r.first, r.steps = m.first, m.all[:0]
	r.findFree()
	for _, t := range x.tasks {
		switch {
		case t.sum == nil || before == nil || !before.mixed[t.sum]:
			r.task(t)
		case t == t.sum.tasks[len(t.sum.tasks)-1]:
			r.sum(t.sum)
		}
		if t.sum != nil && before == nil && t == t.sum.tasks[len(t.sum.tasks)-1] && r.isMixed(t.sum) {
			r.mixed[t.sum] = true
		}
	}
	r.results()
	m.all = r.steps
	return r
}

// bill is what it costs to reduce a value later.
type bill struct {
	items int
	bytes int64
}

// gatherWishes finds the Partial values that are reduced several times after they have passed through other ops: it is cheaper
// to reduce them once, before.
func (r *propagation) gatherWishes() {
	r.memory.bills = cleared(r.memory.bills, len(r.values))
	later := r.memory.bills
	for i := len(r.steps) - 1; i >= 0; i-- {
		s := r.steps[i]
		if s.kind != opStep || len(s.out) != 1 || s.out[0].Kind != Partial {
			continue
		}
		v := s.out[0].value
		b, w, bytes := later[v], &r.wishes[v], r.values[v].bytes
		switch {
		case w.whole:
			b = bill{b.items + 1, b.bytes + 2*bytes}
		case w.p.Kind == Sharded:
			b = bill{b.items + 1, b.bytes + bytes}
		}
		if b.items > 1 && b.bytes >= 2*bytes {
			w.whole = true
			b = bill{1, 2 * bytes}
		}
		for _, h := range s.in {
			if h != nil && h.Kind == Partial && b.items > 0 {
				later[h.value].items++
				later[h.value].bytes += b.bytes
			}
		}
	}
}

// findFree finds the values whose Partial terms are added up by a merge in the end.
func (r *propagation) findFree() {
	for i := range r.free {
		r.free[i] = r.values[i].grad == nil
	}
	for _, v := range r.p.Main.Outputs {
		r.free[r.number[v]] = false
	}
	for i := len(r.tasks) - 1; i >= 0; i-- {
		t := r.tasks[i]
		passes := false
		switch a := t.op.Attrs.(type) {
		case *ir.Merge:
			grad := r.values[t.out[0]].grad
			passes = a.How.Adds() && !a.Worker && (grad == nil || r.vars.of(grad).Kind == Replicated)
		default:
			passes = r.free[t.out[0]] && (t.rule.Linear != NotLinear || isBarrier(t.op))
		}
		if !passes {
			for _, v := range t.in {
				if v >= 0 {
					r.free[v] = false
				}
			}
		}
	}
}

func isBarrier(op *ir.Op) bool {
	switch op.Attrs.(type) {
	case *ir.OptimizationBarrier, *ir.SchedulingBarrier:
		return true
	}
	return false
}

// isMixed tells whether several terms of a sum must still be reduced, and others are sharded: it is cheaper to add up the
// former before they are reduced.
func (r *propagation) isMixed(s *sum) bool {
	partial, sharded := 0, false
	g, phase := s.tasks[0].g, s.tasks[0].op.Phase
	for _, v := range s.terms {
		kinds := r.kinds(v, g, phase)
		made := r.at(v, g)
		if kinds&(1<<Replicated) != 0 || made == nil {
			continue
		}
		if made.Kind == Partial {
			partial++
		}
		sharded = sharded || made.Kind == Sharded
	}
	return partial > 1 && sharded
}

// kinds are the kinds of placements in which devices have a value, as bits.
func (r *propagation) kinds(v int, g *group, phase ir.Phase) (kinds uint) {
	for h := r.at(v, g); h != nil; h = h.next {
		if h.usable(g, phase) {
			kinds |= 1 << h.Kind
		}
	}
	return kinds
}

// sum adds up many values, first those that must still be reduced.
func (r *propagation) sum(s *sum) {
	g, phase := s.tasks[0].g, s.tasks[0].op.Phase
	var terms, rest []int
	for _, v := range s.terms {
		if r.kinds(v, g, phase) == 1<<Partial {
			terms = append(terms, v)
		} else {
			rest = append(rest, v)
		}
	}
	terms = append(terms, rest...)
	acc := terms[0]
	for i, t := range s.tasks {
		again := *t
		again.in = []int{acc, terms[i+1]}
		r.task(&again)
		acc = t.out[0]
	}
}

// task chooses how to compute an op.
func (r *propagation) task(t *task) {
	r.choose(t)
	n := len(t.op.Inputs)
	s := r.newStep(opStep, t.op, t.op.Phase, t.g)
	s.task = t
	s.s = strategy{in: r.keep(r.best.in), out: r.keep(r.best.out), factor: r.best.factor, unit: r.best.unit}
	s.in = r.memory.inputs.take(len(t.in))
	for i, v := range t.in {
		if v < 0 {
			continue
		}
		p := Placement{}
		if i < n {
			p = s.s.in[i]
		}
		s.in[i] = r.get(v, t.g, p, t.op, t.op.Phase)
	}
	r.add(s)
	s.out = r.memory.inputs.take(len(t.out))
	for i, v := range t.out {
		s.out[i] = r.hold(v, t.g, s.s.out[i], s)
		r.settle(v, s.out[i], t)
	}
}

// settle makes the placements in which everybody wants a new value.
func (r *propagation) settle(v int, h *held, t *task) {
	if r.before != nil && h.Kind == Partial && r.before.wishes[v].whole {
		r.get(v, t.g, Placement{}, t.op, t.op.Phase)
	}
	if grad := r.values[v].grad; grad != nil && len(t.g.places) > 1 && r.sameDevices(grad, t) { // the optimizer gets it as the variable is, and not otherwise
		h = r.get(v, t.g, r.vars.of(grad), t.op, t.op.Phase)
		r.first[v], h.next = h, nil
	}
}

// sameDevices tells whether those that have a variable compute an op. A gradient may come from another stage, if it depends on
// the gradients of all.
func (r *propagation) sameDevices(x *ir.Variable, t *task) bool {
	return r.vars.of(x).Kind == Replicated || r.of[x.TaskGraph] == t.g
}

// results takes what leaves the program.
func (r *propagation) results() {
	keep := func(v *ir.Value, of *ir.Variable) {
		if !v.Op.IsLeaf() {
			r.get(r.number[v], r.resultAt(r.vars, v, of), r.vars.of(of), v.Op, v.Op.Phase).result = true
		}
	}
	for _, x := range r.p.Variables {
		if x.Update != nil {
			keep(x.Update, x)
		}
	}
	for i, v := range r.p.Main.Outputs {
		keep(v, r.p.Outputs[i].Updates)
	}
	for _, g := range r.p.Gradients {
		keep(g.Value, g.Variable)
	}
	if l := r.p.Loss; l != nil && !l.Op.IsLeaf() {
		r.someOf(r.number[l]).result = true
	}
}

// resultAt is the devices that have a result: those of the variable, if it belongs to one that is sharded.
func (x *problem) resultAt(vars *sharding, v *ir.Value, of *ir.Variable) *group {
	if vars.of(of).Kind == Sharded {
		return x.of[of.TaskGraph]
	}
	return x.groupOf(v.Op)
}

// someOf is a value as its devices have it: whole, if they do.
func (r *plan) someOf(v int) *held {
	for h := r.first[v]; h != nil; h = h.next {
		if h.Kind == Replicated {
			return h
		}
	}
	return r.first[v]
}

// choose finds the best strategy for an op.
func (r *propagation) choose(t *task) {
	r.dealt = t.deals
	n, m := len(t.op.Inputs), len(t.out)
	r.best.reset(n, m)
	if len(t.g.places) == 1 {
		return
	}
	switch a := t.op.Attrs.(type) {
	case *ir.Merge:
		r.chooseMerge(t, a)
		return
	case *ir.OptimizationBarrier, *ir.SchedulingBarrier:
		for i, v := range t.in {
			r.best.in[i] = r.asItIs(v, t.g, t.op.Phase)
		}
		copy(r.best.out, r.best.in)
		return
	}
	lowest, whole := r.cost(t, &r.best, 1<<62), true
	try := func(atMost int64) {
		if c := r.cost(t, &r.next, atMost); c <= atMost {
			r.best, r.next = r.next, r.best
			lowest, whole = c, false
		}
	}
	r.factors(t, func() { try(lowest - 1) })
	r.partials(t, func() {
		atMost := lowest - 1
		if whole {
			atMost = lowest // a Partial can still be added to others
		}
		try(atMost)
	})
	if whole {
		for _, v := range t.in {
			if v >= 0 && r.onlySharded(v, t.g, t.op.Phase) {
				r.gathered = append(r.gathered, t.op)
				break
			}
		}
	}
}

// chooseMerge: the merge of a gradient gives what the variable is. Terms are added up on the way; rows are merged by the device
// that has them.
func (r *propagation) chooseMerge(t *task, m *ir.Merge) {
	v := t.in[0]
	phase := t.op.Phase
	kinds := r.kinds(v, t.g, phase)
	rowsOK := m.How.Adds() && phase == ir.Backward
	if grad := r.values[t.out[0]].grad; grad != nil && rowsOK && r.sameDevices(grad, t) {
		if p := r.vars.of(grad); p.Kind == Sharded {
			r.best.in[0], r.best.out[0] = p, p
			return
		}
	}
	if kinds&(1<<Replicated) != 0 {
		return
	}
	for h := r.at(v, t.g); h != nil; h = h.next {
		switch {
		case !h.usable(t.g, phase):
		case h.Placement == partialOf(ir.ReduceBySum) && m.How.Adds() && !m.Worker:
			r.best.in[0] = h.Placement
			return
		case h.Kind == Sharded && (rowsOK || m.How == ir.Concat && phase == ir.Backward && h.Dim > 0):
			r.best.in[0], r.best.out[0] = h.Placement, h.Placement
			return
		}
	}
}

// asItIs is a placement in which the devices have a value: rather sharded than whole, and whole than Partial.
func (r *propagation) asItIs(v int, g *group, phase ir.Phase) (p Placement) {
	order := [...]int{Replicated: 1, Sharded: 2, Partial: 0}
	best := -1
	for h := r.at(v, g); h != nil; h = h.next {
		if h.usable(g, phase) && order[h.Kind] > best {
			best, p = order[h.Kind], h.Placement
		}
	}
	return p
}

// onlySharded tells whether no device has the whole value, but each some rows of it.
func (r *propagation) onlySharded(v int, g *group, phase ir.Phase) bool {
	kinds := r.kinds(v, g, phase)
	if home := r.values[v].home; home != nil && home != g {
		kinds |= r.kinds(v, home, phase)
	}
	return kinds&(1<<Sharded) != 0 && kinds&(1<<Replicated) == 0
}

// reset makes it the strategy of an op that every device computes as a whole.
func (s *strategy) reset(n, m int) {
	s.in, s.out = slices.Grow(s.in[:0], n)[:n], slices.Grow(s.out[:0], m)[:m]
	clear(s.in)
	clear(s.out)
	s.factor, s.unit = nil, 0
}

// factors tries the strategies that shard a factor as one of the inputs has it.
func (r *propagation) factors(t *task, try func()) {
	k := len(t.g.places)
	for n := range t.rule.Factors {
		f := &t.rule.Factors[n]
		var units [4]int
		tried := 0
		use := func(p Placement, ref Ref, v int) {
			unit, ok := f.unitOf(ref, p, r.values[v].v.Shape, k)
			if !ok || tried == len(units) || slices.Contains(units[:tried], unit) {
				return
			}
			units[tried] = unit
			tried++
			r.next.reset(len(t.op.Inputs), len(t.out))
			f.fill(&r.next, unit)
			try()
		}
		for i, ref := range f.In {
			if ref.Dim < 0 || t.in[i] < 0 {
				continue
			}
			v := t.in[i]
			info := &r.values[v]
			for h := r.at(v, t.g); h != nil; h = h.next {
				// That rows were cut out of a whole value is no reason to reduce another one in parts, or to update a variable so.
				if h.Kind == Sharded && h.Dim == ref.Dim && h.usable(t.g, t.op.Phase) && !(h.isCut() && (t.op.Phase == ir.Apply && info.leaf || r.readsPartial(t))) {
					use(h.Placement, ref, v)
				}
			}
			if home := info.home; home != nil && home != t.g {
				for h := r.first[v]; h != nil; h = h.next {
					if h.g == home && h.Kind == Sharded && h.Dim == ref.Dim && h.usable(home, t.op.Phase) && fits(dims(info.v)[h.Dim], h.Unit, k) {
						use(h.Placement, ref, v)
					}
				}
			}
			switch {
			case !t.deals || t.data:
			case info.deal.Kind == Sharded && info.deal.Dim == ref.Dim:
				use(info.deal, ref, v)
			case info.split && ref.Dim == 0 && fits(r.batch, 1, k):
				use(shardOf(0, 1), ref, v)
			}
		}
	}
}

// readsPartial tells whether an input of an op must still be reduced.
func (r *propagation) readsPartial(t *task) bool {
	return slices.ContainsFunc(t.in, func(v int) bool { return v >= 0 && r.kinds(v, t.g, t.op.Phase) == 1<<Partial })
}

// fill makes the strategy that of a sharded factor.
func (f *Factor) fill(s *strategy, unit int) {
	s.factor, s.unit = f, unit
	for i, ref := range f.In {
		s.in[i] = f.placement(ref, unit)
	}
	for i, ref := range f.Out {
		if s.out[i] = f.placement(ref, unit); f.Reduce != 0 {
			s.out[i] = partialOf(f.Reduce)
		}
	}
}

// partials tries the strategies that pass a Partial through.
func (r *propagation) partials(t *task, try func()) {
	if t.rule.Linear == NotLinear {
		return
	}
	sum := partialOf(ir.ReduceBySum)
	out := r.values[t.out[0]].v.Shape.Size()
	for i := range t.op.Inputs {
		v := t.in[i]
		if v < 0 {
			continue
		}
		var p Placement
		for h := r.at(v, t.g); h != nil; h = h.next {
			if h.Kind == Partial && h.usable(t.g, t.op.Phase) {
				p = h.Placement
			}
		}
		if p.Kind != Partial || p != sum && t.rule.Linear != Moves {
			continue
		}
		grows := r.values[v].v.Shape.Size() < out // it is cheaper to reduce the smaller value
		all := false
		switch t.rule.Linear {
		case Moves, Sums:
		case Adds:
			if _, concat := t.op.Attrs.(*ir.Concatenate); grows && !concat {
				continue
			}
			all = true
		case Scales:
			if grows || !r.values[t.in[1-i]].number {
				continue
			}
		case Divides:
			if grows || i != 0 || !r.values[t.in[1]].number {
				continue
			}
		}
		r.next.reset(len(t.op.Inputs), len(t.out))
		for j := range r.next.in {
			if all || j == i {
				r.next.in[j] = p
			}
		}
		r.next.out[0] = p
		try()
		if all {
			return
		}
	}
}

// What a strategy costs, in bytes that a device reads or writes.
const (
	between   = 10      // a byte between devices
	flops     = 32      // so many operations
	forbidden = 1 << 50 // a weight between devices
)

// cost is what a strategy costs; it may stop counting above a limit.
func (r *propagation) cost(t *task, s *strategy, limit int64) int64 {
	k := int64(len(t.g.places))
	c := t.flops / flops
	if s.factor != nil {
		c /= k
	}
	local := func(v int, p Placement) {
		if p.Kind == Sharded {
			c += r.values[v].bytes / k
		} else {
			c += r.values[v].bytes
		}
	}
	for i := range t.op.Inputs {
		if v := t.in[i]; v >= 0 {
			local(v, s.in[i])
		}
	}
	for i, v := range t.out {
		local(v, s.out[i])
		if s.out[i].Kind == Partial && !r.free[v] {
			c += 2 * between * r.values[v].bytes
		}
	}
	for i := range t.op.Inputs {
		if v := t.in[i]; v >= 0 && c <= limit {
			bytes, _, _ := r.reach(v, t.g, s.in[i], t.op.Phase)
			c += between * bytes
		}
	}
	return c
}

func (r *propagation) keep(p []Placement) []Placement {
	kept := r.memory.placements.take(len(p))
	copy(kept, p)
	return kept
}

func (r *propagation) newStep(kind stepKind, op *ir.Op, phase ir.Phase, g *group) *step {
	s := r.memory.steps.one()
	s.kind, s.op, s.phase, s.g = kind, op, phase, g
	return s
}

func (r *propagation) add(s *step) {
	s.index = len(r.steps)
	r.steps = append(r.steps, s)
}

// hold notes that the devices of g have a value so.
func (r *propagation) hold(v int, g *group, p Placement, by *step) *held {
	h := r.memory.held.one()
	h.Placement, h.value, h.g, h.by = p, v, g, by
	if by != nil {
		h.phase = by.phase
	}
	last := &r.first[v]
	for *last != nil {
		last = &(*last).next
	}
	*last = h
	return h
}
