package comm

import (
	"fmt"
	"time"
)

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

// LostError says that the connection to a worker broke, for a reason that nobody told.
type LostError struct {
	Worker int
	Reason string
}

// Error implements error.
func (e *LostError) Error() string {
	return fmt.Sprintf("epl: the connection to worker %d broke: %s; see what happened to that worker", e.Worker, e.Reason)
}

// Culprits returns the worker at the other end, which is more likely to be to blame than the one that noticed.
func (e *LostError) Culprits() []int { return []int{e.Worker} }
