// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package explain

import (
	_ "embed"
	"fmt"
	"html/template"
	"io"
	"math"
	"slices"
	"strings"

	"github.com/pkg/errors"

	"github.com/easyparallel/epl/internal/words"
	"github.com/easyparallel/epl/ir"
	"github.com/easyparallel/epl/schedule"
)

// memoryPicture shows the account over a step: a panel for every device of a model replica, or for several that need the
// same, with instructions and ops from left to right in the order they run, and bytes upwards, by use. It is laid out here
// in pixels; picture_memory.svg is the template that draws it. Names are the user's: html/template escapes them.
type memoryPicture struct {
	Page          bool // it is part of a page, which has the title
	Title, Note   string
	Width, Height float64
	Left          float64 // of the plots
	PlotWidth     float64
	PlotHeight    float64
	Strip         float64 // the height of bands
	Panels        []memoryPanel
	Limit         *memoryMark // what a device has, if that is near
	Ticks         []memoryMark
	Legend        []memoryMark
}

type memoryPanel struct {
	Top         float64 // of the plot
	Label, When string
	Areas       []memoryArea // in the order of drawing: each covers the foot of those before it
	Bands       []memoryBand
	Peak        memoryMark
}

// memoryArea is a use and all that lies below it, as the data of an SVG path.
type memoryArea struct{ Class, Path string }

// memoryBand is what the device does for a micro-batch without turning to another.
type memoryBand struct {
	Class string
	X, W  float64
	Text  string
	name  string
	most  schedule.Bytes
}

// Fits tells whether there is room for the text.
func (b memoryBand) Fits() bool { return float64(len(b.Text))*memorySmaller+2 < b.W }

// Middle is where the text is.
func (b memoryBand) Middle() float64 { return b.X + b.W/2 }

// Title is for those who point at it.
func (b memoryBand) Title() string {
	return fmt.Sprintf("%s: at most %s\n%s", b.name, bytesText(b.most.Total()), strings.ReplaceAll(b.most.String(), ", ", "\n"))
}

// memoryMark is a text somewhere, with the class or the anchor that it has.
type memoryMark struct {
	X, Y        float64
	Class, Text string
}

// The measures of the picture.
const (
	memoryWidth   = 1000
	memoryLeft    = 84
	memoryPlot    = 150
	memoryHead    = 20 // above the highest peak, for its text
	memoryStrip   = 14
	memoryGap     = 44 // between panels, for the label of the next
	memoryPixel   = 1.5
	memoryLetter  = 6.7 // of 12 pixels, on average
	memorySmaller = 6.0 // of 10.5 pixels
	memoryLetters = 144 // of a line
)

var (
	//go:embed picture_memory.svg
	memorySVG string
	//go:embed picture_memory.css
	memoryCSS string

	memoryTemplate = template.Must(template.New("memory").Funcs(template.FuncMap{
		"css": func() template.CSS { return template.CSS(memoryCSS) },
		"px":  px,
		"sum": func(x, y float64) string { return px(x + y) },
	}).Parse(memorySVG))
)

// MemoryPicture draws the account of a training step.
func (c *Program) MemoryPicture(w io.Writer) error { return c.drawMemory(w, false) }

func (c *Program) drawMemory(w io.Writer, page bool) error {
	return errors.Wrap(memoryTemplate.Execute(w, newMemoryPicture(c, page)), "epl: internal error: the picture of memory")
}

func newMemoryPicture(c *Program, page bool) *memoryPicture {
	p := &memoryPicture{Page: page, Width: memoryWidth, Left: memoryLeft, PlotWidth: memoryWidth - memoryLeft - 24,
		PlotHeight: memoryPlot, Strip: memoryStrip}
	y := 4.0
	if !page {
		p.Title, p.Note = shorten(c.Recorded.Name, 60)+": the memory of a device over a step, as predicted", memoryNote(c)
		y = 56
	}
	most := max(c.Account.Peak(), 1)
	limit := c.Config.Cluster.DeviceMemory
	if limit > 2*most {
		limit = 0 // it would leave little of the picture
	}
	most = max(most, limit)
	p.scale(most)
	if limit > 0 {
		p.Limit = &memoryMark{Y: p.height(limit, most), Text: bytesText(limit) + ", which a device has"}
	}
	used := map[string]bool{}
	course := c.course()
	for _, places := range alike(c.Account) {
		place := places[0]
		x := c.Account.Places[place]
		panel := p.panel(c, place, course[place], most)
		panel.Top = y + 24
		panel.Label = c.memoryLabel(places)
		panel.When = shorten(fmt.Sprintf("peak %s, at %s", bytesText(x.Peak.Total()), x.Text), memoryLetters-len(panel.Label))
		for _, b := range panel.Bands {
			used[b.Class] = true
		}
		for _, a := range panel.Areas {
			used[a.Class] = true
		}
		p.Panels = append(p.Panels, panel)
		y = panel.Top + p.PlotHeight + memoryStrip + memoryGap - 24
	}
	p.Height = p.legend(used, c.numbered(), y+8) + 28
	return p
}

