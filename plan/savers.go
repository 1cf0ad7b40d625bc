// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package plan

import (
	"container/heap"
	"slices"
	"strings"

	"github.com/easyparallel/epl/schedule"
)

const (
	offload     = "offload.level=v0"
	wholeShards = "zero.level=v2"
)

// ladder are the settings that save memory, in the order of what they cost. A way that needs too much memory is tried with each.
var ladder = [][]string{
	nil,
	{"zero.level=v0"},
	{"zero.level=v1"},
	{"gradient_checkpoint.type=auto"},
	{"zero.level=v1", "gradient_checkpoint.type=auto"},
	{wholeShards},
	{wholeShards, "gradient_checkpoint.type=auto"},
	{"gradient_checkpoint.type=auto", offload},
}

// saved is what is left of memory, at least, by settings that save some.
func saved(b schedule.Bytes, settings []string, replicas int) int64 {
	shared := func(uses ...schedule.Use) {
		for _, u := range uses {
			b[u] /= int64(replicas)
		}
	}
	for _, x := range settings {
		switch x {
		case "zero.level=v0":
			shared(schedule.ForOptimizer, schedule.ForState)
		case "zero.level=v1":
			shared(schedule.ForOptimizer, schedule.ForState, schedule.ForGradients)
		case wholeShards:
			shared(schedule.ForOptimizer, schedule.ForState, schedule.ForGradients, schedule.ForWeights)
			b[schedule.ForTemporaries] = 0 // it runs in more segments
		case "gradient_checkpoint.type=auto":
			b[schedule.ForActivations], b[schedule.ForTemporaries] = 0, 0
		case offload:
			b = schedule.Bytes{}
		}
	}
	return b.Total()
}

// save tries a way with what saves memory, if it was not. That makes no step faster.
func (s *searcher) save(way *candidate) {
	if way.saver != 0 || way.reorder != nil {
		return
	}
	for i := range ladder[1:] {
		w := *way
		w.saver, w.Why, w.Unfit, w.Peak, w.Looked = i+1, "", false, 0, false
		if w.Replicas == 1 && slices.ContainsFunc(ladder[w.saver], func(x string) bool { return strings.HasPrefix(x, "zero.") }) {
			continue
		}
		w.least = s.least(&w)
		for _, b := range way.uses {
			w.least = max(w.least, saved(b, ladder[w.saver], w.Replicas))
		}
		heap.Push(s, &w)
	}
}
