// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"math"
	"runtime"
	"slices"
	"sync"
	"time"

	"github.com/easyparallel/epl/internal/cores"
)

// A core of a virtual machine is often a thread of a physical one, whose other thread is somebody else's. While that works, all that fills the core takes up to half as
// long again, and no counter of the system tells so. It comes and goes within a second, on one core and not on the other, which makes equal stages unequal. So the
// benchmark looks for it, by code that has nothing to do with what the benchmark is about: sums that keep all ports of the core busy get slower, a chain of products that wait for each
// other does not. The clock of the core changes both.

// shared is how much longer sums take, compared with a chain, on the slowest core. It has no unit; 0: that is not known here.
func shared() float64 {
	mine := cores.Mine()
	of := make([]float64, len(mine))
	var wg sync.WaitGroup
	for i, c := range mine {
		wg.Go(func() {
			runtime.LockOSThread() // and never unlocked: the thread ends with the goroutine
			if cores.Bind([]int{c}) != nil {
				return
			}
			sums, chain := math.Inf(1), math.Inf(1)
			for range 20 { // the least: others of this machine may interrupt it
				sums, chain = min(sums, timed(fill)), min(chain, timed(wait))
			}
			of[i] = sums / chain
		})
	}
	wg.Wait()
	worst := 0.
	for _, x := range of {
		worst = max(worst, x)
	}
	return worst
}

func timed(f func() uint64) float64 {
	start := time.Now()
	runtime.KeepAlive(f())
	return float64(time.Since(start))
}

// fill adds to sums that do not wait for each other.
//
//go:noinline
func fill() uint64 {
	var a, b, c, d, e, f uint64
	for i := uint64(0); i < 20000; i++ {
		a, b, c = a+i, b^i, c-i
		d, e, f = d+i, e^i, f-i
		a, b, c = a+7, b^9, c-5
		d, e, f = d+3, e^6, f-8
	}
	return a ^ b ^ c ^ d ^ e ^ f
}

// wait multiplies what it has just multiplied.
//
//go:noinline
func wait() uint64 {
	x := uint64(3)
	for range 20000 {
		x *= x
	}
	return x
}

// watch is what shared said between steps.
type watch []float64

func (w *watch) look() { *w = append(*w, shared()) }

// String tells how often somebody else was on a core: when sums took clearly longer than the least of all.
func (w *watch) String() string {
	if len(*w) == 0 || (*w)[0] == 0 {
		return "who else is on the cores is not known"
	}
	often := 0
	for i := range *w {
		if w.seen(i) {
			often++
		}
	}
	return fmt.Sprintf("somebody else was seen on a core %d of %d times", often, len(*w))
}

// seen tells whether somebody else was on a core when it looked for the i-th time.
func (w *watch) seen(i int) bool {
	const clearly = 1.15
	return (*w)[i] > clearly*slices.Min(*w)
}

// quiet tells whether nobody else was seen before nor after a step. The looks are those of several processes, each of so many steps, that looked before every step and after the last.
func (w *watch) quiet(process, steps, step int) bool {
	i := process*(steps+1) + step
	return (*w)[0] != 0 && !w.seen(i) && !w.seen(i+1)
}