// course is what the picture shows: a sample for every op, or for every instruction of a pipeline that runs very many.
func (c *Program) course() [][]schedule.Sample {
	const most = 1_000_000
	ops := 0
	if s := c.Schedule; s != nil && s.Pipeline.Stages > 1 {
		for _, list := range s.Places {
			for _, in := range list {
				if in.Kind == schedule.Run {
					ops += len(s.Segments[in.Segment].Ops)
				}
			}
		}
	}
	if ops > most {
		return c.Account.Brief()
	}
	return c.Account.Course()
}

// memoryNote says what the picture is of: the order of the step, and the settings that change what it needs.
func memoryNote(c *Program) string {
	var parts []string
	if s := c.Schedule; s != nil {
		if s.Pipeline.Stages > 1 {
			parts = append(parts, fmt.Sprintf("%d stages, %s", s.Pipeline.Stages, s.Pipeline.Strategy))
		}
		parts = append(parts, words.Count(s.Local.Replicas, "model replica"), words.Count(s.Local.MicroBatches, "micro-batch"))
	}
	sections := []string{"gradient_checkpoint", "zero", "offload", "amp", "optimizer", "cluster.device_memory"}
	for _, e := range c.Config.Entries() {
		if slices.ContainsFunc(sections, func(s string) bool { return strings.HasPrefix(e.Key, s) }) && e.Changed() {
			parts = append(parts, e.Key+"="+e.Value)
		}
	}
	return shorten(strings.Join(parts, ", "), memoryLetters)
}

// memoryLabel names places, and the stages that are on the first of them.
func (c *Program) memoryLabel(places []int) string {
	devices := c.Schedule.Devices(places...)
	label := "device " + placesText(devices)
	if len(devices) > 1 {
		label = "devices " + placesText(devices)
	}
	if c.Schedule == nil || c.Schedule.Pipeline.Stages < 2 {
		return label
	}
	var on []int
	for i, s := range c.Final.Stages {
		if s.Places[0] == c.Schedule.Groups[places[0]][0] {
			on = append(on, i)
		}
	}
	return fmt.Sprintf("stage%s %s · %s", plural(len(on)), placesText(on), label)
}

// scale puts lines at round numbers of bytes.
func (p *memoryPicture) scale(most int64) {
	step := int64(1)
	for step*5 < most {
		step *= 2
	}
	for n := int64(0); n <= most; n += step {
		p.Ticks = append(p.Ticks, memoryMark{Y: p.height(n, most), Text: bytesText(n)})
	}
}

// height is where so many bytes are in a plot.
func (p *memoryPicture) height(bytes, most int64) float64 {
	return p.PlotHeight - (p.PlotHeight-memoryHead)*float64(bytes)/float64(most)
}

// panel draws the course of a place.
func (p *memoryPicture) panel(c *Program, place int, course []schedule.Sample, most int64) (panel memoryPanel) {
	columns, peak := squeeze(course, int(p.PlotWidth/memoryPixel))
	width := p.PlotWidth / float64(len(columns))
	uses := schedule.Uses()
	for i, u := range slices.Backward(uses) {
		if !slices.ContainsFunc(columns, func(live schedule.Bytes) bool { return live[u] > 0 }) {
			continue
		}
		path, last := "M0 "+px(p.PlotHeight), ""
		for x, live := range columns {
			var sum int64
			for _, below := range uses[:i+1] {
				sum += live[below]
			}
			if y := px(p.height(sum, most)); y != last {
				if x > 0 {
					path += "H" + px(float64(x)*width)
				}
				path += "V" + y
				last = y
			}
		}
		panel.Areas = append(panel.Areas, memoryArea{useClass(u), path + "H" + px(p.PlotWidth) + "V" + px(p.PlotHeight) + "z"})
	}
	panel.Bands = c.bands(place, course, p.PlotWidth)
	total := c.Account.Places[place].Peak.Total()
	panel.Peak = memoryMark{(float64(peak) + 0.5) * width, p.height(total, most), "middle", bytesText(total)}
	if panel.Peak.X < 40 {
		panel.Peak.Class = "start"
	} else if panel.Peak.X > p.PlotWidth-40 {
		panel.Peak.Class = "end"
	}
	return panel
}

// squeeze makes no more columns of a course than there is room for: of samples that fall into one it keeps that with most.
// It also finds the highest column.
func squeeze(course []schedule.Sample, room int) (columns []schedule.Bytes, peak int) {
	room = min(room, len(course))
	columns = make([]schedule.Bytes, room)
	for i, x := range course {
		at := i * room / len(course)
		if x.Live.Total() > columns[at].Total() {
			columns[at] = x.Live
		}
		if columns[at].Total() > columns[peak].Total() {
			peak = at
		}
	}
	return columns, peak
}

