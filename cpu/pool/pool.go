// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

// Package pool is the team of threads of a CPU device.
package pool

import (
	"fmt"
	"runtime"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"unsafe"

	"github.com/pkg/errors"

	"github.com/easyparallel/epl/cpu/kernel"
)

// Pool is the threads of a device: a fixed team that shares one job at a time.
//
// Whoever finds nothing to do looks again for a while, because the next job of a training step comes within
// microseconds and waking a sleeper takes many; then it sleeps, so that an idle device costs nothing. Where the pools of this
// process have more threads awake than there are cores it does not look for long: another thread has work for the core.
type Pool struct {
	workers []*Worker // the first is whoever calls Run
	shared  Worker    // for its memory
	procs   int64     // cores
	closed  atomic.Bool

	mu     sync.Mutex
	wake   *sync.Cond
	asleep atomic.Int64 // changes under mu

	_ cacheLine
	// state is the number of the job, whether it is open (the lowest bit), and how many workers are at it (the 15 bits
	// above). The fields below change only while it is closed and nobody is at it.
	state  atomic.Uint64
	f      func(w *Worker, task int)
	failed atomic.Pointer[error]
	_      cacheLine
	left   atomic.Int64 // tasks that are not done
	_      cacheLine
}

// cacheLine keeps what all threads write away from what they look at.
type cacheLine [64]byte

// awake counts the threads of all pools of this process that do not sleep. Whoever calls Run is one while others of its
// pool are awake.
var awake atomic.Int64

const (
	jobOpen   = 1
	jobWorker = 2       // one worker in state
	jobNumber = 1 << 16 // one job in state
)

// Worker is what a thread has for itself.
type Worker struct {
	Index   int
	Args    kernel.Args
	scratch []byte
	beside  []byte

	_    cacheLine
	mine span // of the job's tasks
	_    cacheLine
}

// span is a range of tasks that nobody has taken: the first in the lower half, the end in the upper.
type span struct{ v atomic.Uint64 }

func (s *span) set(from, to int) { s.v.Store(uint64(to)<<32 | uint64(from)) }

// first takes the first task; -1 if there is none. last takes the last.
func (s *span) first() int {
	for {
		v := s.v.Load()
		from, to := v&(1<<32-1), v>>32
		if from >= to {
			return -1
		}
		if s.v.CompareAndSwap(v, v+1) {
			return int(from)
		}
	}
}

func (s *span) last() int {
	for {
		v := s.v.Load()
		from, to := v&(1<<32-1), v>>32
		if from >= to {
			return -1
		}
		if s.v.CompareAndSwap(v, v-1<<32) {
			return int(to) - 1
		}
	}
}

// Scratch returns n bytes that begin on a cache line; what they held is lost at the next call.
func (w *Worker) Scratch(n int) unsafe.Pointer { return atLeast(&w.scratch, n) }

// Beside returns n bytes that are not those of Scratch, for who is called by who uses them.
func (w *Worker) Beside(n int) unsafe.Pointer { return atLeast(&w.beside, n) }

// atLeast returns n bytes of memory that is made when it is too small.
func atLeast(b *[]byte, n int) unsafe.Pointer {
	if len(*b) < n+64 {
		*b = make([]byte, n+64)
	}
	p := unsafe.Pointer(unsafe.SliceData(*b))
	return unsafe.Add(p, -uintptr(p)&63)
}

// How often a thread looks for what it waits for before it gives up the core: some tens of microseconds, or one.
const (
	looks        = 20000
	looksCrowded = 500
)

// New starts a pool. Whoever calls Run is one of its threads.
func New(threads int) *Pool {
	p := &Pool{procs: int64(runtime.GOMAXPROCS(0))}
	p.wake = sync.NewCond(&p.mu)
	for i := range max(threads, 1) {
		p.workers = append(p.workers, &Worker{Index: i})
	}
	if len(p.workers) > 1 {
		awake.Add(int64(len(p.workers)))
	}
	for _, w := range p.workers[1:] {
		go p.work(w)
	}
	return p
}

// Threads is how many threads the pool has.
func (p *Pool) Threads() int { return len(p.workers) }

// Close ends the threads; no job may be running.
func (p *Pool) Close() {
	p.closed.Store(true)
	p.mu.Lock()
	p.wake.Broadcast()
	p.mu.Unlock()
}

// patience is how often to look.
func (p *Pool) patience() int {
	if awake.Load() > p.procs {
		return looksCrowded
	}
	return looks
}

