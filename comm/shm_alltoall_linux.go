package comm

import (
	"cmp"
	"unsafe"
)

// allToAll gives every member a parcel: what its first rank gets from all of ours, then its second, … How much that is, the
// two concerned know. So all write it down before they meet, and then know whether they agree and how many steps there are.
func (a *shmArea) allToAll(k *call, r *round) error {
	size, n, ranks := r.first().in.size, len(a.seats), len(a.team.memberOf)
	gives, takes := a.gives[a.step&1], a.takes[a.step&1]
	for _, c := range r.calls {
		for pos := range ranks {
			gives[c.pos*ranks+pos], takes[c.pos*ranks+pos] = int64(c.inCounts[pos]), int64(c.outCounts[pos])
		}
	}
	per := 0
	fill := func(i int, slot unsafe.Pointer) {
		a.others(func(m int) error {
			a.parcel(r, m, i*per, (i+1)*per, func(c *call, from, n, at int) {
				move(unsafe.Add(slot, (m*per+at)*size), c.in.at(from), n*size)
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
			a.unpack(r, m, i*per, (i+1)*per, func(c *call, _, to, n, at int) {
				move(c.out.at(to), unsafe.Add(a.slots[step&1][m], (a.me*per+at)*size), n*size)
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
			if gives[i*ranks+j] != takes[j*ranks+i] {
				return a.disagree(k, r, a.team.memberOf[i], a.team.memberOf[j])
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
	if most <= per {
		err := look(0, a.step)
		a.pass()
		return err
	}
	a.pass()
	if way == mapped || way == lent && most*size >= lentBytes {
		return a.touch(k, func() error {
			a.keep(r)
			return a.others(func(m int) (err error) {
				a.unpack(r, m, 0, a.weight(gives, m, a.me), func(c *call, giver, to, n, _ int) {
					from := 0
					for pos := range c.pos {
						from += int(gives[giver*ranks+pos])
					}
					err = cmp.Or(err, a.fetchAll(append(a.dst[:0], c.out.at(to)), way, giver, from*size, n*size))
				})
				return err
			})
		})
	}
	per = perSlot(size, n)
	return a.steps(k, r, false, stepsFor(most, per), fill, look)
}

// weight returns the elements of the parcel from one member to another.
func (a *shmArea) weight(gives []int64, from, to int) (n int) {
	ranks := len(a.team.memberOf)
	for _, i := range a.team.members[from].positions {
		for _, j := range a.team.members[to].positions {
			n += int(gives[i*ranks+j])
		}
	}
	return n
}

// parcel calls f for what of this worker's buffers is in a parcel, from one element to another: whose, from where, how
// many, and where in the parcel, counted from the first.
func (a *shmArea) parcel(r *round, to, first, end int, f func(c *call, from, n, at int)) {
	start := 0
	for _, pos := range a.team.members[to].positions {
		for _, c := range r.calls {
			n := c.inCounts[pos]
			if lo, hi := max(first, start), min(end, start+n); lo < hi {
				f(c, sum(c.inCounts[:pos])+lo-start, hi-lo, lo-first)
			}
			start += n
		}
	}
}

// unpack calls f for where the elements of a parcel to this worker go: whose they are, from which position, to where.
func (a *shmArea) unpack(r *round, from, first, end int, f func(c *call, giver, to, n, at int)) {
	start := 0
	for _, c := range r.calls {
		for _, pos := range a.team.members[from].positions {
			n := c.outCounts[pos]
			if lo, hi := max(first, start), min(end, start+n); lo < hi {
				f(c, pos, sum(c.outCounts[:pos])+lo-start, hi-lo, lo-first)
			}
			start += n
		}
	}
}

// keep copies what ranks of this worker give each other.
func (a *shmArea) keep(r *round) {
	for _, to := range r.calls {
		for _, from := range r.calls {
			n := to.outCounts[from.pos]
			move(to.out.part(sum(to.outCounts[:from.pos]), n).ptr, from.in.part(sum(from.inCounts[:to.pos]), n).ptr, n*to.out.size)
		}
	}
}
