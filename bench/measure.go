// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package main

import (
	"math/rand"
	"slices"
	"time"
)

// Row is a comparison.
type Row struct {
	Name string
	Peer string
	// Pairs is how often the two sides take turns, Warm how often before that.
	Pairs, Warm int
	// Target is the ratio that we want; 0: any.
	Target float64
	// Ours and Theirs make a side: a function that does the work once and says how long it took. An error of type
	// missing leaves the row out.
	Ours, Theirs func() (side, error)
	// Also are further peers, which take turns with these two; each gives a line of the table.
	Also []Peer
	// Custom measures something that is no comparison of sides, in place of Ours and Theirs.
	Custom func(runs int) (Result, error)
	// alone leaves the peers out.
	alone bool
}

// Peer is what EPL is compared with.
type Peer struct {
	Name   string
	Target float64
	Make   func() (side, error)
}

// side is one of the things compared.
type side struct {
	once  func() (time.Duration, error)
	close func()
}

// missing is why a row cannot be measured here.
type missing string

func (m missing) Error() string { return string(m) }

// Measure runs the row. There is a result for each peer.
func (r Row) Measure() ([]Result, error) {
	if r.Custom != nil {
		custom, err := r.Custom(r.Pairs)
		custom.Row, custom.Peer, custom.Pairs = r.Name, r.Peer, r.Pairs
		return []Result{custom}, err
	}
	peers := append([]Peer{{r.Peer, r.Target, r.Theirs}}, r.Also...)
	results := make([]Result, len(peers))
	for i, p := range peers {
		results[i] = Result{Row: r.Name, Peer: p.Name, Pairs: r.Pairs, Target: p.Target}
	}
	var sides []side
	var of []int // the peer of each side but the first, which is ours
	for i := -1; i < len(peers); i++ {
		make := r.Ours
		if i >= 0 {
			make = peers[i].Make
		}
		if r.alone && i >= 0 {
			make = func() (side, error) { return side{}, missing("left out") }
		}
		s, err := make()
		if m, ok := err.(missing); ok {
			for k := range results {
				if k == i || i < 0 {
					results[k].Skipped = string(m)
				}
			}
			if i < 0 {
				return results, nil
			}
			continue
		} else if err != nil {
			return nil, err
		}
		if s.close != nil {
			defer s.close()
		}
		sides, of = append(sides, s), append(of, i)
	}
	times, err := r.turns(sides)
	if err != nil {
		return nil, err
	}
	for i, theirs := range times[1:] {
		results[of[i+1]].compare(times[0], theirs)
	}
	return results, nil
}

// turns lets the sides take turns, and returns the milliseconds of each.
func (r Row) turns(sides []side) ([][]float64, error) {
	times := make([][]float64, len(sides))
	for n := range r.Warm + r.Pairs {
		for k := range sides {
			i := (k + n) % len(sides) // take turns in going first
			d, err := sides[i].once()
			if err != nil {
				return nil, err
			}
			if n >= r.Warm {
				times[i] = append(times[i], float64(d.Nanoseconds())/1e6)
			}
		}
	}
	return times, nil
}

// compare fills in what the times of the turns tell.
func (x *Result) compare(ours, theirs []float64) {
	ratios := make([]float64, len(ours))
	for i := range ratios {
		ratios[i] = theirs[i] / ours[i]
	}
	x.Ours, x.Theirs = median(ours), median(theirs)
	x.Ratio = median(ratios)
	x.Low, x.High = bootstrap(ratios)
}

func median(x []float64) float64 {
	s := slices.Sorted(slices.Values(x))
	if n := len(s); n%2 == 0 {
		return (s[n/2-1] + s[n/2]) / 2
	}
	return s[len(s)/2]
}

// bootstrap is a 95% interval of the median: that of medians of samples drawn with replacement.
func bootstrap(x []float64) (low, high float64) {
	r := rand.New(rand.NewSource(1))
	medians := make([]float64, 2000)
	sample := make([]float64, len(x))
	for i := range medians {
		for j := range sample {
			sample[j] = x[r.Intn(len(x))]
		}
		medians[i] = median(sample)
	}
	slices.Sort(medians)
	return medians[len(medians)*25/1000], medians[len(medians)*975/1000]
}
