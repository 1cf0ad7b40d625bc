// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package comm

import (
	"slices"
	"testing"
	"time"
)

// Ranks of a process that read the same result need no memory of their own for it.
func TestRanksOfAProcessGatherIntoTheSameMemory(t *testing.T) {
	const n, size = 3, 100_003
	w, err := NewInProcess(n, Options{Timeout: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	defer closeAll(t, w)
	counts := partsOf(size, n)
	got, more, want := make([]float32, size), make([]float32, n), make([]float32, 0, size)
	for rank, k := range counts {
		want = append(want, numbers(rank, 0, k)...)
	}
	mustAll(t, ends(t, w.All(), 0), func(c *Communicator) error {
		return c.Do(Call{Op: AllGather, In: numbers(c.Rank(), 0, counts[c.Position()]), Out: got, OutCounts: counts,
			More: []Buffers{{In: []float32{float32(c.Rank())}, Out: more}}})
	})
	if !slices.Equal(got, want) || !slices.Equal(more, []float32{0, 1, 2}) {
		t.Errorf("ranks gathered something else, or %v instead of 0, 1, 2", more)
	}
}

// All ranks tell the same end of a collective: when its work was done, not when each of them noticed.
func TestACollectiveEndsForAllRanksAtTheSameTime(t *testing.T) {
	const n = 3
	w, err := NewInProcess(n, Options{Timeout: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	defer closeAll(t, w)
	begun := time.Now()
	handles := make([][]*Handle, n)
	mustAll(t, ends(t, w.All(), 0), func(c *Communicator) error {
		for _, size := range []int{1, 100_000} {
			handles[c.Rank()] = append(handles[c.Rank()], c.Start(Call{Op: AllReduce, Buf: make([]float32, size)}))
		}
		return handles[c.Rank()][1].Wait()
	})
	over := time.Now()
	first, second := handles[0][0].Ended(), handles[0][1].Ended()
	if first.Before(begun) || second.Before(first) || over.Before(second) {
		t.Errorf("calls between %v and %v ended at %v and %v", begun, over, first, second)
	}
	for rank, h := range handles {
		if !h[0].Ended().Equal(first) || !h[1].Ended().Equal(second) {
			t.Errorf("for rank %d calls ended at %v and %v, for rank 0 at %v and %v", rank, h[0].Ended(), h[1].Ended(), first, second)
		}
	}
}
