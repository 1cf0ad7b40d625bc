// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package compile

import (
	"os"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"sync"

	"github.com/gomlx/compute"
)

// collecting is how often the garbage collector runs while a process starts and while programs are compiled.
var collecting struct {
	sync.Mutex
	programs int   // that are being compiled
	started  bool  // collectLate was called
	late     bool  // no collection was since then
	tensors  int64 // that live soon, as is known of the training programs so far
	before   int   // GOGC, when none of that is
}

// Heaps grow to so much before the first collection of a process, while it starts, and the tensors of its training programs.
const firstHeap = 256 << 20

// usual is GOGC if nobody chooses.
const usual = 100

// collectLate lets the next collection wait for a heap of some size, once in a process. What is allocated until the first step lives: the model's graph, its program
// and plan, and tensors. Collecting it again whenever it has doubled costs as much as a pass over the program, and frees next to nothing.
func collectLate() {
	c := &collecting
	c.Lock()
	defer c.Unlock()
	if c.started || chosen() {
		return
	}
	c.started = true
	if c.programs == 0 {
		if c.before = debug.SetGCPercent(usual); c.before != usual {
			debug.SetGCPercent(c.before) // the program chose it
			return
		}
		onCollection()
	}
	c.late = true
	debug.SetGCPercent(percent())
}

// collectLater lets the first collection of a process wait for so many bytes more, which tensors take: that they are there is no reason to collect.
func collectLater(bytes int64) {
	c := &collecting
	c.Lock()
	defer c.Unlock()
	if c.late {
		c.tensors += bytes
		debug.SetGCPercent(percent())
	}
}

// collectLess lets the garbage collector run less often while a program is compiled, until restore is called: programs and plans are made of many small things. For a
// training program it is called after the first step, for which variables and activations are allocated. The heap grows to five times what lives, or to a GiB if that is less, but to twice of it at least, as usual. It is set anew after each collection.
func collectLess() (restore func()) {
	c := &collecting
	if chosen() {
		return func() {}
	}
	c.Lock()
	defer c.Unlock()
	if c.programs++; c.programs == 1 && !c.late {
		c.before = debug.SetGCPercent(percent())
		onCollection()
	}
	return sync.OnceFunc(func() {
		c.Lock()
		defer c.Unlock()
		if c.programs--; c.programs == 0 && !c.late {
			debug.SetGCPercent(c.before)
		}
	})
}

// chosen tells whether the user says how often garbage is collected.
func chosen() bool { return os.Getenv("GOGC") != "" || os.Getenv("GOMEMLIMIT") != "" }

// percent is GOGC for what lives.
func percent() int {
	const most, room, least = 400, 1 << 30, 4 << 20 // Go counts no less than 4 MiB
	sample := []metrics.Sample{{Name: "/gc/heap/live:bytes"}}
	metrics.Read(sample)
	live := max(sample[0].Value.Uint64(), least)
	to := func(heap uint64) int { return max(int(heap*100/live)-100, usual) }
	if collecting.late {
		return max(to(firstHeap+uint64(collecting.tensors)), min(to(room), most))
	}
	return min(to(room), most)
}

// onCollection sets GOGC after the next collection, and after those that follow, while programs are compiled.
func onCollection() {
	type garbage struct{ _ *byte } // what the next collection finds
	runtime.AddCleanup(new(garbage), func(int) {
		c := &collecting
		c.Lock()
		defer c.Unlock()
		wasLate := c.late
		c.late = false
		switch {
		case c.programs > 0:
			debug.SetGCPercent(percent())
			onCollection()
		case wasLate:
			debug.SetGCPercent(c.before)
		}
	}, 0)
}

// starting is a training program whose first step is still part of the start.
type starting struct {
	compute.Executable
	restore func() // is called after the first step, or if there is none; later calls do nothing
}

// start lets the collector be as before after the first step of a program, or when nobody can run it any more.
func start(x compute.Executable, restore func()) *starting {
	s := &starting{x, restore}
	runtime.AddCleanup(s, func(restore func()) { restore() }, restore)
	return s
}

// Execute implements compute.Executable.
func (x *starting) Execute(inputs []compute.Buffer, donate []bool, device compute.DeviceNum) ([]compute.Buffer, error) {
	defer x.restore()
	return x.Executable.Execute(inputs, donate, device)
}

// Finalize implements compute.Executable.
func (x *starting) Finalize() {
	x.restore()
	x.Executable.Finalize()
}
