// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package worker

import (
	"sync"
	"time"
)

// lately is how long something may be over and still be what this worker does: it happens again and again.
const lately = 2 * time.Second

// activity is what the programs of this worker do. Others have to wait for one that evaluates or saves, but a worker that
// trains runs programs beside its steps too, and reads variables: data may be prepared by programs, and a loop may look at
// a learning rate.
type activity struct {
	mu       sync.Mutex
	training int // steps that run
	running  int // other programs that run
	// When the last of each ended, and a variable was last read.
	trained, ran, read time.Time
}

// train notes that a training step runs, until the returned function is called.
func (a *activity) train() (over func()) { return a.note(&a.training, &a.trained) }

// run notes that another program runs.
func (a *activity) run() (over func()) { return a.note(&a.running, &a.ran) }

// reads notes that a variable is read.
func (a *activity) reads() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.read = time.Now()
}

func (a *activity) note(now *int, last *time.Time) (over func()) {
	a.mu.Lock()
	defer a.mu.Unlock()
	*now++
	return func() {
		a.mu.Lock()
		defer a.mu.Unlock()
		*now--
		*last = time.Now()
	}
}

// busy tells what the others may have to wait for. A step that is over for longer than the pause, and is not followed by
// another, does not count any more.
func (a *activity) busy(now time.Time, pause time.Duration) (evaluating, saving bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	since := func(at time.Time) time.Duration {
		if at.IsZero() {
			return time.Hour
		}
		return now.Sub(at)
	}
	if a.training > 0 || since(a.trained) < pause {
		return false, false
	}
	return a.running > 0 || since(a.ran) < lately, since(a.read) < lately
}
