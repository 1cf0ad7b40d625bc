package comm

import (
	"slices"
	"sync"
	"sync/atomic"
	"unsafe"
)

// heap is the memory of this process that other workers can map. It grows by pieces and keeps them: others have them
// mapped too.
var heap sharedHeap

type sharedHeap struct {
	mu     sync.Mutex
	pieces atomic.Pointer[[]*heapPiece] // replaced when one is added, so that calls can look without the lock
}

// heapPiece is one mapping. It begins with its id, by which others know that they opened the right one.
type heapPiece struct {
	id     uint64
	fd     int
	memory []byte
	free   []span // bytes, in order, none touching the next
}

// heapPieceBytes is how much the heap grows at least.
const heapPieceBytes = 16 << 20

func (h *sharedHeap) all() []*heapPiece {
	if p := h.pieces.Load(); p != nil {
		return *p
	}
	return nil
}

// alloc returns zeroed memory, on cache lines of its own.
func (h *sharedHeap) alloc(bytes int) (unsafe.Pointer, error) {
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
	p := &heapPiece{id: random(), fd: fd, memory: memory, free: []span{{64, size}}}
	*(*uint64)(unsafe.Pointer(&memory[0])) = p.id
	pieces := append(slices.Clone(h.all()), p)
	h.pieces.Store(&pieces)
	return unsafe.Pointer(&memory[p.take(bytes)]), nil
}

// take returns an offset of free bytes, or -1.
func (p *heapPiece) take(bytes int) int {
	for i, s := range p.free {
		if s.to-s.from >= bytes {
			if p.free[i].from += bytes; p.free[i].from == s.to {
				p.free = slices.Delete(p.free, i, i+1)
			}
			return s.from
		}
	}
	return -1
}

// release takes memory back.
func (h *sharedHeap) release(at unsafe.Pointer, bytes int) {
	bytes = max(64, (bytes+63)&^63)
	h.mu.Lock()
	defer h.mu.Unlock()
	p, from := h.find(buffer{ptr: at, len: bytes, size: 1})
	p.give(from, bytes)
}

// give makes bytes free again, and joins them with their neighbours.
func (p *heapPiece) give(from, bytes int) {
	i, _ := slices.BinarySearchFunc(p.free, from, func(s span, from int) int { return s.from - from })
	p.free = slices.Insert(p.free, i, span{from, from + bytes})
	for _, j := range []int{i, i - 1} { // the one behind, then the one before
		if j >= 0 && j+1 < len(p.free) && p.free[j].to == p.free[j+1].from {
			p.free[j].to = p.free[j+1].to
			p.free = slices.Delete(p.free, j+1, j+2)
		}
	}
}

// find returns the piece that holds a buffer, and where; nil if none does.
func (h *sharedHeap) find(b buffer) (*heapPiece, int) {
	for _, p := range h.all() {
		at := uintptr(b.ptr) - uintptr(unsafe.Pointer(&p.memory[0])) // huge if it is before
		if at < uintptr(len(p.memory)) && at+uintptr(b.bytes()) <= uintptr(len(p.memory)) {
			return p, int(at)
		}
	}
	return nil, 0
}
