// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package transport

import "runtime"

// A processor of a virtual machine that sleeps takes a tenth of a millisecond to wake up, which stages that wait for each other after every task would pay each time. They take
// almost equally long, so that they mostly wait for less than some milliseconds. Who receives looks for the sender so long before it sleeps.
const (
	lingerLooks  = 50   // in a round; they are some 50 nanoseconds apart
	lingerRounds = 2000 // some 5 milliseconds; a clock would stand still in tests
	lingerGreedy = 16   // rounds after which others get the processor: that wakes threads, so not after each
)

// Linger looks again and again, and returns true as soon as ready does, if the call is a receive that somebody waits for, who has nothing else to do and, as may
// says, a processor of his own.
func Linger(k *Call, may bool, ready func() bool) bool {
	if k.Op != Recv || k.Async || !may {
		return false
	}
	for round := range lingerRounds {
		for range lingerLooks {
			if ready() {
				return true
			}
			pause()
		}
		if round%lingerGreedy == lingerGreedy-1 {
			runtime.Gosched()
		}
	}
	return false
}
