// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package trace

import (
	"cmp"
	"fmt"
	"html/template"
	"io"
	"math"
	"strconv"
	"strings"

	"github.com/pkg/errors"

	"github.com/easyparallel/epl/internal/words"
)

// mostOps is how many ops the text names. The others are added up.
const mostOps = 20

// WriteText writes the advice, and tables of where the time went.
func (p *Profile) WriteText(w io.Writer) error {
	_, err := fmt.Fprintf(w, "%s\n\n%s\n\n%s", p.Advice(), p.title(), p.tables())
	return errors.Wrap(err, "epl: the profile as text")
}

// title says what the tables are of.
func (p *Profile) title() string {
	which := fmt.Sprintf("step %d", p.First)
	if p.Last > p.First {
		which = fmt.Sprintf("steps %d to %d", p.First, p.Last)
	}
	text := fmt.Sprintf("%s, %s, on %s", plain(p.Program), which, words.Count(p.Devices, "device"))
	if p.Workers > 1 {
		text += fmt.Sprintf(" of %d workers", p.Workers)
	}
	if p.Pipeline.Stages > 0 {
		text += ": " + plain(p.Pipeline.String())
	}
	text += ". Times are sums over devices and steps."
	if p.Steps == 1 {
		text += " One step says nothing of the time between steps."
	}
	return text
}

// tables are all of them.
func (p *Profile) tables() string {
	var b strings.Builder
	rows := [][]string{{"part", "time", "share"}}
	for _, part := range p.Parts {
		rows = append(rows, []string{part.Name, duration(part.Time), percent(float64(part.Time) / float64(max(p.Total, 1)))})
	}
	align(&b, append(rows, []string{"all", duration(p.Total), percent(1)}))
	if len(p.Stages) > 1 {
		rows := [][]string{{"stage", "devices", "forward", "backward", "other", "work of a device"}}
		for _, s := range p.Stages {
			rows = append(rows, []string{strconv.Itoa(s.Stage), strconv.Itoa(s.Devices), duration(s.Forward), duration(s.Backward), duration(s.Other), duration(s.Work())})
		}
		b.WriteString("\n")
		align(&b, rows)
	}
	if len(p.Traffic) > 0 {
		rows := [][]string{{"communication", "calls", "bytes", "bytes a call", "time", "exposed", "GB/s"}}
		for _, t := range p.Traffic {
			rows = append(rows, []string{plain(t.Op), strconv.Itoa(t.Calls), bytesText(t.Bytes), bytesText(t.Bytes / int64(max(t.Calls, 1))),
				duration(t.Time), duration(t.Exposed), digits(t.Rate())})
		}
		b.WriteString("\n")
		align(&b, rows)
	}
	if p.Peak.Bytes > 0 {
		b.WriteString("\n")
		p.Peak.table(&b)
	}
	if len(p.Ops) == 0 {
		b.WriteString("\nThe timeline has no times of single ops: these devices do not tell them.\n")
		return b.String()
	}
	p.opTable(&b, "kind of op", p.kinds(), func(o OpTime) string { return plain(o.Kind) })
	if lines := p.Lines(); len(lines) > 1 || lines[0].Line != "" {
		p.opTable(&b, "line of the model", lines, func(o OpTime) string { return plain(cmp.Or(o.Line, "not known")) })
	}
	if graphs := p.TaskGraphs(); len(graphs) > 1 {
		p.opTable(&b, "TaskGraph", graphs, func(o OpTime) string { return plain(cmp.Or(o.TaskGraph, "not known")) })
	}
	p.opTable(&b, "op", p.Ops, func(o OpTime) string {
		text := plain(o.Name)
		if o.Task != "" {
			text = o.Task + ": " + text
			if p.Pipeline.Stages > 1 {
				text = fmt.Sprintf("stage %d, %s", o.Stage, text)
			}
		}
		return text
	})
	return b.String()
}

