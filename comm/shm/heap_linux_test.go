// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package shm

import (
	"slices"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/easyparallel/epl/comm/internal/transport"
)

func TestTheSharedHeapJoinsWhatIsGivenBack(t *testing.T) {
	p := heapPiece{free: []transport.Span{{From: 64, To: 1024}}}
	var at []int
	for range 3 {
		at = append(at, p.take(320))
	}
	if !slices.Equal(at, []int{64, 384, 704}) || len(p.free) != 0 || p.take(64) != -1 {
		t.Fatalf("taken %d, free %v", at, p.free)
	}
	for _, i := range []int{0, 2, 1} {
		p.give(at[i], 320)
	}
	if !slices.Equal(p.free, []transport.Span{{From: 64, To: 1024}}) {
		t.Errorf("free %v", p.free)
	}
}

// heapOf is a heap with what was taken of it.
func heapOf(t *testing.T, sizes ...int) (h *sharedHeap, all []unsafe.Pointer) {
	t.Helper()
	h = &sharedHeap{}
	t.Cleanup(func() {
		for _, p := range h.all() {
			unmap(p.memory)
			unix.Close(p.fd)
		}
	})
	for _, n := range sizes {
		at, err := h.Take(n)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, at)
	}
	return h, all
}

// reserved is how much memory the heap has of the system.
func (h *sharedHeap) reserved(t *testing.T) (bytes int) {
	t.Helper()
	for _, p := range h.all() {
		var s unix.Stat_t
		if err := unix.Fstat(p.fd, &s); err != nil {
			t.Fatal(err)
		}
		bytes += int(s.Blocks) * 512
	}
	return bytes
}

func TestTheSharedHeapGivesMuchFreeMemoryBackToTheSystem(t *testing.T) {
	const large = 48 << 20
	h, all := heapOf(t, large, 1000, large, large)
	if n := h.reserved(t); n < 3*large || n > 3*large+3*chunkBytes {
		t.Errorf("%d bytes are reserved for %d", n, h.InUse())
	}
	for _, at := range []int{0, 2, 3} {
		h.Release(all[at], large)
	}
	if n := h.reserved(t); n > idleBytes+5*chunkBytes || n < idleBytes {
		t.Errorf("%d bytes are reserved for %d in use, not %d", n, h.InUse(), idleBytes)
	}
	pieces := len(h.all())
	for range 3 { // it serves the next ones, and is zeros where those ask for zeros
		at, err := h.Alloc(large)
		if err != nil {
			t.Fatal(err)
		}
		b := unsafe.Slice((*byte)(at), large)
		if b[0] != 0 || b[large-1] != 0 {
			t.Error("not zero")
		}
		b[0], b[large-1] = 1, 1
	}
	if len(h.all()) != pieces {
		t.Errorf("the heap has grown from %d pieces to %d", pieces, len(h.all()))
	}
	if want := 3*large + inLines(1000); h.InUse() != want {
		t.Errorf("%d bytes are in use, not %d", h.InUse(), want)
	}
}

func TestTheSharedHeapIsAsBeforeWhenMemoryRunsOut(t *testing.T) {
	const large = 8 << 20
	h, _ := heapOf(t, large)
	used, before := h.InUse(), Reserve
	defer func() { Reserve = before }()
	left := 2 // chunks
	Reserve = func(fd int, mode uint32, from, bytes int64) error {
		if left--; left < 0 {
			return unix.ENOSPC
		}
		return before(fd, mode, from, bytes)
	}
	for range 2 {
		if _, err := h.Take(large); err == nil {
			t.Fatal("there was memory")
		}
	}
	Reserve = before
	if h.InUse() != used || len(h.all()) != 1 || len(h.all()[0].free) != 1 {
		t.Errorf("%d bytes are in use, not %d; %d pieces", h.InUse(), used, len(h.all()))
	}
	at, err := h.Take(large)
	if err != nil {
		t.Fatal(err)
	}
	h.Release(at, large)
	var other [64]byte
	h.Release(unsafe.Pointer(&other), 64) // is not of the heap
	if h.InUse() != used {
		t.Errorf("%d bytes are in use, not %d", h.InUse(), used)
	}
}
