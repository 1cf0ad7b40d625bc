// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

//go:build mpi

package mpi

import (
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/pkg/errors"

	"github.com/easyparallel/epl/comm/internal/transport"
)

// Available tells whether this program was built with MPI.
const Available = true

// mpiShared is MPI in this process. It can be started once, and ends with the last world.
var mpiShared struct {
	mu     sync.Mutex
	thread *mpiThread
	worlds map[*transport.World]int // their numbers, which are the same in all workers
	joined int
	ended  bool
}

// mpiThread makes all calls of MPI, on one thread of the operating system: MPI then needs no locks of its own, which cost
// more than a small collective. Others put functions into its queue. It never waits inside MPI for what another worker has
// not promised (see teams.go), but looks at the requests in flight, those of all communicators in turn, and sleeps
// when there are none.
type mpiThread struct {
	rank, size int
	found      bool // somebody else has started MPI, and ends it
	crowded    bool // see crowded
	bell       chan struct{}
	broken     atomic.Bool // a call was given up: MPI cannot end well any more
	frozen     atomic.Bool // no call of MPI is made any more

	mu    sync.Mutex
	queue []func()
	kept  []*mpiOp // that were given up, with the memory that MPI knows

	// The rest is the thread's. These are communicators of all workers: for messages; for what is sent and received; to make
	// others of, where nobody else may receive.
	control, data, all mpiComm

	open      map[*mpiOp]bool // operations that are not over
	active    []*mpiOp
	mail      mpiMail
	teams     map[mpiKey]*mpiTeam
	locks     []mpiKey // teams that wait for this worker; it is the first one's
	exchanges map[mpiExchangeKey]*mpiExchange
	offers    map[mpiExchangeKey]mpiMessage
	slots     int // used for messages
}

// mpiOp is something that a goroutine waits for.
type mpiOp struct {
	done chan error // gets one
	pins runtime.Pinner

	// The rest is the thread's.
	request mpiRequest
	flying  bool                 // the request is in flight
	parked  bool                 // waits for a message, not for the request
	steps   []func(*mpiOp) error // still to be made
	lent    bool                 // memory of the caller is in flight
	over    bool
}

// Join starts MPI, for the world's worker.
func Join(w *transport.World) error {
	s := &mpiShared
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ended {
		return errors.New("epl: MPI has ended with the last world of this process, and cannot be started again; keep a world open until the end")
	}
	if s.thread == nil {
		t := &mpiThread{crowded: w.Crowded(), bell: make(chan struct{}, 1), open: map[*mpiOp]bool{}, teams: map[mpiKey]*mpiTeam{},
			exchanges: map[mpiExchangeKey]*mpiExchange{}, offers: map[mpiExchangeKey]mpiMessage{}}
		started := make(chan error, 1)
		go t.run(started)
		select {
		case err := <-started:
			if err != nil {
				return err
			}
		case <-w.Mesh.Done():
			return w.Mesh.Err()
		}
		s.thread, s.worlds = t, map[*transport.World]int{}
	}
	me, workers := w.Layout.Worker, len(w.Layout.Workers)
	if t := s.thread; t.rank != me || t.size != workers {
		return errors.Errorf("epl: worker %d of %d is rank %d of %d for MPI; start one process for each worker by the mpirun of "+
			"the MPI that this program was built with, %s, in the order of the workers", me, workers, t.rank, t.size, Version())
	}
	s.joined++
	s.worlds[w] = s.joined
	return nil
}

// Leave ends MPI if this was the last world, and all went well: if not, MPI would wait for workers that are gone.
func Leave(w *transport.World) {
	s := &mpiShared
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.worlds[w] == 0 {
		return
	}
	delete(s.worlds, w)
	t := s.thread
	if len(s.worlds) > 0 || t.found || t.broken.Load() {
		return
	}
	s.ended = true
	over := make(chan struct{})
	t.submit(func() {
		t.mail.close()
		mpiFinalize()
		close(over)
		runtime.Goexit() // and the thread with it
	})
	select {
	case <-over:
	case <-w.Mesh.Done():
	case <-time.After(w.Timeout):
	}
}

// submit lets the thread call f.
func (t *mpiThread) submit(f func()) {
	t.mu.Lock()
	t.queue = append(t.queue, f)
	t.mu.Unlock()
	select {
	case t.bell <- struct{}{}:
	default:
	}
}

