// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package rendezvous

import (
	"time"

	"github.com/easyparallel/epl/wire"
)

// Options is what a worker knows when it joins.
type Options struct {
	URL      string        // where the workers meet: see the package comment
	Security wire.Security // the job's secrets
	Version  string        // EPL's; empty: this one's
	Workers  int           // how many must come
	Index    int           // this worker's; -1: to be handed out
	Host     string        // the machine's name, as the cluster names it
	Ranks    string        // this worker's, for people: "rank 2", "ranks 4 to 7"; empty: not known
	Facts    []Fact        // what must be equal on all workers before the first step
	Timeout  time.Duration // for all workers to come; 0: 5 minutes
	Beat     time.Duration // between two signs of life; 0: 1 second
	Logf     func(format string, args ...any)

	network network // nil: TCP
}

// Fact is something that must be equal on all workers.
type Fact struct{ Name, Value string }

// Worker is a member of the job, as the others see it.
type Worker struct {
	Index  int
	Host   string // the machine's name, for people
	HostID string // equal for workers that can share memory
	Addr   string // where it listens for the others
	PID    int
	Ranks  string `json:",omitempty"` // for people; empty: not known
}

// State is what a worker was last known to do.
type State struct {
	Busy    string    // what it is busy with: "compiling", "evaluating", "saving"; empty: nothing that takes long
	Since   time.Time // when Busy became so, by the local clock
	Seen    time.Time // when it last gave a sign of life, by the local clock
	Step    int64
	Samples int64
	Ended   bool // it makes no more calls to others
	Left    bool // it has finished, and is well
}

// Checkpoints is what a worker says of the checkpoints of its job, and of where it ends, by global step; 0: there is none.
type Checkpoints struct {
	Loaded int64 `json:",omitempty"` // that it goes on from: its first step is the one after that
	Saved  int64 `json:",omitempty"` // newest that was saved since
	Copied int64 `json:",omitempty"` // newest that all workers have copied to memory
	End    int64 `json:",omitempty"` // the step that training ends at; 0: not known
}

// WorkerStatus is what the server knows about a worker.
type WorkerStatus struct {
	Index   int
	Joined  bool // false: it has not come yet, and the rest is empty
	Host    string
	PID     int
	Ranks   string // for people: "rank 2", "ranks 4 to 7"; empty: not known
	Step    int64
	Samples int64
	Busy    string    // what it is busy with; empty: nothing that takes long
	Since   time.Time // when Busy became so
	Seen    time.Time // its last sign of life
	Silent  bool      // it is overdue
	Left    bool      // it has finished, and is well
	Failed  string    // why it failed the job; empty: it did not
	Stepped time.Time // when its first step was known; zero: it has taken none
	Batches int64     // of the data, that complete steps have consumed, those of earlier runs included; 0: not known
	Checkpoints
}
