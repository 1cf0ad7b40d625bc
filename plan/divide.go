package plan

import (
	"math"
	"time"
)

// division is where the chain is cut, and how long its slowest stage takes for a micro-batch.
type division struct {
	ends    []int // the position after the last of each stage
	slowest time.Duration
}

// divide cuts the chain into n stages where it may be cut, so that the slowest is as fast as can be. Among cuts for
// which that is the same it takes the one with the smallest sum of squares, which is the most even one, and among those
// the one with the fewest bytes received. ok is false if there are not enough places to cut at.
func (c *chain) divide(n int, mayCut []bool) (d division, ok bool) {
	total := c.Time[len(c.Ops)]
	// No solution has a stage slower than its slowest, so that stages over a limit need not be looked at if a solution
	// is found below it.
	for limit := total/time.Duration(n) + total/time.Duration(8*n); ; limit *= 2 {
		slowest := c.fastest(n, mayCut, limit)
		if slowest <= limit || limit >= total && slowest < math.MaxInt64 {
			return c.evenest(n, mayCut, slowest), true
		}
		if limit >= total {
			return division{}, false
		}
	}
}

// fastest is the time of the slowest stage in the best cut into n stages, math.MaxInt64 if there is none.
func (c *chain) fastest(n int, mayCut []bool, limit time.Duration) time.Duration {
	const never = time.Duration(math.MaxInt64)
	size := len(c.Ops) + 1
	best := make([]time.Duration, (n+1)*size) // by position and number of stages up to it
	for i := range best {
		best[i] = never
	}
	best[0] = 0
	c.windows(mayCut, limit, func(a, b int, t time.Duration, _ int64) {
		from, to := best[a*(n+1):(a+1)*(n+1)], best[b*(n+1):(b+1)*(n+1)]
		for k, before := range from[:n] {
			if v := max(before, t); v < to[k+1] {
				to[k+1] = v
			}
		}
	})
	return best[(size-1)*(n+1)+n]
}

// evenest is the best of the cuts whose slowest stage takes no longer than slowest.
func (c *chain) evenest(n int, mayCut []bool, slowest time.Duration) division {
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
	c.windows(mayCut, slowest, func(a, b int, t time.Duration, bytes int64) {
		if t > slowest {
			return
		}
		square := t.Seconds() * t.Seconds()
		from, to := best[a*(n+1):(a+1)*(n+1)], best[b*(n+1):(b+1)*(n+1)]
		for k, before := range from[:n] {
			if v := (state{before.squares + square, before.bytes + bytes, a}); !math.IsInf(v.squares, 1) &&
				(math.IsInf(to[k+1].squares, 1) || better(v, to[k+1])) {
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