// run starts MPI and serves it.
func (t *mpiThread) run(started chan<- error) {
	runtime.LockOSThread() // for ever: the thread ends with this goroutine
	err := t.start()
	started <- err
	if err != nil {
		return
	}
	for idle := 0; ; idle++ {
		if t.serve() {
			idle = 0
		}
		switch {
		case len(t.open) == 0 || t.frozen.Load():
			<-t.bell
		case t.poll():
			idle = 0
		default:
			t.rest(idle)
		}
	}
}

func (t *mpiThread) start() (err error) {
	if t.found, err = mpiInit(); err != nil {
		return err
	}
	for _, c := range []*mpiComm{&t.control, &t.data, &t.all} {
		if *c, t.rank, t.size, err = mpiDuplicate(); err != nil {
			return errors.WithMessage(err, "epl: MPI does not start")
		}
	}
	return t.mail.open(t)
}

// serve does what was submitted.
func (t *mpiThread) serve() bool {
	t.mu.Lock()
	queue := t.queue
	t.queue = nil
	t.mu.Unlock()
	for _, f := range queue {
		f()
	}
	return len(queue) > 0
}

// poll looks at all requests in flight, and tells whether something happened.
func (t *mpiThread) poll() (happened bool) {
	const looks = 16
	share := max(1, looks/(len(t.active)+1))
	if t.mail.look(t) {
		happened = true
	}
	for _, op := range slices.Clone(t.active) {
		if op.over {
			continue
		}
		done, err := mpiTest(&op.request, share, t.crowded)
		if err != nil || done {
			happened = true
			t.step(op, err)
		}
	}
	t.active = slices.DeleteFunc(t.active, func(op *mpiOp) bool { return op.over || !op.flying })
	return happened
}

// rest lets others have the processor. While data is under way MPI needs us to move it. While we wait for somebody to
// come there is time, the more the longer it takes.
func (t *mpiThread) rest(idle int) {
	const eager, least, most = 100, 50 * time.Microsecond, time.Millisecond
	if idle < eager || slices.ContainsFunc(t.active, func(op *mpiOp) bool { return op.lent }) {
		return // polling has yielded
	}
	pause := time.NewTimer(min(most, least*time.Duration(1+idle-eager)))
	defer pause.Stop()
	select {
	case <-t.bell:
	case <-pause.C:
	}
}

// begin takes the first step of an operation.
func (t *mpiThread) begin(op *mpiOp) {
	t.open[op] = true
	var err error
	if t.frozen.Load() {
		err = errors.New("epl: MPI is not used any more, because a call before this one could not be ended")
	}
	t.step(op, err)
}

// step goes on with an operation whose request is done.
func (t *mpiThread) step(op *mpiOp, err error) {
	op.flying = false
	for err == nil && len(op.steps) > 0 {
		next := op.steps[0]
		op.steps = op.steps[1:]
		if err = next(op); err != nil {
			break
		}
		if op.flying {
			t.watch(op)
		}
		if op.flying || op.parked {
			return
		}
	}
	t.finish(op, err)
}

// watch looks after the request of an operation.
func (t *mpiThread) watch(op *mpiOp) {
	if !slices.Contains(t.active, op) {
		t.active = append(t.active, op)
	}
}

// unpark goes on with an operation that waited for a message.
func (t *mpiThread) unpark(op *mpiOp) {
	if !op.over {
		op.parked = false
		t.step(op, nil)
	}
}

// finish lets the goroutine go on that waits for an operation.
func (t *mpiThread) finish(op *mpiOp, err error) {
	if op.over {
		return
	}
	op.over = true
	delete(t.open, op)
	op.done <- err
}

// post notes the request that was begun.
func (op *mpiOp) post(r mpiRequest, err error) error {
	op.request, op.flying = r, err == nil
	return err
}

// pin keeps memory where it is.
func (op *mpiOp) pin(b transport.Buffer) {
	if b.Len > 0 {
		op.pins.Pin(b.Ptr)
	}
}

// giveUp ends an operation that failed while it was under way, and returns when its memory is the caller's again. MPI
// cannot take back what was begun, so what has begun to move may take a moment to end. If it does not, because the other
// side is gone, this process makes no call of MPI any more: what nobody asks for does not move.
func (t *mpiThread) giveUp(op *mpiOp) {
	const grace = 2 * time.Second
	t.keep(op)
	t.submit(func() {
		if !op.lent {
			t.finish(op, nil)
		}
	})
	select {
	case <-op.done:
	case <-time.After(grace):
		t.frozen.Store(true)
	}
}

// keep keeps the memory of an operation that failed, for good: MPI may still know it.
func (t *mpiThread) keep(op *mpiOp) {
	t.broken.Store(true)
	t.mu.Lock()
	t.kept = append(t.kept, op)
	t.mu.Unlock()
}
