// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package plan

import (
	"cmp"
	"runtime"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/easyparallel/epl/simulate"
)

// Change is what would become of a choice if the cluster were another one.
type Change struct {
	If   string        `json:"if"`                // what is other
	Step time.Duration `json:"step_ns,omitempty"` // of the chosen way; 0: it would not fit
	// Best is the best way then, of the best that were compared, and BestStep its step; "": the chosen one.
	Best     string        `json:"best,omitempty"`
	BestStep time.Duration `json:"best_step_ns,omitempty"`
}

// rivals are how many ways are looked at again for another cluster.
const rivals = 4

// keep remembers what was made of a way, if it is one of the best.
func (s *searcher) keep(w *candidate, r *Result) {
	if !s.t.Sensitivity {
		return
	}
	s.kept = append(s.kept, kept{w, r})
	slices.SortStableFunc(s.kept, func(a, b kept) int { return cmp.Compare(s.rate(a.w), s.rate(b.w)) })
	s.kept = s.kept[:min(rivals, len(s.kept))]
}

type kept struct {
	w *candidate
	r *Result
}

// sensitivity is what would become of the choice on other clusters: with other links, and with less memory.
func (s *searcher) sensitivity(best *candidate) (all []Change, err error) {
	for _, c := range []struct {
		what   string
		change simulate.WhatIf
	}{
		{"links had twice the bandwidth", simulate.WhatIf{Bandwidth: 2}},
		{"links had half the bandwidth", simulate.WhatIf{Bandwidth: 0.5}},
		{"links had ten times the latency", simulate.WhatIf{Latency: 10}},
	} {
		takes := make([]time.Duration, len(s.kept))
		var runs errgroup.Group
		runs.SetLimit(runtime.GOMAXPROCS(0))
		for i, k := range s.kept {
			lists := k.r.lists()
			runs.Go(func() error {
				lists, cluster, err := c.change.Apply(lists, s.t.hardware())
				if err == nil {
					takes[i], err = k.r.short(lists, cluster)
				}
				return err
			})
		}
		if err := runs.Wait(); err != nil {
			return nil, err
		}
		steps := map[*candidate]time.Duration{}
		for i, k := range s.kept {
			steps[k.w] = takes[i]
		}
		all = append(all, s.change(c.what, best, steps, func(*candidate) bool { return true }))
	}
	if s.limit == 0 {
		return all, nil
	}
	steps := map[*candidate]time.Duration{}
	for _, w := range s.done {
		if w.Looked {
			steps[w] = w.Step
		}
	}
	for _, c := range []struct {
		what  string
		times float64
	}{
		{"devices had half the memory", 0.5},
		{"devices had twice the memory", 2},
	} {
		all = append(all, s.change(c.what, best, steps, func(w *candidate) bool { return w.fullest.full() <= c.times }))
	}
	return all, nil
}

// change compares ways by their steps on another cluster, as far as they fit.
func (s *searcher) change(what string, best *candidate, steps map[*candidate]time.Duration, fits func(*candidate) bool) Change {
	c := Change{If: what}
	if fits(best) {
		c.Step = steps[best]
	}
	rate := func(w *candidate) float64 { return steps[w].Seconds() / float64(w.batches()) }
	then := best
	for _, w := range s.done {
		if _, known := steps[w]; known && fits(w) && (!fits(then) || rate(w) < rate(then)*(1-enough/100.)) {
			then = w
		}
	}
	if then != best {
		c.Best, c.BestStep = then.String(), steps[then]
	}
	return c
}
