// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package shm

import (
	"slices"
	"sync"
	"sync/atomic"
	"unsafe"

	"github.com/easyparallel/epl/comm/internal/transport"
)

// Heap is the memory of this process that other workers can map. It grows by pieces and keeps them: others have them
// mapped too.
var Heap sharedHeap

type sharedHeap struct {
	mu     sync.Mutex
	pieces atomic.Pointer[[]*heapPiece] // replaced when one is added, so that calls can look without the lock
}

// heapPiece is one mapping. It begins with its id, by which others know that they opened the right one.
type heapPiece struct {
	id     uint64
	fd     int
	memory []byte
	free   []transport.Span // bytes, in order, none touching the next
}

// heapPieceBytes is how much the heap grows at least.
const heapPieceBytes = 16 << 20

func (h *sharedHeap) all() []*heapPiece {
	if p := h.pieces.Load(); p != nil {
		return *p
	}
	return nil
}

// Alloc returns zeroed memory, on cache lines of its own.
func (h *sharedHeap) Alloc(bytes int) (unsafe.Pointer, error) {
	bytes = max(64, (bytes+63)&^63)
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, p := range h.all() {
		if at := p.take(bytes); at >= 0 {
			clear(p.memory[at : at+bytes])
			return unsafe.Pointer(&p.memory[at]), nil
		}
	}
	size := (max(bytes+64, heapPieceBytes) + 4095) &^ 4095
	fd, memory, err := createMemory("epl-heap", size)
	if err != nil {
		return nil, err
	}
	p := &heapPiece{id: random(), fd: fd, memory: memory, free: []transport.Span{{From: 64, To: size}}}
	*(*uint64)(unsafe.Pointer(&memory[0])) = p.id
	pieces := append(slices.Clone(h.all()), p)
	h.pieces.Store(&pieces)
	return unsafe.Pointer(&memory[p.take(bytes)]), nil
}

// take returns an offset of free bytes, or -1.
func (p *heapPiece) take(bytes int) int {
	for i, s := range p.free {
		if s.To-s.From >= bytes {
			if p.free[i].From += bytes; p.free[i].From == s.To {
				p.free = slices.Delete(p.free, i, i+1)
			}
			return s.From
		}
	}
	return -1
}

// Release takes memory back.
func (h *sharedHeap) Release(at unsafe.Pointer, bytes int) {
	bytes = max(64, (bytes+63)&^63)
	h.mu.Lock()
	defer h.mu.Unlock()
	p, from := h.find(transport.Buffer{Ptr: at, Len: bytes, Size: 1})
	p.give(from, bytes)
}

// give makes bytes free again, and joins them with their neighbours.
func (p *heapPiece) give(from, bytes int) {
	i, _ := slices.BinarySearchFunc(p.free, from, func(s transport.Span, from int) int { return s.From - from })
	p.free = slices.Insert(p.free, i, transport.Span{From: from, To: from + bytes})
	for _, j := range []int{i, i - 1} { // the one behind, then the one before
		if j >= 0 && j+1 < len(p.free) && p.free[j].To == p.free[j+1].From {
			p.free[j].To = p.free[j+1].To
			p.free = slices.Delete(p.free, j+1, j+2)
		}
	}
}

// find returns the piece that holds a buffer, and where; nil if none does.
func (h *sharedHeap) find(b transport.Buffer) (*heapPiece, int) {
	for _, p := range h.all() {
		at := uintptr(b.Ptr) - uintptr(unsafe.Pointer(&p.memory[0])) // huge if it is before
		if at < uintptr(len(p.memory)) && at+uintptr(b.Bytes()) <= uintptr(len(p.memory)) {
			return p, int(at)
		}
	}
	return nil, 0
}
