// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package cpu

import (
	"maps"
	"testing"
)

// A step takes memory for activations and gives all of it back, then the next one does: it gets the same, though weights are small.
func TestAStepGetsTheMemoryOfTheStepBefore(t *testing.T) {
	var f freeList
	weights := f.take(1 << 20)
	defer f.give(weights)
	var first map[*byte]bool
	for step := range 4 {
		now := map[*byte]bool{}
		var all [][]byte
		for layer := range 24 {
			all = append(all, f.take((layer%3+1)<<22)) // 192 MiB
			now[&all[layer][0]] = true
		}
		for _, b := range all {
			f.give(b)
		}
		if step == 0 {
			first = now
		} else if !maps.Equal(first, now) {
			t.Fatalf("step %d has other memory than the first", step)
		}
	}
	if f.held != 192<<20 {
		t.Errorf("%d MiB are held", f.held>>20)
	}
}

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
	const old, now = 48 << 20, 56 << 20
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
	if most := 2*now + 2*now/more + keep; f.held > most || f.used != 0 {
		t.Errorf("%d bytes are held, %d used", f.held, f.used)
	}
	held := 0
	for n, l := range f.sizes {
		held += n * len(l.free)
	}
	if held != f.held {
		t.Errorf("%d bytes are there, and %d are counted", held, f.held)
	}
}

// What a program used that is over goes, when others use less for some time.
func TestFreeMemoryIsNotKeptForever(t *testing.T) {
	const large, small = 100 << 20, 1 << 10
	var f freeList
	f.give(f.take(large))
	if f.held != large {
		t.Fatalf("%d bytes are held", f.held)
	}
	for range 2 * window {
		f.give(f.take(small))
	}
	if f.held > keep || f.used != 0 {
		t.Errorf("%d bytes are held, %d used", f.held, f.used)
	}
}
