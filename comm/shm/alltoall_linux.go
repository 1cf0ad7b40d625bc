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
	a.seats[a.me].even[a.step&1] = evenParts(r)
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

	// Parcels are in the slots when members meet, if they are small. If all are, that is all.
	per = max(1, smallBytes/n&^63/size)
	if a.weightOfMine(gives) <= per {
		if err := a.vacant(k, a.step); err != nil {
			return err
		}
		fill(0, a.slots[a.step&1][a.me])
	}
	way, err := a.show(k, r)
	if err != nil {
		return err
	}
	most, err := a.heaviest(k, r)
	if err != nil {
		return err
	}
	a.step++
	if most <= per {
		return look(0, a.step-1)
	}
	if way, err = a.reach(k, r, way); err != nil {
		return err
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
		p := parcels{a, r, func(list []stretch, from, to int) []stretch {
			for _, dst := range a.team.Members[to].Positions {
				for _, src := range a.team.Members[from].Positions {
					list = append(list, stretch{src, before(gives[src], dst) * size, dst, before(takes[dst], src) * size, int(gives[src][dst]) * size})
				}
			}
			return list
		}}
		return a.touch(k, func() error {
			a.keep(r)
			if most*size < helpBytes {
				return p.takeAlone()
			}
			return p.carry()
		})
	}
	per = perSlot(size, n)
	return a.steps(k, r, false, stepsFor(most, per), fill, look)
}

// evenParts returns the elements of each part of all calls plus 1; 0 if they differ.
func evenParts(r *transport.Round) uint64 {
	n := r.First().InCounts[0]
	for _, c := range r.Calls {
		for pos := range c.InCounts {
			if c.InCounts[pos] != n || c.OutCounts[pos] != n {
				return 0
			}
		}
	}
	return uint64(n) + 1
}

// heaviest returns the elements of the largest parcel, after members met, if they agree about all. Parts that are all equal
// are known from the seats: it need not look what everyone wrote down.
func (a *area) heaviest(k *transport.Call, r *transport.Round) (most int, err error) {
	gives, takes, even := a.gives[a.step&1], a.takes[a.step&1], a.seats[0].even[a.step&1]
	for _, s := range a.seats {
		if s.even[a.step&1] != even {
			even = 0
		}
	}
	for i := range takes {
		for j := range takes {
			if even == 0 && gives[i][j] != takes[j][i] {
				return 0, a.disagree(k, r, a.team.MemberOf[i], a.team.MemberOf[j])
			}
		}
	}
	for m, from := range a.team.Members {
		for o, to := range a.team.Members {
			switch {
			case m == o:
			case even > 0:
				most = max(most, len(from.Positions)*len(to.Positions)*int(even-1))
			default:
				most = max(most, a.weight(gives, m, o))
			}
		}
	}
	return most, nil
}

// before returns the elements that a position gives to those before another, or takes from them.
func before(counts []int64, other int) (n int) {
	for _, k := range counts[:other] {
		n += int(k)
	}
	return n
}

// weightOfMine returns the elements of the largest parcel from this member.
func (a *area) weightOfMine(gives [][]int64) (most int) {
	for m := range a.seats {
		if m != a.me {
			most = max(most, a.weight(gives, a.me, m))
		}
	}
	return most
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
