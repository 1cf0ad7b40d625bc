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
// microseconds and waking a sleeper takes many; then it sleeps, so that an idle device costs nothing.
type Pool struct {
	workers []*Worker // the first is whoever calls Run
	shared  Worker    // for its memory
	mu      sync.Mutex
	wake    *sync.Cond
	asleep  atomic.Int64
	closed  atomic.Bool

	// state is the number of the job, whether it is open (the lowest bit), and how many workers are at it (the 15 bits
	// above). The fields below change only while it is closed and nobody is at it.
	state  atomic.Uint64
	f      func(w *Worker, task int)
	tasks  int64
	next   atomic.Int64 // the next task that nobody has taken
	left   atomic.Int64 // tasks that are not done
	failed atomic.Pointer[error]
}

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
}

// Scratch returns n bytes that begin on a cache line; what they held is lost at the next call.
func (w *Worker) Scratch(n int) unsafe.Pointer {
	if len(w.scratch) < n+64 {
		w.scratch = make([]byte, n+64)
	}
	p := unsafe.Pointer(unsafe.SliceData(w.scratch))
	return unsafe.Add(p, -uintptr(p)&63)
}

// looks is how often an idle worker looks for a job before it sleeps: some tens of microseconds.
const looks = 20000

// New starts a pool. Whoever calls Run is one of its threads.
func New(threads int) *Pool {
	p := &Pool{}
	p.wake = sync.NewCond(&p.mu)
	for i := range max(threads, 1) {
		p.workers = append(p.workers, &Worker{Index: i})
		if i > 0 {
			go p.work(p.workers[i])
		}
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

// Run calls f for every task below tasks, on all threads, and returns when all are done. A panic of a task is an error.
func (p *Pool) Run(tasks int, f func(w *Worker, task int)) error {
	if tasks <= 1 || len(p.workers) == 1 {
		return guard(func() {
			for t := range tasks {
				f(p.workers[0], t)
			}
		})
	}
	p.f, p.tasks = f, int64(tasks)
	p.failed.Store(nil)
	p.next.Store(0)
	p.left.Store(int64(tasks))
	p.state.Store(p.state.Load()&^(jobNumber-1) + jobNumber + jobOpen)
	if p.asleep.Load() > 0 {
		p.mu.Lock()
		p.wake.Broadcast()
		p.mu.Unlock()
	}
	p.drain(p.workers[0])
	for i := 0; ; i++ {
		if p.left.Load() == 0 {
			if s := p.state.Load(); s&(jobNumber-1) == jobOpen && p.state.CompareAndSwap(s, s&^jobOpen) {
				break
			}
		}
		if i > looks {
			runtime.Gosched()
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
	for {
		t := p.next.Add(1) - 1
		if t >= p.tasks {
			return
		}
		if err := guard(func() { p.f(w, int(t)) }); err != nil {
			p.failed.CompareAndSwap(nil, &err)
		}
		p.left.Add(-1)
	}
}

// work is the life of a worker.
func (p *Pool) work(w *Worker) {
	var seen uint64 // the last job that it worked at
	for {
		s := p.state.Load()
		for i := 0; s&jobOpen == 0 || s/jobNumber == seen; i++ {
			if p.closed.Load() {
				return
			}
			if i >= looks {
				p.sleep(seen)
				i = 0
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

// sleep returns when there is a job that the worker has not seen.
func (p *Pool) sleep(seen uint64) {
	p.asleep.Add(1)
	defer p.asleep.Add(-1)
	p.mu.Lock()
	defer p.mu.Unlock()
	for {
		s := p.state.Load()
		if s&jobOpen != 0 && s/jobNumber != seen || p.closed.Load() {
			return
		}
		p.wake.Wait()
	}
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
