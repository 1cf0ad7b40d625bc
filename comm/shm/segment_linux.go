// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package shm

import (
	"crypto/rand"
	"encoding/binary"
	"fmt"
	"os"
	"sync/atomic"
	"unsafe"

	"github.com/pkg/errors"
	"golang.org/x/sys/unix"
)

// segment is a piece of memory that some members share. It has no name in any file system: a member makes it, the others
// open it through /proc while they join, and it is gone with the last of them, however they end.
type segment struct {
	engine  *engine
	members []int // who share it, of the team
	me      int   // index among them
	memory  []byte
	head    *segmentHead
	peers   []*segmentPeer // by index
	trials  []uint64       // by index: where others try whether they can write this member's own memory, and read it
	lends   bool           // all of them can, see lend
}

// segmentHead is where a segment begins.
type segmentHead struct {
	id      uint64 // random: who opened something else finds out
	version uint64
	size    uint64
	refused atomic.Uint32 // a member could not join: nobody uses it
	_       [36]byte
}

// segmentVersion changes with the layout of segments.
const segmentVersion = 6

// segmentPeer is what a member tells the others of itself.
type segmentPeer struct {
	bell bell

	state    atomic.Uint32
	pid      uint64
	trialsAt uint64 // their address in the member's own memory
	_        [40]byte
}

// States of a peer.
const (
	absent        = iota
	present       // what it tells is there
	reachesSome   // it cannot read and write the memory of all others
	reachesOthers // it can
)

// places lays a segment out: it hands out offsets, each on a cache line of its own.
type places struct{ size int }

func (p *places) take(bytes int) (offset int) {
	offset = p.size
	p.size += (bytes + 63) &^ 63
	return offset
}

// createMemory makes anonymous memory that others can map by its file descriptor. The name is for /proc/PID/maps. The first bytes of it are reserved at once: memory
// that runs out later would kill the process without a word.
func createMemory(name string, size, reserved int) (fd int, memory []byte, err error) {
	fd, err = unix.MemfdCreate(name, unix.MFD_CLOEXEC)
	if err != nil {
		return -1, nil, errors.Errorf("epl: the system gives no shared memory: %s", err)
	}
	if err = unix.Ftruncate(fd, int64(size)); err == nil {
		err = Reserve(fd, 0, 0, int64(reserved))
	}
	if err != nil {
		unix.Close(fd)
		return -1, nil, unreserved(reserved, err)
	}
	memory, err = mapShared(fd, size)
	if err != nil {
		unix.Close(fd)
		return -1, nil, errors.Errorf("epl: %d MB of shared memory cannot be mapped: %s", max(1, size>>20), err)
	}
	return fd, memory, nil
}

// unreserved is the error when there is not enough memory.
func unreserved(bytes int, err error) error {
	free := "an unknown part"
	var info unix.Sysinfo_t
	if unix.Sysinfo(&info) == nil {
		free = fmt.Sprintf("%d MB", uint64(info.Freeram)*uint64(info.Unit)>>20)
	}
	return errors.Errorf("epl: %d MB of shared memory cannot be reserved: %s; %s of the machine's memory is free; "+
		"end other processes, raise the memory limit of the container or job, or start fewer workers on this host", max(1, bytes>>20), err, free)
}

// What tests replace, to play machines that have no memory left or do not permit something.
var (
	Reserve    = unix.Fallocate
	OpenOther  = os.OpenFile
	ReadOther  = crossingBy(unix.SYS_PROCESS_VM_READV)
	WriteOther = crossingBy(unix.SYS_PROCESS_VM_WRITEV)
)

// openMemory maps what another process has created.
func openMemory(pid, fd uint64, size int) ([]byte, error) {
	f, err := OpenOther(fmt.Sprintf("/proc/%d/fd/%d", pid, fd), os.O_RDWR, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if info, err := f.Stat(); err != nil || info.Size() != int64(size) {
		return nil, errors.Errorf("%s is something else", f.Name())
	}
	return mapShared(int(f.Fd()), size)
}

// random returns a number that is not 0.
func random() uint64 {
	var b [8]byte
	rand.Read(b[:])
	return binary.NativeEndian.Uint64(b[:]) | 1
}

// layOut places what every segment begins with.
func (s *segment) layOut(at *places) (head int, peers []int) {
	head = at.take(int(unsafe.Sizeof(segmentHead{})))
	for range s.members {
		peers = append(peers, at.take(int(unsafe.Sizeof(segmentPeer{}))))
	}
	return head, peers
}

// use sets a segment up over its memory.
func (s *segment) use(memory []byte) {
	s.memory = memory
	head, peers := s.layOut(new(places))
	s.head = (*segmentHead)(s.at(head))
	for _, p := range peers {
		s.peers = append(s.peers, (*segmentPeer)(s.at(p)))
	}
}

// at returns the address of an offset.
func (s *segment) at(offset int) unsafe.Pointer { return unsafe.Pointer(&s.memory[offset]) }

// mine is what this member tells.
func (s *segment) mine() *segmentPeer { return s.peers[s.me] }

// ringAll wakes all others.
func (s *segment) ringAll() {
	for i, p := range s.peers {
		if i != s.me {
			p.bell.ring()
		}
	}
}

// without returns the members that lack something.
func (s *segment) without(has func(i int) bool) (missing []int) {
	for i, m := range s.members {
		if i != s.me && !has(i) {
			missing = append(missing, m)
		}
	}
	return missing
}

func (s *segment) unmap() {
	if s.memory != nil {
		unmap(s.memory) // fails only for what is not mapped
		s.memory = nil
	}
}
