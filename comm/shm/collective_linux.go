// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package shm

import (
	"cmp"
	"unsafe"

	"github.com/easyparallel/epl/comm/internal/transport"
)

// Sizes in bytes at which collectives change their way. Two processes on two processors decided them.
const (
	// smallBytes is up to where a collective is one step, in which every member computes all of its results by itself.
	smallBytes = 16 << 10

	// lentBytes is from where it pays to let others read memory, for what a member gives.
	lentBytes = 64 << 10
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
		a.leave(step)
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

func (a *area) allGather(k *transport.Call, r *transport.Round) error {
	c := r.First()
	size, counts := c.Out.Size, c.OutCounts
	own := func() {
		for _, c := range r.Calls {
			if c.In.Len > 0 {
				transport.MoveToAll(a.outs(r, a.offsets[c.Pos]), c.In.Ptr, int(c.In.Bytes()))
			}
		}
	}
	per := perSlot(size, 1)
	small := c.Out.Len*size <= smallBytes
	if !small {
		way, err := a.arrive(k, r)
		if err != nil {
			return err
		}
		if way == mapped || way == lent && a.most(counts)*size >= lentBytes {
			return a.touch(k, func() error {
				own()
				return a.others(func(m int) (err error) {
					a.pieces(m, counts, 0, a.total(m, counts), func(pos, off, n, _ int) {
						err = cmp.Or(err, a.fetchAll(a.outs(r, a.offsets[pos]+off), way, pos, off*size, n*size))
					})
					return err
				})
			})
		}
	}
	return a.steps(k, r, small, stepsFor(a.most(counts), per), func(i int, slot unsafe.Pointer) {
		a.pieces(a.me, counts, i*per, (i+1)*per, func(pos, off, n, at int) {
			transport.Move(unsafe.Add(slot, at*size), a.callAt(r, pos).In.At(off), n*size)
		})
	}, func(i int, step uint64) error {
		if i == 0 {
			own()
		}
		return a.others(func(m int) error {
			if err := a.await(k, m, filled, step+1); err != nil {
				return err
			}
			a.pieces(m, counts, i*per, (i+1)*per, func(pos, off, n, at int) {
				transport.MoveToAll(a.outs(r, a.offsets[pos]+off), unsafe.Add(a.slots[step&1][m], at*size), n*size)
			})
			return nil
		})
	})
}

func (a *area) broadcast(k *transport.Call, r *transport.Round) error {
	c := r.First()
	root, bytes := a.team.MemberOf[c.PeerPos], int(c.Bytes)
	own := func(from, n int) {
		transport.MoveToAll(a.outs(r, from/c.In.Size), unsafe.Add(a.callAt(r, c.PeerPos).In.Ptr, from), n)
	}
	small := bytes <= smallBytes
	if !small {
		way, err := a.arrive(k, r)
		if err != nil {
			return err
		}
		if way == mapped || way == lent && bytes >= lentBytes {
			return a.touch(k, func() error {
				if a.me == root {
					own(0, bytes)
					return nil
				}
				return a.fetchAll(a.outs(r, 0), way, c.PeerPos, 0, bytes)
			})
		}
	}
	const per = slotBytes
	return a.steps(k, r, small, stepsFor(bytes, per), func(i int, slot unsafe.Pointer) {
		if a.me == root {
			transport.Move(slot, unsafe.Add(a.callAt(r, c.PeerPos).In.Ptr, i*per), min(per, bytes-i*per))
		}
	}, func(i int, step uint64) error {
		if i == 0 && !small {
			if err := a.awaitAll(k, filled, step+1); err != nil {
				return err
			}
		}
		n := min(per, bytes-i*per)
		if a.me == root {
			own(i*per, n)
			return nil
		}
		if err := a.await(k, root, filled, step+1); err != nil {
			return err
		}
		transport.MoveToAll(a.outs(r, i*per/c.Out.Size), a.slots[step&1][root], n)
		return nil
	})
}
