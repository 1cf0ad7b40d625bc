// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package worker

import (
	"sync/atomic"
	"time"
)

// moment is when something last happened. It counts from the start of the program, on the clock that nobody sets: a wall
// clock that jumps must not make others wait for ever for a worker that "saves", nor end a read that goes well.
type moment struct{ nanoseconds atomic.Int64 } // since origin; 0: never

var origin = time.Now()

// set says that it happens now.
func (m *moment) set() { m.nanoseconds.Store(max(1, int64(time.Since(origin)))) }

// last returns when it was, or the zero time.
func (m *moment) last() time.Time {
	if n := m.nanoseconds.Load(); n > 0 {
		return origin.Add(time.Duration(n))
	}
	return time.Time{}
}
