package comm

import (
	"cmp"
	"context"
	"encoding/json"
	"slices"
	"time"

	"github.com/pkg/errors"
)

// engine moves data between the workers of a communicator. There is one for each communicator in each worker, made when
// the first of the worker's ranks asks for its end. What ranks of one worker have to tell each other is not its business:
// they meet in memory, and one of them calls the engine for all.
//
// It gets calls whose own arguments were checked. What it has to promise:
//   - A call returns when its buffers belong to the caller again, also when it returns an error: from then on nobody reads
//     or writes them.
//   - Collectives come one at a time, in the order of their sequence numbers. Sends and receives come beside them and
//     beside each other, one at a time and in order for each peer and tag.
//   - After an error nothing works any more, on any worker: whoever gets one tells the others, see World.Abort.
//   - A reduction combines the elements in an order that depends on the layout only, so that the result has the same bits
//     on all ranks and in all runs: first over the ranks of a worker by position, then over the workers in the team's order.
//   - It connects when it is first used, not before.
//   - Waits end when fail is called, and are checked for lateness now and then, see team.overdue.
//   - Workers whose calls differ in their digest do not agree: see team.disagree.
type engine interface {
	// collective does a collective for the ranks of this worker, whose calls agree with each other.
	collective(*round) error
	// exchange sends to a rank of another worker, or receives from it.
	exchange(*call) error
	// fail lets all who wait return with the error, and later calls. The first error stays.
	fail(error)
	// close lets go of connections and memory. Nobody is in a call any more.
	close()
}

// round is one collective of one worker.
type round struct {
	calls  []*call // of the worker's ranks, in the order of their positions: never empty
	digest uint64  // of what all workers must agree in
}

// first returns the call of the worker's first rank, which has everything that is equal in all.
func (r *round) first() *call { return r.calls[0] }

// span is some elements of a vector that a whole group knows.
type span struct{ from, to int }

func (s span) len() int { return s.to - s.from }

// spans returns the elements of each member in a vector whose parts belong to positions, in order.
func (t *team) spans(counts []int) [][]span {
	all := make([][]span, len(t.members))
	at := 0
	for pos, n := range counts {
		if m := t.memberOf[pos]; n > 0 {
			if k := len(all[m]); k > 0 && all[m][k-1].to == at {
				all[m][k-1].to += n
			} else {
				all[m] = append(all[m], span{at, at + n})
			}
		}
		at += n
	}
	return all
}

// overdue is asked by an engine that waits for members, several times a second. It returns nil while they may be late: the
// timeout has not passed since the call began, or since a worker that holds it up said that it was busy. Else it says who
// is to blame. It does not wait.
func (t *team) overdue(k *call, missing []int) error {
	if t.whole != nil {
		return t.whole.overdue(missing)
	}
	ranks := []int{k.Peer}
	if !k.Op.pointToPoint() {
		ranks = t.ranksOf(missing)
	}
	return k.owner.overdue(ranks, k.began)
}

// disagree says how the calls of another member differ from this worker's. Both sides find the same words.
func (t *team) disagree(r *round, member int) error {
	if t.whole != nil {
		return t.whole.disagree(member)
	}
	theirs, err := t.callsOf(member)
	if err != nil {
		mine := r.first()
		rank, worker := t.ranks[mine.pos], t.members[member].worker
		return errors.Errorf("epl: rank %d and worker %d do not agree: rank %d makes %s, and worker %d another call, which it does not tell: %s; "+
			"all ranks of a group must make the same calls in the same order", rank, worker, rank, mine.Header, worker, err)
	}
	all := append(slices.Clone(r.calls), theirs...)
	slices.SortFunc(all, func(a, b *call) int { return cmp.Compare(a.pos, b.pos) })
	return checkAgreement(t.ranks, all)
}

// told is a call as a worker tells another about it.
type told struct {
	Header
	Pos, Root           int // positions
	InCounts, OutCounts []int
}

// tell describes the calls of a round.
func (r *round) tell() (calls []told) {
	for _, c := range r.calls {
		calls = append(calls, told{c.Header, c.pos, c.peer, slices.Clone(c.inCounts), slices.Clone(c.outCounts)})
	}
	return calls
}

// callsOf asks another member which collective it makes.
func (t *team) callsOf(member int) (calls []*call, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), queryTimeout)
	defer cancel()
	answer, err := t.world.mesh.Query(ctx, t.members[member].worker, questionCall+t.name)
	if err != nil {
		return nil, err
	}
	var all []told
	if err := json.Unmarshal([]byte(answer), &all); err != nil || len(all) == 0 {
		return nil, errors.Errorf("it answers %q", answer)
	}
	n := len(t.ranks)
	for _, c := range all {
		if c.Pos < 0 || c.Pos >= n || c.Op == AllToAll && (len(c.InCounts) != n || len(c.OutCounts) != n) {
			return nil, errors.Errorf("it answers %q", answer)
		}
		calls = append(calls, &call{Header: c.Header, pos: c.Pos, peer: c.Root, inCounts: c.InCounts, outCounts: c.OutCounts})
	}
	return calls, nil
}

// What workers ask each other.
const (
	questionCall = "call " // of a communicator, by name
	queryTimeout = 2 * time.Second
)

// callOf returns the call of the rank at a position, one of this worker's.
func (r *round) callOf(pos int) *call {
	for _, c := range r.calls {
		if c.pos == pos {
			return c
		}
	}
	return nil
}

// finishBroadcast copies to the other ranks of this worker what one of them has: the root, or else the first.
func finishBroadcast(r *round) {
	from := r.callOf(r.first().peer)
	if from == nil {
		from = r.first()
	}
	for _, c := range r.calls {
		if c != from {
			copy(c.out.bytesOf(0, c.out.len), from.in.bytesOf(0, from.in.len))
		}
	}
}
