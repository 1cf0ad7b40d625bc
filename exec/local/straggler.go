// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package local

import (
	"cmp"
	"fmt"
	"slices"
	"time"
)

// pace is how long a worker was busy by itself for a step: between its steps, with data and hooks, and as long as the device computed that took longest. What it waits for
// others is no part of it.
type pace struct {
	between, computed time.Duration
	rank              int // of that device
}

func (p pace) own() time.Duration { return p.between + p.computed }

// When a worker is slow: it takes so many times as long as others, and so much longer, in the medians of so many steps, so often in a row. It is well again below another
// factor: what is near the limit is not said again and again.
const (
	slowSteps   = 16
	slowTimes   = 2
	slowFactor  = 1.5
	slowLeast   = 2 * time.Millisecond
	curedFactor = 1.2
)

// stragglers finds the workers that hold up others in training steps. It has no clock: paces go in, sentences come out.
type stragglers struct {
	name  func(worker int) string
	work  []string // of each worker: it is compared with those that have the same
	paces [][]pace // of the steps since it looked last, by worker
	first uint64   // of these steps
	of    []straggler
}

// straggler is what is known of a worker.
type straggler struct {
	slow, well int           // how often in a row
	since      uint64        // the step that began the row in which it is slow
	said       float64       // that it is so many times as slow; 0: it is not said to be slow
	times      int           // that it was said to be slow, and well again
	first      time.Duration // it was busy for, when it was first looked at
}

// newStragglers is for workers with so much work each, in words.
func newStragglers(work []string, name func(worker int) string) *stragglers {
	return &stragglers{name: name, work: work, paces: make([][]pace, len(work)), of: make([]straggler, len(work))}
}

// step takes the paces of all workers in a step, and returns what is to be said.
func (s *stragglers) step(number uint64, paces []pace) (lines []string) {
	if len(s.paces[0]) == 0 {
		s.first = number
	}
	for w, p := range paces {
		s.paces[w] = append(s.paces[w], p)
	}
	if len(s.paces[0]) < slowSteps {
		return nil
	}
	all := make([]pace, len(paces))
	for w := range all {
		slices.SortFunc(s.paces[w], func(a, b pace) int { return int(a.own() - b.own()) })
		all[w] = s.paces[w][slowSteps/2]
		s.paces[w] = s.paces[w][:0]
	}
	for w := range all {
		if s.of[w].first == 0 {
			s.of[w].first = max(all[w].own(), 1)
		}
	}
	for w := range all {
		if line := s.look(w, all, number); line != "" {
			lines = append(lines, line)
		}
	}
	return lines
}

// look says what has become of a worker.
func (s *stragglers) look(w int, all []pace, last uint64) string {
	x, p := &s.of[w], all[w]
	usual, whose := s.usual(w, all)
	factor := float64(p.own()) / float64(max(usual, 1))
	if factor >= slowFactor && p.own()-usual >= slowLeast {
		if x.slow == 0 {
			x.since = s.first
		}
		x.slow, x.well = x.slow+1, 0
		need := slowTimes << x.times // one that comes and goes is said less and less
		if x.slow < need || factor < 2*x.said {
			return ""
		}
		x.said = factor
		return fmt.Sprintf("epl: %s is slow, and the others wait for it: since step %d it is busy for %.1f ms of a step, %.1f times as long as %s (%.1f ms); "+
			"rank %d computes for %.1f ms, and %.1f ms pass between steps, with data and hooks",
			s.name(w), x.since, ms(p.own()), factor, whose, ms(usual), p.rank, ms(p.computed), ms(p.between))
	}
	x.slow = 0
	if factor >= curedFactor || x.said == 0 {
		return ""
	}
	if x.well++; x.well < slowTimes {
		return ""
	}
	x.said, x.well = 0, 0
	x.times++
	return fmt.Sprintf("epl: %s is not slow any more: up to step %d it is busy for %.1f ms of a step, %s for %.1f ms", s.name(w), last, ms(p.own()), whose, ms(usual))
}

// usual is how long a worker should be busy, and who says so: others with the same work; or, if it is alone with that, itself at first, times as much as all take longer
// since then.
func (s *stragglers) usual(w int, all []pace) (time.Duration, string) {
	var same []time.Duration
	var longer []float64
	for o, p := range all {
		longer = append(longer, float64(p.own())/float64(s.of[o].first))
		if s.work[o] == s.work[w] {
			same = append(same, p.own())
		}
	}
	if len(same) > 1 {
		whose := fmt.Sprintf("the median of the %d workers with the same work", len(same))
		if len(same) == 2 {
			whose = "the other one with the same work"
		}
		return lowMedian(same), whose
	}
	return time.Duration(float64(s.of[w].first) * lowMedian(longer)), "at first, compared with the others"
}

// lowMedian is the median, or the lower one of two: of two workers, the other is slow.
func lowMedian[T cmp.Ordered](all []T) T {
	all = slices.Sorted(slices.Values(all))
	return all[(len(all)-1)/2]
}

func ms(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

// pacing is what a stepper knows of its own pace.
type pacing struct {
	stragglers *stragglers   // on the first worker
	last       pace          // of the last step, between excepted
	ended      time.Time     // when that was; zero: there was none, or devices do not tell when they compute
	waited     time.Duration // what the job had waited for data by then
}

// unpaced is the pace of a step that is not known.
const unpaced = -1

// own is this worker's pace: of what is between the last step and now, and of what was computed in the last step.
func (x *stepper) own() (between, computed, rank int64) {
	if x.pacing.ended.IsZero() || !trains(x.program) {
		return unpaced, 0, 0
	}
	waited := x.job.WaitedForData() - x.pacing.waited
	return int64(max(time.Since(x.pacing.ended)-waited, 0)), int64(x.pacing.last.computed), int64(x.pacing.last.rank)
}

// compare looks who is slow, on the first worker.
func (x *stepper) compare(paces []pace) {
	if x.job.Worker > 0 || slices.ContainsFunc(paces, func(p pace) bool { return p.between == unpaced }) {
		return
	}
	if x.pacing.stragglers == nil {
		x.pacing.stragglers = newStragglers(x.work(), x.job.Name)
	}
	for _, line := range x.pacing.stragglers.step(x.count-1, paces) {
		x.runner.Notice(line, line, true)
	}
}

// work says of each worker what it has to do in a step.
func (x *stepper) work() (all []string) {
	for w, first := range x.job.Firsts() {
		var parts []string
		for d := range x.job.Devices[w] {
			s := x.seat(first + d)
			share := 0
			if s.replica >= 0 {
				share = x.schedule.Local.Share(s.replica)
			}
			parts = append(parts, fmt.Sprint(s.place, " ", share))
		}
		slices.Sort(parts)
		all = append(all, fmt.Sprint(parts))
	}
	return all
}

// paced notes that a step is over.
func (x *stepper) paced(runs []*run) {
	if x.job == nil || slices.ContainsFunc(x.devices, func(d *device) bool { return !d.backend.HasSharedBuffers() }) {
		return
	}
	x.pacing.last = pace{}
	for _, r := range runs {
		if r.busy >= x.pacing.last.computed {
			x.pacing.last.computed, x.pacing.last.rank = r.busy, r.id
		}
	}
	x.pacing.ended, x.pacing.waited = time.Now(), x.job.WaitedForData()
}
