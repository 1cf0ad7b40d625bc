// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package plan

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/easyparallel/epl/config"
)

// shifts are how often parts are moved and the program is planned again, before EPL gives up.
const shifts = 6

// point is what a device with a part needs of memory.
type point struct{ part, needs float64 }

// shift moves parts of TaskGraphs from devices that have too little memory to others that have room, as far as there is any. Parts go by speed where memory allows it.
// It returns the plan for these parts, or what it was given, if that fits or no parts would.
//
// What a device needs is about a line over its part: what it has whatever its part is, and what grows with it. The line goes through what was found in all plans so far,
// so that it becomes right where it matters.
func shift(pl *Plan, r *Result, cfg *config.Config, t Target, plan func(Target) (*Plan, *Result, error)) (*Plan, *Result, error) {
	if !r.Recorded.IsTraining() || r.Schedule == nil || pl.shared() == nil || !t.described() {
		return pl, r, nil
	}
	memory := func(rank int) int64 { return t.Memory(cfg, rank) }
	seen := map[string][]point{} // by the devices of a TaskGraph
	first, firstResult := pl, r
	for range shifts {
		if !r.Fullest(r.Account, memory).Over() {
			return pl, r, nil
		}
		w := pl.moved(r, t, memory, seen)
		if w == nil {
			break
		}
		t.weights = w
		var err error
		if pl, r, err = plan(t); err != nil {
			return pl, r, err
		}
	}
	return first, firstResult, nil
}

// shared are the TaskGraphs that have several devices.
func (pl *Plan) shared() (all []int) {
	for i, ranks := range pl.Placement {
		if len(ranks) > 0 && len(ranks[0]) > 1 {
			all = append(all, i)
		}
	}
	return all
}

// moved are weights by which all devices should have room; nil: there are none.
func (pl *Plan) moved(r *Result, t Target, memory func(rank int) int64, seen map[string][]point) *Weights {
	a, speed := assignmentOf(pl.placement(t.Cluster)), t.deviceSpeeds(r.Recorded)
	divisions := pl.divisions(a)
	w := &Weights{Of: slices.Clone(pl.Weights.of())}
	if w.Of == nil {
		w.Of = make([][]int, len(a.places))
	}
	var texts []string
	for _, i := range pl.shared() {
		places := a.places[i]
		needs, has := make([]float64, len(places)), slices.Repeat([]float64{math.Inf(1)}, len(places))
		over := false
		for j, device := range places {
			place := r.Schedule.PlaceOf(device)
			needs[j] = float64(r.Account.Places[place].On(slices.Index(r.Schedule.Groups[place], device)).Total())
			for _, ranks := range a.ranks {
				if n := memory(ranks[device]); n > 0 {
					has[j] = min(has[j], float64(n))
				}
			}
			over = over || needs[j] > has[j]
		}
		key := fmt.Sprint(places)
		for j := range places {
			seen[key] = append(seen[key], point{divisions[i].Part(j), needs[j]})
		}
		if !over {
			continue
		}
		const margin, more = 0.99, 0.01 // parts are whole rows, and a line is not all there is: with every try a little more is left
		use := margin - more*float64(len(seen[key])/len(places))
		parts := fill(partsBySpeed(speed, a, places), room(seen[key], each(has, func(n float64) float64 { return n * use })))
		if parts == nil {
			return nil
		}
		w.Of[i] = weightsOf(parts, coarse)
		texts = append(texts, fmt.Sprintf("devices of TaskGraph %q get parts in proportion to %s: by speed, as far as their memory allows it",
			r.Recorded.TaskGraphs[i].Title(), listOf(w.Of[i], "%d")))
	}
	if texts == nil || pl.Weights != nil && slices.EqualFunc(w.Of, pl.Weights.Of, slices.Equal) {
		return nil
	}
	w.Why = strings.Join(texts, "; ")
	return w
}

// coarse is the sum of the weights of devices whose memory bounds their parts.
const coarse = 1 << 12

// weightsOf are weights in proportion to parts, rounded down.
func weightsOf(parts []float64, sum int) []int {
	return reduced(each(parts, func(x float64) int { return max(1, int(float64(sum)*x)) }))
}

// room is the largest part of each device that its memory has room for.
func room(seen []point, has []float64) []float64 {
	low, high := seen[0], seen[0]
	for _, x := range seen {
		if x.part < low.part {
			low = x
		}
		if x.part > high.part {
			high = x
		}
	}
	base, slope := 0.0, high.needs/high.part // all of it grows, unless it is known better
	if high.part > low.part && high.needs > low.needs {
		slope = (high.needs - low.needs) / (high.part - low.part)
		base = max(0, high.needs-slope*high.part)
	}
	return each(has, func(n float64) float64 { return min(1, (n-base)/slope) })
}

// fill gives devices parts in proportion to those that they should have, but to none more than it has room for; nil: there is too little room.
func fill(want, room []float64) []float64 {
	parts, full := make([]float64, len(want)), make([]bool, len(want))
	for {
		left, sum := 1.0, 0.0
		for j := range parts {
			if full[j] {
				left -= parts[j]
			} else {
				sum += want[j]
			}
		}
		if left > 1e-9 && sum == 0 || slices.Min(room) <= 0 {
			return nil
		}
		again := false
		for j := range parts {
			if full[j] {
				continue
			}
			if parts[j] = left * want[j] / sum; parts[j] > room[j] {
				parts[j], full[j], again = room[j], true, true
			}
		}
		if !again {
			return parts
		}
	}
}
