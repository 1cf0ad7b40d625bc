// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

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
	b.wants = make([][]*ir.Value, len(b.s.Groups))
	loose := func(x *ir.Variable) bool { return x.Update != nil && !b.Bound(x.Update.Op) } // its new value can be computed anywhere
	for _, x := range b.p.Variables {
		if x.Update != nil && !loose(x) {
			b.want(x.Update.Op.Place, x.Update)
		}
	}
	for i, o := range b.p.Outputs {
		if v := b.p.Main.Outputs[i]; o.Updates == nil {
			place := 0
			if b.Bound(v.Op) {
				place = v.Op.Place
			}
			b.want(place, v)
			b.s.Results = append(b.s.Results, Result{v, place})
		}
	}
	var readers map[*ir.Value][]int
	for again := true; again; {
		again, readers = false, b.readers()
		for _, x := range b.p.Variables {
			if loose(x) && len(readers[x.Param]) == 0 {
				readers[x.Param] = []int{0}
			}
			for _, place := range readers[x.Param] {
				again = loose(x) && b.want(place, x.Update) || again
			}
		}
	}
	for _, x := range b.p.Variables {
		home := Variable{Param: x.Param, Update: x.Update, Host: b.onHost(x)}
		switch {
		case x.Update == nil:
			home.Places = readers[x.Param]
		case loose(x):
			for place := range b.wants {
				if b.wanted[valueAt{x.Update, place}] {
					home.Places = append(home.Places, place)
				}
			}
		default:
			home.Places = []int{x.Update.Op.Place}
		}
		if len(home.Places) == 0 {
			home.Places = []int{0}
		}
		b.s.homes[x.Param] = home.Places
		b.s.Variables = append(b.s.Variables, home)
	}
	b.rounds()
}

// valueAt is a value on a place.
type valueAt struct {
	*ir.Value
	place int
}

// want notes that a step leaves a value on a place; it returns false if that was known.
func (b *builder) want(place int, v *ir.Value) bool {
	known := b.wanted[valueAt{v, place}]
	if !known {
		b.wanted[valueAt{v, place}] = true
		b.wants[place] = append(b.wants[place], v)
	}
	return !known
}

// needed are the ops that read merged values and that places need for what they want.
func (b *builder) needed() map[*ir.Op]bool {
	needed := map[*ir.Op]bool{}
	var need func(v *ir.Value)
	need = func(v *ir.Value) {
		if v = sent(v); !needed[v.Op] && b.Bound(v.Op) && !v.Op.IsMerge() {
			needed[v.Op] = true
			v.Op.Uses(need)
		}
	}
	for _, vs := range b.wants {
		for _, v := range vs {
			need(v)
		}
	}
	return needed
}

// readers are the places that read each parameter, in instances or for what they want once.
func (b *builder) readers() map[*ir.Value][]int {
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
	outs := make([][]*ir.Value, len(b.wants))
	for op := range b.needed() {
		if !op.IsExchange() {
			outs[op.Place] = append(outs[op.Place], op.Outputs...)
		}
	}
	for place, vs := range b.wants {
		add(place, ir.CutBy(b.Position, b.p.Main, "", func(op *ir.Op) bool { return b.here(op, place) }, slices.Concat(vs, outs[place])).Inputs)
	}
	for _, places := range readers {
		slices.Sort(places)
	}
	return readers
}

// here tells whether a place computes an op that runs once, if it needs it.
func (b *builder) here(op *ir.Op, place int) bool {
	return !op.Varying && !op.IsMerge() && !op.IsTransfer() && (!b.Bound(op) || op.Place == place)
}

// rounds makes the segments: in each round a place computes all that it can of a region, and then places exchange what they
// have.
func (b *builder) rounds() {
	places := len(b.wants)
	needed := b.needed()
	left := make([][]*ir.Op, places+1) // what is not done, by place; then the exchanges
	done, region := map[*ir.Op]bool{}, map[*ir.Op]int{}
	for _, op := range b.p.Main.Ops {
		if needed[op] {
			region[op] = op.Region
			op.Uses(func(v *ir.Value) { region[op] = max(region[op], region[sent(v).Op]) })
			at := op.Place
			if op.IsExchange() {
				at = places
			}
			left[at] = append(left[at], op)
		}
	}
	for first := true; first || len(done) < len(needed); first = false {
		current := math.MaxInt
		for _, op := range slices.Concat(left...) {
			current = min(current, region[op])
		}
		now := make([][]*ir.Op, len(left))
		for i := range left {
			left[i] = slices.DeleteFunc(left[i], func(op *ir.Op) bool {
				ready := region[op] == current
				op.Uses(func(v *ir.Value) { ready = ready && (!needed[sent(v).Op] || done[sent(v).Op]) })
				if ready {
					now[i] = append(now[i], op)
					done[op] = i < places // exchanges when all are found
				}
				return ready
			})
		}
		for place, ops := range now[:places] {
			b.round(place, ops, now[places], len(left[place]) == 0 && (len(ops) > 0 || first))
		}
		for _, op := range now[places] {
			done[op] = true
			b.apply = append(b.apply, piece{exchange: op})
		}
	}
}

// round makes the segment of a place in a round. The last one computes what any place can.
func (b *builder) round(place int, ops, exchanges []*ir.Op, last bool) {
	set := map[*ir.Op]bool{}
	for _, op := range ops {
		set[op] = true
	}
	outside := func(u *ir.Op) bool { return b.Bound(u) && !u.IsMerge() && !set[u] }
	var outs []*ir.Value
	for _, op := range ops {
		for _, v := range op.Outputs {
			if b.wanted[valueAt{v, place}] || slices.ContainsFunc(b.Users(v), outside) {
				outs = append(outs, v)
			}
		}
	}
	for _, v := range b.wants[place] {
		if last && !b.Bound(v.Op) {
			outs = append(outs, v)
		}
	}
	for _, op := range exchanges { // what any place can compute is computed where it is exchanged
		if v := op.Inputs[0]; op.Place == place && !v.Op.IsLeaf() && !b.Bound(v.Op) {
			outs = append(outs, v)
		}
	}
	if outs = dedupe(outs); len(outs) == 0 {
		return
	}
	name := "once"
	if len(b.wants) > 1 {
		name = "once on " + strconv.Itoa(place)
	}
	b.apply = append(b.apply, piece{segment: len(b.s.Segments)})
	b.s.Segments = append(b.s.Segments, &Segment{Place: place, Stage: b.stageAt(place), Kind: Apply,
		Segment: ir.CutBy(b.Position, b.p.Main, name, func(op *ir.Op) bool { return set[op] || !b.Bound(op) && b.here(op, place) }, outs)})
}

// stageAt is the first stage of a place.
func (b *builder) stageAt(place int) int {
	return max(slices.IndexFunc(b.p.Stages, func(s ir.Stage) bool { return s.Places[0] == b.s.Groups[place][0] }), 0)
}
