// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package schedule

import (
	"slices"

	"github.com/easyparallel/epl/ir"
)

// transfers finds the values that segments read on other places than where they are computed, one for each place that
// reads them.
func (b *builder) transfers() {
	for _, s := range b.s.Segments {
		for _, v := range s.Inputs {
			b.travel(v, s.Place, s.Kind == Apply)
		}
	}
	exchanges := func(pieces []piece, once bool) {
		for _, p := range pieces {
			if p.exchange != nil {
				b.travel(p.exchange.Inputs[0], p.exchange.Place, once)
			}
		}
	}
	for _, t := range b.sorted {
		exchanges(t.pieces, false)
	}
	exchanges(b.apply, true)
	for place, vs := range b.wants {
		for _, v := range vs {
			if v.Op.IsTransfer() {
				b.travel(v, place, true)
			}
		}
	}
}

// trip names the transfers of a value.
type trip struct {
	value *ir.Value // as it is sent
	once  bool
}

// sent is a value as the place has it that computes it: where it is brought to, it is another one if it is placed otherwise.
func sent(v *ir.Value) *ir.Value {
	if v.Op.IsTransfer() {
		return v.Op.Inputs[0]
	}
	return v
}

// travel adds the transfer of a value to a place that reads it, in every micro-batch or once.
func (b *builder) travel(v *ir.Value, to int, once bool) {
	t := Transfer{Value: sent(v), Into: v, To: to}
	alone := len(b.s.Groups[to]) == 1
	switch home := b.s.homes[v]; {
	case given(v) || slices.Contains(home, to):
		return
	case b.input[v]:
		t.Input, t.Into = true, b.rows(v, to) // from the first device
	case home != nil:
		t.From, t.Once = home[0], true
	default:
		if !once && !b.PerInstance(v.Op) || once && !b.Bound(v.Op) {
			return // computed by the task itself
		}
		t.From, t.Once = t.Value.Op.Place, once
	}
	if x := (trip{t.Value, t.Once}); (t.From != to || t.Input && !alone) && b.transfer(x, v, to) < 0 {
		b.trips[x] = append(b.trips[x], len(b.s.Transfers))
		b.s.Transfers = append(b.s.Transfers, t)
	}
}

// rows are what the devices of a place read of a data input: rows of its first dim, if that is all they take.
func (b *builder) rows(v *ir.Value, place int) *ir.Value {
	var taken *ir.Value
	for _, u := range b.Users(v) {
		if u.Place != place {
			continue
		}
		w := u.Outputs[0]
		if p := w.On(ir.Model); !u.IsReshard() || p.Kind != ir.Sharded || p.Dim != 0 || taken != nil && taken.On(ir.Model) != p {
			return v
		}
		taken = w
	}
	if taken == nil {
		return v
	}
	return taken
}

// transfer is the index of a trip to a place, where the value is needed as v; -1 if there is none.
func (b *builder) transfer(x trip, v *ir.Value, to int) int {
	for _, i := range b.trips[x] {
		if t := b.s.Transfers[i]; t.To == to && (t.Input || t.Into == v) {
			return i
		}
	}
	return -1
}

// lists makes the instructions of every place.
func (b *builder) lists(order [][]Task) {
	for place := range b.s.Groups {
		l := &lister{builder: b, place: place, have: map[Slot]bool{}}
		l.sendAll(func(t Transfer) bool { return t.Once && t.Value.Op.IsLeaf() }, Once)
		for _, x := range order[b.stageAt(place)%b.s.Pipeline.Groups] {
			if t := b.tasks[taskKey{place, x.Stage, x.Kind}]; t != nil {
				l.task(t, x.Micro)
			}
		}
		for i, x := range b.s.Buckets {
			if x.Place == place {
				if l.onWay != nil && l.onWay.Bucket == i {
					l.finish()
				}
				if !x.Parts || x.Terms {
					l.add(Instr{Kind: Wait, Bucket: i, Micro: Once})
				}
				_, out := x.Values()
				for _, v := range out {
					l.send(v, Once)
				}
			}
		}
		for _, p := range b.apply {
			switch {
			case p.exchange != nil:
				if p.exchange.Place == place {
					l.exchange(p.exchange, Once)
				}
			case b.s.Segments[p.segment].Place == place:
				l.run(p.segment, Once)
			}
		}
		for _, v := range b.wants[place] {
			if v.Op.IsTransfer() {
				l.get(v, Once)
			}
		}
		b.s.Places = append(b.s.Places, l.list)
	}
}

