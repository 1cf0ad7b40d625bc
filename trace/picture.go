// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package trace

import (
	"cmp"
	_ "embed"
	"html/template"
	"io"
	"math"
	"slices"
	"strconv"
	"time"

	"github.com/pkg/errors"
)

// A picture is a step as a Gantt chart: a row per device, time from left to right. It is laid out here in pixels;
// picture.svg is the template that draws it.
//
// Names in a file are anybody's, so nothing is trusted: html/template escapes them, and [plain] takes out what XML
// does not allow.
type picture struct {
	Page          bool // it is part of a page, which has the title and can zoom
	Title, Note   string
	Clocks        string
	Width, Height px
	Left, Top     px // of the plot
	PlotWidth     px
	PlotHeight    px
	Span          int64 // nanoseconds that the plot is wide
	Rows          []pictureRow
	Ticks         []tick
	Legend        []legendItem
}

type pictureRow struct {
	Label  string
	Y      px // of the label's baseline, in the picture
	Base   px // of the line below, in the plot
	Events []bar
}

// bar is an event. Number is shown inside it where there is room.
type bar struct {
	Class      string
	Text       string // of the tooltip
	X, Y, W, H px
	Number     string
	NumberX    px
	NumberY    px
	NumberFits bool
	layer      int
}

type tick struct {
	X     px
	Label string
}

type legendItem struct {
	Class, Text string
	X, Y        px
}

// px is a length, rounded so that pictures stay small.
type px float64

// String implements fmt.Stringer; templates use it.
func (p px) String() string { return strconv.FormatFloat(math.Round(float64(p)*100)/100, 'f', -1, 64) }

// The measures of a picture.
const (
	rowHeight    = 40
	barHeight    = 24
	lowRow       = 28 // of many devices
	lowBar       = 16
	manyDevices  = 16
	thinHeight   = 4 // of a bar of communication
	thinRows     = 2 // of them, below each other: what does not fit shares the last one
	replicaSpace = 10
	letterWidth  = 6.7 // of 12 pixels, on average
	digitWidth   = 7.0
	tickSpace    = 90
	narrowest    = 400
)

var (
	//go:embed picture.svg
	pictureSVG string
	//go:embed picture.css
	pictureCSS string

	pictureTemplate = template.Must(template.New("picture").Funcs(template.FuncMap{
		"css": func() template.CSS { return template.CSS(pictureCSS) },
	}).Parse(pictureSVG))
)

// WriteSVG draws the step as a Gantt chart, width pixels wide.
func (s *Step) WriteSVG(w io.Writer, width int) error {
	return errors.Wrap(pictureTemplate.Execute(w, s.draw(s.Report(), width, false)), "epl: the timeline as SVG")
}

// WriteFigure draws the same as a part of a page that says what it is.
func (s *Step) WriteFigure(w io.Writer, width int) error {
	return errors.Wrap(pictureTemplate.Execute(w, s.draw(s.Report(), width, true)), "epl: the timeline as SVG")
}

// draw lays the step out.
func (s *Step) draw(r *Report, width int, page bool) *picture {
	events := s.Events()
	start, end := bounds(events)
	span := max(end.Sub(start), 1)
	p := &picture{Page: page, Width: px(max(width, narrowest)), Span: int64(span), Top: 24}
	if !page {
		p.Title, p.Note, p.Clocks = s.title(), s.summary(r), s.clocks()
		p.Top += 58
		if p.Clocks != "" {
			p.Top += 18
		}
	}
	for _, d := range r.Devices {
		p.Left = max(p.Left, px(len([]rune(d.label(s.Pipeline))))*letterWidth+16)
	}
	p.PlotWidth = p.Width - p.Left - 24
	scale := float64(p.PlotWidth) / float64(span)
	byDevice := map[int][]Event{}
	for _, e := range events {
		byDevice[e.Device] = append(byDevice[e.Device], e)
	}
	row, tall := px(rowHeight), px(barHeight)
	if len(r.Devices) > manyDevices {
		row, tall = lowRow, lowBar
	}
	y := px(4)
	for i, d := range r.Devices {
		if i > 0 && r.Devices[i-1].Replica != d.Replica && s.Pipeline.Stages > 1 {
			y += replicaSpace
		}
		line := pictureRow{Label: d.label(s.Pipeline), Y: p.Top + y + tall/2 + 4.8, Base: y + row - 5}
		var until [thinRows]time.Time // by row of communication: when its last one ended
		for _, e := range byDevice[d.Device] {
			if e.Kind == Kernel {
				continue // its task is shown
			}
			b := drawEvent(e, d, start, scale, y, tall)
			if e.communicates() {
				thin := 0
				for thin < thinRows-1 && until[thin].After(e.Start) {
					thin++
				}
				if e.End.After(until[thin]) {
					until[thin] = e.End
				}
				b.Y += px(thin * thinHeight)
			}
			line.Events = append(line.Events, b)
		}
		slices.SortStableFunc(line.Events, func(a, b bar) int { return cmp.Compare(a.layer, b.layer) })
		p.Rows = append(p.Rows, line)
		y += row
	}
	p.PlotHeight = y
	p.Ticks = ticks(span, p.PlotWidth)
	p.Height = p.legend(events, r, p.Top+y+14) + 24
	return p
}

