// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package comm

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/easyparallel/epl/comm/internal/transport"
)

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
	what := fmt.Sprintf("%s did not arrive within %s in %s, where %s waited", transport.TheRanks(e.Missing), e.Timeout, e.Header, transport.TheRanks(e.Waiting))
	if !slices.ContainsFunc(causes, func(r int) bool { return slices.Contains(e.Missing, r) }) {
		what = fmt.Sprintf("%s held up the others for %s", transport.TheRanks(causes), e.Timeout)
	}
	if e.Details != "" {
		what += "; " + e.Details
	}
	if causes[0] != e.Missing[0] {
		what += fmt.Sprintf("; so %s did not arrive in %s, where %s waited", transport.TheRanks(e.Missing), e.Header, transport.TheRanks(e.Waiting))
	}
	return fmt.Sprintf("epl: %s; see what %s did last, or raise communication.timeout\n%s", what, transport.TheRanks(causes),
		strings.TrimSuffix(e.Recorders, "\n"))
}

// Culprits returns the workers that are to blame.
func (e *TimeoutError) Culprits() []int { return e.Workers }

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
func concerns(err error, c *request) bool {
	switch e := err.(type) {
	case *TimeoutError:
		return sameCall(e.Header, &c.Call)
	case *CorruptionError:
		return sameCall(e.Header, &c.Call)
	case *LostError:
		return sameCall(e.Header, &c.Call)
	case *MismatchError:
		return sameCall(e.Calls[0], &c.Call) || sameCall(e.Calls[1], &c.Call)
	}
	return err == c.bad
}

// sameCall tells whether a header is of the call, or of another rank's part in it.
func sameCall(h Header, c *transport.Call) bool {
	if h.Op.PointToPoint() && (h.Op != c.Op || h.Peer != c.Peer) {
		return false
	}
	return h.Group == c.Group && h.Seq == c.Seq && h.Op.PointToPoint() == c.Op.PointToPoint()
}

// StallError says who holds up a worker that waits outside a call.
type StallError struct {
	Timeout  time.Duration
	What     string    // what the worker waits for: "agree on the start"
	Causes   []int     // ranks; none if that is not known
	Workers  []int     // those of the causes
	Details  string    // what is known of the causes, and who waits for whom
	Alive    bool      // all of them answer
	Patience time.Time // until when others must be patient, because one of them was busy
	Unsure   bool      // one of them is alive, and has not answered in time
}

// Error implements error.
func (e *StallError) Error() string {
	return fmt.Sprintf("epl: waited for %s (communication.timeout) to %s: %s", e.Timeout, e.What, e.Details)
}

// Culprits returns the workers that are to blame.
func (e *StallError) Culprits() []int { return e.Workers }
