// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package inproc

import (
	"runtime"
	"sync/atomic"
	"time"
)

// patience is how a goroutine waits before it parks: it looks some times without giving up the processor, then lets
// others run, again and again.
type patience struct{ looks, rounds int }

// Waking a goroutine costs microseconds, as much as a small collective. So a rank looks for the others a while before it
// parks: long (some ten microseconds) when every rank can have a processor of its own. It must let others run even then:
// who was woken by a rank begins on that rank's processor, unless another finds it, which takes longer.
var (
	alone   = patience{looks: 100, rounds: 100}
	crowded = patience{looks: 30, rounds: 10}
)

// waiter lets one goroutine at a time wait for something that others make true.
type waiter struct {
	parked atomic.Bool
	token  chan struct{}
	timer  *time.Timer // stopped while nobody waits
}

func newWaiter() *waiter { return &waiter{token: make(chan struct{}, 1)} }

// wait returns true when ready does. It returns false when it was not within the time that left returns when asked, which
// it is before the goroutine parks; without left it waits for ever.
//
// Whoever makes ready true must call wake afterwards.
func (w *waiter) wait(p patience, ready func() bool, left func() time.Duration) bool {
	for range p.rounds {
		for range p.looks {
			if ready() {
				return true
			}
		}
		runtime.Gosched()
	}
	var expired <-chan time.Time
	if left != nil {
		if w.timer == nil {
			w.timer = time.NewTimer(left())
		} else {
			w.timer.Reset(left())
		}
		defer w.timer.Stop()
		expired = w.timer.C
	}
	for {
		w.parked.Store(true)
		if ready() {
			w.parked.Store(false)
			return true
		}
		select {
		case <-w.token: // it may be an old one
		case <-expired:
			w.parked.Store(false)
			return ready()
		}
	}
}

// wake lets the goroutine look again, if it has parked.
func (w *waiter) wake() {
	if w.parked.Load() && w.parked.CompareAndSwap(true, false) {
		select {
		case w.token <- struct{}{}:
		default: // an old one is there, which serves
		}
	}
}
