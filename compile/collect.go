// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package compile

import (
	"os"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"sync"
)

// collectLess lets the garbage collector run less often in a process that only plans, until restore is called: plans are made of many small things. The
// heap grows to five times what lives, or to a GiB if that is less, but to twice of it at least, as usual. It is set anew after each collection.
func collectLess() (restore func()) {
	const usual, most, room = 100, 400, 1 << 30
	if os.Getenv("GOGC") != "" || os.Getenv("GOMEMLIMIT") != "" {
		return func() {}
	}
	type garbage struct{ _ *byte } // what the next collection finds
	var mu sync.Mutex
	over := false
	var tune func(int)
	tune = func(int) {
		mu.Lock()
		defer mu.Unlock()
		if over {
			return
		}
		live := []metrics.Sample{{Name: "/gc/heap/live:bytes"}}
		metrics.Read(live)
		percent := int(room*100/max(live[0].Value.Uint64(), 1)) - 100
		debug.SetGCPercent(min(max(percent, usual), most))
		runtime.AddCleanup(new(garbage), tune, 0)
	}
	before := debug.SetGCPercent(most)
	tune(0)
	return func() {
		mu.Lock()
		defer mu.Unlock()
		over = true
		debug.SetGCPercent(before)
	}
}