// drawEvent places an event in the row at y, whose bars are so tall: tasks above waits, communication below both.
func drawEvent(e Event, d DeviceReport, start time.Time, scale float64, y, tall px) bar {
	b := bar{Class: e.class(), Text: e.describe(start), Y: y, H: tall,
		X: px(float64(e.Start.Sub(start)) * scale), W: px(float64(e.End.Sub(e.Start)) * scale)}
	switch {
	case e.communicates():
		b.Y, b.H, b.layer = y+tall+1, thinHeight, 1
	case e.Kind == Run:
		b.layer = 2
		b.W = max(b.W, 0.5)
		if slices.Index(d.Stages, e.Task.Stage)%2 == 1 {
			b.Class += " odd"
		}
		if e.Task.passes() && e.Task.Micro >= 0 {
			b.Number = strconv.Itoa(e.Task.Micro)
			b.NumberX, b.NumberY = b.X+b.W/2, y+tall/2+4.8
			b.NumberFits = float64(b.W) > float64(len(b.Number))*digitWidth+2
		}
	}
	return b
}

// class is the event's in picture.css.
func (e Event) class() string {
	switch {
	case e.communicates():
		if i := slices.IndexFunc(legend, func(l legendItem) bool { return e.Op != "" && l.Class == "communication "+e.Op }); i >= 0 {
			return legend[i].Class
		}
		return "communication"
	case e.Kind == Data:
		return "data"
	case e.Kind == Launch:
		return "launch"
	case e.Kind != Run:
		return "wait"
	case e.Task.Kind == "":
		return "other"
	}
	return e.Task.Kind
}

// The legend, in its order. What a step does not have is left out.
var legend = []legendItem{
	{Class: Forward, Text: "forward of a micro-batch"},
	{Class: Backward, Text: "backward"},
	{Class: Weights, Text: "gradients of weights"},
	{Class: Instance, Text: "forward and backward"},
	{Class: Accumulate, Text: "accumulate"},
	{Class: Apply, Text: "apply"},
	{Class: "other", Text: "other work"},
	{Class: "wait", Text: "waiting"},
	{Class: "data", Text: "waiting for data"},
	{Class: "launch", Text: "starting communication"},
	{Class: "communication all-reduce", Text: "all-reduce"},
	{Class: "communication all-gather", Text: "all-gather"},
	{Class: "communication reduce-scatter", Text: "reduce-scatter"},
	{Class: "communication all-to-all", Text: "all-to-all"},
	{Class: "communication broadcast", Text: "broadcast"},
	{Class: "communication send", Text: "send"},
	{Class: "communication load", Text: "load from the host"},
	{Class: "communication store", Text: "store to the host"},
	{Class: "communication", Text: "communication"},
}

// legend explains what the picture has, in as many lines as that takes, from y on. It returns the last one.
func (p *picture) legend(events []Event, r *Report, y px) px {
	x := p.Left
	add := func(item legendItem) {
		width := px(len(item.Text))*letterWidth + 38
		if x > p.Left && x+width > p.Width {
			x, y = p.Left, y+20
		}
		item.X, item.Y = x, y
		p.Legend = append(p.Legend, item)
		x += width
	}
	for _, item := range legend {
		if slices.ContainsFunc(events, func(e Event) bool { return e.class() == item.Class }) {
			add(item)
		}
	}
	if slices.ContainsFunc(r.Devices, func(d DeviceReport) bool { return len(d.Stages) > 1 }) {
		add(legendItem{Class: Forward + " odd", Text: "paler: every other stage of a device"})
	}
	return y
}

// ticks are at round times, as far apart as labels need.
func ticks(span time.Duration, width px) []tick {
	least := float64(span) * tickSpace / float64(width)
	step := math.Pow(10, math.Floor(math.Log10(least)))
	for _, f := range []float64{1, 2, 5, 10} {
		if f*step >= least || f == 10 {
			step *= f
			break
		}
	}
	step = max(step, 1)
	unit, name := unitOf(time.Duration(step))
	var list []tick
	for t := 0.0; t <= float64(span); t += step {
		list = append(list, tick{px(t / float64(span) * float64(width)), strconv.FormatFloat(t/float64(unit), 'f', -1, 64) + " " + name})
	}
	return list
}
