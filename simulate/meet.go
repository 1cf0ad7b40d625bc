// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package simulate

import (
	"fmt"
	"slices"

	"github.com/easyparallel/epl/cost"
	"github.com/easyparallel/epl/schedule"
	"github.com/easyparallel/epl/trace"
)

// meetingKey names what devices do together: an instruction of their place.
type meetingKey struct {
	class *class // nil: of all model replicas
	place int
	at    int
}

// meeting is a collective: it begins when all are there, and those before it in its lane are over.
type meeting struct {
	missing int
	over    *signal
}

// laneKey names a queue of collectives: a channel of a group of devices. -1 is that of exchanges.
type laneKey struct {
	class    *class
	place    int
	channel  int
	together bool
}

// lane runs what is queued one after the other.
type lane struct {
	busy  bool
	queue []func(done func())
}

func (l *lane) add(do func(done func())) {
	l.queue = append(l.queue, do)
	if !l.busy {
		l.next()
	}
}

func (l *lane) next() {
	if l.busy = len(l.queue) > 0; l.busy {
		do := l.queue[0]
		l.queue = l.queue[1:]
		do(l.next)
	}
}

func (s *run) lane(key laneKey) *lane {
	l := s.lanes[key]
	if l == nil {
		l = &lane{}
		s.lanes[key] = l
	}
	return l
}

// meet lets an actor take part in a collective. What is returned happens when it is over.
func (s *run) meet(key meetingKey, all []*actor, l *lane, f *flow, calls []call) *signal {
	m := s.meetings[key]
	if m == nil {
		m = &meeting{missing: len(all), over: &signal{clock: &s.clock}}
		s.meetings[key] = m
	}
	if m.missing--; m.missing == 0 {
		delete(s.meetings, key)
		l.add(func(done func()) {
			s.carry(f, calls, all, func() {
				m.over.fire()
				done()
			})
		})
	}
	return m.over
}

// carry lets values travel between devices.
func (s *run) carry(f *flow, calls []call, between []*actor, then func()) {
	latency, ns := s.take(f, calls)
	begin := s.now
	s.after(latency, func() {
		s.start(ns, f.uses, func() {
			for _, a := range between {
				a.travelled(begin)
			}
			then()
		})
	})
}

// messageKey names what a place sends another, in the model replicas of a class.
type messageKey struct {
	class           *class
	transfer, micro int
}

// message is a value on its way to another place. A long one travels when it was sent and its receiver asks for it, a short one at once.
type message struct {
	unsent, unasked int // devices that have not sent, or asked, yet
	over            *signal
}

// eagerBytes is how long a message may be that travels before it is asked for: see comm/tcp.
const eagerBytes = 64 << 10

func (a *actor) message(in schedule.Instr) *message {
	key, t := messageKey{a.class, in.Transfer, in.Micro}, a.lists.Transfers[in.Transfer]
	m := a.messages[key]
	if m == nil {
		m = &message{unsent: len(a.class.actors[t.From]), over: &signal{clock: &a.clock}}
		for _, to := range a.class.actors[t.To] {
			if t.Into.Bytes() > eagerBytes && (!t.Input || to.gets()) {
				m.unasked++
			}
		}
		a.messages[key] = m
	}
	return m
}

// travels lets a message go if it can.
func (a *actor) travels(m *message, in schedule.Instr) {
	if m.unsent > 0 || m.unasked > 0 {
		return
	}
	m.unsent = 1 // it goes once
	t := a.lists.Transfers[in.Transfer]
	a.carry(a.run.send(a.class, in.Transfer), []call{{cost.Send, t.Into.Bytes()}}, slices.Concat(a.class.actors[t.From], a.class.actors[t.To]), m.over.fire)
}

// gives sends a value to another place. It does not wait until they take it.
func (a *actor) gives(in schedule.Instr) {
	t := a.lists.Transfers[in.Transfer]
	if len(a.run.send(a.class, in.Transfer).patterns) == 0 {
		return // devices of this host have the data themselves
	}
	m := a.message(in)
	start, name := a.now, a.name(func() string { return fmt.Sprintf("%s to group %d", t.Value, t.To) })
	a.did(trace.Event{Kind: trace.Launch, Op: "send", Name: name, Flow: flowOf(in)}, start)
	m.over.then(func() { a.communicated(a.sendLane(), "send", name, start, t.Into.Bytes()) })
	a.sends = append(a.sends, m.over)
	m.unsent--
	a.travels(m, in)
}

// receive waits for a value of another place.
func (a *actor) receive(in schedule.Instr) bool {
	t := a.lists.Transfers[in.Transfer]
	m := a.message(in)
	start := a.now
	if m.unasked > 0 {
		m.unasked--
		a.travels(m, in)
	}
	m.over.then(func() {
		a.did(trace.Event{Kind: trace.Receive, Op: "send", Name: fmt.Sprintf("%s from group %d", t.Value, t.From), Bytes: t.Into.Bytes(), Flow: flowOf(in)}, start)
		a.after(0, a.step)
	})
	return false
}

// flowOf names a value on its way, in a model replica.
func flowOf(in schedule.Instr) string { return fmt.Sprintf("%d/%d", in.Transfer, in.Micro) }
