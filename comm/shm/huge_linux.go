// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package shm

import (
	"os"
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"
)

// hugePage is the size of a huge page. Products read and write tensors across rows, and ordinary pages are too many for the
// processor to remember where they are.
const hugePage = 2 << 20

// noHugePages is set once the system says that shared memory cannot have huge pages: it is older than Linux 6.1, or does not permit it.
var noHugePages atomic.Bool

// makeHuge gets a huge page for a part of a file that has no memory yet, and says whether it did. The setting of the system for
// shared memory, which is off by default, is about what happens by itself; who asks for a page gets it.
func makeHuge(fd int, memory []byte, at int) bool {
	if noHugePages.Load() || Reserve(fd, 0, int64(at), int64(os.Getpagesize())) != nil {
		return false
	}
	page := memory[at : at+hugePage]
	page[0] = 0 // what is not mapped is not looked at
	err := unix.Madvise(page, unix.MADV_COLLAPSE)
	if err == unix.EINVAL {
		noHugePages.Store(true)
	}
	return err == nil
}

// mapShared maps a file at an address where its huge pages can be.
func mapShared(fd, size int) ([]byte, error) {
	room := uintptr(size + hugePage)
	at, err := unix.MmapPtr(-1, 0, nil, room, unix.PROT_NONE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
	if err != nil {
		return nil, err
	}
	page := uintptr(os.Getpagesize())
	from := -uintptr(at) % hugePage
	to := from + (uintptr(size)+page-1)&^(page-1)
	start, err := unix.MmapPtr(fd, 0, unsafe.Add(at, from), uintptr(size), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED|unix.MAP_FIXED)
	if err != nil {
		_ = unix.MunmapPtr(at, room)
		return nil, err
	}
	if from > 0 {
		_ = unix.MunmapPtr(at, from)
	}
	if to < room {
		_ = unix.MunmapPtr(unsafe.Add(at, to), room-to)
	}
	return unsafe.Slice((*byte)(start), size), nil
}

func unmap(memory []byte) error {
	return unix.MunmapPtr(unsafe.Pointer(unsafe.SliceData(memory)), uintptr(len(memory)))
}
