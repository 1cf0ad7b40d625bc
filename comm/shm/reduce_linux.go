// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package shm

import (
	"unsafe"

	"github.com/easyparallel/epl/comm/internal/kernel"
	"github.com/easyparallel/epl/comm/internal/transport"
)

// Reductions combine the ranks of a worker first, in the type of the elements, and then the workers in the team's order.

// give puts elements of this worker into a slot: what its ranks have, combined.
func (a *area) give(r *transport.Round, slot unsafe.Pointer, from, n int) {
	c := r.First()
	if n == 0 {
		return // no pointer past the end
	}
	if len(r.Calls) == 1 {
		transport.Move(slot, c.In.At(from), n*c.In.Size)
		return
	}
	src := a.src[:len(r.Calls)]
	for i, c := range r.Calls {
		src[i] = c.In.At(from)
	}
	kernel.Reduce(c.DType, c.Reduction, 1, []unsafe.Pointer{slot}, src, n, &a.scratch)
}

// share returns the elements that a member reduces for all, in whole cache lines.
func (a *area) share(m, elements, size int) (from, to int) {
	line := max(1, 64/size)
	per := (elements + len(a.seats)*line - 1) / (len(a.seats) * line) * line
	return min(m*per, elements), min((m+1)*per, elements)
}

func (a *area) allReduce(k *transport.Call, r *transport.Round) error {
	c := r.First()
	size, elements := c.In.Size, c.In.Len
	n := len(a.seats)
	if elements*size <= smallBytes {
		return a.steps(k, r, true, 1, func(_ int, slot unsafe.Pointer) { a.give(r, slot, 0, elements) }, func(_ int, step uint64) error {
			kernel.Reduce(c.DType, c.Reduction, c.Scale, a.outs(r, 0), a.slots[step&1], elements, &a.scratch)
			return nil
		})
	}
	from, to := a.share(a.me, elements, size)
	done, err := a.direct(k, r, a.lendsTerms(elements*size), func() error {
		a.reduceRanks(c, from, to-from, nil)
		return nil
	}, func() error {
		return a.reduceLent(c, from, to-from, c.Out.Part(from, to-from).Ptr, true)
	})
	if done || err != nil {
		return err
	}
	per := perSlot(size, 1)
	block := func(i int) (from, n int) { return i * per, min(per, elements-i*per) }
	return a.steps(k, r, false, stepsFor(elements, per), func(i int, slot unsafe.Pointer) {
		at, count := block(i)
		if len(r.Calls) > 1 {
			a.give(r, slot, at, count)
			return
		}
		from, to := a.share(a.me, count, size) // nobody looks at what it reduces itself
		a.give(r, slot, at, from)
		a.give(r, unsafe.Add(slot, to*size), at+to, count-to)
	}, func(i int, step uint64) error {
		if err := a.awaitAll(k, filled, step+1); err != nil {
			return err
		}
		if step >= 2 {
			if err := a.awaitAll(k, left, step-1); err != nil { // the results of two steps ago
				return err
			}
		}
		at, count := block(i)
		results := a.results[step&1]
		if from, to := a.share(a.me, count, size); from < to {
			src := a.src[:n]
			for m := range src {
				src[m] = unsafe.Add(a.slots[step&1][m], from*size)
			}
			if len(r.Calls) == 1 {
				src[a.me] = c.In.At(at + from)
			}
			kernel.Reduce(c.DType, c.Reduction, c.Scale, append(a.outs(r, at+from), unsafe.Add(results, from*size)), src, to-from, &a.scratch)
		}
		a.seats[a.me].looked.Store(step + 1)
		a.ringAll()
		return a.others(func(m int) error {
			if err := a.await(k, m, looked, step+1); err != nil {
				return err
			}
			if from, to := a.share(m, count, size); from < to {
				transport.MoveToAll(a.outs(r, at+from), unsafe.Add(results, from*size), (to-from)*size)
			}
			return nil
		})
	})
}

