// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

//go:build mpi

package mpi

import (
	"fmt"
	"hash/fnv"
	"math"
	"sync"
	"time"
	"unsafe"

	"github.com/pkg/errors"

	"github.com/easyparallel/epl/comm/internal/kernel"
	"github.com/easyparallel/epl/comm/internal/transport"
)

// engine lets MPI move the data of a team, and reduce it where MPI knows how. Sums of floats are then in the order that
// MPI chooses: the same in all runs of a layout, but not that of the ranks. The rest is reduced by us, in that order.
//
// A collective begins with what MPI does not do: members compare what they are about to make. So MPI sees only collectives
// to which all members have come, with the same sizes.
type engine struct {
	team    *transport.Team
	thread  *mpiThread
	key     mpiKey
	workers []int // by member

	agreed       bool      // the members have compared their calls of this round
	mine, theirs []mpiHead // by member
	scratch      kernel.Scratch
	memory       []complex128 // see space

	mu     sync.Mutex
	err    error
	failed chan struct{} // closed when err is set
}

// mpiHead is what a member tells another before a collective.
type mpiHead struct {
	digest uint64
	give   uint64 // of the elements that go to the other in an all-to-all, ...
	take   uint64 // ... and come from it
	doubts int64  // in a second round, which only all-to-all has: the member whose elements differ, or -1
}

// mpiDispute is what ends an operation of members that do not agree.
type mpiDispute struct{ a, b int } // members

func (mpiDispute) Error() string { return "epl: the calls of two workers differ" } // a better one takes its place

// New returns an engine between the members of a team, whose world has joined MPI.
func New(t *transport.Team) transport.Engine {
	mpiShared.mu.Lock()
	defer mpiShared.mu.Unlock()
	h := fnv.New64a()
	fmt.Fprint(h, mpiShared.worlds[t.World], t.Name)
	n := len(t.Members)
	e := &engine{team: t, thread: mpiShared.thread, key: mpiKey(h.Sum64()),
		mine: make([]mpiHead, n), theirs: make([]mpiHead, n), failed: make(chan struct{})}
	for _, m := range t.Members {
		e.workers = append(e.workers, m.Worker)
	}
	return e
}

// Fail implements transport.Engine. Called after Close, it is about nothing; otherwise MPI cannot end well.
func (e *engine) Fail(err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.err != nil {
		return
	}
	if err != transport.ErrClosed {
		e.thread.broken.Store(true)
	}
	e.err = err
	close(e.failed)
}

// Close implements transport.Engine. MPI keeps the communicator until it ends: freeing it would need all members.
func (e *engine) Close() {}

// Collective implements transport.Engine.
func (e *engine) Collective(r *transport.Round) error {
	e.agreed = false
	total := 0
	for _, c := range r.Calls {
		total += max(c.In.Len, c.Out.Len)
	}
	if err := e.fits(r.First(), total); err != nil {
		return err
	}
	switch r.First().Op {
	case transport.AllReduce:
		return e.allReduce(r)
	case transport.ReduceScatter:
		return e.reduceScatter(r)
	case transport.AllGather:
		return e.allGather(r)
	case transport.AllToAll:
		return e.allToAll(r)
	case transport.Broadcast:
		return e.broadcast(r)
	}
	return e.run(r, nil) // a barrier is over when all have come
}

// fits refuses what MPI cannot count.
func (e *engine) fits(k *transport.Call, elements int) error {
	if elements <= math.MaxInt32 {
		return nil
	}
	return errors.Errorf("epl: MPI counts up to %d elements, and %s has %d in a worker; use smaller buffers, or set communication.backend to auto",
		math.MaxInt32, k.Header, elements)
}

// Exchange implements transport.Engine.
func (e *engine) Exchange(k *transport.Call) error {
	if err := e.fits(k, k.In.Len); err != nil {
		return err
	}
	x := &mpiExchange{op: &mpiOp{done: make(chan error, 1)}, team: e.team, call: k}
	x.op.pin(k.In)
	x.op.steps = []func(*mpiOp) error{func(*mpiOp) error { return e.thread.exchange(e.key, x) }}
	peer := []int{e.team.MemberOf[k.PeerPos]}
	if err := e.do(x.op, k, func() []int { return peer }); err != nil {
		return err
	}
	return x.err
}

// run lets MPI do something, in memory that is pinned for as long. The first time in a round, the members come together and
// compare their calls before.
func (e *engine) run(r *transport.Round, post func(op *mpiOp, c mpiComm) error, memory ...transport.Buffer) error {
	op := &mpiOp{done: make(chan error, 1)}
	if !e.agreed {
		e.agree(r, op)
	}
	if post != nil {
		for _, b := range memory {
			op.pin(b)
		}
		op.steps = append(op.steps, func(op *mpiOp) error {
			op.lent = true
			return post(op, e.thread.teams[e.key].comm)
		})
	}
	err := e.do(op, r.First(), e.missing)
	if d, ok := err.(mpiDispute); ok {
		return e.settle(r, d)
	}
	e.agreed = true
	return err
}

