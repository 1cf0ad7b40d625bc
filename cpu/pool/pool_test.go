package pool

import (
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

func TestEveryTaskRunsOnceOnAnyNumberOfThreads(t *testing.T) {
	for _, threads := range []int{1, 2, 5} {
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

func TestSleepingThreadsWakeUp(t *testing.T) {
	p := New(3)
	defer p.Close()
	for range 3 {
		for start := time.Now(); p.asleep.Load() < 2 && time.Since(start) < 5*time.Second; {
			time.Sleep(time.Millisecond)
		}
		var n atomic.Int32
		if err := p.Run(100, func(*Worker, int) { n.Add(1) }); err != nil || n.Load() != 100 {
			t.Fatal(n.Load(), err)
		}
	}
}
