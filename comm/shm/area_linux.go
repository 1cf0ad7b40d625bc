// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package shm

import (
	"slices"
	"sync/atomic"
	"unsafe"

	"github.com/pkg/errors"

	"github.com/easyparallel/epl/comm/internal/kernel"
	"github.com/easyparallel/epl/comm/internal/transport"
)

// area is the segment in which all members of a communicator do its collectives.
//
// A collective is one or more steps, which all members count. In a step each member fills its slot, looks into the slots
// of the others when those are filled, and says that it has done so. There are two slots for each member, used in turn:
// so it can fill one while others still look into the other, and needs no step in which all only wait.
//
// In the first step of a collective everyone waits for everyone, and compares digests, before a result is touched. So a
// member can be ahead of another by one step at most, and who has come to a collective has left those before: that need not
// be said, and a collective of one step ends without a word.
type area struct {
	*segment
	team    *transport.Team
	seats   []*seat             // by member
	slots   [2][]unsafe.Pointer // by member
	results [2]unsafe.Pointer   // of an all-reduce; each member writes the elements that it reduces
	cards   [2][]*card          // by position
	gives   [2][][]int64        // of an all-to-all, by position of the giver and of the taker: elements
	takes   [2][][]int64        // by position of the taker and of the giver
	claims  []claimsLine        // by member that gives and member that takes, see parcels
	views   views               // of others' shared heaps
	reached map[uint64]bool     // pieces of heaps, by id: whether all members have mapped them
	fresh   []uint64            // see reach

	step    uint64 // the next one
	settled uint64 // all are known to have left the steps before it

	scratch   kernel.Scratch
	src, dst  []unsafe.Pointer
	mapped    []unsafe.Pointer // by position: buffers in shared heaps
	stretches []stretch        // of a parcel
	offsets   []int            // by position, see begin
	partial   []byte           // see reduceRanks
	borrowed  []byte           // see reduceLent
}

// seat is how far a member has come, and what it tells about its steps. What others wait for at the same time is on one
// cache line.
type seat struct {
	filled atomic.Uint64 // steps for which its slot is filled, and what follows is written
	digest [2]uint64     // of its calls, by step
	shared [2]uint64     // 1: its buffers are in the shared heap
	even   [2]uint64     // of an all-to-all: elements of each of its parts plus 1; 0: they differ
	// While a member touches the others' own memory, nobody's call may end. A call that has to end all the same says first
	// that it is gone, and waits for the others to stop touching.
	gone atomic.Uint32
	_    [4]byte

	looked atomic.Uint64 // steps in which it needs nobody's slot any more
	left   atomic.Uint64 // steps in which it needs nobody's results any more
	views  [2]uint64     // 1: it has mapped the buffers of all, by step; see answer
	_      [32]byte

	touching atomic.Uint32 // nobody looks as long as all is well
	_        [60]byte
}

// slotBytes is how much of a buffer a step takes. A step's slots should fit into the second-level cache, and be worth the
// time in which members wait for each other.
const slotBytes = 128 << 10

// areaLayout is where the parts of an area are.
type areaLayout struct {
	seats   []int // by member
	slots   [2][]int
	results [2]int
	cards   [2][]int // by position
	counts  [2][]int // by position: what it gives, then what it takes
	claims  int
}

func (l *areaLayout) place(at *places, members, ranks int) {
	for range members {
		l.seats = append(l.seats, at.take(int(unsafe.Sizeof(seat{}))))
	}
	l.claims = at.take(int(unsafe.Sizeof(claimsLine{})) * members * members)
	for i := range 2 {
		for range ranks {
			l.cards[i] = append(l.cards[i], at.take(int(unsafe.Sizeof(card{}))))
			l.counts[i] = append(l.counts[i], at.take(2*8*ranks))
		}
		for range members {
			l.slots[i] = append(l.slots[i], at.take(slotBytes))
		}
		l.results[i] = at.take(slotBytes)
	}
}

// newArea joins the segment for collectives; an area without one says that members cannot share memory.
func (e *engine) newArea(k *transport.Call) (*area, error) {
	n, ranks := len(e.team.Members), len(e.team.MemberOf)
	everybody := make([]int, n)
	for m := range everybody {
		everybody[m] = m
	}
	var l areaLayout
	s, err := e.join(k, everybody, "for collectives", func(at *places) { l.place(at, n, ranks) })
	if err != nil || s == nil {
		return &area{}, err
	}
	a := &area{segment: s, team: e.team, src: make([]unsafe.Pointer, ranks), dst: make([]unsafe.Pointer, ranks+1),
		mapped: make([]unsafe.Pointer, ranks), offsets: make([]int, ranks), reached: map[uint64]bool{}}
	for _, at := range l.seats {
		a.seats = append(a.seats, (*seat)(s.at(at)))
	}
	a.claims = unsafe.Slice((*claimsLine)(s.at(l.claims)), n*n)
	for i := range 2 {
		for _, at := range l.cards[i] {
			a.cards[i] = append(a.cards[i], (*card)(s.at(at)))
		}
		for _, at := range l.slots[i] {
			a.slots[i] = append(a.slots[i], s.at(at))
		}
		a.results[i] = s.at(l.results[i])
		for _, at := range l.counts[i] {
			both := unsafe.Slice((*int64)(s.at(at)), 2*ranks)
			a.gives[i], a.takes[i] = append(a.gives[i], both[:ranks]), append(a.takes[i], both[ranks:])
		}
	}
	return a, nil
}

