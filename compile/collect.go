// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package compile

import (
	"os"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"sync"
)

// collecting is how often the garbage collector runs while programs are compiled.
var collecting struct {
	sync.Mutex
	programs int // that are being compiled
	before   int // GOGC, when none is
}

// collectLess lets the garbage collector run less often while a program is compiled, until restore is called: programs and plans are made of many small things. The
// heap grows to five times what lives, or to a GiB if that is less, but to twice of it at least, as usual. It is set anew after each collection.
func collectLess() (restore func()) {
	c := &collecting
	if os.Getenv("GOGC") != "" || os.Getenv("GOMEMLIMIT") != "" {
		return func() {}
	}
	c.Lock()
	defer c.Unlock()
	if c.programs++; c.programs == 1 {
		c.before = debug.SetGCPercent(percent())
		onCollection()
	}
	return func() {
		c.Lock()
		defer c.Unlock()
		if c.programs--; c.programs == 0 {
			debug.SetGCPercent(c.before)
		}
	}
}

// percent is GOGC for what lives.
func percent() int {
	const usual, most, room = 100, 400, 1 << 30
	live := []metrics.Sample{{Name: "/gc/heap/live:bytes"}}
	metrics.Read(live)
	return min(max(int(room*100/max(live[0].Value.Uint64(), 1))-100, usual), most)
}

// onCollection sets GOGC after the next collection, and after those that follow, while programs are compiled.
func onCollection() {
	type garbage struct{ _ *byte } // what the next collection finds
	runtime.AddCleanup(new(garbage), func(int) {
		collecting.Lock()
		defer collecting.Unlock()
		if collecting.programs > 0 {
			debug.SetGCPercent(percent())
			onCollection()
		}
	}, 0)
}
