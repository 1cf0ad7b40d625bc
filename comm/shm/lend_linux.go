// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package shm

import (
	"sync/atomic"
	"unsafe"

	"github.com/pkg/errors"
	"golang.org/x/sys/unix"
)

// Members lend each other their own memory, if the kernel permits it: large values are then copied once, and not into a
// segment and out of it. Members try it when they join a segment. Those in different containers, of different users or
// under Yama may be refused.

// readMemory copies from another process's memory.
func readMemory(pid uint64, to unsafe.Pointer, from uint64, n int) error {
	return crossMemory(ReadOther, pid, to, from, n)
}

// writeMemory copies to another process's memory.
func writeMemory(pid uint64, from unsafe.Pointer, to uint64, n int) error {
	return crossMemory(WriteOther, pid, from, to, n)
}

func crossMemory(cross Crossing, pid uint64, here unsafe.Pointer, there uint64, n int) error {
	for n > 0 {
		done, err := cross(pid, here, there, min(n, maxChunk))
		switch {
		case err == unix.EINTR:
		case err != 0:
			return err
		case done <= 0:
			return errors.New("nothing could be copied")
		case done >= n:
			return nil // no pointer past the end
		default:
			here, there, n = unsafe.Add(here, done), there+uint64(done), n-done
		}
	}
	return nil
}

// Crossing copies some bytes, at most n, between here and there, an address in another process.
type Crossing func(pid uint64, here unsafe.Pointer, there uint64, n int) (done int, err unix.Errno)

// crossingBy makes one of a system call. Go is not told that it blocks: the processor is busy with copying, and a thread that
// Go started in its place would only compete for it.
func crossingBy(call uintptr) Crossing {
	return func(pid uint64, here unsafe.Pointer, there uint64, n int) (int, unix.Errno) {
		local := unix.Iovec{Base: (*byte)(here)}
		local.SetLen(n)
		remote := unix.RemoteIovec{Base: uintptr(there), Len: n}
		done, _, err := unix.RawSyscall6(call, uintptr(pid), uintptr(unsafe.Pointer(&local)), 1, uintptr(unsafe.Pointer(&remote)), 1, 0)
		return int(done), err
	}
}

// claims let the two ends of a parcel copy it together: whoever has time claims the next chunk. The giver writes into the
// taker's memory, from the front; the taker reads the giver's, from the back. Often one of them has nothing else to do.
//
// The word holds the parcel's number, the chunks that the giver has claimed, and those that the taker has.
type claims struct{ atomic.Uint64 }

// claimsLine keeps claims apart from those of other parcels.
type claimsLine struct {
	claims
	_ [56]byte
}

const (
	chunkBits = 12
	maxChunks = 1<<chunkBits - 1

	// Chunks are large enough for a system call each, and small enough for the second-level cache and for two to share.
	minChunk, maxChunk = 128 << 10, 256 << 10
)

// end is the giver or the taker of a parcel.
type end int

const (
	taker end = iota
	giver
)

// chunkOf returns how much of so many bytes is claimed at a time, in whole pages.
func chunkOf(bytes int) int {
	return max(minChunk, min(bytes/4&^4095, maxChunk), (bytes/maxChunks+4096)&^4095)
}

// next claims a chunk of a parcel for one of its ends; none is left if n is 0. Parcels follow each other: nobody claims of
// one while another claims of the next.
func (c *claims) next(number uint64, who end, bytes int) (from, n int) {
	chunk := chunkOf(bytes)
	chunks := (bytes + chunk - 1) / chunk
	number <<= 2 * chunkBits
	for {
		seen := c.Load()
		now := seen
		if seen&^(1<<(2*chunkBits)-1) != number {
			now = number
		}
		given, taken := int(now>>chunkBits&maxChunks), int(now&maxChunks)
		if given+taken >= chunks {
			return 0, 0
		}
		if !c.CompareAndSwap(seen, now+1<<(chunkBits*int(who))) {
			continue
		}
		if from = given * chunk; who == taker {
			from = (chunks - 1 - taken) * chunk
		}
		return from, min(chunk, bytes-from)
	}
}
