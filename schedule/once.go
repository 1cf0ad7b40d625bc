package schedule

import (
	"math"
	"slices"
	"strconv"

	"github.com/easyparallel/epl/ir"
)

// once cuts what runs once per step. Ops that read merged values run on their place; a value that another place computes
// is waited for, so that a place may run several segments. Other ops are computed wherever they are needed: a variable
// whose new value depends on no data, such as the number of the step, lives on all places that read it.
func (b *builder) once() {
	places := b.p.NumPlaces()
	wants := make([][]*ir.Value, places)
	want := func(place int, v *ir.Value) bool {
		if slices.Contains(wants[place], v) {
			return false
		}
		wants[place] = append(wants[place], v)
		return true
	}
	var loose []*ir.Variable // their new value can be computed anywhere
	for _, x := range b.p.Variables {
		if x.Update == nil {
			continue
		}
		if !b.Bound(x.Update.Op) {
			loose = append(loose, x)
			continue
		}
		for _, v := range x.Updates() {
			want(v.Place(), v)
		}
	}
	for i, o := range b.p.Outputs {
		if v := b.p.Main.Outputs[i]; o.Updates == nil {
			place := 0
			if b.Bound(v.Op) {
				place = v.Place()
			}
			want(place, v)
			b.s.Results = append(b.s.Results, Result{v, place})
		}
	}
	var readers map[*ir.Value][]int
	for again := true; again; {
		again = false
		readers = b.readers(wants)
		for _, x := range loose {
			at := readers[x.Param]
			if len(at) == 0 {
				at = []int{0}
			}
			for _, place := range at {
				again = want(place, x.Update) || again
			}
		}
	}
	for _, x := range b.p.Variables {
		home := Variable{Param: x.Param, Shards: x.Shards}
		for _, v := range x.Shards {
			home.Places = append(home.Places, v.Op.Place)
		}
		switch {
		case x.Update == nil && x.Shards != nil:
		case x.Shards != nil:
			home.Updates = x.Updates()
		case x.Update == nil:
			home.Places = readers[x.Param]
		case slices.Contains(loose, x):
			for place := range places {
				if slices.Contains(wants[place], x.Update) {
					home.Places, home.Updates = append(home.Places, place), append(home.Updates, x.Update)
				}
			}
		default:
			for _, v := range x.Updates() {
				home.Places, home.Updates = append(home.Places, v.Place()), append(home.Updates, v)
			}
		}
		if len(home.Places) == 0 {
			home.Places = []int{0}
		}
		b.s.Variables = append(b.s.Variables, home)
	}
	b.rounds(wants)
}

// needed are the ops that read merged values and that places need for what they want.
func (b *builder) needed(wants [][]*ir.Value) map[*ir.Op]bool {
	needed := map[*ir.Op]bool{}
	var need func(v *ir.Value)
	need = func(v *ir.Value) {
		if !needed[v.Op] && b.Bound(v.Op) && !v.Op.IsMerge() {
			needed[v.Op] = true
			v.Op.Uses(need)
		}
	}
	for _, vs := range wants {
		for _, v := range vs {
			need(v)
		}
	}
	return needed
}

// readers are the places that read each parameter, in instances or for what they want once.
func (b *builder) readers(wants [][]*ir.Value) map[*ir.Value][]int {
	readers := map[*ir.Value][]int{}
	add := func(place int, inputs []*ir.Value) {
		for _, v := range inputs {
			if _, ok := v.Op.Attrs.(*ir.Parameter); ok && !slices.Contains(readers[v], place) {
				readers[v] = append(readers[v], place)
			}
		}
	}
	for _, s := range b.s.Segments {
		add(s.Place, s.Inputs)
	}
	needed := b.needed(wants)
	for place, vs := range wants {
		outs := slices.Clone(vs)
		for op := range needed {
			if op.Place == place && !op.IsExchange() {
				outs = append(outs, op.Outputs...)
			}
		}
		add(place, ir.Cut(b.p.Main, "", func(op *ir.Op) bool { return b.here(op, place) }, outs).Inputs)
	}
	for _, places := range readers {
		slices.Sort(places)
	}
	return readers
}

