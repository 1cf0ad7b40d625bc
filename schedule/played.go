package schedule

import (
	"slices"

	"github.com/easyparallel/epl/ir"
	"github.com/easyparallel/epl/schedule/play"
)

// What an instruction does to its list, and has to do with others: all that players of lists ask.

// event is something that lists wait for: a value was sent, or a list came to an exchange or a bucket.
type event struct {
	kind           Kind   // Send, Exchange, Merge, or Wait for those that meet there
	op             *ir.Op // of Exchange
	of, micro, nth int    // the transfer or bucket; the exchange's micro-batch; how often it was before
}

// play plays the lists of a model replica: what is received was sent in the same order, and who takes part in an exchange or
// a bucket waits for the others.
func (p *Program) play(observers ...play.Observer[event]) ([]play.Stop[event], error) {
	sent, received := make([]int, len(p.Transfers)), make([]int, len(p.Transfers))
	met := make([]map[event]int, len(p.Places)) // exchanges
	lengths := make([]int, len(p.Places))
	for i, l := range p.Places {
		lengths[i], met[i] = len(l), map[event]int{}
	}
	return play.Play(lengths, func(list, at int) (s play.Step[event]) {
		in := p.Places[list][at]
		switch in.Kind {
		case Send:
			s.Tells = []event{{kind: Send, of: in.Transfer, nth: sent[in.Transfer]}}
			sent[in.Transfer]++
		case Receive, Feed:
			if in.Transfer >= 0 {
				s.Needs = []event{{kind: Send, of: in.Transfer, nth: received[in.Transfer]}}
				received[in.Transfer]++
			}
		case Exchange:
			e := event{kind: Exchange, op: in.Op, micro: in.Micro}
			met[list][e]++
			e.nth = met[list][e]
			s.Arrives, s.Times = []event{e}, len(in.Op.Places())
			s.Needs = s.Arrives
		case Merge:
			if !p.Buckets[in.Bucket].Parts {
				s.Tells = []event{{kind: Merge, of: in.Bucket}}
			}
		case Wait:
			b := p.Buckets[in.Bucket]
			if b.Parts && in.Micro != Once {
				break // each place has its like in other model replicas
			}
			if s.Times, s.Needs = len(b.Places), []event{{kind: Merge, of: in.Bucket}}; b.Parts { // all add up what they have
				s.Needs[0].kind = Wait
				s.Arrives = s.Needs
			}
		}
		return s
	}, observers...)
}

// residents calls see for the variables that are on a list's device when a step begins.
func (p *Program) residents(see func(list int, at Slot)) {
	for _, x := range p.Variables {
		for i, list := range x.Places {
			if !x.Host {
				see(list, Slot{x.at(i), Once})
			}
		}
	}
}

// stays are the slots of each list that are not freed: what is merged is consumed by that; what leaves the step stays, and so
// do variables that do not change: they are the caller's.
func (p *Program) stays() map[slotAt]bool {
	stays := map[slotAt]bool{}
	for _, b := range p.Buckets {
		for i, list := range b.Places {
			for _, m := range b.Merges {
				for micro := range p.Local.MicroBatches {
					stays[slotAt{Slot{m.Inputs[i], micro}, list}] = true
				}
			}
		}
	}
	for _, x := range p.Variables {
		for i, list := range x.Places {
			if v := x.at(i); !x.Host {
				if x.Updates != nil {
					v = x.Updates[i]
				}
				stays[slotAt{Slot{v, Once}, list}] = true
			}
		}
	}
	for _, r := range p.Results {
		stays[slotAt{Slot{r.Value, Once}, r.Place}] = true
	}
	return stays
}

// slotAt is a slot of a list.
type slotAt struct {
	Slot
	list int
}

// bytes is the size of a value on the device of a list.
func (p *Program) bytes(v *ir.Value, _ int) int64 { return v.Bytes() }

// exchanged is what a list gives to an exchange, which may be a value that it gets from another, and what it gets.
func exchanged(op *ir.Op, list int) (in, out *ir.Value) {
	i := slices.Index(op.Places(), list)
	return op.Inputs[i], op.Outputs[i]
}

// slotsOf are where values of a micro-batch are.
func slotsOf(vs []*ir.Value, micro int) []Slot {
	slots := make([]Slot, len(vs))
	for i, v := range vs {
		slots[i] = Slot{v, micro}
	}
	return slots
}

// slot is where an input of a segment is: variables are there once.
func (p *Program) slot(v *ir.Value, micro int) Slot {
	if p.variable[v] {
		micro = Once
	}
	return Slot{v, micro}
}

// uses are the slots that an instruction reads on a list.
func (p *Program) uses(in Instr, list int) (slots []Slot) {
	switch in.Kind {
	case Run:
		for _, v := range p.Segments[in.Segment].Inputs {
			slots = append(slots, p.slot(v, in.Micro))
		}
	case Accumulate, Merge:
		b := p.Buckets[in.Bucket]
		if in.Kind == Merge && !b.Parts {
			if p.Local.MicroBatches > 1 {
				return nil // the sums
			}
			in.Micro = 0
		}
		vs, _ := b.At(list)
		return slotsOf(vs, in.Micro)
	case Send:
		if t := p.Transfers[in.Transfer]; !t.Input {
			return []Slot{p.slot(t.Value, in.Micro)}
		}
	case Exchange:
		v, _ := exchanged(in.Op, list)
		return []Slot{p.slot(v, in.Micro)}
	case Store:
		return []Slot{{in.Value, Once}}
	}
	return slots
}

// makes are the slots that an instruction fills on a list.
func (p *Program) makes(in Instr, list int) []Slot {
	switch in.Kind {
	case Run:
		return slotsOf(p.Segments[in.Segment].Outputs, in.Micro)
	case Wait:
		_, vs := p.Buckets[in.Bucket].At(list)
		return slotsOf(vs, Once)
	case Receive:
		return []Slot{{p.Transfers[in.Transfer].Value, in.Micro}}
	case Feed, Load:
		return []Slot{{in.Value, in.Micro}}
	case Exchange:
		_, v := exchanged(in.Op, list)
		return []Slot{{v, in.Micro}}
	}
	return nil
}

// given tells whether a value is made for every segment that takes it.
func given(v *ir.Value) bool {
	switch v.Op.Attrs.(type) {
	case *ir.Instance, *ir.InstanceCount, *ir.Replica:
		return true
	}
	return false
}
