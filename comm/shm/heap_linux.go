// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package shm

import (
	"slices"
	"sync"
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/easyparallel/epl/comm/internal/transport"
)

// Heap is the memory of this process that other workers can map. It grows by pieces and keeps them: others have them
// mapped too. What of them is free is given back to the system if it is much.
var Heap sharedHeap

type sharedHeap struct {
	mu     sync.Mutex
	pieces atomic.Pointer[[]*heapPiece] // replaced when one is added, so that calls can look without the lock
	idle   int                          // bytes that are reserved and in chunks of which nothing is in use
	used   int                          // bytes in use
}

// heapPiece is one mapping. It begins with its id, by which others know that they opened the right one.
type heapPiece struct {
	id     uint64
	fd     int
	memory []byte
	free   []transport.Span // bytes, in order, none touching the next
	chunks []heapChunk
}

// heapChunk is memory that is reserved and given back to the system as a whole.
type heapChunk struct {
	used     int // bytes
	reserved bool
}

const (
	// A piece is a range of addresses; memory comes when it is used. The heap doubles with each, so that others map few.
	minPieceBytes, maxPieceBytes = 64 << 20, 1 << 30
	chunkBytes                   = hugePage
	// idleBytes is how much the heap keeps reserved for who comes next.
	idleBytes = 64 << 20
	// pieceHead is what the id has for itself.
	pieceHead = 64
)

func (h *sharedHeap) all() []*heapPiece {
	if p := h.pieces.Load(); p != nil {
		return *p
	}
	return nil
}

// Alloc returns zeroed memory, on cache lines of its own.
func (h *sharedHeap) Alloc(bytes int) (unsafe.Pointer, error) {
	at, err := h.Take(bytes)
	if err == nil {
		clear(unsafe.Slice((*byte)(at), bytes))
	}
	return at, err
}

// Take is Alloc of memory that holds anything.
func (h *sharedHeap) Take(bytes int) (unsafe.Pointer, error) {
	bytes = inLines(bytes)
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, p := range h.all() {
		if at := p.take(bytes); at >= 0 {
			return h.use(p, at, bytes)
		}
	}
	p, err := h.grow(bytes)
	if err != nil {
		return nil, err
	}
	return h.use(p, p.take(bytes), bytes)
}

// inLines are bytes in whole cache lines.
func inLines(bytes int) int { return max(64, (bytes+63)&^63) }

// grow adds a piece that has room.
func (h *sharedHeap) grow(bytes int) (*heapPiece, error) {
	total := 0
	for _, p := range h.all() {
		total += len(p.memory)
	}
	size := max(bytes+pieceHead, minPieceBytes, min(total, maxPieceBytes))
	size = (size + chunkBytes - 1) / chunkBytes * chunkBytes
	fd, memory, err := createMemory("epl-heap", size, chunkBytes)
	if err != nil {
		return nil, err
	}
	p := &heapPiece{id: random(), fd: fd, memory: memory, free: []transport.Span{{From: pieceHead, To: size}}, chunks: make([]heapChunk, size/chunkBytes)}
	p.chunks[0] = heapChunk{used: pieceHead, reserved: true}
	*(*uint64)(unsafe.Pointer(&memory[0])) = p.id
	pieces := append(slices.Clone(h.all()), p)
	h.pieces.Store(&pieces)
	return p, nil
}

// use reserves memory that was taken, where it is not.
func (h *sharedHeap) use(p *heapPiece, at, bytes int) (unsafe.Pointer, error) {
	for i := at / chunkBytes; i <= (at+bytes-1)/chunkBytes; i++ {
		c := &p.chunks[i]
		if c.reserved {
			continue
		}
		if err := p.reserve(i); err != nil {
			p.give(at, bytes)
			return nil, unreserved(chunkBytes, err)
		}
		c.reserved = true
		h.idle += chunkBytes
	}
	for i := at / chunkBytes; i <= (at+bytes-1)/chunkBytes; i++ {
		c := &p.chunks[i]
		if c.used == 0 {
			h.idle -= chunkBytes
		}
		c.used += within(i, at, bytes)
	}
	h.used += bytes
	return unsafe.Pointer(&p.memory[at]), nil
}

// reserve gets the memory of a chunk: a huge page, or as many ordinary ones.
func (p *heapPiece) reserve(chunk int) error {
	if makeHuge(p.fd, p.memory, chunk*chunkBytes) {
		return nil
	}
	return Reserve(p.fd, 0, int64(chunk*chunkBytes), chunkBytes)
}

// within is how many of the bytes from at are in a chunk.
func within(chunk, at, bytes int) int {
	return min(at+bytes, (chunk+1)*chunkBytes) - max(at, chunk*chunkBytes)
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

// Release takes memory back. What is not of the heap is left alone.
func (h *sharedHeap) Release(at unsafe.Pointer, bytes int) {
	bytes = inLines(bytes)
	h.mu.Lock()
	defer h.mu.Unlock()
	if p, from := h.find(transport.Buffer{Ptr: at, Len: bytes, Size: 1}); p != nil {
		h.release(p, from, bytes)
	}
}

// release takes memory back, and gives it to the system if there is enough.
func (h *sharedHeap) release(p *heapPiece, from, bytes int) {
	p.give(from, bytes)
	h.used -= bytes
	for i := from / chunkBytes; i <= (from+bytes-1)/chunkBytes; i++ {
		c := &p.chunks[i]
		c.used -= within(i, from, bytes)
		switch {
		case c.used > 0:
		case h.idle >= idleBytes && punch(p.fd, i*chunkBytes, chunkBytes) == nil:
			c.reserved = false
		default:
			h.idle += chunkBytes
		}
	}
}

// punch gives memory of a file back to the system; it is zeros then.
func punch(fd, from, bytes int) error {
	return unix.Fallocate(fd, unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, int64(from), int64(bytes))
}

// InUse is how many bytes were taken and not released.
func (h *sharedHeap) InUse() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.used
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
