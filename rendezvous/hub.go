// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package rendezvous

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/easyparallel/epl/wire"
)

// control is the purpose of the connections between members and the server, followed by the worker's index if it has one.
const control = "control"

// joinTime is how long a worker that has connected may take to introduce itself.
const joinTime = 10 * time.Second

func controlPurpose(index int) string {
	if index < 0 {
		return control
	}
	return fmt.Sprintf("%s %d", control, index)
}

// controlIndex returns the index of a worker from a purpose, -1 if it has none. ok is false for other purposes.
func controlIndex(purpose string) (index int, ok bool) {
	if purpose == control {
		return -1, true
	}
	number, ok := strings.CutPrefix(purpose, control+" ")
	index, err := strconv.Atoi(number)
	return index, ok && err == nil
}

// otherVersion stops a job that is about to begin with a worker of another version: it knows the token, so the others
// would wait for it in vain. Later it cannot be one of those that the job waits for.
func (s *Server) otherVersion(remote string, err *wire.VersionError) {
	s.mu.Lock()
	defer s.mu.Unlock()
	index, ok := controlIndex(err.Purpose)
	if s.started || !ok || index >= len(s.seats) || index >= 0 && s.seats[index] != nil {
		return
	}
	who := "a worker"
	if index >= 0 {
		who = theWorkers([]int{index})
	}
	s.fail(-1, "epl: %s at %s is EPL %s, the others are EPL %s; all workers of a job must be of the same version",
		who, remote, err.Theirs, err.Ours)
}

// seat gives a worker its place, or says why there is none.
func (s *Server) seat(j *joining, l *link) (*seat, string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	w := j.Worker
	if w.Index < 0 {
		w.Index = max(0, slices.Index(s.seats, nil))
	}
	switch {
	case s.err != nil:
		return nil, s.err.Error()
	case w.Index >= len(s.seats):
		return nil, fmt.Sprintf("epl: this is worker %d, but the job has %d, from 0; EPL_NUM_WORKERS and EPL_WORKER_INDEX must fit together",
			w.Index, len(s.seats))
	case j.Worker.Index < 0 && !slices.Contains(s.seats, nil):
		return nil, fmt.Sprintf("epl: all %d workers of the job are here already; start no more than there are", len(s.seats))
	case s.seats[w.Index] != nil:
		return nil, fmt.Sprintf("epl: there is a worker %d already: %s with pid %d is here, and %s with pid %d came too; give each worker its own index",
			w.Index, s.seats[w.Index].worker.Host, s.seats[w.Index].worker.PID, w.Host, w.PID)
	case j.Workers != len(s.seats):
		return nil, fmt.Sprintf("epl: this worker expects a job of %d workers, but it has %d; EPL_NUM_WORKERS must be equal on all workers and the launcher's --num_workers",
			j.Workers, len(s.seats))
	}
	now := time.Now()
	e := &seat{
		worker: w, link: l, facts: j.Facts, since: now, seen: now,
		beat: max(time.Duration(j.Beat)*time.Millisecond, time.Millisecond), patience: time.Duration(j.Timeout) * time.Millisecond,
	}
	s.seats[w.Index] = e
	if !slices.Contains(s.seats, nil) {
		s.begin()
	} else if early := s.all(func(e *seat) bool { return e == nil }); slices.ContainsFunc(early, func(i int) bool { return s.exited[i] }) {
		s.failEarly(early)
	} else {
		s.expire(now, time.Duration(j.Timeout)*time.Millisecond)
	}
	return e, ""
}

// expire sets when the job fails if it has not begun: when the first of its workers loses patience. The lock is held.
func (s *Server) expire(now time.Time, patience time.Duration) {
	at := now.Add(patience)
	if s.deadline != nil {
		if !at.Before(s.expires) {
			return
		}
		s.deadline.Stop()
	}
	s.expires = at
	s.deadline = time.AfterFunc(patience, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.started {
			return
		}
		missing := s.all(func(e *seat) bool { return e == nil })
		came := s.all(func(e *seat) bool { return e != nil })
		s.blame(missing, "epl: %s did not come within %s, %s waited; see whether all were started, and what the missing print",
			theWorkers(missing), patience, theWorkers(came))
	})
}

// begin starts the job if all workers have the same facts. The lock is held.
func (s *Server) begin() {
	if s.deadline != nil {
		s.deadline.Stop()
	}
	facts := make([][]Fact, len(s.seats))
	workers := make([]Worker, len(s.seats))
	for i, e := range s.seats {
		facts[i], workers[i] = e.facts, e.worker
	}
	if wrong := compareFacts(facts); wrong != "" {
		s.fail(-1, "%s", wrong)
		return
	}
	s.started = true
	for i, e := range s.seats {
		e.link.send(&message{kind: msgStart, Start: &starting{Index: i, ID: s.id, Workers: workers, Beat: s.options.Beat.Milliseconds()}})
	}
}

