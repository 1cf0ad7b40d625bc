// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package shm

import (
	"unsafe"

	"github.com/pkg/errors"

	"github.com/easyparallel/epl/comm/internal/transport"
)

// parcels are what members copy between their own memories in a collective: one from each that gives to each that takes.
type parcels struct {
	*area
	round *transport.Round
	each  contents
}

// contents adds the contents of a parcel to a list, in order. Both ends of a parcel know them.
type contents func(to []stretch, giver, taker int) []stretch

// stretch is n bytes of the In of the rank at position src, for the Out of the rank at position dst.
type stretch struct{ src, from, dst, to, n int }

// carry copies everything that others give this member, and then helps those that still take from it. It is what touch
// runs.
func (p *parcels) carry() error {
	if err := p.take(); err != nil {
		return err
	}
	return p.give(func(int) bool { return false })
}

// handOut copies everything that this member gives, and then helps those that still give to it. What it gives it keeps, too:
// in pieces, while there is more, between the chunks that it gives, so that they are in the cache.
func (p *parcels) handOut(keep func(i int) (more bool)) error {
	if err := p.give(keep); err != nil {
		return err
	}
	return p.take()
}

func (p *parcels) give(keep func(i int) (more bool)) error {
	for i, more := 0, true; more; i++ {
		more = keep(i)
		err := p.others(func(m int) error {
			n, err := p.copyChunk(p.me, m)
			more = more || n > 0
			return err
		})
		if err != nil {
			return err
		}
	}
	return nil
}

func (p *parcels) take() error {
	return p.others(func(m int) (err error) {
		for n := 1; n > 0 && err == nil; {
			n, err = p.copyChunk(m, p.me)
		}
		return err
	})
}

// takeAlone copies everything that others give this member, which do not help: nothing need be claimed.
func (p *parcels) takeAlone() error {
	return p.others(func(m int) error {
		for _, s := range p.contents(m, p.me) {
			if s.n == 0 {
				continue
			}
			if err := p.copy(taker, s); err != nil {
				return err
			}
		}
		return nil
	})
}

// contents returns the stretches of a parcel, until it is called again.
func (p *parcels) contents(from, to int) []stretch {
	p.stretches = p.each(p.stretches[:0], from, to)
	return p.stretches
}

// copyChunk copies the next chunk of a parcel, and returns how much that was: 0 if nothing is left.
func (p *parcels) copyChunk(from, to int) (int, error) {
	who := taker
	if from == p.me {
		who = giver
	}
	contents, bytes := p.contents(from, to), 0
	for _, s := range contents {
		bytes += s.n
	}
	first, n := p.claims[from*len(p.seats)+to].next(p.step, who, bytes)
	at := 0
	for _, s := range contents {
		if lo, hi := max(first, at), min(first+n, at+s.n); lo < hi {
			if err := p.copy(who, stretch{s.src, s.from + lo - at, s.dst, s.to + lo - at, hi - lo}); err != nil {
				return n, err
			}
		}
		at += s.n
	}
	return n, nil
}

func (p *parcels) copy(who end, s stretch) error {
	src, dst := p.cardOf(s.src), p.cardOf(s.dst)
	if who == giver {
		return p.write(p.team.MemberOf[s.dst], unsafe.Add(p.callAt(p.round, s.src).In.Ptr, s.from), dst.out+uint64(s.to), s.n)
	}
	return p.read(p.team.MemberOf[s.src], unsafe.Add(p.callAt(p.round, s.dst).Out.Ptr, s.to), src.in+uint64(s.from), s.n)
}

// cardOf returns the card of a position, in the step after that in which it was shown.
func (a *area) cardOf(pos int) *card { return a.cards[(a.step-1)&1][pos] }

// read copies from a member's own memory.
func (a *area) read(m int, to unsafe.Pointer, from uint64, n int) error {
	return a.unreachable(m, "read", readMemory(a.peers[m].pid, to, from, n))
}

// write copies to a member's own memory.
func (a *area) write(m int, from unsafe.Pointer, to uint64, n int) error {
	return a.unreachable(m, "written", writeMemory(a.peers[m].pid, from, to, n))
}

func (a *area) unreachable(m int, what string, err error) error {
	if err == nil {
		return nil
	}
	return errors.Errorf("epl: the memory of worker %d can no longer be %s: %s; see its output", a.team.Members[m].Worker, what, err)
}
