// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package shm

import (
	"testing"
	"unsafe"
)

// A heap has the same memory by huge pages and by ordinary ones.
func TestHeapWithAndWithoutHugePages(t *testing.T) {
	before := noHugePages.Load()
	defer noHugePages.Store(before)
	const large = 3*chunkBytes + 100
	for _, without := range []bool{false, true} {
		noHugePages.Store(before || without)
		h, all := heapOf(t, large)
		if got := h.reserved(t); got < large || got > large+2*chunkBytes {
			t.Errorf("without huge pages %v: %d bytes of memory for %d", without, got, large)
		}
		if at := uintptr(unsafe.Pointer(&h.all()[0].memory[0])); at%hugePage != 0 {
			t.Errorf("the heap is at %#x, where no huge page can be", at)
		}
		for i, b := range unsafe.Slice((*byte)(all[0]), large) {
			if b != 0 {
				t.Fatalf("without huge pages %v: byte %d is %d", without, i, b)
			}
		}
	}
}
