// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package explain

import (
	"crypto/sha256"
	_ "embed"
	"encoding/base64"
	"encoding/json"
	"html/template"
	"io"
	"strings"

	"github.com/pkg/errors"

	"github.com/easyparallel/epl/internal/words"
	"github.com/easyparallel/epl/ir"
)

// The page is one file without anything from outside. Its summary and its picture are HTML and SVG, made here; the
// columns, which would be too much for a browser at once, are a JSON value ([pageModel]) of which page.js shows the
// part that is in view.
//
// Names in a program are the user's, so nothing here is trusted: html/template escapes the summary, encoding/json
// writes "<" as \u003c, page.js makes text nodes only, and the page's content security policy runs no script but
// page.js itself.
var (
	//go:embed page.html
	pageHTML string
	//go:embed page.css
	pageCSS string
	//go:embed page.js
	pageJS string

	pageTemplate = template.Must(template.New("page").Funcs(template.FuncMap{
		"bytes": bytesText,
		"count": words.Count,
		"dash":  dash,
		"s":     plural,
		"id":    func(v *ir.Value) string { return strings.TrimPrefix(v.String(), "%") },
		"shape": func(v *ir.Value) string { return ir.ShapeText(v.Shape) },
		"class": colourClass,
	}).Parse(pageHTML + planHTML + glanceHTML))
)

// colours is how many colours TaskGraphs have; further ones get them again, paler.
const colours = 8

// colourClass is the class that gives things the colour of a TaskGraph; -1 is outside.
func colourClass(taskGraph int) string {
	if taskGraph < 0 {
		return "tg outside"
	}
	class := "tg c" + string(rune('0'+taskGraph%colours))
	if taskGraph/colours%2 == 1 {
		class += " again"
	}
	return class
}

// pageModel is what page.js reads.
type pageModel struct {
	Stages     []pageStage      `json:"stages"`
	TaskGraphs []string         `json:"taskGraphs"` // titles, by ID
	Classes    []string         `json:"classes"`    // classes for the colour, by ID; the last is that of outside
	Sizes      map[string]int64 `json:"sizes"`      // bytes of shapes
	// Slots holds, for every height in the columns, the lines shown there.
	Slots [][]span `json:"slots"`
}

type pageStage struct {
	Name    string `json:"name"`
	Why     string `json:"why"`
	File    string `json:"file"`
	Ops     int    `json:"ops"` // of main
	Added   int    `json:"added"`
	Changed int    `json:"changed"`
	Removed int    `json:"removed"`
}

// newPageModel puts slots into the form of the page.
func newPageModel(c *Program, stages []Stage, slots []*slot, sizes map[string]int64) *pageModel {
	m := &pageModel{Sizes: sizes}
	for _, s := range stages {
		m.Stages = append(m.Stages, pageStage{Name: s.Name, Why: s.Why, File: s.File, Ops: s.Program.NumOps()})
	}
	for _, t := range c.Recorded.TaskGraphs {
		m.TaskGraphs = append(m.TaskGraphs, t.Title())
		m.Classes = append(m.Classes, colourClass(t.ID))
	}
	m.Classes = append(m.Classes, colourClass(-1))
	for _, s := range slots {
		m.Slots = append(m.Slots, s.lines)
		for n, l := range s.lines {
			if l.Kind != opLine {
				continue
			}
			follows := n > 0 && s.lines[n-1].Until == l.From
			goesOn := n+1 < len(s.lines) && s.lines[n+1].From == l.Until
			switch {
			case follows:
				m.Stages[l.From].Changed++
			case l.From > 0:
				m.Stages[l.From].Added++
			}
			if !goesOn && l.Until < len(stages) {
				m.Stages[l.Until].Removed++
			}
		}
	}
	return m
}

// Stage is a program at one point of its way.
type Stage struct {
	Name, Why string
	File      string // the file that has it as text; "" if there is none
	Program   *ir.Program
}

// WritePage writes the page about a program and the stages it went through.
func (c *Program) WritePage(w io.Writer, stages []Stage) error {
	slots, sizes := align(stages)
	model := newPageModel(c, stages, slots, sizes)
	encoded, err := json.Marshal(model)
	if err != nil {
		return errors.Wrap(err, "epl: internal error: the page's model")
	}
	last := len(stages) - 1
	pictures := []*picture{drawPicture(slots, sizes, last, c.Recorded.TaskGraphs)}
	if last > 0 {
		pictures = append(pictures, drawPicture(slots, sizes, 0, c.Recorded.TaskGraphs))
	}
	var memory strings.Builder
	if c.Account != nil && c.Recorded.IsTraining() {
		if err := c.drawMemory(&memory, true); err != nil {
			return err
		}
	}
	plan, err := newPlanPage(c)
	if err != nil {
		return err
	}
	hash := sha256.Sum256([]byte(pageJS))
	return errors.Wrap(pageTemplate.Execute(w, map[string]any{
		"Plan":     plan,
		"Report":   newReport(c, stages[last].Program),
		"Phases":   []ir.Phase{ir.Forward, ir.Backward, ir.Apply},
		"Stages":   model.Stages,
		"Pictures": pictures,
		"Memory":   template.HTML(memory.String()),
		"CSS":      template.CSS(pageCSS),
		"Script":   template.JS(pageJS),
		"Hash":     "sha256-" + base64.StdEncoding.EncodeToString(hash[:]),
		"Model":    template.JS(encoded),
	}), "epl: internal error: the page")
}
