// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package shm

import (
	"unsafe"

	"github.com/easyparallel/epl/comm/internal/transport"
)

// allToAll gives every member a parcel: what its first rank gets from all of ours, then its second, … How much that is, the
// two concerned know. So all write it down before they meet, and then know whether they agree and how many steps there are.
func (a *area) allToAll(k *transport.Call, r *transport.Round) error {
	size, n, ranks := r.First().In.Size, len(a.seats), len(a.team.MemberOf)
	gives, takes := a.gives[a.step&1], a.takes[a.step&1]
	for _, c := range r.Calls {
		for pos := range ranks {
			gives[c.Pos][pos], takes[c.Pos][pos] = int64(c.InCounts[pos]), int64(c.OutCounts[pos])
		}
	}
	per := 0
	fill := func(i int, slot unsafe.Pointer) {
		a.others(func(m int) error {
			a.parcel(r, m, i*per, (i+1)*per, func(c *transport.Call, from, n, at int) {
				transport.Move(unsafe.Add(slot, (m*per+at)*size), c.In.At(from), n*size)
			})
			return nil
		})
	}
	look := func(i int, step uint64) error {
		if i == 0 {
			a.keep(r)
		}
		return a.others(func(m int) error {
			if err := a.await(k, m, filled, step+1); err != nil {
				return err
			}
			a.unpack(r, m, i*per, (i+1)*per, func(c *transport.Call, _, to, n, at int) {
				transport.Move(c.Out.At(to), unsafe.Add(a.slots[step&1][m], (a.me*per+at)*size), n*size)
			})
			return nil
		})
	}

	// The beginnings of all parcels are in the slots when members meet. If that is all, they are done.
	per = max(1, smallBytes/n&^63/size)
	if err := a.vacant(k, a.step); err != nil {
		return err
	}
	fill(0, a.slots[a.step&1][a.me])
	way, err := a.show(k, r)
	if err != nil {
		return err
	}
	for i := range ranks {
		for j := range ranks {
			if gives[i][j] != takes[j][i] {
				return a.disagree(k, r, a.team.MemberOf[i], a.team.MemberOf[j])
			}
		}
	}
	most := 0
	for m := range n {
		for o := range n {
			if m != o {
				most = max(most, a.weight(gives, m, o))
			}
		}
	}
	a.step++
	if most <= per {
		return look(0, a.step-1)
	}
	switch {
	case way == mapped:
		return a.touch(k, func() error {
			a.keep(r)
			return a.others(func(m int) error {
				a.unpack(r, m, 0, a.weight(gives, m, a.me), func(c *transport.Call, giver, to, n, _ int) {
					from := before(gives[giver], c.Pos)
					transport.Move(c.Out.At(to), unsafe.Add(a.mapped[giver], from*size), n*size)
				})
				return nil
			})
		})
	case way == lent && most*size >= lentBytes:
		p := &parcels{a, r, func(from, to int, f func(stretch)) {
			for _, dst := range a.team.Members[to].Positions {
				for _, src := range a.team.Members[from].Positions {
					f(stretch{src, before(gives[src], dst) * size, dst, before(takes[dst], src) * size, int(gives[src][dst]) * size})
				}
			}
		}}
		return a.touch(k, func() error {
			a.keep(r)
			if most*size < helpBytes {
				return p.take()
			}
			return p.carry()
		})
	}
	per = perSlot(size, n)
	return a.steps(k, r, false, stepsFor(most, per), fill, look)
}

// before returns the elements that a position gives to those before another, or takes from them.
func before(counts []int64, other int) (n int) {
	for _, k := range counts[:other] {
		n += int(k)
	}
	return n
}

// weight returns the elements of the parcel from one member to another.
func (a *area) weight(gives [][]int64, from, to int) (n int) {
	for _, i := range a.team.Members[from].Positions {
		for _, j := range a.team.Members[to].Positions {
			n += int(gives[i][j])
		}
	}
	return n
}

// parcel calls f for what of this worker's buffers is in a parcel, from one element to another: whose, from where, how
// many, and where in the parcel, counted from the first.
func (a *area) parcel(r *transport.Round, to, first, end int, f func(c *transport.Call, from, n, at int)) {
	start := 0
	for _, pos := range a.team.Members[to].Positions {
		for _, c := range r.Calls {
			n := c.InCounts[pos]
			if lo, hi := max(first, start), min(end, start+n); lo < hi {
				f(c, transport.Total(c.InCounts[:pos])+lo-start, hi-lo, lo-first)
			}
			start += n
		}
	}
}

// unpack calls f for where the elements of a parcel to this worker go: whose they are, from which position, to where.
func (a *area) unpack(r *transport.Round, from, first, end int, f func(c *transport.Call, giver, to, n, at int)) {
	start := 0
	for _, c := range r.Calls {
		for _, pos := range a.team.Members[from].Positions {
			n := c.OutCounts[pos]
			if lo, hi := max(first, start), min(end, start+n); lo < hi {
				f(c, pos, transport.Total(c.OutCounts[:pos])+lo-start, hi-lo, lo-first)
			}
			start += n
		}
	}
}

// keep copies what ranks of this worker give each other.
func (a *area) keep(r *transport.Round) {
	for _, to := range r.Calls {
		for _, from := range r.Calls {
			n := to.OutCounts[from.Pos]
			transport.Move(to.Out.Part(transport.Total(to.OutCounts[:from.Pos]), n).Ptr, from.In.Part(transport.Total(from.InCounts[:to.Pos]), n).Ptr, n*to.Out.Size)
		}
	}
}
