// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package analysis

import (
	"strings"
	"time"

	"github.com/easyparallel/epl/ir"
)

// minShare is the part of the line's time, in percent, below which a repetition is not worth looking at.
const minShare = 5

// Line is ops in an order in which they can run, as one device would, with what they cost. Position i of it is in front of op i.
type Line struct {
	Ops      []*ir.Op
	Time     []time.Duration // by position: what everything before it takes
	Crossing []int64         // by position: how many bytes go from one side of it to the other
}

// Span is where a value lives on a line: from the first to the last op that have to do with it.
type Span struct {
	First, Last int
	Bytes       int64
}

// NewLine is the line of ops, given what each of them takes, and where values live.
func NewLine(ops []*ir.Op, takes []time.Duration, values []Span) Line {
	l := Line{ops, make([]time.Duration, len(ops)+1), make([]int64, len(ops)+1)}
	for _, v := range values {
		l.Crossing[v.First+1] += v.Bytes
		l.Crossing[v.Last+1] -= v.Bytes
	}
	for i := range ops {
		l.Time[i+1] = l.Time[i] + takes[i]
		l.Crossing[i+1] += l.Crossing[i]
	}
	return l
}

// Run is a part of a line that repeats, such as the layers of a transformer: Count blocks of Size ops each.
type Run struct{ Start, Size, Count int }

// End is the position after the last block.
func (r Run) End() int { return r.Start + r.Size*r.Count }

// Blocks finds the blocks that the line repeats: the run that takes most of the time, and then others before and after
// it.
func (l Line) Blocks() []Run {
	names := map[string]int{}
	word := make([]int, len(l.Ops))
	for i, op := range l.Ops {
		s := signature(op)
		if _, ok := names[s]; !ok {
			names[s] = len(names)
		}
		word[i] = names[s]
	}
	var found []Run
	var find func(lo, hi int)
	find = func(lo, hi int) {
		r := l.longest(word, lo, hi)
		if r.Count == 0 {
			return
		}
		r = l.align(r, word, hi)
		find(lo, r.Start)
		found = append(found, r)
		find(r.End(), hi)
	}
	find(0, len(l.Ops))
	return found
}

// signature is equal for ops that do the same to values of the same shapes.
func signature(op *ir.Op) string {
	var s strings.Builder
	s.WriteString(string(op.Type()))
	for _, list := range [][]*ir.Value{op.Inputs, op.Outputs} {
		for _, v := range list {
			if s.WriteByte(' '); v != nil {
				s.WriteString(ir.ShapeText(v.Shape))
			}
		}
		s.WriteByte(';')
	}
	return s.String()
}

// longest finds, between two positions, the repetition whose whole blocks take the most time; of several the one with
// the shortest blocks. Its count is 0 if there is none.
func (l Line) longest(word []int, lo, hi int) (best Run) {
	least := l.Time[len(word)] * minShare / 100
	var most time.Duration
	for size := 1; size <= (hi-lo)/2; size++ {
		for i := lo; i+size < hi; {
			if word[i] != word[i+size] {
				i++
				continue
			}
			start := i
			for i+size < hi && word[i] == word[i+size] {
				i++
			}
			r := Run{start, size, (i + size - start) / size}
			if r.Count < 2 {
				continue
			}
			if t := l.Time[r.End()] - l.Time[start]; t >= least && t > most+most/1000 {
				best, most = r, t
			}
		}
	}
	return best
}

// align moves the borders of a run's blocks, without losing one, to where the least crosses them. A run is often longer
// than its blocks: what stands in front of the first looks like the end of one, say.
func (l Line) align(r Run, word []int, hi int) Run {
	best, least := r, int64(-1)
	for {
		var bytes int64
		for i := range r.Count + 1 {
			bytes += l.Crossing[r.Start+i*r.Size]
		}
		if least < 0 || bytes <= least {
			best, least = r, bytes
		}
		if r.End() >= hi || word[r.End()] != word[r.End()-r.Size] {
			return best
		}
		r.Start++
	}
}
