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
	// Custom measures something that is no comparison of two sides, in place of Ours and Theirs.
	Custom func(runs int) (Result, error)
}

// side is one of the two things compared.
type side struct {
	once  func() (time.Duration, error)
	close func()
}

// missing is why a row cannot be measured here.
type missing string

func (m missing) Error() string { return string(m) }

// Measure runs the row.
func (r Row) Measure() (Result, error) {
	res := Result{Row: r.Name, Peer: r.Peer, Pairs: r.Pairs, Target: r.Target}
	if r.Custom != nil {
		custom, err := r.Custom(r.Pairs)
		custom.Row, custom.Peer, custom.Pairs = r.Name, r.Peer, r.Pairs
		return custom, err
	}
	var sides [2]side
	for i, make := range []func() (side, error){r.Ours, r.Theirs} {
		s, err := make()
		if m, ok := err.(missing); ok {
			res.Skipped = string(m)
			return res, nil
		} else if err != nil {
			return res, err
		}
		if s.close != nil {
			defer s.close()
		}
		sides[i] = s
	}
	var times [2][]float64
	for n := range r.Warm + r.Pairs {
		for k := range 2 {
			i := (k + n) % 2 // take turns in going first
			d, err := sides[i].once()
			if err != nil {
				return res, err
			}
			if n >= r.Warm {
				times[i] = append(times[i], float64(d.Nanoseconds())/1e6)
			}
		}
	}
	ratios := make([]float64, r.Pairs)
	for i := range ratios {
		ratios[i] = times[1][i] / times[0][i]
	}
	res.Ours, res.Theirs = median(times[0]), median(times[1])
	res.Ratio = median(ratios)
	res.Low, res.High = bootstrap(ratios)
	return res, nil
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
