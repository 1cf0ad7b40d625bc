// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package cpu

import (
	"runtime"
	"slices"
	"sync"
	"unsafe"
)

// Memory is where a device takes the memory of large tensors from, if it is not Go's.
type Memory interface {
	// Take returns so many bytes, which hold anything, on cache lines of their own; nil: there are none.
	Take(bytes int) []byte
	// Give takes back what Take returned.
	Give(b []byte)
}

// In lets a device take the memory of large tensors from m, as far as that has any. That of a buffer which nobody finalizes goes back
// when the garbage collector finds that nobody has it.
func In(m Memory) Option { return func(b *Backend) { b.free.from = m } }

// largeBytes is from where on a tensor is large: copies of smaller ones cost less than what they are about.
const largeBytes = 256 << 10

// freeList keeps memory for the next buffers of the same size, so that steps of a training make no garbage.
type freeList struct {
	from   Memory // of large tensors; nil: Go's
	mu     sync.Mutex
	taken  map[*byte]int // bytes of what is from there
	sizes  map[int]*freeSize
	held   int    // bytes in the list
	used   int    // bytes of buffers
	most   int    // of used, since someone asked
	peaks  [2]int // of used, in the window of calls before and in this one
	calls  int
	closed bool // it keeps nothing
}

// freeSize is the memory of one size.
type freeSize struct {
	free [][]byte
	last int // the call that used the size last
}

// A step of a training uses the memory of the step before again, so the list keeps what buffers had when they had most, and somewhat more, because they are not of the
// same sizes then.
const (
	keep   = 64 << 20 // bytes that it may always hold
	more   = 8        // and this part of the most
	window = 1 << 16  // calls: what was most in this window and in the one before counts
)

// limit is how many bytes the list may hold.
func (f *freeList) limit() int {
	peak := max(f.peaks[0], f.peaks[1], f.used)
	return peak - f.used + peak/more + keep
}

// hold is what all buffers have that lie in the same memory, if it is not Go's.
type hold struct {
	lost runtime.Cleanup // takes it back if nobody gives it
}

// hold is who holds memory that was taken; nil if it is Go's.
func (f *freeList) hold(b []byte) *hold {
	if f.from == nil || len(b) < largeBytes {
		return nil
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if _, ok := f.taken[unsafe.SliceData(b)]; !ok {
		return nil
	}
	h := new(hold)
	h.lost = runtime.AddCleanup(h, f.lose, b)
	return h
}

// lose takes memory back of which nobody said that it is not needed any more.
func (f *freeList) lose(b []byte) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.used -= len(b)
	f.forget(b)
}

func (f *freeList) take(n int) []byte {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.used += n
	f.most, f.peaks[1] = max(f.most, f.used), max(f.peaks[1], f.used)
	l := f.size(n)
	if last := len(l.free) - 1; last >= 0 {
		b := l.free[last]
		l.free = l.free[:last]
		f.held -= n
		return b
	}
	if f.from != nil && n >= largeBytes {
		if b := f.from.Take(n); b != nil {
			if f.taken == nil {
				f.taken = map[*byte]int{}
			}
			f.taken[unsafe.SliceData(b)] = n
			return b
		}
	}
	return aligned(n)
}

// give takes memory back. If there is too much of it, that of sizes goes which were not used for the longest time: a program that has come to other shapes does not
// need them any more.
func (f *freeList) give(b []byte) {
	f.mu.Lock()
	defer f.mu.Unlock()
	n := len(b)
	f.used -= n
	if n == 0 {
		return
	}
	if f.closed {
		f.forget(b)
		return
	}
	f.size(n) // so that others go first
	limit := f.limit()
	if n > limit {
		f.forget(b)
		return
	}
	for f.held+n > limit {
		f.drop()
	}
	l := f.size(n)
	l.free = append(l.free, b)
	f.held += n
}

// size is the memory of a size, which is used now.
func (f *freeList) size(n int) *freeSize {
	l := f.sizes[n]
	if l == nil {
		if f.sizes == nil {
			f.sizes = map[int]*freeSize{}
		}
		l = &freeSize{}
		f.sizes[n] = l
	}
	if f.calls++; f.calls%window == 0 {
		f.peaks = [2]int{f.peaks[1], f.used} // what is in use now is in use in the next window, too
	}
	l.last = f.calls
	return l
}

// drop leaves a piece of memory, of the size that was used least recently.
func (f *freeList) drop() {
	size := -1
	for n, l := range f.sizes {
		if len(l.free) > 0 && (size < 0 || l.last < f.sizes[size].last) {
			size = n
		}
	}
	l := f.sizes[size]
	last := len(l.free) - 1
	f.forget(l.free[last])
	l.free[last] = nil
	l.free = l.free[:last]
	f.held -= size
	if last == 0 {
		delete(f.sizes, size)
	}
}

// forget leaves memory to whom it came from, or to the garbage collector.
func (f *freeList) forget(b []byte) {
	if _, ok := f.taken[unsafe.SliceData(b)]; ok {
		delete(f.taken, unsafe.SliceData(b))
		f.from.Give(b)
	}
}

// close leaves all memory. That of buffers which are still there is not used any more.
func (f *freeList) close() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.closed, f.sizes, f.held = true, nil, 0
	for at, n := range f.taken {
		f.from.Give(unsafe.Slice(at, n))
	}
	f.taken = nil
}

// aligned makes memory that begins on a cache line.
func aligned(n int) []byte {
	if n == 0 {
		return nil
	}
	b := make([]byte, n+63)
	preferHuge(b)
	off := int(-uintptr(unsafe.Pointer(unsafe.SliceData(b))) & 63)
	return slices.Clip(b[off : off+n])
}
