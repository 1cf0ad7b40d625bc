// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package shm

import (
	"runtime"
	"sync/atomic"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/easyparallel/epl/comm/internal/transport"
)

// bell wakes who sleeps in a worker. It is in memory that others share, and they ring it after everything that the worker
// may wait for.
type bell struct {
	rings    atomic.Uint32 // the word to sleep on
	sleepers atomic.Uint32
	_        [56]byte
}

// ring wakes who sleeps. It costs a look if nobody does.
func (b *bell) ring() {
	if b.sleepers.Load() != 0 {
		b.wakeAll()
	}
}

func (b *bell) wakeAll() {
	b.rings.Add(1)
	const wake, all = 1, 1 << 30
	unix.Syscall6(unix.SYS_FUTEX, uintptr(unsafe.Pointer(&b.rings)), wake, all, 0, 0, 0)
}

// sleep returns when the bell has been rung since it was seen, or after a while. It is a system call that Go knows to
// block, so that other goroutines get the processor.
func (b *bell) sleep(seen uint32, while time.Duration) {
	const wait = 0
	timeout := unix.NsecToTimespec(int64(while))
	unix.Syscall6(unix.SYS_FUTEX, uintptr(unsafe.Pointer(&b.rings)), wait, uintptr(seen), uintptr(unsafe.Pointer(&timeout)), 0, 0)
}

// nap is how long a call sleeps before it looks whether somebody is overdue. Workers that died wake nobody.
const nap = 200 * time.Millisecond

// wait returns when ready does, or with an error: that of fail, or that the missing are overdue.
func (s *segment) wait(k *transport.Call, ready func() bool, missing func() []int) error {
	k.Begin()
	if transport.Linger(k, s.engine.mayLinger, ready) || s.spin(k, ready) {
		return nil
	}
	e, b := s.engine, &s.mine().bell
	b.sleepers.Add(1)
	defer b.sleepers.Add(^uint32(0))
	for {
		seen := b.rings.Load()
		if ready() {
			return nil
		}
		if err := e.failure(); err != nil {
			return err
		}
		b.sleep(seen, nap)
		if ready() {
			return nil
		}
		if err := e.team.Overdue(k, missing()); err != nil {
			if ready() { // just in time
				return nil
			}
			return err
		}
	}
}

// spin waits a little without sleeping, which is where small calls end.
func (s *segment) spin(k *transport.Call, ready func() bool) bool {
	p := spinAlone
	switch {
	case k.Async:
		p = spinAsync
	case s.engine.crowded:
		p = spinCrowded
	}
	for i := range p.rounds {
		for range p.looks {
			if ready() {
				return true
			}
		}
		if i >= p.greedy {
			unix.RawSyscall(unix.SYS_SCHED_YIELD, 0, 0, 0)
			if i&7 == 7 {
				runtime.Gosched() // it wakes threads, so not each time
			}
		}
	}
	return false
}

// spinning is how a call looks for others before it sleeps: for some rounds it keeps the processor, then it lets other
// goroutines and processes have it after each. One of them may be who it waits for.
type spinning struct{ looks, greedy, rounds int }

var (
	spinAlone   = spinning{looks: 100, greedy: 30, rounds: 100} // some microseconds, then some tens
	spinCrowded = spinning{looks: 30, greedy: 0, rounds: 100}
	spinAsync   = spinning{looks: 30, greedy: 0, rounds: 16} // others have work to do
)

// settle waits for others to stop touching memory, whatever has failed. Those that died never do: it does not wait long.
func (s *segment) settle(ready func() bool) {
	b := &s.mine().bell
	b.sleepers.Add(1)
	defer b.sleepers.Add(^uint32(0))
	for end := time.Now().Add(grace); time.Now().Before(end); {
		seen := b.rings.Load()
		if ready() {
			return
		}
		b.sleep(seen, nap)
	}
}