// opTable writes one line for each op, of the longest. Shares are of what all ops take.
func (p *Profile) opTable(b *strings.Builder, head string, ops []OpTime, name func(OpTime) string) {
	var all, rest OpTime
	for i, o := range ops {
		all.plus(o)
		if i >= mostOps-1 {
			rest.plus(o)
		}
	}
	row := func(name string, o OpTime) []string {
		took := float64(max(o.Time, 1))
		flops, speed, best := "-", "-", "-"
		if o.Flops > 0 {
			flops, speed = digits(o.Flops/1e9), digits(o.Flops/took)
		}
		if o.Best > 0 {
			best = percent(float64(o.Best) / took)
		}
		return []string{name, duration(o.Time), percent(float64(o.Time) / float64(max(all.Time, 1))), strconv.FormatFloat(math.Round(o.Calls), 'f', -1, 64),
			flops, speed, bytesText(int64(o.Bytes)), digits(o.Bytes / took), best}
	}
	rows := [][]string{{head, "time", "share", "kernels", "GFLOP", "GFLOP/s", "bytes", "GB/s", "of roofline"}}
	for i, o := range ops {
		if i == mostOps-1 && len(ops) > mostOps {
			rows = append(rows, row(fmt.Sprintf("%d others", len(ops)-i), rest))
			break
		}
		rows = append(rows, row(name(o), o))
	}
	if all.Best == 0 {
		for i, r := range rows {
			rows[i] = r[:len(r)-1]
		}
	}
	b.WriteString("\n")
	align(b, rows)
}

// profileFigures are the templates of the figures on the page.
func profileFigures() *template.Template {
	all := template.Must(pictureTemplate.Clone()).Funcs(template.FuncMap{
		"flamecss":  func() template.CSS { return template.CSS(flameCSS) },
		"memorycss": func() template.CSS { return template.CSS(memoryCSS) },
	})
	for _, t := range []*template.Template{flameTemplate, memoryTemplate} {
		template.Must(all.AddParseTree(t.Name(), t.Tree))
	}
	return all
}

var profileTemplate = template.Must(profileFigures().New("profile").Parse(`<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'; script-src '{{.Hash}}'">
<title>{{.Program}} – EPL profile</title>
<style>{{.CSS}}</style>
</head>
<body>
<header>
<h1>{{.Program}} <small>profile</small></h1>
<p class="note">{{.Advice}}</p>
</header>
<main>
<section aria-labelledby="h-time">
<h2 id="h-time">Where the time went</h2>
<p class="hint">{{.Title}}</p>
<div class="scroll"><pre>{{.Tables}}</pre></div>
</section>
<section aria-labelledby="h-flame">
<h2 id="h-flame">Flame graph</h2>
<p class="hint">What is below a box is part of it, and as wide as its share of the devices' time: tasks, scopes of the model, lines, ops. An op is in the scope of the variables that it reads, or that its inputs come from. Grey is lost.</p>
<div class="scroll">
{{template "flame" .Flame}}
</div>
</section>
<section aria-labelledby="h-timeline">
<h2 id="h-timeline">Timeline of {{.Which}}</h2>
<div class="scroll">
{{template "picture" .Picture}}
</div>
</section>
{{- with .Memory}}
<section aria-labelledby="h-memory">
<h2 id="h-memory">Memory of device {{$.Device}} in {{$.Which}}</h2>
<p class="hint">What lives on the device that needs most, over the step: by what it is for, and by where in the model it comes from.</p>
{{- range .}}
<div class="scroll">
{{template "memory" .}}
</div>
{{- end}}
</section>
{{- end}}
</main>
<script>{{.Script}}</script>
</body>
</html>
`))

// WriteHTML writes a page with the advice, the tables, and the timeline of one of the steps, width pixels wide.
func (p *Profile) WriteHTML(w io.Writer, step *Step, width int) error {
	return errors.Wrap(profileTemplate.Execute(w, map[string]any{
		"Program": plain(p.Program),
		"Advice":  p.Advice(),
		"Title":   p.title(),
		"Tables":  p.tables(),
		"Flame":   p.flame(width),
		"Device":  p.Peak.Device,
		"Memory":  step.curves(p.Peak.Device, width),
		"Which":   step.which(),
		"Picture": step.draw(step.Report(), width, true),
		"CSS":     template.CSS(pageCSS),
		"Script":  template.JS(labelsJS),
		"Hash":    scriptHash(labelsJS),
	}), "epl: the profile as a page")
}
