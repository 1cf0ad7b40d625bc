// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package plan

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/easyparallel/epl/ir"
)

// Weights are how much the devices of TaskGraphs get of what they divide, if they are unequal: rows of micro-batches by Replicate, and of variables by Split.
type Weights struct {
	// Of are in proportion to what a device gets, by TaskGraph and device of a model replica; nil: all get as much.
	Of  [][]int `json:"of"`
	Why string  `json:"why"`
}

// fine is the weight of the device of a TaskGraph that has most: a number that many others divide.
const fine = 60

// weigh lets devices of TaskGraphs that have several get parts in proportion to their speed. All model replicas are divided in the same way: if their devices differ, a
// device has the least of the parts that it would have in each of them.
func (pl *Plan) weigh(r *Result, t Target) {
	if pl.Weights = t.weights; pl.Weights != nil {
		return
	}
	if !t.described() || !t.Hardware.Unequal() {
		return
	}
	speed, a := t.deviceSpeeds(r.Recorded), assignmentOf(pl.placement(t.Cluster))
	w := &Weights{Of: make([][]int, len(a.places))}
	var texts []string
	for i, places := range a.places {
		parts := partsBySpeed(speed, a, places)
		gain := 1 - slowest(parts, speed, a, places)/slowest(slices.Repeat([]float64{1 / float64(len(places))}, len(places)), speed, a, places)
		if len(places) < 2 || gain < enough/100. {
			continue
		}
		most := slices.Max(parts)
		w.Of[i] = reduced(each(parts, func(x float64) int { return max(1, int(math.Round(fine*x/most))) }))
		texts = append(texts, fmt.Sprintf("devices of TaskGraph %q get parts in proportion to %s, because they are unequal; with equal parts computing would take %.0f %% longer",
			r.Recorded.TaskGraphs[i].Title(), listOf(w.Of[i], "%d"), 100*(1/(1-gain)-1)))
	}
	if texts != nil {
		w.Why = strings.Join(texts, "; ")
		pl.Weights = w
	}
}

// partsBySpeed are the parts of the devices of a TaskGraph; they add up to 1.
func partsBySpeed(speed []float64, a assignment, places []int) []float64 {
	parts := slices.Repeat([]float64{math.Inf(1)}, len(places))
	for _, ranks := range a.ranks {
		sum := 0.0
		for _, place := range places {
			sum += speed[ranks[place]]
		}
		for j, place := range places {
			parts[j] = min(parts[j], speed[ranks[place]]/sum)
		}
	}
	sum := 0.0
	for _, x := range parts {
		sum += x
	}
	return each(parts, func(x float64) float64 { return x / sum })
}

// slowest is how long the device of a TaskGraph takes that needs longest, if each has a part.
func slowest(parts, speed []float64, a assignment, places []int) (longest float64) {
	for _, ranks := range a.ranks {
		for j, place := range places {
			longest = max(longest, parts[j]/speed[ranks[place]])
		}
	}
	return longest
}

// reduced are weights without what they have in common.
func reduced(list []int) []int {
	common := 0
	for _, x := range list {
		for x != 0 {
			common, x = x, common%x
		}
	}
	return each(list, func(x int) int { return x / common })
}

// divisions are how TaskGraphs divide what they have among their devices.
func (pl *Plan) divisions(s assignment) []ir.Division {
	all := each(s.places, func(places []int) ir.Division { return ir.Even(len(places)) })
	if pl.Weights != nil {
		for i := range all {
			all[i].Weights = pl.Weights.Of[i]
		}
	}
	return all
}

// of are the weights of TaskGraphs; nil: there are none.
func (w *Weights) of() [][]int {
	if w == nil {
		return nil
	}
	return w.Of
}
