// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package comm

import (
	"fmt"

	"github.com/easyparallel/epl/comm/inproc"
	"github.com/easyparallel/epl/comm/internal/transport"
)

// end is a rank's end of a communicator: its seat in the meeting of the worker's ranks.
type end struct {
	meeting *inproc.Meeting
	seat    *inproc.Seat
	begins  bool // the engine begins calls, see transport.Beginner
}

// meetingKey names a communicator.
type meetingKey struct {
	group   *Group
	channel int
}

// name returns the communicator as headers call it.
func (k meetingKey) name() string {
	if k.channel > 0 {
		return fmt.Sprintf("%s/%d", k.group.name, k.channel)
	}
	return k.group.name
}

// connect returns the end of a communicator that belongs to the local rank at a position of the group. The lock is held.
func (w *World) connect(key meetingKey, pos int) end {
	m := w.meetings[key]
	if m == nil {
		t := transport.NewTeam(w.base, key.group.ranks, key.name())
		var e transport.Engine
		if len(t.Members) > 1 {
			e = w.newEngine(t)
		}
		m = inproc.New(t, e)
		w.meetings[key] = m
	}
	_, begins := m.Engine.(transport.Beginner)
	return end{m, m.SeatOf(pos), begins && len(m.Team.Mine()) == 1}
}

// meetingNamed finds a communicator; nil if there is none.
func (w *World) meetingNamed(name string) *inproc.Meeting {
	w.mu.Lock()
	defer w.mu.Unlock()
	for key, m := range w.meetings {
		if key.name() == name {
			return m
		}
	}
	return nil
}

// run makes a call.
func (e end) run(k *transport.Call) error {
	m := e.meeting
	switch {
	case !k.Op.PointToPoint():
		return m.Collective(e.seat, k)
	case m.Team.MemberOf[k.PeerPos] == m.Team.Me:
		return m.Exchange(k)
	}
	return m.Engine.Exchange(k)
}

// post offers the data of a send to another worker at once, if the engine can.
func (e end) post(k *request) {
	m := e.meeting
	if k.Op != transport.Send || k.bad != nil || k.before != nil || m.Team.MemberOf[k.PeerPos] == m.Team.Me {
		return
	}
	if p, ok := m.Engine.(transport.Poster); ok {
		p.Post(&k.Call)
	}
}
