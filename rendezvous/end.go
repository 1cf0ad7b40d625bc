// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package rendezvous

import (
	"slices"
	"time"

	"github.com/pkg/errors"
)

// culprits returns the workers that an error blames, by its method Culprits.
func culprits(err error) []int {
	var blaming interface {
		error
		Culprits() []int
	}
	if !errors.As(err, &blaming) {
		return nil
	}
	return blaming.Culprits()
}

// End says that this worker makes no more calls to the others: who waits for it there waits in vain, and should say so.
// It still answers questions, until it calls Leave.
func (m *Member) End() {
	m.mu.Lock()
	beating, failed := m.beating, m.err != nil
	m.mu.Unlock()
	if failed {
		return // nobody waits any more
	}
	m.link.send(&message{kind: msgEnd, Beat: &beating})
}

// Heard returns when the server last said anything.
func (m *Member) Heard() time.Time {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.heard
}

// among returns those of some workers that the job has.
func (s *Server) among(workers []int) (some []int) {
	for _, i := range workers {
		if i >= 0 && i < len(s.seats) && !slices.Contains(some, i) {
			some = append(some, i)
		}
	}
	return some
}

// ended notes that a worker makes no more calls. Who is about to agree with it on something waits in vain, unless all of
// them have ended too. The lock is held, here and below.
func (s *Server) ended(e *seat) {
	e.ended = true
	for subject, r := range s.rounds {
		_, here := r.hashes[e.worker.Index]
		for i := range r.hashes {
			if !here && !s.seats[i].ended {
				s.fail(e.worker.Index, "%s", leftEarly(e, subject))
				return
			}
		}
	}
}

// abandon ends a job in which all workers that can be heard of have left.
func (s *Server) abandon(now time.Time) {
	var silent []int
	var last time.Time
	for i, e := range s.seats {
		switch {
		case !s.started || e == nil || e.gone && !e.left:
			return
		case e.left:
		case !e.silent || now.Sub(e.seen) < e.patience:
			return
		default:
			silent = append(silent, i)
			if e.seen.After(last) {
				last = e.seen
			}
		}
	}
	if len(silent) > 0 && len(silent) < len(s.seats) {
		first := s.seats[silent[0]].known
		s.blame(silent, "epl: %s has not been heard of for %s (communication.timeout), when all others had finished; it may be stopped, or cut off; it was %s",
			s.names(silent), seconds(now.Sub(last)), Doing(first.Busy, first.Loaded+first.Step))
	}
}

// names names workers for people.
func (s *Server) names(indices []int) string {
	if len(indices) == 1 && s.seats[indices[0]] != nil {
		return s.seats[indices[0]].worker.String()
	}
	return theWorkers(indices)
}

// WorkerEnded tells the server that the process of a worker has ended, and well. That is as it should be if the worker
// has left; else the others would wait for it in vain, and the job fails.
func (s *Server) WorkerEnded(index int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if index < 0 || index >= len(s.seats) {
		return
	}
	s.exited[index] = true
	switch e := s.seats[index]; {
	case e == nil && slices.ContainsFunc(s.seats, func(e *seat) bool { return e != nil }): // else they may do without EPL
		s.failEarly([]int{index})
	case e != nil && !e.left:
		s.fail(index, "epl: %s ended with status 0 before it left the job: call Close of epl.Env at the end of the program", e.worker)
	}
}

// failEarly ends a job of which some workers have not come, and never will.
func (s *Server) failEarly(missing []int) {
	missing = slices.DeleteFunc(missing, func(i int) bool { return !s.exited[i] })
	s.blame(missing, "epl: %s ended with status 0 before it joined the others; all workers must run the same program, and call epl.Init",
		theWorkers(missing))
}
