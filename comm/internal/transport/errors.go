// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package transport

import (
	"fmt"
	"strings"

	"github.com/pkg/errors"
)

// EndedError says that a worker has ended its part of the job, and so will not come to a call in which others wait for it.
type EndedError struct {
	Header        // the call
	Rank   int    // who waits in it
	Worker int    // who will not come
	Name   string // its name
	After  int64  // its last step
	Step   int64  // the step that the waiting worker is in
}

// Error implements error.
func (e *EndedError) Error() string {
	return fmt.Sprintf("epl: %s ended its part of the job after step %d, but rank %d waits for it in step %d, in %s; "+
		"its own output may tell why it ended: all workers must take the same steps", e.Name, e.After, e.Rank, e.Step, e.Header)
}

// Culprits returns the worker that is to blame.
func (e *EndedError) Culprits() []int { return []int{e.Worker} }

// LostError says that the connection between two workers broke, for a reason that nobody told: both are alive, as far as is known.
type LostError struct {
	Header            // the call
	Ranks   [2][]int  // that it was for, of one worker each; the first are this worker's
	Workers [2]int    // theirs
	Names   [2]string // of the workers
	Reason  string
}

// Error implements error.
func (e *LostError) Error() string {
	first, second := 0, 1 // in the same order at both ends
	if e.Workers[0] > e.Workers[1] {
		first, second = 1, 0
	}
	return fmt.Sprintf("epl: the connection between %s of %s and %s of %s broke in %s: %s; both workers were there a second later: see the network between their machines",
		TheRanks(e.Ranks[first]), e.Names[first], TheRanks(e.Ranks[second]), e.Names[second], e.Header, e.Reason)
}

// Culprits returns both workers: which end is to blame, or whether it is the network, cannot be told from either.
func (e *LostError) Culprits() []int {
	return []int{min(e.Workers[0], e.Workers[1]), max(e.Workers[0], e.Workers[1])}
}

// Lost is the error of a call in which the connection to a member broke.
func (t *Team) Lost(k *Call, member int, cause error) error {
	e := &LostError{Header: k.Header, Reason: strings.TrimPrefix(cause.Error(), "epl: ")}
	for i, m := range []int{t.Me, member} {
		e.Workers[i], e.Ranks[i] = t.Members[m].Worker, t.ranksOf([]int{m})
		if e.Names[i] = t.World.Mesh.Health(e.Workers[i]).Name; e.Names[i] == "" {
			e.Names[i] = fmt.Sprint("worker ", e.Workers[i])
		}
	}
	if k.Op.PointToPoint() {
		e.Ranks = [2][]int{{t.Ranks[k.Pos]}, {t.Ranks[k.PeerPos]}}
	}
	return e
}

// ErrClosed is why calls fail after [World.Close].
var ErrClosed = errors.New("epl: the world of communicators is closed; make calls before Close, or make a new world")

// MismatchError says which two ranks made different calls where they had to make the same. All ranks of the group get
// the same one.
type MismatchError struct {
	Ranks  [2]int
	Calls  [2]Header
	Detail string // what differs
}

// Error implements error.
func (e *MismatchError) Error() string {
	return fmt.Sprintf("epl: rank %d and rank %d do not agree: rank %d makes %s, rank %d makes %s: %s; "+
		"all ranks of a group must make the same calls in the same order", e.Ranks[0], e.Ranks[1],
		e.Ranks[0], e.Calls[0], e.Ranks[1], e.Calls[1], e.Detail)
}

// CorruptionError says that what one worker sent another was changed on its way, see [Options].Unchecked. Who noticed has
// it, the others hear of it through the mesh.
type CorruptionError struct {
	Header          // the call
	From, To []int  // ranks, of one worker each
	Workers  [2]int // theirs
	Cause    error  // what was noticed
}

// Error implements error.
func (e *CorruptionError) Error() string {
	return fmt.Sprintf("epl: what %s (worker %d) sent to %s (worker %d) in %s cannot be used: %v; a network card, a switch or memory "+
		"between the two changes bytes: see the error counters of both machines, and leave the faulty one out",
		TheRanks(e.From), e.Workers[0], TheRanks(e.To), e.Workers[1], e.Header, e.Cause)
}

// Unwrap returns the cause.
func (e *CorruptionError) Unwrap() error { return e.Cause }

// Corrupted is the error of a call in which what came from a member was damaged.
func (t *Team) Corrupted(k *Call, member int, cause error) error {
	if t.Whole != nil {
		return t.Whole.Corrupted(member, cause)
	}
	e := &CorruptionError{Header: k.Header, From: t.ranksOf([]int{member}), To: t.ranksOf([]int{t.Me}),
		Workers: [2]int{t.Members[member].Worker, t.Members[t.Me].Worker}, Cause: cause}
	if k.Op.PointToPoint() {
		e.From, e.To = []int{t.Ranks[k.PeerPos]}, []int{t.Ranks[k.Pos]}
	}
	return e
}

// TheRanks is "rank 2" or "ranks 1, 2".
func TheRanks(ranks []int) string {
	if len(ranks) == 1 {
		return fmt.Sprintf("rank %d", ranks[0])
	}
	return "ranks " + strings.Trim(strings.ReplaceAll(fmt.Sprint(ranks), " ", ", "), "[]")
}