// agree adds the steps in which the members come together.
func (e *engine) agree(r *transport.Round, op *mpiOp) {
	const size = int(unsafe.Sizeof(mpiHead{}))
	for m := range e.mine {
		e.mine[m] = mpiHead{digest: r.Digest}
		if r.First().Op == transport.AllToAll {
			e.mine[m].give, e.mine[m].take = e.partsWith(r, m)
		}
	}
	mine := transport.Buffer{Ptr: unsafe.Pointer(&e.mine[0]), Len: len(e.mine), Size: size}
	theirs := transport.Buffer{Ptr: unsafe.Pointer(&e.theirs[0]), Len: len(e.theirs), Size: size}
	op.pin(mine)
	op.pin(theirs)
	swap := func(op *mpiOp) error { return op.post(mpiSwap(mine, theirs, size, e.thread.teams[e.key].comm)) }
	op.steps = append(op.steps,
		func(op *mpiOp) error { return e.thread.connect(e.key, e.workers, op) },
		swap,
		func(*mpiOp) error {
			for m, head := range e.theirs {
				if head.digest != e.theirs[0].digest {
					return mpiDispute{0, m}
				}
			}
			return nil
		})
	if r.First().Op != transport.AllToAll {
		return
	}
	op.steps = append(op.steps, func(op *mpiOp) error { // only the two who differ can see it, and all must know
		doubts := int64(-1)
		for m, head := range e.theirs {
			if doubts < 0 && (head.give != e.mine[m].take || head.take != e.mine[m].give) {
				doubts = int64(m)
			}
		}
		for m := range e.mine {
			e.mine[m].doubts = doubts
		}
		return swap(op)
	}, func(*mpiOp) error {
		for m, head := range e.theirs {
			if head.doubts >= 0 {
				return mpiDispute{m, int(head.doubts)}
			}
		}
		return nil
	})
}

// partsWith condenses what goes to a member in an all-to-all, and what comes from it.
func (e *engine) partsWith(r *transport.Round, member int) (give, take uint64) {
	g, t := fnv.New64a(), fnv.New64a()
	theirs := e.team.Members[member].Positions
	for _, c := range r.Calls {
		for _, pos := range theirs {
			fmt.Fprintln(g, c.InCounts[pos])
		}
	}
	for _, pos := range theirs { // in the order in which it gives
		for _, c := range r.Calls {
			fmt.Fprintln(t, c.OutCounts[pos])
		}
	}
	return g.Sum64(), t.Sum64()
}

// settle finds words for a dispute. Those who differ have them; the others wait to be told.
func (e *engine) settle(r *transport.Round, d mpiDispute) error {
	const moment = 3 * time.Second
	other := d.b
	switch e.team.Me {
	case d.a:
	case d.b:
		other = d.a
	default:
		if err := e.failure(moment); err != nil {
			return err
		}
	}
	if err := e.team.Disagree(r, other); err != nil {
		return err
	}
	return errors.Errorf("epl: internal error: workers %d and %d differ in %s, and do not know how",
		e.workers[d.a], e.workers[d.b], r.First().Header)
}

// do lets the thread do an operation, and waits.
func (e *engine) do(op *mpiOp, k *transport.Call, missing func() []int) error {
	if err := e.failure(0); err != nil {
		op.pins.Unpin()
		return err
	}
	e.thread.submit(func() { e.thread.begin(op) })
	tick := time.NewTicker(transport.LookEvery)
	defer tick.Stop()
	for {
		select {
		case err := <-op.done:
			if _, ok := err.(mpiDispute); ok || err == nil {
				op.pins.Unpin()
				return err
			}
			e.thread.keep(op)
			if why := e.failure(time.Second); why != nil { // a worker that is gone is a better reason
				return why
			}
			return errors.Errorf("epl: %s failed: %s", k.Header, err)
		case <-e.failed:
			e.thread.giveUp(op)
			return e.failure(0)
		case <-tick.C:
			if err := e.team.Overdue(k, missing()); err != nil {
				e.thread.giveUp(op)
				return err
			}
		}
	}
}

// failure returns why the engine has failed, or does within a moment.
func (e *engine) failure(within time.Duration) error {
	if within > 0 {
		select {
		case <-e.failed:
		case <-time.After(within):
		}
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.err
}

// missing returns the other members: MPI does not tell who has come. overdue asks them.
func (e *engine) missing() (members []int) {
	for m := range e.workers {
		if m != e.team.Me {
			members = append(members, m)
		}
	}
	return members
}

// space returns memory for some elements like those of a buffer, until the next time.
func (e *engine) space(elements int, like transport.Buffer) transport.Buffer {
	const unit = int(unsafe.Sizeof(complex128(0)))
	if need := (elements*like.Size + unit - 1) / unit; len(e.memory) < need {
		e.memory = make([]complex128, need)
	}
	if elements == 0 {
		return transport.Buffer{Size: like.Size, DType: like.DType}
	}
	return transport.Buffer{Ptr: unsafe.Pointer(unsafe.SliceData(e.memory)), Len: elements, Size: like.Size, DType: like.DType}
}
