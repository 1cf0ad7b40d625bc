// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package cpu

import "testing"

// A training whose batches come to have other shapes finds memory of the new sizes again, though memory of the old ones filled the list.
func TestFreeMemoryIsOfTheSizesInUse(t *testing.T) {
	var f freeList
	step := func(n int) (kept bool) {
		a, b := f.take(n), f.take(n)
		f.give(a)
		f.give(b)
		c := f.take(n)
		f.give(c)
		return &c[0] == &b[0]
	}
	const old, now = 16 << 20, 20 << 20
	for range 3 {
		if !step(old) {
			t.Fatal("memory of the first size was not kept")
		}
	}
	for range 3 { // together they are more than the list may hold
		f.give(f.take(old))
		if !step(now) {
			t.Fatal("memory of the second size was not kept")
		}
	}
	if f.held > keep || f.used != 0 {
		t.Errorf("%d bytes are held, %d used", f.held, f.used)
	}
	for range 4 { // also where there is no other size to drop
		f.give(make([]byte, now))
		f.used += now
	}
	held := 0
	for n, l := range f.sizes {
		held += n * len(l.free)
	}
	if held != f.held {
		t.Errorf("%d bytes are there, and %d are counted", held, f.held)
	}
}

// What is larger than the list may be is not kept, and drops nothing.
func TestFreeMemoryHasALimit(t *testing.T) {
	var f freeList
	f.give(f.take(1 << 20))
	f.give(f.take(keep + 1))
	if f.held != 1<<20 {
		t.Errorf("%d bytes are held", f.held)
	}
}
