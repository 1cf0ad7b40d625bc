// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package shm

import (
	"slices"
	"sync"
	"sync/atomic"
	"unsafe"

	"github.com/easyparallel/epl/comm/internal/transport"
)

// pair is the segment in which two members send to each other. In each direction it has a ring of messages and, the
// other way, one of receipts.
//
// A send puts a message into the ring: what it sends, and the data if they are few; else where they are. Whoever receives
// takes all messages out, hands them to the receives that wait for them and keeps the others: so sends need not come in
// the order in which they are received. A receive that has its message takes the data, from the sender's own memory if the
// kernel lets it, with the sender's help if that has nothing else to do, and writes a receipt. Whoever waits for one takes out all receipts that are there.
type pair struct {
	*segment
	member int // the other one
	out    shmOutbox
	in     shmInbox

	ready     chan struct{} // closed when it is connected, or err is set
	connected atomic.Bool   // so that calls need not ask the channel
	err       error
}

// shmDirection is what the two share for what goes one way.
type shmDirection struct {
	sent, taken atomicLine // messages
	messages    [16]shmMessage

	answered, noted atomicLine // receipts
	receipts        [64]shmReceipt

	// Where the data of one message at a time go through blocks, used in turn, because the receiver cannot read the sender's
	// memory: which message, and how many blocks were filled and emptied, over all messages.
	streaming, begin, filled, emptied atomicLine
	blocks                            [2][StreamBytes]byte

	// While a receiver reads the sender's memory, no send may end, see seat.
	reading, gone atomicLine

	joint jointCopy
}

// jointCopy is a message whose data both ends copy together, one message at a time. While the sender writes the receiver's
// memory, the receive may not end.
type jointCopy struct {
	message atomic.Uint64 // 0: none
	to      uint64        // in the receiver's memory
	claims  claims
	broken  atomic.Uint64 // the sender could not write
	_       [32]byte

	writing atomicLine
}

type atomicLine struct {
	atomic.Uint64
	_ [56]byte
}

// shmMessage is a send, and its data if they fit.
type shmMessage struct {
	shmEnvelope
	data [InlineBytes]byte
}

type shmEnvelope struct {
	id        uint64 // counts the sends of a worker to another
	from, to  int64  // positions
	tag       int64
	seq       uint64
	dtype     int64
	bytes     int64
	addr      uint64 // of the data in the sender's memory
	program   uint64 // hash
	nameBytes int64
	name      [112]byte // as much of the program's name as fits, for errors
}

// shmReceipt says what became of a message.
type shmReceipt struct{ id, verdict uint64 }

// Verdicts.
const (
	received = iota + 1
	mismatch // the receive is another; its worker says how
	wanted   // the data are to be streamed
)

const (
	// InlineBytes is what fits into a message. Up to there copying twice costs less than asking the kernel.
	InlineBytes = 8 << 10
	// StreamBytes is how much is streamed at a time.
	StreamBytes = 64 << 10
)

// shmOutbox is this worker's side of what it sends.
type shmOutbox struct {
	*shmDirection
	mu      sync.Mutex
	sends   uint64
	waiting []*shmSend // for their receipts
	idle    []*shmSend // for reuse
	stream  sync.Mutex // held while data are streamed
}

// shmSend is a send that waits for its receipt.
type shmSend struct {
	id      uint64 // of the message
	verdict atomic.Uint64
}

// shmInbox is this worker's side of what it receives.
type shmInbox struct {
	*shmDirection
	mu      sync.Mutex
	waiting arrivals      // receives that have no message
	kept    arrivals      // messages that have no receive
	idle    []*shmArrival // for reuse
	joining sync.Mutex    // held while the sender may help
}

// shmArrival is a receive that waits for its message, or the other way round.
type shmArrival struct {
	key      transport.Stream
	call     *transport.Call
	envelope shmEnvelope
	data     []byte
	state    atomic.Uint32
	err      error
}

// arrivals are few, each of another stream: a map would take longer.
type arrivals []*shmArrival

// remove takes the arrival of a stream out; nil if there is none.
func (all *arrivals) remove(key transport.Stream) *shmArrival {
	i := slices.IndexFunc(*all, func(a *shmArrival) bool { return a.key == key })
	if i < 0 {
		return nil
	}
	a, last := (*all)[i], len(*all)-1
	(*all)[i], (*all)[last] = (*all)[last], nil
	*all = (*all)[:last]
	return a
}

// States of an arrival.
const (
	coming  = iota
	arrived // the message is here, its data are to be fetched
	over    // the data are here, or err says why not
)

// pair returns the segment that is shared with another member.
func (e *engine) pair(k *transport.Call, member int) (*pair, error) {
	p := e.pairs[member].Load()
	if p != nil && p.connected.Load() {
		return p, p.err
	}
	k.Begin()
	if p == nil {
		made := &pair{member: member, ready: make(chan struct{})}
		if e.pairs[member].CompareAndSwap(nil, made) {
			made.err = made.connect(e, k)
			made.connected.Store(true)
			close(made.ready)
		}
		p = e.pairs[member].Load()
	}
	<-p.ready // whoever connects looks at the clock
	return p, p.err
}

func (p *pair) connect(e *engine, k *transport.Call) (err error) {
	members := []int{min(e.team.Me, p.member), max(e.team.Me, p.member)}
	var directions [2]int
	p.segment, err = e.join(k, members, "for sends", func(at *places) {
		for i := range directions {
			directions[i] = at.take(int(unsafe.Sizeof(shmDirection{})))
		}
	})
	if err != nil || p.segment == nil {
		return err
	}
	p.out = shmOutbox{shmDirection: (*shmDirection)(p.at(directions[p.me]))}
	p.in = shmInbox{shmDirection: (*shmDirection)(p.at(directions[1-p.me]))}
	return nil
}

// other returns the other one, for overdue.
func (p *pair) other() []int { return []int{p.member} }
