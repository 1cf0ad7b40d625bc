// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package inproc

import (
	"encoding/json"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/pkg/errors"

	"github.com/easyparallel/epl/comm/internal/transport"
)

// cacheLine keeps what different ranks write apart.
type cacheLine [64]byte

// Meeting is where the ranks of one communicator meet, one collective (round) after the other.
//
// In a round, each rank takes its seat: it puts its call there. The last to come checks the calls, divides the work into
// pieces, and opens the round. Then whoever is awake takes pieces, each of which reads the memory of all ranks and writes
// the results of all; the one that finishes the last piece closes the round. A rank that wakes up late finds the work
// done. A small round is one piece, done by the last to come: the others wait only once.
//
// From the moment that the last rank has come until the round closes, nobody can leave, since others look at his call
// and his memory. All that happens then is work in memory: it needs no deadline, and is not interrupted.
type Meeting struct {
	world  *transport.World
	Team   *transport.Team
	seats  []*Seat          // of this worker's ranks
	Engine transport.Engine // between workers; nil if the group has only ranks of this one

	mayLinger bool // World.MayLinger

	// What the last to come writes, before it opens a round, and others read until it closes.
	calls     []*transport.Call   // by position
	parts     [][]*transport.Call // the same for each buffer
	pieces    int64               // into which the work is divided
	pieceSize int                 // in elements
	total     int                 // elements
	ended     time.Duration       // when the last piece of the round before was done: all have left that before another can end

	_ cacheLine
	// state is 4·(rounds that are closed), plus checking or open for the next one, plus broken when the meeting failed.
	state  atomic.Uint64
	_      cacheLine
	seated atomic.Uint64 // ranks that have come, over all rounds
	_      cacheLine
	taken  atomic.Int64 // pieces that somebody took
	done   atomic.Int64 // pieces that are done
	_      cacheLine

	mu      sync.Mutex
	err     error                      // why it is broken
	pending map[transport.Stream]*post // sends and receives that wait for the other end
	idle    []*post                    // for reuse
	round   *transport.Round           // that the engine is in
	memory  transport.Round            // for it
	failed  []transport.Told           // the calls of the round in which it failed
}

// What a meeting's state is made of.
const (
	checking = 1 // the last rank has come, and looks at the calls
	open     = 2 // the calls agree, and the work is going on
	closed   = 4 // this many for each round
	broken   = 1 << 63
)

// Seat is a rank's place.
type Seat struct {
	pos   int
	call  *transport.Call
	round atomic.Uint64 // the last one it came to
	since atomic.Int64  // when it came, in world time
	*waiter
	piece worker
	_     cacheLine
}

// New returns the meeting of a team's ranks in this worker. The engine is between workers; nil if there is no other.
func New(t *transport.Team, e transport.Engine) *Meeting {
	n := len(t.Mine())
	m := &Meeting{world: t.World, Team: t, Engine: e, calls: make([]*transport.Call, n), pending: map[transport.Stream]*post{},
		mayLinger: t.World.MayLinger()}
	for _, pos := range t.Mine() {
		m.seats = append(m.seats, &Seat{pos: pos, waiter: newWaiter(), piece: newWorker(n)})
	}
	return m
}

// SeatOf returns the seat of a position.
func (m *Meeting) SeatOf(pos int) *Seat { return m.seats[slices.Index(m.Team.Mine(), pos)] }

// patience returns how a call should wait.
func (m *Meeting) patience(k *transport.Call) patience {
	if k.Async || m.world.Outnumbered() {
		return crowded
	}
	return alone
}

// Collective takes part in a round.
func (m *Meeting) Collective(s *Seat, k *transport.Call) error {
	round := k.Seq
	before := (round - 1) * closed
	s.call = k
	if len(m.seats) == 1 && m.Engine != nil {
		return m.alone(before, k)
	}
	s.since.Store(int64(k.Began))
	s.round.Store(round)
	if m.seated.Add(1) == round*uint64(len(m.seats)) {
		if err := m.open(s, before); err != nil {
			return err
		}
		m.work(s, 0)
	} else {
		if err := m.gather(s, k, before); err != nil {
			return err
		}
		if m.state.Load()&^broken == before+open {
			m.work(s, m.taken.Add(1)-1)
		}
	}
	s.wait(m.patience(k), func() bool { return m.state.Load()&^broken >= before+closed }, nil)
	k.Ended = m.ended
	return nil
}

// alone is a round of the only rank that this worker has: it meets nobody here, which small collectives notice.
func (m *Meeting) alone(before uint64, k *transport.Call) error {
	if !m.state.CompareAndSwap(before, before+open) {
		return m.failure()
	}
	m.calls[0] = k
	m.split()
	if err := m.meetWorkers(); err != nil {
		m.Fail(err)
		m.state.Store(before + broken)
		return m.failure()
	}
	m.state.Add(closed - open)
	return nil
}

// open checks and divides the work, if the meeting is not broken: what the last rank does.
func (m *Meeting) open(s *Seat, before uint64) error {
	if !m.state.CompareAndSwap(before, before+checking) {
		return m.failure()
	}
	err := m.divide()
	if err != nil {
		m.Fail(err)
		m.state.Store(before + broken) // now the others can leave
		m.wakeAll(s)
		return m.failure()
	}
	m.state.Add(open - checking)
	if m.pieces > 1 {
		m.wakeAll(s)
	}
	return nil
}

