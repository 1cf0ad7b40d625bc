package comm

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/pkg/errors"
)

// ErrClosed is why calls fail after [World.Close].
var ErrClosed = errors.New("epl: the world of communicators is closed; make calls before Close, or make a new world")

// TimeoutError says who did not come, and who is to blame for that. All ranks that waited get the same one.
type TimeoutError struct {
	Header           // the call that those who came wait in
	Timeout          time.Duration
	Waiting, Missing []int  // ranks
	Causes           []int  // the ranks that hold up the missing: themselves, or who they wait for; none if that is not known
	Workers          []int  // those of the causes
	Details          string // what is known of the causes, and who waits for whom
	Recorders        string // the last calls of those concerned, as tables
}

// Error implements error.
func (e *TimeoutError) Error() string {
	causes := e.Causes
	if len(causes) == 0 {
		causes = e.Missing
	}
	what := fmt.Sprintf("%s did not arrive within %s in %s, where %s waited", theRanks(e.Missing), e.Timeout, e.Header, theRanks(e.Waiting))
	if !slices.ContainsFunc(causes, func(r int) bool { return slices.Contains(e.Missing, r) }) {
		what = fmt.Sprintf("%s held up the others for %s", theRanks(causes), e.Timeout)
	}
	if e.Details != "" {
		what += "; " + e.Details
	}
	if causes[0] != e.Missing[0] {
		what += fmt.Sprintf("; so %s did not arrive in %s, where %s waited", theRanks(e.Missing), e.Header, theRanks(e.Waiting))
	}
	return fmt.Sprintf("epl: %s; see what %s did last, or raise communication.timeout\n%s", what, theRanks(causes),
		strings.TrimSuffix(e.Recorders, "\n"))
}

// Culprits returns the workers that are to blame.
func (e *TimeoutError) Culprits() []int { return e.Workers }

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
		theRanks(e.From), e.Workers[0], theRanks(e.To), e.Workers[1], e.Header, e.Cause)
}

// Unwrap returns the cause.
func (e *CorruptionError) Unwrap() error { return e.Cause }

// corrupted is the error of a call in which what came from a member was damaged.
func (t *team) corrupted(k *call, member int, cause error) error {
	if t.whole != nil {
		return t.whole.corrupted(member, cause)
	}
	e := &CorruptionError{Header: k.Header, From: t.ranksOf([]int{member}), To: t.ranksOf([]int{t.me}),
		Workers: [2]int{t.members[member].worker, t.members[t.me].worker}, Cause: cause}
	if k.Op.pointToPoint() {
		e.From, e.To = []int{t.group.ranks[k.peer]}, []int{t.group.ranks[k.pos]}
	}
	return e
}

// CallError says which call of which rank was stopped, or not begun, and why: the world was aborted or closed, or
// another call of the same communicator failed.
type CallError struct {
	Rank int
	Header
	Cause error
}

// Error implements error.
func (e *CallError) Error() string {
	return fmt.Sprintf("epl: rank %d stopped in %s: %s", e.Rank, e.Header, strings.TrimPrefix(e.Cause.Error(), "epl: "))
}

// Unwrap returns the cause.
func (e *CallError) Unwrap() error { return e.Cause }

// concerns tells whether an error is about this very call, so that it needs no more words.
func concerns(err error, c *call) bool {
	switch e := err.(type) {
	case *TimeoutError:
		return sameCall(e.Header, c)
	case *CorruptionError:
		return sameCall(e.Header, c)
	case *MismatchError:
		return sameCall(e.Calls[0], c) || sameCall(e.Calls[1], c)
	}
	return err == c.bad
}

// sameCall tells whether a header is of the call, or of another rank's part in it.
func sameCall(h Header, c *call) bool {
	if h.Op.pointToPoint() && (h.Op != c.Op || h.Peer != c.Peer) {
		return false
	}
	return h.Group == c.Group && h.Seq == c.Seq && h.Op.pointToPoint() == c.Op.pointToPoint()
}

// theRanks is "rank 2" or "ranks 1, 2".
func theRanks(ranks []int) string {
	if len(ranks) == 1 {
		return fmt.Sprintf("rank %d", ranks[0])
	}
	return "ranks " + strings.Trim(strings.ReplaceAll(fmt.Sprint(ranks), " ", ", "), "[]")
}
