// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package cores

import (
	"os"
	"runtime"
	"sync"
)

var beside struct {
	mu     sync.Mutex
	number int // of callers that have not ended
	procs  int // GOMAXPROCS before
}

// Beside lets one more thread of this process run until end is called: for who works beside devices, all of whose threads compute. Else one of those would wait for
// him, and also while he waits for a disk: Go's scheduler sees only after milliseconds that a thread waits, and has no priorities. With a thread more the system's
// scheduler decides, which sees it at once and has.
func Beside() (end func()) {
	beside.mu.Lock()
	defer beside.mu.Unlock()
	if beside.number++; beside.number == 1 {
		beside.procs = runtime.GOMAXPROCS(0)
		runtime.GOMAXPROCS(beside.procs + 1)
	}
	return sync.OnceFunc(func() {
		beside.mu.Lock()
		defer beside.mu.Unlock()
		if beside.number--; beside.number > 0 {
			return
		}
		if _, chosen := os.LookupEnv("GOMAXPROCS"); !chosen {
			runtime.SetDefaultGOMAXPROCS() // follows the limit of a container again, as it did if nobody had set it
		}
		if runtime.GOMAXPROCS(0) != beside.procs {
			runtime.GOMAXPROCS(beside.procs)
		}
	})
}
