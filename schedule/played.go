// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package schedule

import (
	"cmp"

	"github.com/easyparallel/epl/ir"
)

// What an instruction does to its list, and has to do with others: all that players of lists ask.

// event is something that lists wait for: a value of a micro-batch was sent. The devices of a list meet in exchanges and buckets with
// each other, and with those of the same list of other model replicas.
type event struct{ transfer, micro int }

// events are what an instruction waits for, and what it makes happen.
func events(in Instr) (needs, tells []event) {
	e := []event{{in.Transfer, in.Micro}}
	switch {
	case in.Kind == Send:
		return nil, e
	case in.Kind == Receive, in.Kind == Feed && in.Transfer >= 0:
		return e, nil
	}
	return nil, nil
}

// residents calls see for the variables that are on a list's device when a step begins.
func (p *Program) residents(see func(list int, at Slot)) {
	for _, x := range p.Variables {
		for _, list := range x.Places {
			if !x.Host {
				see(list, Slot{x.Param, Once})
			}
		}
	}
}

// stays are the slots of each list that are not freed: what is merged is consumed by that; what leaves the step stays, and so
// do variables that do not change: they are the caller's.
func (p *Program) stays() map[slotAt]bool {
	stays := map[slotAt]bool{}
	for _, b := range p.Buckets {
		if b.Inside {
			continue
		}
		for _, m := range b.Merges {
			for micro := range p.Local.MicroBatches {
				stays[slotAt{Slot{m.Inputs[0], micro}, b.Place}] = true
			}
		}
	}
	for _, x := range p.Variables {
		for _, list := range x.Places {
			if !x.Host {
				stays[slotAt{Slot{cmp.Or(x.Update, x.Param), Once}, list}] = true
			}
		}
	}
	for _, r := range p.Results {
		stays[slotAt{Slot{r.Value, Once}, r.Place}] = true
	}
	if p.Checks != nil {
		for _, v := range append([]*ir.Value{p.Checks.Refused}, p.Checks.Findings...) {
			stays[slotAt{Slot{v, Once}, 0}] = true
		}
	}
	return stays
}

// slotAt is a slot of a list.
type slotAt struct {
	Slot
	list int
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
	if p.homes[v] != nil {
		micro = Once
	}
	return Slot{v, micro}
}

// Takes are where the inputs of a segment are that an instruction runs.
func (p *Program) Takes(in Instr) (slots []Slot) {
	if in.In != nil {
		return in.In
	}
	for _, v := range p.Segments[in.Segment].Inputs {
		slots = append(slots, p.slot(v, in.Micro))
	}
	return slots
}

// Gives are where its outputs go.
func (p *Program) Gives(in Instr) []Slot {
	if in.Out != nil {
		return in.Out
	}
	return slotsOf(p.Segments[in.Segment].Outputs, in.Micro)
}

// Uses are the slots that an instruction reads.
func (p *Program) Uses(in Instr) (slots []Slot) {
	switch in.Kind {
	case Run:
		return p.Takes(in)
	case Accumulate, Merge:
		b := p.Buckets[in.Bucket]
		if in.Kind == Merge && !b.Parts {
			switch {
			case b.Summed:
				in.Micro = Once
			case p.Local.MicroBatches > 1:
				return nil // the sums
			default:
				in.Micro = 0
			}
		}
		vs, _ := b.Values()
		return slotsOf(vs, in.Micro)
	case Send:
		if t := p.Transfers[in.Transfer]; !t.Input {
			return []Slot{p.slot(t.Value, in.Micro)}
		}
	case Exchange:
		for _, op := range in.Ops() {
			slots = append(slots, p.slot(op.Inputs[0], in.Micro))
		}
	case Store:
		return []Slot{{in.Value, Once}}
	}
	return slots
}

// Makes are the slots that an instruction fills.
func (p *Program) Makes(in Instr) (slots []Slot) {
	switch in.Kind {
	case Run:
		return p.Gives(in)
	case Wait:
		_, vs := p.Buckets[in.Bucket].Values()
		return slotsOf(vs, Once)
	case Receive:
		return []Slot{{p.Transfers[in.Transfer].Into, in.Micro}}
	case Feed, Load:
		return []Slot{{in.Value, in.Micro}}
	case Exchange:
		for _, op := range in.Ops() {
			slots = append(slots, Slot{op.Outputs[0], in.Micro})
		}
	}
	return slots
}

// given tells whether a value is made for every segment that takes it.
func given(v *ir.Value) bool {
	switch v.Op.Attrs.(type) {
	case *ir.Instance, *ir.InstanceCount, *ir.Present, *ir.Position:
		return true
	}
	return false
}
