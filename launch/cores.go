// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package launch

import (
	"runtime"

	"github.com/easyparallel/epl/internal/cores"
)

// share is what one worker has of the machine's cores.
type share struct {
	pin   []int // the cores that it runs on; nil: as this process
	procs int   // its GOMAXPROCS; 0: Go finds it by itself, or the user said
}

// shares are those of the workers that share the cores of this process. It must be called on a thread that nobody has
// bound to fewer.
func (l *local) shares() []share {
	if _, chosen := lookup(l.environ, "GOMAXPROCS"); chosen {
		return make([]share, max(1, l.spec.ShareCores)) // the user shares the cores out
	}
	mine := cores.Mine()
	if l.spec.NoPin || cores.Bind(mine) != nil { // a sandbox may forbid it
		mine = nil
	}
	return shareCores(mine, runtime.GOMAXPROCS(0), max(1, l.spec.ShareCores), cores.PlaceOf)
}

// shareCores deals cores to workers; nil: they are not to be bound. limit is how many threads all may run at once: it is less
// than the cores in a container that limits CPU time.
func shareCores(all []int, limit, workers int, place func(core int) cores.Place) []share {
	dealt := make([]share, workers)
	if workers == 1 {
		return dealt
	}
	if len(all) > 0 {
		for i, pin := range cores.Deal(all, workers, place) {
			dealt[i].pin = pin
		}
	}
	if len(all) == 0 || limit < len(all) {
		for i := range dealt {
			dealt[i].procs = max(1, limit/workers)
		}
	}
	return dealt
}
