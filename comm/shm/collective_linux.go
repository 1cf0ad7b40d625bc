// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package shm

import (
	"unsafe"

	"github.com/easyparallel/epl/comm/internal/transport"
)

// Sizes in bytes at which collectives change their way. Two processes on two processors decided them.
const (
	// smallBytes is up to where a collective is one step, in which every member computes all of its results by itself.
	smallBytes = 16 << 10

	// oneSlotBytes is the same for a broadcast. All but one wait until a slot is filled, and only then copy: from here on it
	// pays that they read the root's own memory.
	oneSlotBytes = 8 << 10

	// lentBytes is from where it pays to lend memory, for what a member gives.
	lentBytes = 64 << 10

	// helpBytes is from where members that all give and take help each other. Of few chunks, one that is early would claim
	// those that another is about to copy.
	helpBytes = 512 << 10

	// lentTerms is up to where it pays for the terms of a reduction.
	lentTerms = 8 << 20
)

// do does a collective. k is the call whose clock counts.
func (a *area) do(k *transport.Call, r *transport.Round) error {
	err := a.collective(k, r)
	if err != nil {
		a.withdraw()
	}
	a.forget()
	return err
}

func (a *area) collective(k *transport.Call, r *transport.Round) error {
	c := r.First()
	switch c.Op {
	case transport.AllReduce:
		return a.allReduce(k, r)
	case transport.ReduceScatter:
		a.begin(c.InCounts)
		return a.reduceScatter(k, r)
	case transport.AllGather:
		a.begin(c.OutCounts)
		return a.allGather(k, r)
	case transport.AllToAll:
		return a.allToAll(k, r)
	case transport.Broadcast:
		return a.broadcast(k, r)
	}
	return a.steps(k, r, true, 1, func(int, unsafe.Pointer) {}, func(int, uint64) error { return nil })
}

// forget drops the callers' memory.
func (a *area) forget() {
	clear(a.src[:cap(a.src)])
	clear(a.dst[:cap(a.dst)])
	clear(a.mapped)
}

// begin notes where the parts of positions begin.
func (a *area) begin(counts []int) {
	at := 0
	for pos, n := range counts {
		a.offsets[pos] = at
		at += n
	}
}

// steps does a collective in slots. In each step, fill fills this member's; look looks into those of the others, which it
// waits for. In a small one the first step is also where members meet; else they met before.
func (a *area) steps(k *transport.Call, r *transport.Round, small bool, n int, fill func(i int, slot unsafe.Pointer), look func(i int, step uint64) error) error {
	if !small {
		a.leave(a.step - 1) // in which they met
	}
	put := func(i int) error {
		step := a.step + uint64(i)
		if err := a.vacant(k, step); err != nil {
			return err
		}
		fill(i, a.slots[step&1][a.me])
		if !small {
			a.fill(step)
		}
		return nil
	}
	if err := put(0); err != nil {
		return err
	}
	if small {
		if err := a.meet(k, r, false); err != nil {
			return err
		}
	}
	for i := range n {
		if i+1 < n {
			if err := put(i + 1); err != nil {
				return err
			}
		}
		step := a.step + uint64(i)
		if err := look(i, step); err != nil {
			return err
		}
		if !small {
			a.leave(step)
		}
	}
	a.step += uint64(n)
	return nil
}

// others calls f for the other members, beginning with the next: not all turn to the first one first.
func (a *area) others(f func(m int) error) error {
	for i := 1; i < len(a.seats); i++ {
		if err := f((a.me + i) % len(a.seats)); err != nil {
			return err
		}
	}
	return nil
}

// pieces calls f for the parts of a member's ranks, laid end to end, from one element to another: which position, from
// which element of its part, how many, and where that is counted from the first.
func (a *area) pieces(m int, counts []int, from, to int, f func(pos, off, n, at int)) {
	start := 0
	for _, pos := range a.team.Members[m].Positions {
		lo, hi := max(from, start), min(to, start+counts[pos])
		if lo < hi {
			f(pos, lo-start, hi-lo, lo-from)
		}
		start += counts[pos]
	}
}

// total returns the elements of a member's parts.
func (a *area) total(m int, counts []int) (n int) {
	for _, pos := range a.team.Members[m].Positions {
		n += counts[pos]
	}
	return n
}

// most returns the largest total.
func (a *area) most(counts []int) (n int) {
	for m := range a.seats {
		n = max(n, a.total(m, counts))
	}
	return n
}

// callAt returns the call of the local rank at a position.
func (a *area) callAt(r *transport.Round, pos int) *transport.Call {
	for _, c := range r.Calls {
		if c.Pos == pos {
			return c
		}
	}
	return nil
}

// outs returns where an element goes in all ranks of this worker.
func (a *area) outs(r *transport.Round, at int) []unsafe.Pointer {
	a.dst = a.dst[:0]
	for _, c := range r.Calls {
		a.dst = append(a.dst, c.Out.At(at))
	}
	return a.dst
}

// perSlot returns how many elements a slot holds for each of some members, in whole cache lines.
func perSlot(size, members int) int { return max(1, slotBytes/members&^63/size) }

// stepsFor returns how many steps elements need.
func stepsFor(elements, per int) int { return max(1, (elements+per-1)/per) }
