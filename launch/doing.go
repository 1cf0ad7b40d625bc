// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package launch

import (
	"github.com/easyparallel/epl/rendezvous"
)

// doing says what a worker was doing when something killed it, or when it gave no sign of life any more, as far as the rendezvous knows; "" if that knows nothing, or
// the worker ended by itself: then its own words say more. Workers take their steps together, so the one that was heard of last counts.
func doing(e *exit, known []rendezvous.WorkerStatus) string {
	killed := e.Signal != 0
	if !killed && e.Lost != hadToBeEnded || e.Worker >= len(known) {
		return ""
	}
	if !known[e.Worker].Joined {
		if killed {
			return "; it had not joined the job yet"
		}
		return "" // the reason says that it did not come
	}
	var step int64
	for _, w := range known {
		step = max(step, w.Loaded+w.Step)
	}
	ranks := ""
	if known[e.Worker].Ranks != "" {
		ranks = "had " + known[e.Worker].Ranks + ", and "
	}
	return "; it " + ranks + "was " + rendezvous.Doing(known[e.Worker].Busy, step)
}