// lister writes the list of one place.
type lister struct {
	*builder
	place   int
	list    []Instr
	have    map[Slot]bool // what was fed or received
	shipped int           // micro-batches whose inputs went to other places
	// onWay is the merge in parts that is not waited for yet. There is one at most: as long as it is under way, all of its
	// gradients are there.
	onWay *Instr
}

// finish waits for the merge in parts that is under way.
func (l *lister) finish() {
	if l.onWay != nil {
		in := *l.onWay
		in.Kind, l.onWay = Wait, nil
		l.add(in)
	}
}

func (l *lister) add(in Instr) { l.list = append(l.list, in) }

// sendAll sends what place has to send among the transfers chosen.
func (l *lister) sendAll(choose func(Transfer) bool, micro int) {
	for i, t := range l.s.Transfers {
		if t.From == l.place && choose(t) {
			l.add(Instr{Kind: Send, Transfer: i, Micro: micro})
		}
	}
}

// send sends a value to all places that get it from here.
func (l *lister) send(v *ir.Value, micro int) {
	for _, i := range l.trips[trip{v, micro == Once}] {
		if l.s.Transfers[i].From == l.place {
			l.add(Instr{Kind: Send, Transfer: i, Micro: micro})
		}
	}
}

// task runs the pieces of a task, and merges what is complete.
func (l *lister) task(t *task, micro int) {
	for ; l.place == 0 && l.shipped <= micro; l.shipped++ { // the first that the place does for this micro-batch
		l.sendAll(func(t Transfer) bool { return t.Input }, l.shipped)
	}
	for _, p := range t.pieces {
		if p.exchange != nil {
			l.exchange(p.exchange, micro)
			continue
		}
		l.run(p.segment, micro)
		for _, i := range l.after[p.segment] {
			if l.s.Buckets[i].Parts {
				l.finish()
				l.onWay = &Instr{Kind: Merge, Bucket: i, Micro: micro}
				l.add(*l.onWay)
				continue
			}
			if l.p.Local.MicroBatches > 1 {
				l.add(Instr{Kind: Accumulate, Bucket: i, Micro: micro})
			}
			if micro == l.p.Local.MicroBatches-1 {
				l.add(Instr{Kind: Merge, Bucket: i, Micro: Once})
			}
		}
	}
}

// exchange does a collective, and sends what others need of it.
func (l *lister) exchange(op *ir.Op, micro int) {
	l.get(op.Inputs[0], micro)
	l.add(Instr{Kind: Exchange, Op: op, Micro: micro})
	l.send(op.Outputs[0], micro)
}

// run gets what a segment needs, runs it, and sends what others need of it.
func (l *lister) run(segment, micro int) {
	s := l.s.Segments[segment]
	for _, v := range s.Inputs {
		l.get(v, micro)
	}
	l.add(Instr{Kind: Run, Segment: segment, Micro: micro})
	for _, v := range s.Outputs {
		if !v.Op.IsLeaf() && (l.PerInstance(v.Op) || l.Bound(v.Op)) {
			l.send(v, micro)
		}
	}
}

// get feeds or receives a value, if it is not there.
func (l *lister) get(v *ir.Value, micro int) {
	in := Instr{Kind: Receive, Transfer: l.transfer(trip{sent(v), micro == Once || l.s.homes[v] != nil}, v, l.place), Micro: micro}
	switch {
	case l.input[v]:
		in.Kind, in.Value = Feed, v
	case in.Transfer < 0:
		return
	case l.s.Transfers[in.Transfer].Once:
		in.Micro = Once
	}
	if at := (Slot{v, in.Micro}); !l.have[at] {
		l.have[at] = true
		l.add(in)
	}
}

// frees finds the last use of everything.
func (p *Program) frees() {
	stays := p.stays()
	for place, l := range p.Places {
		seen := map[Slot]bool{}
		for i, in := range slices.Backward(l) {
			last := func(slots []Slot) (dead []Slot) {
				for _, at := range slots {
					if given(at.Value) || seen[at] {
						continue
					}
					seen[at] = true
					if !stays[slotAt{at, place}] {
						dead = append(dead, at)
					}
				}
				return dead
			}
			made := p.Makes(in)
			unused := last(made)
			if in.Kind == Load || in.Kind == Run { // what came before it used what another one brought, or computed
				for _, at := range made {
					delete(seen, at)
				}
			}
			l[i].Frees = append(last(p.Uses(in)), unused...)
		}
	}
}
