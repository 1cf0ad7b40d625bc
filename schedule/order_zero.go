// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package schedule

import "slices"

// addWeights adds the weight halves of backward to a 1F1B order, as ZB-H1 does in "Zero Bubble Pipeline Parallelism"
// (Qi et al., 2023). Nobody waits for them, so they run where a group would idle, or when the next forward would break
// the promise of [Pipeline.InFlight]; the rest comes last, while the groups before are still at their backwards. To know
// where a group would idle, the order is played with tasks of equal length.
func (p Pipeline) addWeights(order [][]Task) [][]Task {
	out := make([][]Task, p.Groups)
	ran := make([][3]int, p.Groups) // how many tasks of each kind
	done := map[Task]bool{}
	choose := func(g int) (Task, bool) {
		n := ran[g]
		if next := n[ForwardTask] + n[BackwardTask]; next < len(order[g]) {
			t := order[g][next]
			full := t.Kind == ForwardTask && n[ForwardTask]-n[WeightsTask] == p.InFlight(g)
			waits := slices.ContainsFunc(p.needs(t), func(n Task) bool { return !done[n] })
			if !full && !waits {
				return t, true
			}
		}
		return Task{Kind: WeightsTask, Stage: g, Micro: n[WeightsTask]}, n[WeightsTask] < n[BackwardTask]
	}
	for left := 3 * p.Stages * p.Micro; left > 0; {
		var slot []Task // what the groups run at the same time
		for g := range order {
			if t, ok := choose(g); ok {
				slot = append(slot, t)
			}
		}
		for _, t := range slot {
			out[t.Stage] = append(out[t.Stage], t)
			ran[t.Stage][t.Kind]++
			done[t] = true
		}
		left -= len(slot)
	}
	return out
}
