// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package faults

import (
	"fmt"
	"io"
	"net"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/easyparallel/epl/internal/words"
)

// Job is what an [Injector] has to know of its job.
type Job struct {
	Worker   int                // this one
	WorkerOf func(rank int) int // the worker of a rank
	Log      io.Writer          // nil: standard error
}

// Injector is a worker's share of the faults of a job. Its methods may be called from any goroutine; a nil one does nothing.
type Injector struct {
	job   Job
	mine  []*pending
	links bool // the job has faults on connections
	steps atomic.Int64
	saves atomic.Int64

	die func(syscall.Signal) // this process; tests have their own
}

// pending is a fault that is to happen here, or has.
type pending struct {
	Fault
	fired atomic.Bool
	once  sync.Once
}

// New returns the injector of a worker; nil if the job has no faults.
func New(all []Fault, job Job) *Injector {
	if len(all) == 0 {
		return nil
	}
	if job.Log == nil {
		job.Log = os.Stderr
	}
	i := &Injector{job: job, die: func(s syscall.Signal) {
		_ = syscall.Kill(os.Getpid(), s)
		time.Sleep(time.Second) // it takes a moment
	}}
	for _, f := range all {
		i.links = i.links || f.Link()
		if job.WorkerOf(f.Rank) == job.Worker {
			i.mine = append(i.mine, &pending{Fault: f})
		}
	}
	return i
}

// fire says that a fault happens, once.
func (i *Injector) fire(p *pending, what string) {
	p.once.Do(func() {
		p.fired.Store(true)
		when := fmt.Sprintf("step %d", i.steps.Load())
		if p.disk() {
			when += fmt.Sprintf(", save %d", i.saves.Load())
		}
		fmt.Fprintf(i.job.Log, "epl: fault on rank %d (worker %d), %s: %s [%s]\n", p.Rank, i.job.Worker, when, what, p.Fault)
	})
}

// Step tells that a training step begins.
func (i *Injector) Step() {
	if i == nil {
		return
	}
	n := int(i.steps.Add(1))
	for _, p := range i.mine {
		if p.Step != n {
			continue
		}
		switch p.Kind {
		case Kill:
			i.fire(p, "the worker is killed")
			i.die(syscall.SIGKILL)
		case Stop:
			i.fire(p, "the worker is stopped")
			i.die(syscall.SIGSTOP)
		}
	}
}

// begun tells whether a fault that begins with a step has begun.
func (i *Injector) begun(p *pending) bool { return int64(p.Step) <= i.steps.Load() }

// Slows tells whether a device of this worker is to be slowed down at any time.
func (i *Injector) Slows() bool { return i.has(Slow) }

// has tells whether this worker has faults of a kind.
func (i *Injector) has(kind string) bool {
	return i != nil && slices.ContainsFunc(i.mine, func(p *pending) bool { return p.Kind == kind })
}

// Factor is how many times as long the device of a rank is to take now; 0: as long as it takes.
func (i *Injector) Factor(rank int) (x float64) {
	for _, p := range i.mine {
		if p.Kind == Slow && p.Rank == rank && (i.begun(p) || p.Step == 1) { // from the first step is from the start: speeds are measured before it
			i.fire(p, "the device is slowed down")
			x = max(x, p.Factor)
		}
	}
	return x
}

// Flips tells whether a bit of a variable of this worker is to change at any time.
func (i *Injector) Flips() bool { return i.has(Flip) }

// Spoils tells whether a gradient of this worker is not to be a number at any time.
func (i *Injector) Spoils() bool { return i.has(NaN) }

// Spoil tells in a step whether a gradient that a rank computes is not to be a number. spoiled is to be called then.
func (i *Injector) Spoil(rank int) (spoiled func(), spoils bool) {
	for _, p := range i.mine {
		if p.Kind == NaN && p.Rank == rank && int64(p.Step) == i.steps.Load() && !p.fired.Load() {
			return func() { i.fire(p, "a gradient is not a number") }, true
		}
	}
	return nil, false
}

// Flip tells after a step whether a bit of a variable is to change in the memory of a rank, and of which: "" stands for any. changed is to be called then.
func (i *Injector) Flip(rank int) (variable string, changed func(what string), flips bool) {
	for _, p := range i.mine {
		if p.Kind == Flip && p.Rank == rank && int64(p.Step) == i.steps.Load() && !p.fired.Load() {
			return p.Variable, func(what string) { i.fire(p, fmt.Sprintf("a bit of %s changes", what)) }, true
		}
	}
	return "", nil, false
}

// Links tells whether the job has faults on connections between workers: none may bypass them, then.
func (i *Injector) Links() bool { return i != nil && i.links }

// Conn is a connection to another worker, with the faults that it is to have.
func (i *Injector) Conn(c net.Conn, worker int) net.Conn {
	if i == nil {
		return c
	}
	var on []*pending
	for _, p := range i.mine {
		if p.Link() && i.job.WorkerOf(p.To) == worker {
			on = append(on, p)
		}
	}
	if len(on) == 0 {
		return c
	}
	return &conn{Conn: c, i: i, on: on}
}

// Close says which faults of this worker did not happen: a drill that nothing came of is no drill.
func (i *Injector) Close() {
	if i == nil {
		return
	}
	for _, p := range i.mine {
		p.once.Do(func() {
			fmt.Fprintf(i.job.Log, "epl: fault on rank %d (worker %d) did not happen: the run had %s and %s [%s]\n",
				p.Rank, i.job.Worker, words.Count(int(i.steps.Load()), "step"), words.Count(int(i.saves.Load()), "save"), p.Fault)
		})
	}
}
