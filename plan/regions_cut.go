// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package plan

import (
	"math"
	"slices"
	"time"

	"github.com/easyparallel/epl/config"
	"github.com/easyparallel/epl/ir"
	"github.com/easyparallel/epl/ir/analysis"
	"github.com/easyparallel/epl/passes"
)

// cut finds the ends of the line's regions. There is at least one.
func (l *line) cut(o passes.Options) (ends []int) {
	n := len(l.Ops)
	if o.Checkpoint == config.CheckpointCollection {
		for i, op := range l.Ops {
			if l.marked[op] && i < n-1 {
				ends = append(ends, i+1)
			}
		}
		return append(ends, n)
	}
	runs := l.Blocks()
	var repeated time.Duration
	for _, r := range runs {
		repeated += l.Time[r.End()] - l.Time[r.Start]
	}
	if len(runs) == 0 || repeated < l.Time[n]/2 {
		return append(l.evenly(0, n, l.root()), n)
	}
	return append(l.between(runs), n)
}

// root is how many regions a line is divided into that repeats nothing: keeping what goes in and recomputing one at a
// time, the square root of what it consists of takes the least memory.
func (l *line) root() int {
	dots := 0
	for _, op := range l.Ops {
		switch op.Attrs.(type) {
		case *ir.DotGeneral, *ir.ConvGeneral, *ir.FusedDense, *ir.FusedScaledDotProductAttention:
			if !slices.ContainsFunc(op.Inputs, isOnes) {
				dots++
			}
		}
	}
	if dots == 0 {
		dots = len(l.Ops)
	}
	return int(math.Ceil(math.Sqrt(float64(dots))))
}

// isOnes tells whether a value is what sums are written as a dot with.
func isOnes(v *ir.Value) bool {
	if v == nil {
		return false
	}
	_, broadcast := v.Op.Attrs.(*ir.BroadcastInDim)
	return broadcast && v.Op.Inputs[0].Op.IsLeaf()
}

// evenly cuts a part of the line into so many pieces that take about the same time, near those borders where the least
// crosses. It returns the borders.
func (l *line) evenly(from, to, pieces int) (borders []int) {
	total := l.Time[to] - l.Time[from]
	slack := total * 2 / 5 / time.Duration(max(pieces, 1))
	last := from
	for i := 1; i < pieces; i++ {
		target := l.Time[from] + total*time.Duration(i)/time.Duration(pieces)
		off := func(at int) time.Duration { return (l.Time[at] - target).Abs() }
		best := -1
		for at := last + 1; at < to; at++ {
			if off(at) <= slack && (best < 0 || l.Crossing[at] < l.Crossing[best] || l.Crossing[at] == l.Crossing[best] && off(at) < off(best)) {
				best = at
			}
		}
		if best >= 0 {
			borders = append(borders, best)
			last = best
		}
	}
	return borders
}

// between cuts between the blocks that the line repeats. What comes before, between and after them is divided into pieces
// of about that size, or joins the block next to it if it is small.
func (l *line) between(runs []analysis.Run) (borders []int) {
	at := 0
	var unit time.Duration
	for _, r := range runs {
		groups := (r.Count + l.group(r) - 1) / l.group(r)
		unit = (l.Time[r.End()] - l.Time[r.Start]) / time.Duration(groups)
		if n := l.pieces(at, r.Start, unit); n > 0 {
			borders = append(append(borders, l.evenly(at, r.Start, n)...), r.Start)
		}
		for i := 1; i <= groups; i++ {
			borders = append(borders, r.Start+r.Count*i/groups*r.Size)
		}
		at = r.End()
	}
	n := l.pieces(at, len(l.Ops), unit)
	if n == 0 {
		return borders[:len(borders)-1]
	}
	return slices.Concat(borders, l.evenly(at, len(l.Ops), n))
}

// pieces is how many pieces a part of the line is worth; 0 if it takes less than half of one.
func (l *line) pieces(from, to int, unit time.Duration) int {
	return int((l.Time[to] - l.Time[from] + unit/2) / max(unit, 1))
}

// group is how many blocks of a run make a region: as many as take the least memory, if what goes into each region is
// kept, and what backward reads is there for one of them at a time.
func (l *line) group(r analysis.Run) int {
	var crosses, inner int64
	for i := range r.Count {
		crosses += l.Crossing[r.Start+i*r.Size]
	}
	for _, op := range l.Ops[r.Start:r.End()] {
		for _, v := range op.Outputs {
			if l.read[v] {
				inner += v.Bytes()
			}
		}
	}
	if inner == 0 {
		return r.Count
	}
	return max(1, min(r.Count, int(math.Round(math.Sqrt(float64(r.Count)*float64(crosses)/float64(inner))))))
}
