// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package cpu

import (
	"os"
	"sync"
)

// arena is a device's memory for intermediate tensors. The first step of a large program spends much of its time on page faults of it. So they are
// taken beside what comes between compiling and running, such as initial values.
type arena struct {
	bytes []byte // of who holds the lock of the device

	mu     sync.Mutex
	coming chan []byte // memory that nobody has used yet; nil: there is none
	size   int         // of that
	used   bool        // a program runs in memory that was prepared
}

// expect prepares memory for a program that was compiled. Only the first ones have it: another arena beside that in use could be too much.
func (a *arena) expect(n int) {
	const small = 1 << 20 // of which the faults take less than a millisecond
	a.mu.Lock()
	defer a.mu.Unlock()
	if n < small || n <= a.size || a.used {
		return
	}
	ready := make(chan []byte, 1)
	a.coming, a.size = ready, n
	go func() {
		b := aligned(n)
		for i := 0; i < n; i += os.Getpagesize() {
			b[i] = 0
		}
		ready <- b
	}()
}

// grow makes room for a program that runs. A smaller one than that which memory is prepared for does not wait for it.
func (a *arena) grow(n int) {
	if n <= len(a.bytes) {
		return
	}
	a.bytes = nil // the garbage collector may have it before there is more
	a.mu.Lock()
	defer a.mu.Unlock()
	if n == a.size && a.coming != nil {
		a.bytes, a.coming, a.used = <-a.coming, nil, true
		return
	}
	a.bytes = aligned(n)
}

// free lets go of the memory.
func (a *arena) free() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.bytes, a.coming, a.used = nil, nil, true
}
