package shard

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/easyparallel/epl/cost"
	"github.com/easyparallel/epl/ir"
)

// What a choice costs is
//
//	time + reference · (memoryPrice · whole + keptPrice · kept + gatherPrice · gathered)
//
// where time is that of forward and backward of all micro-batches, estimated for a [machine]: operations of the busiest
// device or the bytes that it touches, elementwise ops aside, bytes exchanged, and a latency for each exchange. The others are
// in units of the reference, the time of the fastest seed that shards variables, so that small models are sharded as large
// ones are: who writes split wants memory to fall. whole is which part of the variables, and of what the optimizer keeps for
// them, is on every device; a layer norm is next to nothing of it. If data are sharded it is a part of that and of what forward
// keeps for backward together, of which all variables are next to nothing where sequences are long. kept is which part of the
// latter is on every device; recomputing would save it, too, so that it matters less. gathered is how many weights are gathered,
// which nobody asked for.
const (
	memoryPrice = 4
	keptPrice   = 0.1
	gatherPrice = 10
)

// machine is what estimates are for: a usual one, but with a link that is as slow as propagation takes it to be, like one to
// another host. What exchanges little is then found best, also if experts do not divide and a device has one more of them.
func machine() cost.Machine {
	m := cost.Default
	m.LinkBytesPerSecond = m.BytesPerSecond / between
	return m
}

// work limits the search: so many ops are looked at in all estimates together, about a second's worth; but a few choices are
// compared in any case.
const (
	work  = 1_000_000
	least = 16
	worth = 0.01 // of the price, that a change must save: less is within what estimates are wrong by
)

// search finds a choice.
func (c *chooser) search() *Chosen {
	budget := max(work/max(len(c.tasks), 1), least)
	best, start := c.start()
	groups, moves := c.groups()
	for improved := true; improved; {
		improved = false
		for _, m := range moves {
			for n := range c.ways(m[0]) {
				if len(c.known) >= budget {
					break
				}
				next := slices.Clone(best)
				for _, i := range m {
					next[i] = uint8(n)
				}
				if c.price(next) < c.price(best)*(1-worth) {
					best, improved = next, true
				}
			}
		}
	}
	return c.explain(c.withoutNeedless(best), start, groups)
}

// withoutNeedless lets data come whole that are sharded for nothing.
func (c *chooser) withoutNeedless(s state) state {
	for i := range c.inputs {
		next := slices.Clone(s)
		if next[len(c.vars)+i] = 0; c.price(next) <= c.price(s) {
			s = next
		}
	}
	return s
}

// ways is in how many ways something may be placed.
func (c *chooser) ways(i int) int {
	if i < len(c.vars) {
		return len(c.vars[i].ways)
	}
	return len(c.inputs[i-len(c.vars)].ways)
}

// start finds the best seed, and the reference.
func (c *chooser) start() (best state, name string) {
	seeds := c.seeds()
	for _, s := range seeds {
		if slices.ContainsFunc(s.state[:len(c.vars)], func(n uint8) bool { return n > 0 }) {
			if t := c.estimate(s.state).time.Seconds(); c.reference == 0 || t < c.reference {
				c.reference = t
			}
		}
	}
	for _, s := range seeds {
		if best == nil || c.price(s.state) < c.price(best) {
			best, name = s.state, s.name
		}
	}
	return best, name
}

// price is what a choice costs, in seconds.
func (c *chooser) price(s state) float64 {
	e := c.estimate(s)
	return e.time.Seconds() + c.reference*(memoryPrice*e.whole+keptPrice*e.kept+gatherPrice*float64(e.gathered))
}

// estimate is what a price is made of.
type estimate struct {
	time        time.Duration
	whole, kept float64
	gathered    int
}

// estimate looks at a choice, once.
func (c *chooser) estimate(s state) estimate {
	key := string(s)
	e, known := c.known[key]
	if !known {
		e = c.look(c.choice(s))
		c.known[key] = e
	}
	return e
}

// look estimates a choice.
func (c *chooser) look(choice Choice) estimate {
	vars, err := c.shard(choice)
	if err != nil {
		panic(err) // ways fit
	}
	todo := c.propagate(vars)
	x := c.count(todo, vars)
	x.Flops, x.Bytes = c.heavy(todo)
	microBatches := 1
	if c.p.Local != nil {
		microBatches = c.p.Local.MicroBatches
	}
	e := estimate{time: x.Time(machine(), microBatches), kept: c.keptWhole(todo), gathered: x.Gathered}
	var all, whole float64
	for _, x := range c.vars {
		all += float64(x.bytes)
		if choice[x.v.Param].Kind == Replicated {
			whole += float64(x.bytes)
		}
	}
	e.whole = whole / all
	if len(vars.offers) > 0 {
		e.whole = min(e.whole, (whole+e.kept*float64(c.kept))/(all+float64(c.kept)))
	}
	return e
}

// keptWhole is which part of what split stages compute in forward and keep for backward every device has as a whole.
func (c *chooser) keptWhole(todo *plan) float64 {
	c.marks = cleared(c.marks, len(c.values))
	var n int64
	for _, s := range todo.steps {
		if s.phase != ir.Backward || !s.g.split {
			continue
		}
		for _, h := range s.in {
			if h != nil && h.by != nil && h.phase == ir.Forward && h.Kind != Sharded && !c.marks[h.value] {
				c.marks[h.value] = true
				n += c.values[h.value].bytes
			}
		}
	}
	return float64(n) / float64(max(c.kept, 1))
}