// gather waits until the round is open.
func (m *Meeting) gather(s *Seat, k *transport.Call, before uint64) error {
	failed := func(state uint64) bool { return state&broken != 0 && state&^broken <= before }
	decided := func() bool {
		state := m.state.Load()
		return state&^broken >= before+open || failed(state)
	}
	left := func() time.Duration { return m.world.UntilLook(m.since(k.Seq)) }
	for !s.wait(m.patience(k), decided, left) {
		m.expire(k)
	}
	if failed(m.state.Load()) {
		return m.failure()
	}
	return nil
}

// since returns when the clock of a round started: with the first rank that came.
func (m *Meeting) since(round uint64) time.Duration {
	first := m.world.Now()
	for _, s := range m.seats {
		if s.round.Load() == round {
			first = min(first, time.Duration(s.since.Load()))
		}
	}
	return first
}

// expire breaks a meeting to which some did not come in time. When all of this worker's ranks have come, the engine keeps
// the time.
func (m *Meeting) expire(k *transport.Call) {
	var missing []int
	for _, o := range m.seats {
		if o.round.Load() < k.Seq {
			missing = append(missing, m.Team.Ranks[o.pos])
		}
	}
	if err := k.Owner.Overdue(missing, m.since(k.Seq)); err != nil {
		m.Fail(err)
	}
}

// work does pieces of the open round, beginning with one that was taken already, until none is left.
func (m *Meeting) work(s *Seat, piece int64) {
	for ; piece < m.pieces; piece = m.taken.Add(1) - 1 {
		from := int(piece) * m.pieceSize
		s.piece.doParts(m.parts, from, min(from+m.pieceSize, m.total))
		if m.done.Add(1) == m.pieces {
			m.ended = m.world.Now()
			m.state.Add(closed - open)
			m.wakeAll(s)
			return
		}
	}
}

// wakeAll wakes the other ranks.
func (m *Meeting) wakeAll(me *Seat) {
	for _, s := range m.seats {
		if s != me {
			s.wake()
		}
	}
}

// divide checks the calls of all ranks and divides the work.
func (m *Meeting) divide() error {
	for i, s := range m.seats {
		m.calls[i] = s.call
	}
	if err := transport.CheckAgreement(m.Team.Ranks, m.calls); err != nil {
		return err
	}
	m.split()
	for _, calls := range m.parts {
		if len(m.parts) > 1 {
			if err := transport.CheckAgreement(m.Team.Ranks, calls); err != nil {
				return err
			}
		}
		if err := transport.CheckApart(m.Team.Ranks, calls); err != nil {
			return err
		}
	}
	m.done.Store(0)
	m.taken.Store(1) // the first is mine
	if m.Engine != nil {
		m.total, m.pieces = 0, 1 // nothing is left to do
		return m.meetWorkers()
	}
	elements, size := 0, 0
	for _, calls := range m.parts {
		n, bytes := workOf(calls)
		elements, size = elements+n, bytes
	}
	m.total = elements
	m.pieceSize = max(1, m.pieceBytes(elements*size)/max(1, size))
	m.pieces = max(1, int64((elements+m.pieceSize-1)/m.pieceSize))
	return nil
}

// split finds the calls of each buffer.
func (m *Meeting) split() {
	m.parts = m.parts[:0]
	if m.calls[0].Parts == nil {
		m.parts = append(m.parts, m.calls)
		return
	}
	for i := range m.calls[0].Parts {
		var calls []*transport.Call
		for _, c := range m.calls {
			calls = append(calls, c.Part(i))
		}
		m.parts = append(m.parts, calls)
	}
}

// meetWorkers lets the engine do the collective, for all ranks of this worker: one buffer after the other.
func (m *Meeting) meetWorkers() error {
	for _, calls := range m.parts {
		if err := m.meet(calls); err != nil {
			return err
		}
	}
	return nil
}

func (m *Meeting) meet(calls []*transport.Call) error {
	r := &m.memory
	*r = transport.Round{Calls: calls, Digest: calls[0].Digest()}
	m.mu.Lock()
	m.round = r
	m.mu.Unlock()
	err := m.Engine.Collective(r)
	m.mu.Lock()
	defer m.mu.Unlock()
	if err != nil {
		m.failed = r.Tell()
	}
	m.round = nil
	return err
}

// Now tells other workers which collective the ranks of this one are in, or failed in.
func (m *Meeting) Now() string {
	m.mu.Lock()
	defer m.mu.Unlock()
	calls := m.failed
	if m.round != nil {
		calls = m.round.Tell()
	}
	text, err := json.Marshal(calls)
	if err != nil {
		return err.Error()
	}
	return string(text)
}

// pieceBytes returns how large pieces should be: a few for each processor, so that none has to wait for another; but a
// piece must be worth taking, since memory then moves between processors, and it should not fall out of their caches.
func (m *Meeting) pieceBytes(total int) int {
	const least, most, each, align = 16 << 10, 256 << 10, 4, 1 << 10
	want := total / (each * min(len(m.seats), m.world.Procs))
	return min(max(want, least), most) &^ (align - 1)
}

// Fail breaks the meeting, and wakes all who wait in it.
func (m *Meeting) Fail(err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.err != nil {
		return
	}
	m.err = err
	m.state.Or(broken)
	m.wakeAll(nil)
	for _, p := range m.pending {
		p.finish(err)
	}
	clear(m.pending)
	if m.Engine != nil {
		m.Engine.Fail(err)
	}
}

// failure returns why the meeting is broken.
func (m *Meeting) failure() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.err == nil {
		return errors.New("epl: a communicator stopped without a reason; this is a bug of EPL")
	}
	return m.err
}
