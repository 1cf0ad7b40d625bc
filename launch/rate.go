// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package launch

import (
	"math"
	"strconv"
	"time"
)

const (
	// rateOver is how far back a speed looks, and rateSteps how many changes it needs at least for that: steps may take
	// longer than that.
	rateOver  = 20 * time.Second
	rateSteps = 4
	// rateWarm is how long a speed must have been measured to be shown.
	rateWarm = 3 * time.Second
	// rateLate is how late a change may become known: a worker reports every second.
	rateLate = 3 * time.Second
)

// rate finds the speed of a worker: a moving average over its last steps. Steps become known a while after they were taken,
// several at a time or none, so that only the times count at which the number of samples had grown.
type rate struct {
	at     []time.Time // oldest first
	values []int64
}

// add takes the number of samples as it was at a time. What comes before the first step does not count, because there is
// much else to do.
func (r *rate) add(at time.Time, samples int64) {
	last := len(r.at) - 1
	if samples <= 0 || last >= 0 && samples == r.values[last] {
		return
	}
	if last >= 0 && samples < r.values[last] {
		*r = rate{}
	}
	r.at, r.values = append(r.at, at), append(r.values, samples)
	for len(r.at) > rateSteps+1 && at.Sub(r.at[1]) >= rateOver {
		r.at, r.values = r.at[1:], r.values[1:]
	}
}

// perSecond returns the speed; 0 if it is not known yet.
func (r *rate) perSecond(now time.Time) float64 {
	last := len(r.at) - 1
	if last < 1 {
		return 0
	}
	span, wait := r.at[last].Sub(r.at[0]), now.Sub(r.at[last])
	if span < rateWarm {
		return 0
	}
	if usual := span / time.Duration(last); wait > 2*usual+rateLate { // the next step is overdue
		span += wait - usual
	}
	return float64(r.values[last]-r.values[0]) / span.Seconds()
}

// speedText shows a speed with three digits that count: more would only dance.
func speedText(speed float64) string {
	decimals := 2 - int(math.Floor(math.Log10(speed)))
	if decimals > 0 {
		return strconv.FormatFloat(speed, 'f', min(decimals, 6), 64)
	}
	unit := math.Pow10(-decimals)
	return strconv.FormatFloat(math.Round(speed/unit)*unit, 'f', 0, 64)
}
