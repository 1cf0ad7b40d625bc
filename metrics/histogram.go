// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package metrics

import (
	"math"
	"slices"
)

// Histogram counts values in buckets whose limits grow by a tenth. Values that are not finite are counted apart.
type Histogram struct {
	Min, Max, Sum, Squares float64
	Count, NotFinite       int64

	counts map[float64]int64 // by the upper limit of a bucket
}

// grow is how much larger the limit of a bucket is than that of the one before; smallest is the first above 0.
const grow, smallest = 1.1, 1e-12

// Add counts a value.
func (h *Histogram) Add(x float64) {
	if math.IsNaN(x) || math.IsInf(x, 0) {
		h.NotFinite++
		return
	}
	if h.Count == 0 {
		h.Min, h.Max, h.counts = x, x, map[float64]int64{}
	}
	h.Min, h.Max = min(h.Min, x), max(h.Max, x)
	h.Sum += x
	h.Squares += x * x
	h.Count++
	h.counts[limit(x)]++
}

// limit is the upper limit of the bucket of a value.
func limit(x float64) float64 {
	switch {
	case x > smallest:
		return smallest * math.Pow(grow, math.Ceil(math.Log(x/smallest)/math.Log(grow)))
	case x > 0:
		return smallest
	case x > -smallest:
		return 0
	}
	return -smallest * math.Pow(grow, math.Floor(math.Log(-x/smallest)/math.Log(grow)))
}

// Buckets are the upper limits of the buckets that have values, in order, and how many values each has.
func (h *Histogram) Buckets() (limits, counts []float64) {
	for x := range h.counts {
		limits = append(limits, x)
	}
	slices.Sort(limits)
	for _, x := range limits {
		counts = append(counts, float64(h.counts[x]))
	}
	return limits, counts
}
