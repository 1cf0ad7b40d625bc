// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package launch

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/easyparallel/epl/rendezvous"
)

func itoa(n int) string { return strconv.Itoa(n) }

// line is the live row about the job: workers up, step, samples per second, and who is busy or silent.
func (d *director) line() string {
	known := d.status()
	if !slices.ContainsFunc(known, func(w rendezvous.WorkerStatus) bool { return w.Joined }) {
		// They are on their way, or do not use EPL.
		return fmt.Sprintf("%d of %d workers running", d.running, len(d.hosts))
	}
	now := time.Now()
	joined, step := 0, int64(-1)
	var remarks []string
	for _, w := range known {
		switch {
		case w.Failed != "":
			remarks = append(remarks, fmt.Sprintf("[%d] failed", w.Index))
			continue
		case w.Left:
			remarks = append(remarks, fmt.Sprintf("[%d] finished", w.Index))
			continue
		case !w.Joined:
			continue
		case w.Silent:
			remarks = append(remarks, fmt.Sprintf("[%d] silent for %v", w.Index, now.Sub(w.Seen).Round(time.Second)))
		case w.Busy != "":
			remarks = append(remarks, fmt.Sprintf("[%d] %s for %v", w.Index, w.Busy, now.Sub(w.Since).Round(time.Second)))
		}
		joined++
		if step < 0 || w.Step < step {
			step = w.Step
		}
	}
	parts := []string{fmt.Sprintf("%d of %d workers up", joined, len(known))}
	if step > 0 {
		parts = append(parts, fmt.Sprintf("step %d", step))
	}
	if speed := d.speed(now, known); speed > 0 {
		parts = append(parts, speedText(speed)+" samples/s")
	}
	return strings.Join(append(parts, remarks...), " · ")
}

// speed is that of the job, in samples per second: 0 if it is not known for all workers that take samples, or if one of them
// does something else. Such a pause is not part of the average either.
func (d *director) speed(now time.Time, known []rendezvous.WorkerStatus) (sum float64) {
	complete := true
	for _, w := range known {
		if w.Failed != "" || w.Left || !w.Joined || w.Busy != "" {
			delete(d.rates, w.Index)
			complete = complete && w.Busy == ""
			continue
		}
		r := d.rates[w.Index]
		if r == nil {
			r = &rate{}
			d.rates[w.Index] = r
		}
		r.add(w.Seen, w.Samples)
		speed := r.perSecond(now)
		sum += speed
		complete = complete && (speed > 0 || w.Samples == 0)
	}
	if !complete {
		return 0
	}
	return sum
}
