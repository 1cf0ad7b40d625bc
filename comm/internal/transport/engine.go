// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package transport

import (
	"cmp"
	"context"
	"encoding/json"
	"slices"
	"time"

	"github.com/pkg/errors"
)

// Engine moves data between the workers of a communicator. There is one for each communicator in each worker, made when
// the first of the worker's ranks asks for its end. What ranks of one worker have to tell each other is not its business:
// they meet in memory, and one of them calls the engine for all.
//
// It gets calls whose own arguments were checked. What it has to promise:
//   - A call returns when its buffers belong to the caller again, also when it returns an error: from then on nobody reads
//     or writes them.
//   - Collectives come one at a time, in the order of their sequence numbers. Sends and receives come beside them and
//     beside each other, one at a time and in order for each peer and tag.
//   - After an error nothing works any more, on any worker: whoever gets one tells the others, see comm.World.Abort.
//   - A reduction combines the elements in an order that depends on the layout only, so that the result has the same bits
//     on all ranks and in all runs: first over the ranks of a worker by position, then over the workers in the team's order.
//   - It connects when it is first used, not before.
//   - Waits end when Fail is called, and are checked for lateness now and then, see [Team.Overdue].
//   - Workers whose calls differ in their digest do not agree: see [Team.Disagree].
type Engine interface {
	// collective does a collective for the ranks of this worker, whose calls agree with each other.
	Collective(*Round) error
	// exchange sends to a rank of another worker, or receives from it.
	Exchange(*Call) error
	// fail lets all who wait return with the error, and later calls. The first error stays.
	Fail(error)
	// close lets go of connections and memory. Nobody is in a call any more.
	Close()
}

// Beginner is an engine that begins the calls of a worker's only rank itself: before it first waits for others, and if it can
// after it has given them what they wait for. Then writing down costs no time.
type Beginner interface{ BeginsCalls() }

// Poster is an engine that can offer the data of a send to the other worker without waiting for anything, before a goroutine of its own makes the call: to wake that takes
// longer than the rest.
type Poster interface {
	// Post does so if it can, and says so in the call. Exchange then waits until the data are received.
	Post(*Call)
}

// Round is one collective of one worker.
type Round struct {
	Calls  []*Call // of the worker's ranks, in the order of their positions: never empty
	Digest uint64  // of what all workers must agree in
}

// First returns the call of the worker's first rank, which has everything that is equal in all.
func (r *Round) First() *Call { return r.Calls[0] }

// Span is some elements of a vector that a whole group knows.
type Span struct{ From, To int }

// Len is the number of elements.
func (s Span) Len() int { return s.To - s.From }

// Spans returns the elements of each member in a vector whose parts belong to positions, in order.
func (t *Team) Spans(counts []int) [][]Span {
	all := make([][]Span, len(t.Members))
	at := 0
	for pos, n := range counts {
		if m := t.MemberOf[pos]; n > 0 {
			if k := len(all[m]); k > 0 && all[m][k-1].To == at {
				all[m][k-1].To += n
			} else {
				all[m] = append(all[m], Span{at, at + n})
			}
		}
		at += n
	}
	return all
}

// Overdue is asked by an engine that waits for members, several times a second. It returns nil while they may be late: the
// timeout has not passed since the call began, or since a worker that holds it up said that it was busy. Else it says who
// is to blame. It does not wait.
func (t *Team) Overdue(k *Call, missing []int) error {
	if t.Whole != nil {
		return t.Whole.Overdue(missing)
	}
	ranks := []int{k.Peer}
	if !k.Op.PointToPoint() {
		ranks = t.ranksOf(missing)
	}
	return k.Owner.Overdue(ranks, k.Began)
}

// Disagree says how the calls of another member differ from this worker's. Both sides find the same words.
func (t *Team) Disagree(r *Round, member int) error {
	if t.Whole != nil {
		return t.Whole.Disagree(member)
	}
	theirs, err := t.CallsOf(member)
	if err != nil {
		mine := r.First()
		rank, worker := t.Ranks[mine.Pos], t.Members[member].Worker
		return errors.Errorf("epl: rank %d and worker %d do not agree: rank %d makes %s, and worker %d another call, which it does not tell: %s; "+
			"all ranks of a group must make the same calls in the same order", rank, worker, rank, mine.Header, worker, err)
	}
	all := append(slices.Clone(r.Calls), theirs...)
	slices.SortFunc(all, func(a, b *Call) int { return cmp.Compare(a.Pos, b.Pos) })
	return CheckAgreement(t.Ranks, all)
}

// Told is a call as a worker tells another about it.
type Told struct {
	Header
	Pos, Root           int // positions
	InCounts, OutCounts []int
}

// Tell describes the calls of a round.
func (r *Round) Tell() (calls []Told) {
	for _, c := range r.Calls {
		calls = append(calls, Told{c.Header, c.Pos, c.PeerPos, slices.Clone(c.InCounts), slices.Clone(c.OutCounts)})
	}
	return calls
}

// CallsOf asks another member which collective it makes.
func (t *Team) CallsOf(member int) (calls []*Call, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), queryTimeout)
	defer cancel()
	answer, err := t.World.Mesh.Query(ctx, t.Members[member].Worker, QuestionCall+t.Name)
	if err != nil {
		return nil, err
	}
	var all []Told
	if err := json.Unmarshal([]byte(answer), &all); err != nil || len(all) == 0 {
		return nil, errors.Errorf("it answers %q", answer)
	}
	n := len(t.Ranks)
	for _, c := range all {
		if c.Pos < 0 || c.Pos >= n || c.Op == AllToAll && (len(c.InCounts) != n || len(c.OutCounts) != n) {
			return nil, errors.Errorf("it answers %q", answer)
		}
		calls = append(calls, &Call{Header: c.Header, Pos: c.Pos, PeerPos: c.Root, InCounts: c.InCounts, OutCounts: c.OutCounts})
	}
	return calls, nil
}

// What workers ask each other.
const (
	QuestionCall = "call " // of a communicator, by name
	queryTimeout = 2 * time.Second
)

// CallOf returns the call of the rank at a position, one of this worker's.
func (r *Round) CallOf(pos int) *Call {
	for _, c := range r.Calls {
		if c.Pos == pos {
			return c
		}
	}
	return nil
}

// FinishBroadcast copies to the other ranks of this worker what one of them has: the root, or else the first.
func FinishBroadcast(r *Round) {
	from := r.CallOf(r.First().PeerPos)
	if from == nil {
		from = r.First()
	}
	for _, c := range r.Calls {
		if c != from {
			Copy(c.Out.BytesOf(0, c.Out.Len), from.In.BytesOf(0, from.In.Len))
		}
	}
}
