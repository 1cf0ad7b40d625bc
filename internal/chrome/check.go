// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

// Package chrome checks files in Chrome's trace event format as strictly as Perfetto reads them. Tests use it: what is wrong
// in such a file is shown wrongly, or left out, and nobody says so.
package chrome

import (
	"cmp"
	"encoding/json"
	"io"
	"math"
	"slices"

	"github.com/pkg/errors"
)

// Summary is what a file has.
type Summary struct {
	Slices   int // of threads
	Overlaps int // pairs of slices of one thread of which neither is within the other
	Async    int // asynchronous events
	Flows    int
	Counters map[string]int // samples, by device and series: "0 memory weights"
	Begin    int64          // nanoseconds
	End      int64
}

type event struct {
	Name, Cat, Ph, Bp, ID string
	Ts, Dur               float64
	Pid, Tid              int
	ID2                   struct{ Local string }
	Args                  map[string]any
}

// nanos are the times of an event, rounded as Perfetto rounds them.
func (e event) nanos() (start, end int64) {
	start = int64(math.Round(e.Ts * 1e3))
	return start, start + int64(math.Round(e.Dur*1e3))
}

type thread struct{ pid, tid int }

// Check reads a file. It is an error if asynchronous events or flows lack a beginning or an end, if flows are bound to no
// slice, or if something has no time.
func Check(r io.Reader) (Summary, error) {
	var f struct{ TraceEvents []event }
	s := Summary{Counters: map[string]int{}, Begin: math.MaxInt64}
	if err := json.NewDecoder(r).Decode(&f); err != nil {
		return s, errors.Wrap(err, "it is no JSON")
	}
	threads := map[thread][]event{}
	type local struct {
		pid int
		id  string
	}
	open := map[local]event{}
	starts, finishes := map[string]event{}, map[string]event{}
	for _, e := range f.TraceEvents {
		if e.Ph == "M" {
			continue
		}
		if e.Ts < 0 || e.Dur < 0 {
			return s, errors.Errorf("%+v is before the beginning", e)
		}
		start, end := e.nanos()
		s.Begin, s.End = min(s.Begin, start), max(s.End, end)
		switch e.Ph {
		case "X":
			s.Slices++
			at := thread{e.Pid, e.Tid}
			threads[at] = append(threads[at], e)
		case "b":
			key := local{e.Pid, e.ID2.Local}
			if _, twice := open[key]; twice || key.id == "" {
				return s, errors.Errorf("%+v begins without an id of its own", e)
			}
			open[key] = e
			s.Async++
		case "e":
			key := local{e.Pid, e.ID2.Local}
			if b, ok := open[key]; !ok || b.Ts > e.Ts || b.Name != e.Name {
				return s, errors.Errorf("%+v ends what did not begin", e)
			}
			delete(open, key)
		case "s", "f":
			to := map[string]map[string]event{"s": starts, "f": finishes}[e.Ph]
			if _, twice := to[e.ID]; twice || e.ID == "" {
				return s, errors.Errorf("%+v has no id of its own", e)
			}
			to[e.ID] = e
		case "C":
			for series, n := range e.Args {
				if x, ok := n.(float64); !ok || x < 0 {
					return s, errors.Errorf("%+v counts %v", e, n)
				}
				s.Counters[string(rune('0'+e.Pid))+" "+e.Name+" "+series]++
			}
		default:
			return s, errors.Errorf("%+v has an unknown phase", e)
		}
	}
	if len(open) > 0 {
		return s, errors.Errorf("%d asynchronous events do not end: %+v", len(open), open)
	}
	for id, e := range starts {
		f, ok := finishes[id]
		if !ok || f.Ts < e.Ts {
			return s, errors.Errorf("flow %+v ends in %+v", e, f)
		}
		if f.Bp != "e" || !within(threads, e) || !within(threads, f) {
			return s, errors.Errorf("flow %+v to %+v is not bound to slices", e, f)
		}
		s.Flows++
	}
	if len(finishes) != len(starts) {
		return s, errors.Errorf("%d flows start, and %d end", len(starts), len(finishes))
	}
	for _, list := range threads {
		s.Overlaps += overlaps(list)
	}
	return s, nil
}

// within tells whether a slice of its thread is around an event.
func within(threads map[thread][]event, e event) bool {
	at, _ := e.nanos()
	return slices.ContainsFunc(threads[thread{e.Pid, e.Tid}], func(x event) bool {
		start, end := x.nanos()
		return start <= at && at <= end
	})
}

// overlaps counts the pairs of slices of which neither is within the other.
func overlaps(list []event) (n int) {
	slices.SortFunc(list, func(a, b event) int { // those that are around others first
		x, y := cmp.Compare(a.Ts, b.Ts), cmp.Compare(b.Dur, a.Dur)
		return cmp.Or(x, y)
	})
	for i, a := range list {
		_, end := a.nanos()
		for _, b := range list[i+1:] {
			start, until := b.nanos()
			if start >= end {
				break
			}
			if until > end {
				n++
			}
		}
	}
	return n
}
