package schedule

import (
	"slices"

	"github.com/pkg/errors"

	"github.com/easyparallel/epl/ir"
)

// Check plays the lists of a model replica through without computing anything: places go on until each is at its end, or
// all wait for each other. Every value is there when it is used and not after it was freed, every send has its receive in
// the same order, every bucket is complete when it is merged, is merged once and waited for, and places that merge
// together do so in the same order.
func (p *Program) Check() error {
	g := &game{p: p, sent: make([][]int, len(p.Transfers)), received: make([]int, len(p.Transfers)), merges: make([][]int, len(p.Places))}
	for place := range p.Places {
		g.players = append(g.players, &player{have: map[Slot]bool{}, state: make([]Kind, len(p.Buckets)), parts: make([]int, len(p.Buckets))})
		for _, x := range p.Variables {
			if v := x.At(place); v != nil && !x.Host {
				g.players[place].have[Slot{v, Once}] = true
			}
		}
	}
	for moved := true; moved; {
		moved = false
		for place := range p.Places {
			for g.players[place].at < len(p.Places[place]) {
				ok, err := g.move(place)
				if err != nil {
					return errors.WithMessagef(err, "epl: internal error: schedule %q, device %d, instruction %d", p.Name, place, g.players[place].at)
				}
				if !ok {
					break
				}
				moved = true
			}
		}
	}
	return errors.WithMessagef(g.end(), "epl: internal error: schedule %q", p.Name)
}

// game is the state of all places.
type game struct {
	p        *Program
	players  []*player
	sent     [][]int // by transfer: micro-batches
	received []int   // by transfer
	merges   [][]int // by place: buckets in the order in which they are merged
}

// player is the state of one place.
type player struct {
	at    int
	have  map[Slot]bool
	state []Kind // of buckets. Run: nothing yet; Merge: started; Wait: done
	parts []int  // of buckets: micro-batches accumulated
	ready bool   // it has come to an exchange
}

// move plays the next instruction of a place; it returns false if it has to wait.
func (g *game) move(place int) (bool, error) {
	p, me := g.p, g.players[place]
	in := p.Places[place][me.at]
	for _, at := range p.uses(in, place) {
		if !given(at.Value) && !me.have[at] {
			return false, errors.Errorf("%s needs %s, which is not there", p.Text(in), at.Value)
		}
	}
	switch in.Kind {
	case Send:
		if t := p.Transfers[in.Transfer]; t.From != place {
			return false, errors.Errorf("%s belongs to device %d", p.Text(in), t.From)
		}
		g.sent[in.Transfer] = append(g.sent[in.Transfer], in.Micro)
	case Receive, Feed:
		if in.Transfer < 0 {
			break
		}
		sent := g.sent[in.Transfer]
		if len(sent) == g.received[in.Transfer] {
			return false, nil
		}
		if next := sent[g.received[in.Transfer]]; next != in.Micro {
			return false, errors.Errorf("%s, but micro-batch %d was sent first", p.Text(in), next)
		}
		g.received[in.Transfer]++
	case Exchange:
		if ok, err := g.meet(place, in); !ok || err != nil {
			return ok, err
		}
	case Load:
		if me.have[Slot{in.Value, Once}] {
			return false, errors.Errorf("%s, but it is there", p.Text(in))
		}
	case Accumulate:
		me.parts[in.Bucket]++
	case Merge:
		want := 0
		if p.Local.MicroBatches > 1 {
			want = p.Local.MicroBatches
		}
		if p.Buckets[in.Bucket].Parts {
			if me.parts[in.Bucket] != in.Micro {
				return false, errors.Errorf("micro-batch %d of bucket %d is merged after %d others", in.Micro, in.Bucket, me.parts[in.Bucket])
			}
			me.parts[in.Bucket]++
			want = me.parts[in.Bucket]
		}
		if me.state[in.Bucket] != Run || me.parts[in.Bucket] != want {
			return false, errors.Errorf("bucket %d is merged twice, or with %d of %d micro-batches", in.Bucket, me.parts[in.Bucket], want)
		}
		me.state[in.Bucket] = Merge
		if !p.Buckets[in.Bucket].Parts { // those are merged by each place with its like
			g.merges[place] = append(g.merges[place], in.Bucket)
		}
	case Wait:
		b := p.Buckets[in.Bucket]
		if b.Parts && in.Micro == Once { // all places have theirs, and add them up
			for _, other := range b.Places {
				if g.players[other].state[in.Bucket] != Wait {
					return false, nil
				}
			}
			break
		}
		if me.state[in.Bucket] != Merge {
			return false, errors.Errorf("bucket %d is waited for but not being merged", in.Bucket)
		}
		for _, other := range b.Places {
			if !b.Parts && g.players[other].state[in.Bucket] == Run {
				return false, nil
			}
		}
		if me.state[in.Bucket] = Wait; b.Parts && in.Micro < p.Local.MicroBatches-1 {
			me.state[in.Bucket] = Run
		}
	}
	for _, at := range p.makes(in, place) {
		me.have[at] = true
	}
	for _, at := range in.Frees {
		if !me.have[at] {
			return false, errors.Errorf("%s frees %s, which is not there", p.Text(in), at.Value)
		}
		delete(me.have, at)
	}
	me.at++
	return true, nil
}

// meet lets a place wait until all are at the same exchange, and then all go on.
func (g *game) meet(place int, in Instr) (bool, error) {
	me := g.players[place]
	if me.ready {
		me.ready = false
		return true, nil
	}
	others := in.Op.Attrs.(*ir.Exchange).Places
	for _, o := range others {
		x := g.players[o]
		if x.ready || x.at == len(g.p.Places[o]) {
			return false, nil
		}
		if next := g.p.Places[o][x.at]; next.Kind != Exchange || next.Op != in.Op || next.Micro != in.Micro {
			return false, nil
		}
	}
	for _, o := range others {
		g.players[o].ready = o != place
	}
	return true, nil
}

// end tells whether all came to their end, and left nothing undone.
func (g *game) end() error {
	for place, x := range g.players {
		if l := g.p.Places[place]; x.at < len(l) {
			return errors.Errorf("device %d waits forever at instruction %d, %s", place, x.at, g.p.Text(l[x.at]))
		}
		for i, b := range g.p.Buckets {
			if slices.Contains(b.Places, place) && x.state[i] != Wait {
				return errors.Errorf("bucket %d is never merged, or not waited for", i)
			}
		}
	}
	for i, t := range g.p.Transfers {
		if n := g.received[i]; n != len(g.sent[i]) {
			return errors.Errorf("%s is sent %d times from device %d to %d and received %d times", t.Value, len(g.sent[i]), t.From, t.To, n)
		}
	}
	for x := range g.merges {
		for y := range x {
			shared := func(list, other int) []int {
				return slices.DeleteFunc(slices.Clone(g.merges[list]), func(b int) bool { return !slices.Contains(g.p.Buckets[b].Places, other) })
			}
			if a, b := shared(y, x), shared(x, y); !slices.Equal(a, b) {
				return errors.Errorf("devices %d and %d merge buckets in different orders, %v and %v", y, x, a, b)
			}
		}
	}
	return nil
}
