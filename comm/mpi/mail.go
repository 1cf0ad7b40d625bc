// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

//go:build mpi

package mpi

import (
	"runtime"
	"slices"
	"unsafe"

	"github.com/gomlx/compute/dtypes"

	"github.com/easyparallel/epl/comm/internal/transport"
)

// mpiKey names a team of a world among all of the job.
type mpiKey uint64

// mpiMessage is what threads tell each other besides data. Its memory is what travels: all workers run the same program.
type mpiMessage struct {
	kind   mpiKind
	sender int32 // worker
	team   mpiKey

	// Of offers and takings.
	from, to   int32 // positions
	slot       int32
	dtype      dtypes.DType
	tag        int64
	seq        uint64
	bytes      int64
	programLen int32
	program    [128]byte // what is longer is cut
}

type mpiKind int32

const (
	mpiReady  mpiKind = iota // to the team's leader: I need the communicator
	mpiLock                  // from the leader: make no other communicator until this one is made
	mpiLocked                // the answer
	mpiGo                    // from the leader: all are locked, make it
	mpiOffer                 // to a receiver: I have something
	mpiTake                  // the answer: send it to this slot
)

// mpiMail carries messages. It is the thread's.
type mpiMail struct {
	in      *mpiMessage // where the next one comes
	request mpiRequest
	pins    runtime.Pinner
	out     []*mpiLetter
}

// mpiLetter is a message on its way.
type mpiLetter struct {
	message *mpiMessage
	request mpiRequest
	pins    runtime.Pinner
}

// buffer is the message's memory.
func (m *mpiMessage) buffer() transport.Buffer {
	return transport.Buffer{Ptr: unsafe.Pointer(m), Len: int(unsafe.Sizeof(*m)), Size: 1}
}

func (m *mpiMail) open(t *mpiThread) error {
	m.in = new(mpiMessage)
	m.pins.Pin(m.in)
	return m.expect(t)
}

// expect is ready for the next message.
func (m *mpiMail) expect(t *mpiThread) (err error) {
	m.request, err = mpiReceive(m.in.buffer(), -1, 0, t.control)
	return err
}

// close makes MPI forget the mail, so that it can end.
func (m *mpiMail) close() {
	_ = mpiCancel(m.request)
	m.pins.Unpin()
}

// send begins to send a message. This worker may be the receiver.
func (m *mpiMail) send(t *mpiThread, to int, message mpiMessage) (err error) {
	message.sender = int32(t.rank)
	if to == t.rank {
		return t.handle(message)
	}
	l := &mpiLetter{message: &message}
	l.pins.Pin(l.message)
	l.request, err = mpiSend(l.message.buffer(), to, 0, t.control)
	m.out = append(m.out, l)
	return err
}

// look handles what has come, and tells whether something has.
func (m *mpiMail) look(t *mpiThread) (happened bool) {
	m.out = slices.DeleteFunc(m.out, func(l *mpiLetter) bool {
		done, err := mpiTest(&l.request, 1, false)
		if done {
			l.pins.Unpin()
		}
		return t.check(err) == nil && done
	})
	for {
		done, err := mpiTest(&m.request, 1, false)
		if t.check(err) != nil || !done {
			return happened
		}
		happened = true
		message := *m.in
		if t.check(m.expect(t)) != nil {
			return true
		}
		_ = t.check(t.handle(message))
	}
}

// handle does what a message asks for.
func (t *mpiThread) handle(m mpiMessage) error {
	switch m.kind {
	case mpiReady, mpiLock, mpiLocked, mpiGo:
		return t.arrange(m)
	case mpiOffer:
		return t.offered(m)
	default:
		return t.taken(m)
	}
}

// check stops everything if the mail does not work.
func (t *mpiThread) check(err error) error {
	if err != nil {
		for op := range t.open {
			t.finish(op, err)
		}
	}
	return err
}