// bands are what a course goes through. What happens between two ops of a band belongs to it.
func (c *Program) bands(place int, course []schedule.Sample, width float64) (all []memoryBand) {
	type key struct {
		class        string
		micro, stage int
	}
	keys := make([]key, len(course))
	instances := map[int][]int{} // what has forward and backward in one, by micro-batch
	for i, x := range course {
		if x.Op == nil {
			continue
		}
		k := key{micro: schedule.Once}
		kind := schedule.Instance
		if x.At >= 0 {
			in := c.Schedule.Places[place][x.At]
			s := c.Schedule.Segments[in.Segment]
			k.micro, k.stage, kind = in.Micro, s.Stage, s.Kind
		}
		if k.class = string(kind); kind == schedule.Instance {
			instances[k.micro] = append(instances[k.micro], i)
		}
		keys[i] = k
	}
	for _, samples := range instances {
		phases := make([]ir.Phase, len(samples))
		for j, i := range samples {
			phases[j] = course[i].Op.Phase
		}
		for j, phase := range ascending(phases) {
			keys[samples[j]].class = phase.String()
		}
	}
	var last key
	unit := width / float64(len(course))
	for i, x := range course {
		k := keys[i]
		if x.Op == nil {
			continue
		}
		if len(all) == 0 || k != last {
			last = k
			b := memoryBand{Class: k.class, X: float64(i) * unit, Text: k.class, name: k.class}
			if k.micro != schedule.Once && c.numbered() {
				b.Text, b.name = fmt.Sprint(k.micro), fmt.Sprintf("%s of micro-batch %d", k.class, k.micro)
			}
			all = append(all, b)
		}
		b := &all[len(all)-1]
		b.W = float64(i+1)*unit - b.X
		if x.Live.Total() > b.most.Total() {
			b.most = x.Live
		}
	}
	return all
}

// ascending are phases that only ever rise and differ from those of as few ops as possible. Ops do not run phase by phase: what
// is computed of a metric after backward is no forward of its own, and a constant of backward that is computed early does not
// begin it; between devices that split a model, all that waits for nobody comes first.
func ascending(phases []ir.Phase) []ir.Phase {
	const n = int(ir.Apply) + 1
	cost := make([][n]int, len(phases)+1) // of the first so many, if the last has a phase or an earlier one
	from := make([][n]int, len(phases)+1) // the phase of the last, then
	for i, phase := range phases {
		for p := range n {
			cost[i+1][p], from[i+1][p] = cost[i][p]+one(ir.Phase(p) != phase), p
			if p > 0 && cost[i+1][p-1] <= cost[i+1][p] {
				cost[i+1][p], from[i+1][p] = cost[i+1][p-1], from[i+1][p-1]
			}
		}
	}
	result := make([]ir.Phase, len(phases))
	for i, p := len(phases), n-1; i > 0; i-- {
		p = from[i][p]
		result[i-1] = ir.Phase(p)
	}
	return result
}

// numbered tells whether there are micro-batches to tell apart.
func (c *Program) numbered() bool { return c.Schedule != nil && c.Schedule.Local.MicroBatches > 1 }

// legend explains what the picture has, from y on: uses, then what devices do. It returns the last line.
func (p *memoryPicture) legend(used map[string]bool, numbers bool, y float64) float64 {
	x := p.Left
	add := func(class, text string) {
		if !used[class] {
			return
		}
		width := float64(len(text))*memoryLetter + 38
		if x > p.Left && x+width > p.Width {
			x, y = p.Left, y+20
		}
		p.Legend = append(p.Legend, memoryMark{x, y, class, text})
		x += width
	}
	for _, u := range schedule.Uses() {
		add(useClass(u), u.String())
	}
	x, y = p.Left, y+20
	for _, part := range []schedule.Part{schedule.Forward, schedule.Backward, schedule.Weights, schedule.Apply} {
		text := string(part)
		if part == schedule.Weights {
			text = "gradients of weights"
		}
		if numbers && part == schedule.Forward {
			text += " of a micro-batch"
		}
		add(string(part), text)
	}
	return y
}

// useClass is the class of a use in picture_memory.css.
func useClass(u schedule.Use) string { return "for-" + strings.ReplaceAll(u.String(), " ", "-") }

// px writes a length, rounded so that pictures stay small.
func px(x float64) string { return fmt.Sprintf("%g", math.Round(x*10)/10) }

// shorten takes as much of a text as fits, on one line and without what XML does not allow.
func shorten(text string, most int) string {
	runes := []rune(plain(text))
	if len(runes) > most {
		return string(runes[:max(most-1, 0)]) + "…"
	}
	return string(runes)
}
