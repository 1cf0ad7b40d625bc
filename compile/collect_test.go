// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package compile

import (
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"sync"
	"testing"
	"time"

	"github.com/gomlx/compute"
)

func gogc() int {
	x := []metrics.Sample{{Name: "/gc/gogc:percent"}}
	metrics.Read(x)
	return int(x[0].Value.Uint64())
}

func TestTheCollectorRunsLessOftenWhileLittleLives(t *testing.T) {
	t.Setenv("GOGC", "") // as if nobody had set it
	defer debug.SetGCPercent(debug.SetGCPercent(77))
	other := collectLess()
	restore := collectLess()
	other()
	if got := gogc(); got != 400 {
		t.Errorf("%d%% at first", got)
	}
	large := make([]byte, 400<<20) // 1 GiB is 2.5 times as much
	for range 100 {
		runtime.GC()
		if gogc() < 200 {
			break
		}
		time.Sleep(10 * time.Millisecond) // cleanups run beside
	}
	if got := gogc(); got < 100 || got > 160 {
		t.Errorf("%d%% with 400 MiB", got)
	}
	runtime.KeepAlive(large)
	restore()
	runtime.GC()
	if got := gogc(); got != 77 {
		t.Errorf("%d%% after that", got)
	}
}

// heapGoal is how large the heap is when it is collected next.
func heapGoal() uint64 {
	x := []metrics.Sample{{Name: "/gc/heap/goal:bytes"}}
	metrics.Read(x)
	return x[0].Value.Uint64()
}

func TestTheFirstCollectionComesLate(t *testing.T) {
	t.Setenv("GOGC", "")
	defer debug.SetGCPercent(debug.SetGCPercent(usual))
	begin := func() { // as a process does
		collecting.Lock()
		defer collecting.Unlock()
		collecting.started, collecting.late = false, false
	}
	begin()
	runtime.GC() // what lives is little

	debug.SetGCPercent(77)
	collectLate()
	if got := gogc(); got != 77 {
		t.Errorf("a program chose 77%%, and it became %d%%", got)
	}

	debug.SetGCPercent(usual)
	begin()
	collectLate()
	if got := heapGoal(); got < firstHeap*3/4 {
		t.Errorf("the first collection comes at %d MiB", got>>20)
	}
	const tensors = 64 << 20
	collectLater(tensors)
	if got := heapGoal(); got < (firstHeap+tensors)*3/4 {
		t.Errorf("with tensors it comes at %d MiB", got>>20)
	}
	collectLess()()
	if got := heapGoal(); got < firstHeap*3/4 {
		t.Errorf("after a program was compiled, it comes at %d MiB", got>>20)
	}
	for range 100 {
		if runtime.GC(); gogc() == usual {
			break
		}
		time.Sleep(10 * time.Millisecond) // cleanups run beside
	}
	if got := gogc(); got != usual {
		t.Errorf("%d%% after it", got)
	}
	collectLate()
	collectLater(tensors)
	if got := gogc(); got != usual {
		t.Errorf("%d%%, when another engine begins", got)
	}
}

// ran is an executable that does nothing.
type ran struct{ compute.Executable }

func (ran) Execute([]compute.Buffer, []bool, compute.DeviceNum) ([]compute.Buffer, error) {
	return nil, nil
}
func (ran) Finalize() {}

func TestTheCollectorIsAsUsualAfterTheFirstStep(t *testing.T) {
	for name, run := range map[string]func(*starting){
		"a step":  func(x *starting) { _, _ = x.Execute(nil, nil, 0) },
		"no step": (*starting).Finalize,
	} {
		started := 0
		x := start(ran{}, sync.OnceFunc(func() { started++ }))
		run(x)
		if started != 1 {
			t.Errorf("%s: said %d times that the first step has run", name, started)
		}
	}
}

func TestTheCollectorIsAsUsualAfterAProgramThatNobodyRuns(t *testing.T) {
	dropped := make(chan struct{})
	start(ran{}, func() { close(dropped) })
	for range 100 {
		runtime.GC()
		select {
		case <-dropped:
			return
		case <-time.After(10 * time.Millisecond): // cleanups run beside
		}
	}
	t.Error("nobody has the program any more, and it is still said to start")
}