// heavy is what the busiest device computes and touches, without what backends compute on the way, element by element:
// otherwise it would seem worth several exchanges to share the work of a layer norm.
func (c *chooser) heavy(todo *plan) (flops, bytes int64) {
	type load struct{ flops, bytes int64 }
	loads := map[*group]load{}
	for _, s := range todo.steps {
		l := loads[s.g]
		fused := s.kind == opStep && s.task.fuses()
		if s.kind == opStep && !fused {
			l.flops += s.flops()
		}
		for _, h := range s.in {
			if h != nil && !fused {
				l.bytes += c.localBytes(h)
			}
		}
		for _, h := range s.out {
			if !fused || c.values[h.value].uses > 1 {
				l.bytes += c.localBytes(h)
			}
		}
		loads[s.g] = l
	}
	for _, l := range loads {
		flops, bytes = max(flops, l.flops), max(bytes, l.bytes)
	}
	return flops, bytes
}

// fuses tells whether an op makes each element from a few others.
func (t *task) fuses() bool {
	return len(t.out) == 1 && len(t.rule.Factors) > 0 && !slices.ContainsFunc(t.rule.Factors, func(f Factor) bool { return f.Reduce != 0 })
}

// placement is how a variable is sharded in a choice.
func (c *chooser) placement(s state, i int) Placement {
	x := c.vars[i]
	if x.follows == nil {
		return x.ways[s[i]].Placement
	}
	p := c.placement(s, x.follows.to.index)
	if isAlong(p, x.follows.dim) {
		return shardOf(0, p.Unit)
	}
	return Placement{}
}

// choice is that of the variables of the part that is looked at.
func (c *chooser) choice(s state) Choice {
	r := Choice{}
	for i, x := range c.vars {
		if p := c.placement(s, i); p.Kind == Sharded {
			r[x.v.Param] = p
		}
	}
	for i, x := range c.inputs {
		if p := x.ways[s[len(c.vars)+i]]; p.Kind == Sharded {
			r[x.v] = p
		}
	}
	return r
}

// groups puts variables together that have the same part in repeated layers, by their indices. Moves are what is changed
// together: groups, and groups that only differ by name, such as query, key and value. Both are in the order of their bytes.
func (c *chooser) groups() (groups, moves [][]int) {
	var kinds [][]int
	at, kindAt := map[string]int{}, map[string]int{}
	for i, x := range c.vars {
		if x.follows != nil {
			continue
		}
		part := c.readersOf(x)
		name := part + digits.ReplaceAllString(x.v.Path, "#")
		join(at, name, &groups, i)
		join(kindAt, part, &kinds, i)
	}
	larger := func(a, b []int) int { return cmp.Compare(c.bytes(b), c.bytes(a)) }
	slices.SortStableFunc(groups, larger)
	moves = slices.Clone(groups)
	for _, k := range kinds {
		if !slices.ContainsFunc(groups, func(g []int) bool { return len(g) == len(k) && g[0] == k[0] }) {
			moves = append(moves, k)
		}
	}
	slices.SortStableFunc(moves, larger)
	for i := range c.inputs {
		moves = append(moves, []int{len(c.vars) + i})
	}
	return groups, slices.DeleteFunc(moves, func(m []int) bool { return c.ways(m[0]) == 1 })
}

// join adds i to the list with the key.
func join(at map[string]int, key string, lists *[][]int, i int) {
	n, seen := at[key]
	if !seen {
		n = len(*lists)
		at[key] = n
		*lists = append(*lists, nil)
	}
	(*lists)[n] = append((*lists)[n], i)
}

// bytes are those of a group.
func (c *chooser) bytes(group []int) (n int64) {
	for _, i := range group {
		n += c.vars[i].bytes
	}
	return n
}

// explain tells what was chosen, and what was known about other ways.
func (c *chooser) explain(best state, start string, groups [][]int) *Chosen {
	r := &Chosen{Choice: c.choice(best), Shared: c.shared, Start: start, Time: c.estimate(best).time, Estimates: len(c.known)}
	for i, x := range c.inputs {
		if p := x.ways[best[len(c.vars)+i]]; p.Kind == Sharded {
			r.Data = append(r.Data, Rows{nameOf(x.v), p, x.v})
		}
	}
	for _, g := range groups {
		for len(g) > 0 { // those of a group may differ, if a seed is kept as it is
			same := func(i int) bool { return best[i] == best[g[0]] }
			x := c.vars[g[0]]
			w := x.ways[best[g[0]]]
			d := Decision{Placement: w.Placement, Pinned: x.pinned, Why: w.why}
			var alike []int
			for _, i := range g {
				if same(i) {
					alike = append(alike, i)
					d.Variables = append(d.Variables, c.vars[i].v)
				}
			}
			d.Bytes = c.bytesOn(alike, int(best[g[0]]))
			if !x.pinned {
				d.Alternatives = c.alternatives(best, alike)
			}
			r.Groups = append(r.Groups, d)
			g = slices.DeleteFunc(slices.Clone(g), same)
		}
	}
	return r
}

// nameOf names data for people.
func nameOf(v *ir.Value) string {
	if p, ok := v.Op.Attrs.(*ir.Parameter); ok {
		return fmt.Sprintf("input %s %s", p.Name, ir.ShapeText(v.Shape))
	}
	return fmt.Sprintf("%s, of %s", ir.ShapeText(v.Shape), v.Op)
}