func (a *area) reduceScatter(k *transport.Call, r *transport.Round) error {
	c := r.First()
	size, counts := c.In.Size, c.InCounts
	n := len(a.seats)
	per := perSlot(size, n)
	small := c.In.Len*size <= smallBytes && a.most(counts) <= per
	if !small {
		done, err := a.direct(k, r, a.lendsTerms(c.In.Len*size), func() error {
			a.pieces(a.me, counts, 0, a.total(a.me, counts), func(pos, off, n, _ int) {
				a.reduceRanks(c, a.offsets[pos]+off, n, a.callAt(r, pos).Out.At(off))
			})
			return nil
		}, func() error { return a.reduceLent(c, a.offsets[c.Pos], counts[c.Pos], c.Out.Ptr, false) })
		if done || err != nil {
			return err
		}
	}
	return a.steps(k, r, small, stepsFor(a.most(counts), per), func(i int, slot unsafe.Pointer) {
		for m := range n {
			if m != a.me || len(r.Calls) > 1 {
				a.pieces(m, counts, i*per, (i+1)*per, func(pos, off, n, at int) {
					a.give(r, unsafe.Add(slot, (m*per+at)*size), a.offsets[pos]+off, n)
				})
			}
		}
	}, func(i int, step uint64) error {
		if err := a.awaitAll(k, filled, step+1); err != nil {
			return err
		}
		a.pieces(a.me, counts, i*per, (i+1)*per, func(pos, off, n, at int) {
			src := a.src[:len(a.seats)]
			for m := range src {
				src[m] = unsafe.Add(a.slots[step&1][m], (a.me*per+at)*size)
			}
			if len(r.Calls) == 1 {
				src[a.me] = c.In.At(a.offsets[pos] + off)
			}
			kernel.Reduce(c.DType, c.Reduction, c.Scale, append(a.dst[:0], a.callAt(r, pos).Out.At(off)), src, n, &a.scratch)
		})
		return nil
	})
}

// lendsTerms tells whether members borrow the terms of a reduction from each other: if they are neither few nor so many that
// memory limits the speed, and need not be combined over the ranks of a worker first. Four members on two processors were
// slower so than through slots.
func (a *area) lendsTerms(bytes int) bool {
	return len(a.seats) == 2 && len(a.team.MemberOf) == 2 && lentBytes <= bytes && bytes <= lentTerms
}

// reduceLent reduces some elements of all members, borrows those of the others, and writes the results to one place, or to
// the others' memory too.
func (a *area) reduceLent(c *transport.Call, from, n int, to unsafe.Pointer, toAll bool) error {
	members, size := len(a.seats), c.In.Size
	per := max(1, min(n, maxChunk/members/size))
	a.borrowed = transport.Grow(a.borrowed, members*per*size)
	for at := 0; at < n; at += per {
		count := min(per, n-at)
		src := a.src[:members]
		src[a.me] = c.In.At(from + at)
		err := a.others(func(m int) error {
			src[m] = unsafe.Pointer(&a.borrowed[m*per*size])
			return a.read(m, src[m], a.cardOf(a.team.Members[m].Positions[0]).in+uint64((from+at)*size), count*size)
		})
		if err != nil {
			return err
		}
		result := unsafe.Add(to, at*size)
		kernel.Reduce(c.DType, c.Reduction, c.Scale, append(a.dst[:0], result), src, count, &a.scratch)
		if !toAll {
			continue
		}
		err = a.others(func(m int) error {
			return a.write(m, result, a.cardOf(a.team.Members[m].Positions[0]).out+uint64((from+at)*size), count*size)
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// reduceRanks reduces some elements of all ranks' buffers, which are mapped, and writes them to all of these, or to one
// place.
func (a *area) reduceRanks(c *transport.Call, from, n int, to unsafe.Pointer) {
	size, step := c.In.Size, n
	if len(a.mapped) > len(a.seats) { // partial sums should stay in the cache
		step = kernel.BlockElements
		if a.partial == nil {
			a.partial = make([]byte, len(a.seats)*len(kernel.Scratch{})*16)
		}
	}
	for at := from; at < from+n; at += step {
		count := min(step, from+n-at)
		src := a.src[:len(a.seats)]
		for m, who := range a.team.Members {
			ranks := a.dst[:len(who.Positions)]
			for i, pos := range who.Positions {
				ranks[i] = unsafe.Add(a.mapped[pos], at*size)
			}
			if src[m] = ranks[0]; len(ranks) > 1 {
				src[m] = unsafe.Pointer(&a.partial[m*len(kernel.Scratch{})*16])
				kernel.Reduce(c.DType, c.Reduction, 1, src[m:m+1], ranks, count, &a.scratch)
			}
		}
		dst := a.dst[:0]
		if to != nil {
			dst = append(dst, unsafe.Add(to, (at-from)*size))
		} else {
			for _, p := range a.mapped {
				dst = append(dst, unsafe.Add(p, at*size))
			}
		}
		kernel.Reduce(c.DType, c.Reduction, c.Scale, dst, src, count, &a.scratch)
	}
}
