// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package explain

import (
	"fmt"
	"math"
	"strings"
	"unicode/utf8"

	"github.com/easyparallel/epl/ir"
)

// picture shows a stage at a glance: one lane per phase, one bar per op of main, in order, as text is written: from
// left to right, and on in the next row. The colour is the TaskGraph's, the height the logarithm of what the op
// produces. page.js finds the op under the mouse from the numbers here.
type picture struct {
	Stage         int
	Ops           int
	Width, Height int
	Left          int     // where bars begin
	Pitch         float64 // from bar to bar
	PerRow        int
	Row, Bar      int // from row to row, and the highest bar
	Lanes         []lane
	Largest       string // what the highest bar stands for
}

type lane struct {
	Phase   ir.Phase
	Ops     int
	Top     int
	LabelY  int // baseline of the first row
	Bars    []bars
	Names   []barName
	RowEnds []int // y of the line below each row
}

// bars are those of one TaskGraph, as the data of an SVG path: one element, however many there are.
type bars struct {
	TaskGraph int
	Path      string
}

// barName names a run of bars of one TaskGraph.
type barName struct {
	X, Y float64
	Text string
}

const (
	pictureWidth = 1440
	pictureLeft  = 84
	nameWidth    = 5.6 // of a letter
)

func drawPicture(slots []*slot, sizes map[string]int64, stage int, taskGraphs []*ir.TaskGraph) *picture {
	p := &picture{Stage: stage, Width: pictureWidth, Left: pictureLeft, Row: 44, Bar: 26}
	var ops [3][]*span
	produces := func(l *span) (n int64) {
		for text := range strings.SplitSeq(l.Outputs, ";") {
			n += sizes[text]
		}
		return n
	}
	var most, least int64 = 1, math.MaxInt64
	longest := 1
	for _, s := range slots {
		l := s.at(stage)
		if l == nil || !l.drawn() {
			continue
		}
		ops[l.Phase] = append(ops[l.Phase], l)
		longest = max(longest, len(ops[l.Phase]))
		n := produces(l)
		least = min(least, n)
		if n > most {
			most, p.Largest = n, fmt.Sprintf("%s, by %%%d %s", bytesText(n), l.ID, l.Op)
		}
		p.Ops++
	}
	// Bars are as wide as three rows for the longest lane allow, within what can be pointed at and looks like a bar.
	const narrowest, widest, rows = 2.5, 16, 3
	space := float64(pictureWidth - pictureLeft)
	n := min(rows, math.Ceil(float64(longest)*widest/space))
	if least := math.Ceil(float64(longest) * narrowest / space); least > n {
		n = least
		p.Row, p.Bar = 34, 17
	}
	p.Pitch = min(widest, math.Floor(10*space/math.Ceil(float64(longest)/n))/10)
	p.PerRow = int(space / p.Pitch)
	height := func(n int64) float64 {
		lo, hi := math.Log1p(float64(least)), math.Log1p(float64(most))
		return 3 + float64(p.Bar-3)*(math.Log1p(float64(n))-lo)/max(hi-lo, 1)
	}
	y := 0
	for phase, list := range ops {
		if len(list) == 0 {
			continue
		}
		la := lane{Phase: ir.Phase(phase), Ops: len(list), Top: y, LabelY: y + p.Row - 4}
		indices := make([]int, len(list))
		for i := range list {
			indices[i] = i
		}
		for _, same := range grouped(indices, func(i int) int { return list[i].TaskGraph }) {
			var path strings.Builder
			for _, i := range same {
				x, base := p.at(i, y)
				h := height(produces(list[i]))
				fmt.Fprintf(&path, "M%.5g %gv-%.3gh%.3gv%.3gz", x, base, h, p.Pitch-min(1.5, p.Pitch/4), h)
			}
			la.Bars = append(la.Bars, bars{list[same[0]].TaskGraph - 1, path.String()})
		}
		la.Names = p.names(list, y, taskGraphs)
		for i := 0; i < len(list); i += p.PerRow {
			_, base := p.at(i, y)
			la.RowEnds = append(la.RowEnds, int(base))
		}
		p.Lanes = append(p.Lanes, la)
		y += p.Row*len(la.RowEnds) + 6
	}
	p.Height = max(y, 1)
	return p
}

// drawn tells whether the picture has a bar for the line: it is an op of main that computes something.
func (l *line) drawn() bool { return l.Kind == opLine && l.Depth == 0 && !l.Leaf }

// at returns where bar i of a lane stands.
func (p *picture) at(i, top int) (x, base float64) {
	return float64(p.Left) + float64(i%p.PerRow)*p.Pitch, float64(top + (i/p.PerRow+1)*p.Row - 4)
}

// names puts the name of a TaskGraph above every run of its bars: where it begins, or in the next row if that is too
// narrow.
func (p *picture) names(list []*span, top int, taskGraphs []*ir.TaskGraph) []barName {
	var names []barName
	for i, end := 0, 0; i < len(list); i = end {
		for end = i + 1; end < len(list) && list[end].TaskGraph == list[i].TaskGraph; end++ {
		}
		if list[i].TaskGraph == 0 {
			continue
		}
		text := taskGraphs[list[i].TaskGraph-1].Title()
		rowEnd := (i/p.PerRow + 1) * p.PerRow
		for _, from := range []int{i, rowEnd} {
			if bars := min(end, (from/p.PerRow+1)*p.PerRow) - from; float64(utf8.RuneCountInString(text))*nameWidth < float64(bars)*p.Pitch {
				x, base := p.at(from, top)
				names = append(names, barName{x, base - float64(p.Bar) - 4, text})
				break
			}
		}
	}
	return names
}
