// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package shm

import (
	"sync"
	"testing"
)

func TestEveryByteOfAParcelIsClaimedOnce(t *testing.T) {
	var c claims
	for number, bytes := range []int{0, 1, minChunk, minChunk + 1, 3*maxChunk - 5, 64 << 20, maxChunks*maxChunk + 1} {
		var claimed [2][][2]int
		var all sync.WaitGroup
		for _, who := range []end{taker, giver} {
			all.Go(func() {
				for from, n := c.next(uint64(number), who, bytes); n > 0; from, n = c.next(uint64(number), who, bytes) {
					claimed[who] = append(claimed[who], [2]int{from, n})
				}
			})
		}
		all.Wait()
		at := 0
		for _, chunk := range claimed[giver] { // from the front
			if chunk[0] != at {
				t.Fatalf("%d bytes: the giver claims from %d after %d", bytes, chunk[0], at)
			}
			at += chunk[1]
		}
		end := bytes
		for _, chunk := range claimed[taker] { // from the back
			if end -= chunk[1]; chunk[0] != end {
				t.Fatalf("%d bytes: the taker claims from %d, and then what ends at %d", bytes, chunk[0], end)
			}
		}
		if at != end {
			t.Errorf("%d bytes: the giver claims those before %d, the taker those from %d", bytes, at, end)
		}
	}
}
