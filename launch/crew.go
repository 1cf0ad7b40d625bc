// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package launch

import (
	"fmt"
	"syscall"
	"time"

	"github.com/easyparallel/epl/internal/hostmem"
	"github.com/easyparallel/epl/rendezvous"
)

// spec is what a crew is told: everything about the workers of one machine. It travels to other machines as JSON.
type spec struct {
	Command   []string
	Directory string
	Host      string // the machine's name
	Workers   int    // of the job
	First     int    // the index of the crew's first worker
	Count     int    // how many it has
	Devices   int    // of each worker; 0: not said

	// How many workers share this machine, and which of them the crew's first is, for LOCAL_RANK and GPUs: another
	// launcher may have started the others. ShareCores of them share the cores that this process may use.
	LocalWorkers, LocalIndex, ShareCores int
	Seats                                []int // which of the LocalWorkers the crew's are; nil: those from LocalIndex on
	Generation                           int   // of an elastic job, from 1; 0: it is none
	Began                                int64 // see [hostmem.Generation]: no two of a job are the same
	End                                  int64 // the step that training ended at in the generation before; 0: not known
	NoPin                                bool  // workers may run on all of these cores

	Hosts   []string // the machine of each worker of the job; nil: all are here
	Token   string
	TLS     struct{ Cert, Key, CA string }
	Memory  hostmem.Name // that the launcher of this machine holds; empty: it holds none
	Serve   string       // where this crew serves the rendezvous; empty: somebody else does
	Meet    string       // where the workers meet; empty: where this crew turned out to serve
	Environ []string     // more variables for the workers
	Updates bool         // report the progress bar of worker 0
	Events  bool         // report events of workers, for a dashboard
	Debug   bool
	Grace   time.Duration // that workers have after a signal to this launcher
}

// seat is which of the machine's workers the crew's i-th is.
func (s spec) seat(i int) int {
	if s.Seats != nil {
		return s.Seats[i]
	}
	return s.LocalIndex + i
}

// report is what a crew says about its workers; one of the fields is set. A local crew says it from several goroutines.
type report struct {
	Line   *line                     `json:",omitempty"`
	Exit   *exit                     `json:",omitempty"`
	Event  *event                    `json:",omitempty"`
	Note   string                    `json:",omitempty"` // for the user
	Failed string                    `json:",omitempty"` // the workers stop, as the rendezvous has told them
	Blamed []int                     `json:",omitempty"` // with Failed: who is to blame; none: that is not known
	Status []rendezvous.WorkerStatus `json:",omitempty"`
	Ready  bool                      `json:",omitempty"` // an agent's: it may be told to start
	Error  string                    `json:",omitempty"` // an agent's: it cannot go on
	End    bool                      `json:",omitempty"` // an agent's last
}

// exit is how a worker ended.
type exit struct {
	Worker int
	Code   int
	Signal int    `json:",omitempty"`
	Lost   string `json:",omitempty"` // why nobody knows how it ended
}

// hadToBeEnded is said of a worker that others blame, and that did not end by itself.
const hadToBeEnded = "had to be ended"

func (e exit) failed() bool { return e.Code != 0 || e.Signal != 0 || e.Lost != "" }

// status is the exit status for the launcher to end with, as a shell would give it.
func (e exit) status() int {
	switch {
	case e.Signal != 0:
		return 128 + e.Signal
	case e.Lost != "":
		return 1
	}
	return e.Code
}

// how says in words how a worker ended.
func (e exit) how() string {
	switch {
	case e.Lost != "":
		return e.Lost
	case e.Signal != 0:
		return fmt.Sprintf("was killed by signal %d (%v)", e.Signal, syscall.Signal(e.Signal))
	}
	return fmt.Sprintf("exited with status %d", e.Code)
}

// crew is the workers of one machine. They have been prepared; one exit is reported for each worker that was started.
type crew interface {
	// start starts the workers.
	start() error
	// signal sends a signal to the workers that still run; kill ends them, and all that they started.
	signal(s syscall.Signal)
	kill()
	// serves says whether the workers of the job meet at this crew's machine; then exited tells them how a worker ended, ""
	// if well, and status says what is known about each worker.
	serves() bool
	exited(worker int, how string)
	status() []rendezvous.WorkerStatus
	// finish ends what the workers left behind, and returns when their output has been reported. It may be called at any
	// time, but only once.
	finish()
}