// here tells whether a place computes an op that runs once, if it needs it.
func (b *builder) here(op *ir.Op, place int) bool {
	return !op.Varying && !op.IsMerge() && (!b.Bound(op) || op.Place == place)
}

// rounds makes the segments: in each round a place computes all that it can of a region, and then places exchange what they
// have.
func (b *builder) rounds(wants [][]*ir.Value) {
	needed := b.needed(wants)
	done := map[*ir.Op]bool{}
	region := map[*ir.Op]int{}
	for _, op := range b.p.Main.Ops {
		if needed[op] {
			region[op] = op.Region
			op.Uses(func(v *ir.Value) { region[op] = max(region[op], region[v.Op]) })
		}
	}
	var current int
	ready := func(op *ir.Op) bool {
		ok := needed[op] && !done[op] && region[op] == current
		op.Uses(func(v *ir.Value) { ok = ok && (!needed[v.Op] || done[v.Op]) })
		return ok
	}
	type round struct {
		sets      []map[*ir.Op]bool // by place
		exchanges []*ir.Op
	}
	var rounds []round
	for left := len(needed); left > 0 || len(rounds) == 0; {
		current = math.MaxInt
		for op := range needed {
			if !done[op] {
				current = min(current, region[op])
			}
		}
		var x round
		for place := range wants {
			set := map[*ir.Op]bool{}
			for _, op := range b.p.Main.Ops {
				if op.Place == place && !op.IsExchange() && ready(op) {
					set[op], done[op] = true, true
					left--
				}
			}
			x.sets = append(x.sets, set)
		}
		for _, op := range b.p.Main.Ops {
			if op.IsExchange() && ready(op) {
				x.exchanges = append(x.exchanges, op)
			}
		}
		for _, op := range x.exchanges {
			done[op] = true
			left--
		}
		rounds = append(rounds, x)
	}
	for i, x := range rounds {
		for place, set := range x.sets {
			final := !slices.ContainsFunc(rounds[i+1:], func(later round) bool { return len(later.sets[place]) > 0 })
			outs := b.roundOutputs(set, wants[place])
			if final && (len(set) > 0 || i == 0) {
				for _, v := range wants[place] {
					if !b.Bound(v.Op) {
						outs = append(outs, v)
					}
				}
			}
			for _, op := range x.exchanges { // what any place can compute is computed where it is exchanged
				for j, v := range op.Inputs {
					if op.Attrs.(*ir.Exchange).Places[j] == place && !v.Op.IsLeaf() && !b.Bound(v.Op) {
						outs = append(outs, v)
					}
				}
			}
			if outs = dedupe(outs); len(outs) == 0 {
				continue
			}
			b.apply = append(b.apply, piece{segment: len(b.s.Segments)})
			name := "once"
			if len(wants) > 1 {
				name = "once on " + strconv.Itoa(place)
			}
			b.s.Segments = append(b.s.Segments, &Segment{Place: place, Stage: b.stageAt(place), Kind: Apply,
				Segment: ir.Cut(b.p.Main, name, func(op *ir.Op) bool { return set[op] || !b.Bound(op) && b.here(op, place) }, outs)})
		}
		for _, op := range x.exchanges {
			b.apply = append(b.apply, piece{exchange: op})
		}
	}
}

// roundOutputs are the values of a segment that others need, or the step.
func (b *builder) roundOutputs(set map[*ir.Op]bool, wants []*ir.Value) (outs []*ir.Value) {
	for _, op := range b.p.Main.Ops {
		if !set[op] {
			continue
		}
		for _, v := range op.Outputs {
			outside := func(u *ir.Op) bool { return b.Bound(u) && !u.IsMerge() && !set[u] }
			if slices.Contains(wants, v) || slices.ContainsFunc(b.Users(v), outside) {
				outs = append(outs, v)
			}
		}
	}
	return outs
}

// stageAt is the first stage of a place.
func (b *builder) stageAt(place int) int {
	return max(slices.IndexFunc(b.p.Stages, func(s ir.Stage) bool { return slices.Contains(s.Places, place) }), 0)
}
