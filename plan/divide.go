// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package plan

import (
	"math"
	"slices"
	"time"
)

// division is where the chain is cut, and how long its slowest stage takes for a micro-batch.
type division struct {
	ends    []int // the position after the last of each stage
	slowest time.Duration
}

// pace is how fast the devices of stages compute, relative to the one that the chain was measured for; nil: like that one.
type pace []float64

// takes is how long a stage takes that computes for so long on the device of the chain, and waits for what it receives.
func (p pace) takes(stage int, busy, waits time.Duration) time.Duration {
	if p != nil {
		busy = time.Duration(float64(busy) / p[stage])
	}
	return busy + waits
}

// busy is how long a stage may compute on the device of the chain, at most, if it takes no longer than limit on its own.
func (p pace) busy(limit time.Duration) time.Duration {
	if p == nil {
		return limit
	}
	return time.Duration(min(math.Ceil(float64(limit+1)*max(slices.Max(p), 1)), math.MaxInt64/2)) // takes rounds down
}

// divide cuts the chain into n stages where it may be cut, so that the slowest is as fast as can be. Among cuts for
// which that is the same it takes the one with the smallest sum of squares, which is the most even one, and among those
// the one with the fewest bytes received. ok is false if there are not enough places to cut at.
func (c *chain) divide(n int, mayCut []bool, p pace) (d division, ok bool) {
	total := c.Time[len(c.Ops)]
	// No solution has a stage slower than its slowest, so that stages over a limit need not be looked at if a solution
	// is found below it.
	for limit := total/time.Duration(n) + total/time.Duration(8*n); ; limit *= 2 {
		slowest := c.fastest(n, mayCut, p, limit)
		if slowest <= limit || limit >= total && slowest < math.MaxInt64 {
			return c.evenest(n, mayCut, p, slowest), true
		}
		if limit >= total {
			return division{}, false
		}
	}
}

// fastest is the time of the slowest stage in the best cut into n stages, math.MaxInt64 if there is none.
func (c *chain) fastest(n int, mayCut []bool, p pace, limit time.Duration) time.Duration {
	const never = time.Duration(math.MaxInt64)
	size := len(c.Ops) + 1
	best := make([]time.Duration, (n+1)*size) // by position and number of stages up to it
	for i := range best {
		best[i] = never
	}
	best[0] = 0
	c.windows(mayCut, p.busy(limit), func(a, b int, busy, waits time.Duration, _ int64) {
		from, to := best[a*(n+1):(a+1)*(n+1)], best[b*(n+1):(b+1)*(n+1)]
		for k, before := range from[:n] {
			if v := max(before, p.takes(k, busy, waits)); v < to[k+1] {
				to[k+1] = v
			}
		}
	})
	return best[(size-1)*(n+1)+n]
}

// evenest is the best of the cuts whose slowest stage takes no longer than slowest.
func (c *chain) evenest(n int, mayCut []bool, p pace, slowest time.Duration) division {
	type state struct {
		squares float64
		bytes   int64
		from    int
	}
	better := func(a, b state) bool {
		if math.Abs(a.squares-b.squares) > 1e-12*b.squares { // else they differ by rounding
			return a.squares < b.squares
		}
		return a.bytes < b.bytes
	}
	best := make([]state, (n+1)*(len(c.Ops)+1))
	for i := range best {
		best[i].squares = math.Inf(1)
	}
	best[0].squares = 0
	c.windows(mayCut, p.busy(slowest), func(a, b int, busy, waits time.Duration, bytes int64) {
		from, to := best[a*(n+1):(a+1)*(n+1)], best[b*(n+1):(b+1)*(n+1)]
		for k, before := range from[:n] {
			t := p.takes(k, busy, waits)
			if t > slowest || math.IsInf(before.squares, 1) {
				continue
			}
			v := state{before.squares + t.Seconds()*t.Seconds(), before.bytes + bytes, a}
			if math.IsInf(to[k+1].squares, 1) || better(v, to[k+1]) {
				to[k+1] = v
			}
		}
	})
	d := division{ends: make([]int, n), slowest: slowest}
	at := len(c.Ops)
	for k := n; k > 0; k-- {
		d.ends[k-1] = at
		at = best[at*(n+1)+k].from
	}
	return d
}
