// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package pool

import (
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

func TestEveryTaskRunsOnceOnAnyNumberOfThreads(t *testing.T) {
	for _, threads := range []int{1, 2, 5, 64} {
		p := New(threads)
		for job := range 2000 {
			tasks := job % 37
			done := make([]atomic.Int32, tasks)
			if err := p.Run(tasks, func(w *Worker, i int) { done[i].Add(1) }); err != nil {
				t.Fatal(err)
			}
			for i := range done {
				if n := done[i].Load(); n != 1 {
					t.Fatalf("%d threads: task %d of %d ran %d times", threads, i, tasks, n)
				}
			}
		}
		p.Close()
	}
}

func TestAWorkerHasItsMemoryForItself(t *testing.T) {
	p := New(4)
	defer p.Close()
	err := p.Run(500, func(w *Worker, i int) {
		b := (*[64]byte)(w.Scratch(64))
		for k := range b {
			b[k] = byte(i)
		}
		for k := range b {
			if b[k] != byte(i) {
				panic("someone else wrote")
			}
		}
	})
	if err != nil {
		t.Fatal(err)
	}
}

func TestAPanicOfATaskIsAnErrorAndTheNextJobRuns(t *testing.T) {
	for _, threads := range []int{1, 3} {
		p := New(threads)
		err := p.Run(10, func(_ *Worker, i int) {
			if i == 7 {
				var zero int
				_ = 1 / zero
			}
		})
		if err == nil || !strings.Contains(err.Error(), "divide by zero") {
			t.Errorf("%d threads: %v", threads, err)
		}
		if err := p.Run(10, func(*Worker, int) {}); err != nil {
			t.Error(err)
		}
		p.Close()
	}
}

// idle waits until all threads of a pool sleep.
func (p *Pool) idle(t *testing.T) {
	t.Helper()
	for start := time.Now(); p.asleep.Load() < int64(p.Threads()-1); time.Sleep(time.Millisecond) {
		if time.Since(start) > 20*time.Second {
			t.Fatalf("%d of %d threads sleep", p.asleep.Load(), p.Threads()-1)
		}
	}
}

func TestThreadsSleepWhenThereIsNothingToDoAndWakeUp(t *testing.T) {
	for _, threads := range []int{1, 3, 64} {
		p := New(threads)
		for range 3 {
			p.idle(t)
			var n atomic.Int32
			if err := p.Run(100, func(*Worker, int) { n.Add(1) }); err != nil || n.Load() != 100 {
				t.Fatal(n.Load(), err)
			}
		}
		p.idle(t)
		p.Close()
	}
}

func TestAPoolOfOneThreadRunsInItsCaller(t *testing.T) {
	before := runtime.NumGoroutine()
	p := New(1)
	defer p.Close()
	if after := runtime.NumGoroutine(); after > before {
		t.Errorf("%d goroutines more", after-before)
	}
	order := []int{}
	if err := p.Run(10, func(w *Worker, i int) {
		if w != p.First() {
			t.Error("another worker")
		}
		order = append(order, i)
	}); err != nil || !slices.IsSorted(order) || len(order) != 10 {
		t.Error(order, err)
	}
}

func TestPoolsKnowWhetherTheyHaveMoreThreadsAwakeThanCores(t *testing.T) {
	awakened(t, 0) // by other tests
	p, q := New(3), New(2)
	p.idle(t)
	q.idle(t)
	awakened(t, 0) // idle pools have none
	inside, leave, over := make(chan struct{}), make(chan struct{}), make(chan error)
	go func() { // both tasks run at once, so that a worker is awake
		over <- q.Run(2, func(*Worker, int) { inside <- struct{}{}; <-leave })
	}()
	<-inside
	<-inside
	if n := awake.Load(); n != 2 {
		t.Errorf("%d threads are awake while two work", n)
	}
	p.procs, q.procs = 2, 1
	if p.patience() != looks || q.patience() != looksCrowded {
		t.Error("on two cores", p.patience(), "looks, on one", q.patience())
	}
	close(leave)
	if err := <-over; err != nil {
		t.Error(err)
	}
	p.Close()
	q.Close()
	awakened(t, 0)
}

// awakened waits until so many threads are awake.
func awakened(t *testing.T, want int64) {
	t.Helper()
	for start := time.Now(); awake.Load() != want; time.Sleep(time.Millisecond) {
		if time.Since(start) > 20*time.Second {
			t.Fatalf("%d threads are awake, not %d", awake.Load(), want)
		}
	}
}

func TestPoolsRunBesideEachOther(t *testing.T) {
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			p := New(8)
			defer p.Close()
			for range 500 {
				var n atomic.Int32
				if err := p.Run(9, func(*Worker, int) { n.Add(1) }); err != nil || n.Load() != 9 {
					t.Error(n.Load(), err)
				}
			}
		})
	}
	all.Wait()
}

func TestASpanIsTakenFromBothEndsUntilTheyMeet(t *testing.T) {
	var s span
	s.set(3, 7)
	var got []int
	for _, take := range []func() int{s.first, s.last, s.first, s.last, s.first, s.last} {
		got = append(got, take())
	}
	if want := []int{3, 6, 4, 5, -1, -1}; !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

// So that threads find in their caches what they wrote for the job before.
func TestAThreadBeginsWithItsOwnPart(t *testing.T) {
	p := New(4)
	defer p.Close()
	var meet sync.WaitGroup // every thread takes one task, and waits for the others
	meet.Add(4)
	of := make([]int, 8)
	err := p.Run(8, func(w *Worker, task int) {
		of[task] = w.Index
		if task%2 == 0 {
			meet.Done()
			meet.Wait()
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	if want := []int{0, 1, 2, 3}; !slices.Equal([]int{of[0], of[2], of[4], of[6]}, want) {
		t.Errorf("the first tasks of the parts were done by threads %v", of)
	}
}
