// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package trace

import (
	"math"
	"slices"
	"time"
)

// ideal returns the bubble that is left when stages take equally long and values travel at once. With S stages, M
// micro-batches, and f, b and w for how long a forward, the input half and the weight half of a backward take:
//
//   - The schedules of the original fill the pipeline while a forward passes S-1 stages, and drain it while a backward
//     does. A device idles (S-1)(f+b+w) and works M(f+b+w): (S-1)/(M+S-1).
//   - Interleaved has G groups of devices with v stages each. Filling and draining passes G-1 stages that are a v-th as
//     long, against v·M pieces of work: (G-1)/(v·M+G-1). That needs an M that G divides; other M leave a little more.
//   - ZeroBubble passes gradients on after the input half, so that draining takes (S-1)·b only, and a device fills
//     (S-1)·w of its idle time with weight halves that it kept back: (S-1)(f+b-w), against M(f+b+w) of work. The
//     durations are the means of those measured; the first stage has nothing to pass on, so that its whole backward is a
//     weight half, which does not count.
//
// A program of one stage has no bubble.
func (p Pipeline) ideal(events []Event) float64 {
	s, m := float64(p.Stages), float64(p.MicroBatches)
	switch {
	case p.Stages == 1:
		return 0
	case p.Stages < 1 || p.MicroBatches < 1:
		return math.NaN()
	}
	switch p.Strategy {
	case "PreferForward", "PreferBackward", "PreferBackwardOptimizer":
		return (s - 1) / (m + s - 1)
	case "Interleaved":
		if p.Groups < 1 {
			return math.NaN()
		}
		g := float64(p.Groups)
		return (g - 1) / (s/g*m + g - 1)
	case "ZeroBubble":
		f, b, w := mean(events, Forward), mean(events, Backward), mean(withBackward(events), Weights)
		if f+b+w == 0 {
			return math.NaN()
		}
		idle := (s - 1) * max(f+b-w, 0)
		return idle / (m*(f+b+w) + idle)
	}
	return math.NaN()
}

// withBackward leaves out the stages whose backward is a weight half as a whole.
func withBackward(events []Event) []Event {
	has := map[int]bool{}
	for _, e := range events {
		if e.Task.Kind == Backward {
			has[e.Task.Stage] = true
		}
	}
	return slices.DeleteFunc(slices.Clone(events), func(e Event) bool { return !has[e.Task.Stage] })
}

// mean returns how long a task of a kind takes. A task may have several events.
func mean(events []Event, kind string) float64 {
	type key struct {
		device int
		task   Task
	}
	tasks := map[key]bool{}
	var sum time.Duration
	for _, e := range events {
		if e.Task.Kind == kind {
			tasks[key{e.Device, e.Task}] = true
			sum += e.End.Sub(e.Start)
		}
	}
	return float64(sum) / float64(max(len(tasks), 1))
}
