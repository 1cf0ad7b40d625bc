// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package rendezvous

import (
	"fmt"

	"github.com/easyparallel/epl/wire"
)

// maxText is how much of a text can travel.
const maxText = wire.MaxFrame - 64<<10

// round is a subject on which the workers are about to agree. Texts may be large and are almost always equal, so hashes
// are compared, and only if they differ the texts of two workers.
type round struct {
	hashes map[int]string
	pair   []int // whose texts were asked for
	texts  map[int]string
}

// agree takes part of a worker in a round. The lock is held, here and below.
func (s *Server) agree(e *seat, subject, hash string) {
	r := s.rounds[subject]
	if r == nil {
		r = &round{hashes: map[int]string{}, texts: map[int]string{}}
		s.rounds[subject] = r
	}
	r.hashes[e.worker.Index] = hash
	for _, other := range s.seats {
		if other != nil && other.ended && !e.ended {
			s.fail(other.worker.Index, "%s", leftEarly(other, subject))
			return
		}
		if other == nil || other.left {
			s.conclude(subject, leftEarly(other, subject))
			return
		}
	}
	if len(r.hashes) < len(s.seats) {
		return
	}
	for i := range s.seats {
		if r.hashes[i] != r.hashes[0] {
			r.pair = []int{0, i}
			for _, w := range r.pair {
				s.seats[w].link.send(&message{kind: msgWantText, Subject: subject})
			}
			return
		}
	}
	s.conclude(subject, "")
}

func leftEarly(e *seat, subject string) string {
	if e == nil {
		return "epl: internal error: the job has not begun"
	}
	return fmt.Sprintf("epl: %s has ended its part of the job after step %d, so it cannot agree on %s; all workers must run the same programs",
		e.worker, e.known.Step, subject)
}

// conclude ends a round with the same words for all who wait.
func (s *Server) conclude(subject, wrong string) {
	for i := range s.rounds[subject].hashes {
		s.seats[i].link.send(&message{kind: msgAgreed, Subject: subject, body: wrong})
	}
	delete(s.rounds, subject)
}

// text takes one of the two texts that were asked for.
func (s *Server) text(e *seat, m *message) {
	r := s.rounds[m.Subject]
	if r == nil || r.pair == nil {
		return
	}
	r.texts[e.worker.Index] = m.body
	a, haveA := r.texts[r.pair[0]]
	b, haveB := r.texts[r.pair[1]]
	if haveA && haveB {
		s.conclude(m.Subject, fmt.Sprintf("epl: %s and %s do not agree on %s: %s; all workers must run the same program with the same configuration",
			s.seats[r.pair[0]].worker, s.seats[r.pair[1]].worker, m.Subject, differences([2]string{a, b}, [2]int(r.pair))))
	}
}

// withdraw tells a worker that has lost patience for whom it waited.
func (s *Server) withdraw(e *seat, subject string) {
	var missing []int
	if r := s.rounds[subject]; r != nil {
		missing = s.all(func(other *seat) bool { _, here := r.hashes[other.worker.Index]; return !here })
		if r.pair == nil {
			delete(r.hashes, e.worker.Index)
		}
		if len(r.hashes) == 0 {
			delete(s.rounds, subject)
		}
	}
	e.link.send(&message{kind: msgMissing, Subject: subject, Workers: missing})
}

// leaveRounds ends the rounds that wait for a worker that has left.
func (s *Server) leaveRounds(e *seat) {
	for subject, r := range s.rounds {
		if _, here := r.hashes[e.worker.Index]; !here {
			s.conclude(subject, leftEarly(e, subject))
		}
	}
}