// progress is one of a seat's counters.
type progress func(*seat) *atomic.Uint64

var (
	filled progress = func(s *seat) *atomic.Uint64 { return &s.filled }
	looked progress = func(s *seat) *atomic.Uint64 { return &s.looked }
	left   progress = func(s *seat) *atomic.Uint64 { return &s.left }
)

// await returns when a member has come so far.
func (a *area) await(k *transport.Call, m int, p progress, steps uint64) error {
	counter := p(a.seats[m])
	if counter.Load() >= steps {
		return nil
	}
	return a.wait(k, func() bool { return counter.Load() >= steps }, func() []int { return []int{m} })
}

// awaitAll returns when all have come so far.
func (a *area) awaitAll(k *transport.Call, p progress, steps uint64) error {
	for m := range a.seats {
		if m != a.me {
			if p(a.seats[m]).Load() < steps {
				return a.wait(k, func() bool { return a.allAt(p, steps) },
					func() []int { return a.without(func(m int) bool { return p(a.seats[m]).Load() >= steps }) })
			}
		}
	}
	return nil
}

func (a *area) allAt(p progress, steps uint64) bool {
	for m, s := range a.seats {
		if m != a.me && p(s).Load() < steps {
			return false
		}
	}
	return true
}

// vacant waits until this member's slot of a step may be filled: nobody needs what it held two steps ago.
func (a *area) vacant(k *transport.Call, step uint64) error {
	if step < 2 || a.settled >= step-1 {
		return nil
	}
	return a.awaitAll(k, looked, step-1)
}

// fill says that this member's slot of a step is filled.
func (a *area) fill(step uint64) {
	a.seats[a.me].filled.Store(step + 1)
	a.ringAll()
}

// leave says that this member has done a step.
func (a *area) leave(step uint64) {
	s := a.seats[a.me]
	s.looked.Store(step + 1)
	s.left.Store(step + 1)
	a.ringAll()
}

// meet begins a collective: it tells the others of it, waits for all, and compares. The slot of the step is filled. What
// members tell is there for two steps: who goes on for more must first see that all others have gone on too.
func (a *area) meet(k *transport.Call, r *transport.Round, shared bool) error {
	mine, i := a.seats[a.me], a.step&1
	mine.digest[i], mine.shared[i] = r.Digest, 0
	if shared {
		mine.shared[i] = 1
	}
	a.fill(a.step)
	k.Begin()
	if err := a.awaitAll(k, filled, a.step+1); err != nil {
		return err
	}
	a.settled = a.step // who has come to this collective has left what was before
	for m, s := range a.seats {
		if s.digest[i] != a.seats[0].digest[i] {
			return a.disagree(k, r, 0, m)
		}
	}
	return nil
}

// allShare tells whether the buffers of all are in shared heaps, after they met.
func (a *area) allShare() bool {
	for _, s := range a.seats {
		if s.shared[a.step&1] == 0 {
			return false
		}
	}
	return true
}

// disagree is the error when the calls of two members differ. These two find out how, and the rest hears it from them,
// so that all say the same.
func (a *area) disagree(k *transport.Call, r *transport.Round, one, other int) error {
	e := a.engine
	switch a.me {
	case one:
		one, other = other, one
		fallthrough
	case other:
		if err := e.team.Disagree(r, one); err != nil {
			return err
		}
	}
	return e.because(errors.Errorf("epl: worker %d and worker %d do not agree in %s; all ranks of a group must make the same calls in the same order",
		e.team.Members[one].Worker, e.team.Members[other].Worker, k.Header))
}

// touch runs f, which reads or writes the others' own memory, and returns when nobody touches this member's any more. It
// is a step.
func (a *area) touch(k *transport.Call, f func() error) error {
	mine := a.seats[a.me]
	mine.touching.Store(1)
	gone := slices.IndexFunc(a.seats, func(s *seat) bool { return s.gone.Load() != 0 })
	var err error
	if gone < 0 {
		err = f()
	}
	mine.touching.Store(0)
	if gone >= 0 || err != nil {
		a.ringAll()
	}
	switch {
	case gone >= 0:
		return a.engine.stopped(k, gone)
	case err != nil:
		return a.engine.because(err)
	}
	a.leave(a.step)
	a.step++
	return a.awaitAll(k, left, a.step)
}

// withdraw is what a call does before it returns an error: from here on nobody touches this member's memory.
func (a *area) withdraw() {
	a.seats[a.me].gone.Store(1)
	a.ringAll()
	a.settle(func() bool {
		for m, s := range a.seats {
			if m != a.me && s.touching.Load() != 0 {
				return false
			}
		}
		return true
	})
}