// Run calls f for every task below tasks, on all threads, and returns when all are done. A panic of a task is an error.
//
// A thread begins with its own part of the tasks, in order, and then helps others from their end. So threads find in their
// caches what they wrote for an earlier job that had its parts alike.
func (p *Pool) Run(tasks int, f func(w *Worker, task int)) error {
	if tasks <= 1 || len(p.workers) == 1 {
		return guard(func() {
			for t := range tasks {
				f(p.workers[0], t)
			}
		})
	}
	p.f = f
	p.failed.Store(nil)
	for i, w := range p.workers {
		w.mine.set(i*tasks/len(p.workers), (i+1)*tasks/len(p.workers))
	}
	p.left.Store(int64(tasks))
	p.state.Store(p.state.Load()&^(jobNumber-1) + jobNumber + jobOpen)
	if p.asleep.Load() > 0 {
		p.mu.Lock()
		for range min(p.asleep.Load(), int64(tasks)-1) {
			p.wake.Signal()
		}
		p.mu.Unlock()
	}
	p.drain(p.workers[0])
	for i, patience := 0, p.patience(); ; i++ {
		if p.left.Load() == 0 {
			if s := p.state.Load(); s&(jobNumber-1) == jobOpen && p.state.CompareAndSwap(s, s&^jobOpen) {
				break
			}
		}
		if i >= patience {
			runtime.Gosched() // a thread that has tasks may wait for a core
		}
	}
	p.f = nil
	if err := p.failed.Load(); err != nil {
		return *err
	}
	return nil
}

// drain takes tasks until there are none left.
func (p *Pool) drain(w *Worker) {
	f := p.f
	run := func(task int) {
		if err := guard(func() { f(w, task) }); err != nil {
			p.failed.CompareAndSwap(nil, &err)
		}
		p.left.Add(-1)
	}
	for t := w.mine.first(); t >= 0; t = w.mine.first() {
		run(t)
	}
	for i := range p.workers[1:] {
		other := &p.workers[(w.Index+1+i)%len(p.workers)].mine
		for t := other.last(); t >= 0; t = other.last() {
			run(t)
		}
	}
}

// work is the life of a worker. It begins asleep.
func (p *Pool) work(w *Worker) {
	var seen uint64 // the last job that it worked at
	p.sleep(seen)
	for {
		s := p.state.Load()
		for i, patience := 0, p.patience(); !p.open(s, seen); i++ {
			if p.closed.Load() {
				p.mu.Lock()
				p.rest(1)
				p.mu.Unlock()
				return
			}
			if i >= patience {
				p.sleep(seen)
				i, patience = 0, p.patience()
			}
			s = p.state.Load()
		}
		if !p.state.CompareAndSwap(s, s+jobWorker) {
			continue
		}
		seen = s / jobNumber
		p.drain(w)
		p.state.Add(^uint64(jobWorker - 1))
	}
}

// open tells whether there is a job in the state that the worker has not seen, with tasks left to do.
func (p *Pool) open(s, seen uint64) bool {
	return s&jobOpen != 0 && s/jobNumber != seen && p.left.Load() > 0
}

// sleep returns when there is a job that the worker has not seen, or the pool is closed.
func (p *Pool) sleep(seen uint64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.rest(1) // before it looks: who opens a job later wakes it
	for !p.open(p.state.Load(), seen) && !p.closed.Load() {
		p.wake.Wait()
	}
	p.rest(-1)
}

// rest counts a worker that falls asleep, or with -1 one that wakes up. The caller holds mu.
func (p *Pool) rest(n int64) {
	up := int64(len(p.workers)-1) - p.asleep.Add(n)
	switch {
	case up == 0:
		n++ // with the last goes whoever calls Run
	case up == 1 && n < 0:
		n--
	}
	awake.Add(-n)
}

// guard turns a panic into an error.
func guard(f func()) (err error) {
	defer func() {
		if r := recover(); r != nil {
			if e, ok := r.(runtime.Error); ok {
				err = errors.Errorf("%v\n%s", e, debug.Stack())
				return
			}
			err = fmt.Errorf("%v\n%s", r, debug.Stack())
		}
	}()
	f()
	return nil
}

// Shared returns n bytes for whoever calls Run, which all of its tasks may use; what they held is lost at the next call.
func (p *Pool) Shared(n int) unsafe.Pointer { return p.shared.Scratch(n) }

// First is the worker of whoever calls Run: for work between jobs.
func (p *Pool) First() *Worker { return p.workers[0] }