// handle does what a member asks for.
func (s *Server) handle(e *seat, m *message) {
	s.mu.Lock()
	defer s.mu.Unlock()
	e.seen = time.Now()
	news := e.silent
	e.silent = false
	switch m.kind {
	case msgBeat:
		if m.Beat == nil {
			break
		}
		if m.Beat.Changes != e.known.Changes {
			e.since = e.seen
			news = true
		}
		if e.known = *m.Beat; e.first.IsZero() && e.known.Step > 0 {
			e.first = e.seen
		}
	case msgAgree:
		s.agree(e, m.Subject, m.Hash)
	case msgText:
		s.text(e, m)
	case msgWithdraw:
		s.withdraw(e, m.Subject)
	case msgQuery:
		s.ask(e, m)
	case msgAnswer:
		if q := (query{m.Worker, m.ID}); s.askedOf(q, e) {
			delete(s.asked, q)
			s.seats[q.from].link.send(&message{kind: msgReply, ID: q.id, Bad: m.Bad, body: m.body})
		}
	case msgFail:
		switch {
		case s.err == nil && s.mourned != nil: // that is why, and soon all will hear
		case s.err == nil && len(s.among(m.Workers)) > 0:
			s.blame(s.among(m.Workers), "epl: %s", inner(m.body))
		case s.err == nil:
			s.fail(e.worker.Index, "epl: worker %d stopped: %s", e.worker.Index, inner(m.body))
		default:
			e.link.send(&message{kind: msgFailed, body: s.err.Error()})
		}
	case msgEnd:
		if m.Beat != nil {
			e.known = *m.Beat
		}
		s.ended(e)
		news = true
	case msgLeave:
		if e.left {
			break
		}
		if !s.started {
			s.fail(e.worker.Index, "epl: %s left before the job began", e.worker)
		}
		s.ended(e)
		e.left = true
		s.gone(e)
		e.link.send(&message{kind: msgBye})
		if s.started && !slices.ContainsFunc(s.seats, func(e *seat) bool { return !e.left }) {
			close(s.empty)
		}
		news = true
	}
	if news {
		s.broadcast()
	}
}

// ask passes a question on. The lock is held.
func (s *Server) ask(e *seat, m *message) {
	q := query{e.worker.Index, m.ID}
	if m.Worker < 0 || m.Worker >= len(s.seats) || s.seats[m.Worker] == nil || s.seats[m.Worker].left || s.seats[m.Worker].gone {
		e.link.send(&message{kind: msgReply, ID: m.ID, Bad: true, body: fmt.Sprintf("worker %d is gone", m.Worker)})
		return
	}
	s.asked[q] = m.Worker
	s.seats[m.Worker].link.send(&message{kind: msgQuestion, Worker: q.from, ID: q.id, body: m.body})
}

// askedOf tells whether a worker was asked this.
func (s *Server) askedOf(q query, e *seat) bool {
	whom, ok := s.asked[q]
	return ok && whom == e.worker.Index
}

// lost notices that a connection ended.
func (s *Server) lost(e *seat, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	e.gone = true
	if e.left || s.links == nil {
		return
	}
	s.gone(e)
	fail := func() {
		s.fail(e.worker.Index, "epl: %s is gone: %s; its own output, or its machine's log, may tell what ended it",
			e.worker, howLost(err))
	}
	if s.options.Grace == 0 {
		fail()
		return
	}
	s.mourned = e
	s.group.Go(func() {
		select {
		case <-time.After(s.options.Grace):
		case <-s.failed:
		case <-s.closing:
			return
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		fail()
	})
}

// gone ends what waits for a worker that will not do anything any more. The lock is held.
func (s *Server) gone(e *seat) {
	for q, whom := range s.asked {
		switch e.worker.Index {
		case q.from:
			delete(s.asked, q)
		case whom:
			delete(s.asked, q)
			s.seats[q.from].link.send(&message{kind: msgReply, ID: q.id, Bad: true, body: e.worker.String() + " is gone"})
		}
	}
	if e.left {
		s.leaveRounds(e)
	}
}

// tick finds out who is silent, and tells all what each worker does.
func (s *Server) tick() {
	ticker := time.NewTicker(s.options.Beat)
	defer ticker.Stop()
	last := time.Now()
	for {
		select {
		case <-s.closing:
			return
		case <-ticker.C:
		}
		s.mu.Lock()
		now := time.Now()
		// If this process itself was stopped, it has not listened either.
		if awake := now.Sub(last) < s.options.Beat+silentTime/2; awake {
			for _, e := range s.seats {
				if e != nil && !e.left && !e.gone && now.Sub(e.seen) >= max(silentBeats*e.beat, silentTime) {
					e.silent = true
				}
			}
		}
		last = now
		s.abandon(now)
		s.broadcast()
		s.mu.Unlock()
	}
}

// broadcast tells all members what each worker does. Who is silent gets none: if it is stopped, they would pile up. The
// lock is held.
func (s *Server) broadcast() {
	if !s.started {
		return
	}
	now := time.Now()
	states := make([]known, len(s.seats))
	for i, e := range s.seats {
		states[i] = known{
			beating: e.known, Since: now.Sub(e.since).Milliseconds(), Seen: now.Sub(e.seen).Milliseconds(),
			Silent: e.silent, Ended: e.ended, Left: e.left,
		}
	}
	payload := (&message{States: states}).encode()
	for _, e := range s.seats {
		if !e.gone && !e.left && !e.silent {
			e.link.sendLatest(msgStates, payload)
		}
	}
}
