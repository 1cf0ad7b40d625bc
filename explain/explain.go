// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

// Package explain presents what became of a program: as text, as a page, as pictures.
//
// What goes in is data: the program as recorded and as it runs, the plan, the schedule, the account. What comes out is
// text, HTML and SVG. It decides nothing, runs nothing and knows no files. It assumes nothing of names in a program: they are the
// user's, and escaped.
package explain

import (
	"fmt"
	"slices"
	"strings"

	"github.com/pkg/errors"

	"github.com/easyparallel/epl/config"
	"github.com/easyparallel/epl/cost"
	"github.com/easyparallel/epl/internal/words"
	"github.com/easyparallel/epl/ir"
	"github.com/easyparallel/epl/plan"
	"github.com/easyparallel/epl/schedule"
	"github.com/easyparallel/epl/simulate"
)

// Program is what became of one program, and what its text, its page and its pictures are made of.
type Program struct {
	plan.Result
	Plan   *plan.Plan // all that was decided
	Number int        // of the program in its process, from 1
	Err    error      // why it was refused, if it was
	Page   string     // the page of EPL_DUMP about it; "" if there is none
	Config *config.Config
	// Measured is the account by what devices say of the program now that it is compiled; nil: they do not tell.
	Measured *schedule.Account
	// Lists are those that devices run where they run segments together; nil: they do nowhere. Host is why devices communicate through the host, by group
	// of devices.
	Lists *schedule.Program
	Host  []error
	// Hardware is what the devices can do, and Simulated a step on them; nil: it is not known. They are for pages.
	Hardware  *cost.Cluster
	Simulated *simulate.Result
	// Unfit is why a plan cannot run, if it cannot.
	Unfit error
}

// maxVariables is how many variables are listed one by one; of more there are groups.
const maxVariables = 40

// Write tells how the program was understood, and what was done with it.
func (c *Program) Write(w *strings.Builder) {
	final := c.Final
	if final == nil {
		final = c.Recorded
	}
	newReport(c, final).write(w, c.Page)
}

// PlanText is what there is to know of a plan without running it.
func (c *Program) PlanText() string {
	var w strings.Builder
	for _, l := range c.summary() {
		fmt.Fprintf(&w, "%-7s %s\n", l.Name, l.Text)
	}
	fmt.Fprintf(&w, "\nsettings\n%s\n\n", indent(c.Config.String()))
	newReport(c, c.Final).write(&w, "")
	if c.Unfit != nil {
		fmt.Fprintf(&w, "\nit does not fit: %s\n", c.unfit())
	}
	if c.Config.AMP.DebugLog && len(c.AMP) > 0 {
		w.WriteString("\namp.debug_log\n")
		for _, line := range c.AMP {
			fmt.Fprintf(&w, "  %s\n", strings.TrimPrefix(line, "epl: amp: "))
		}
	}
	return w.String()
}

// unfit says why a plan cannot run; "" if it can.
func (c *Program) unfit() string {
	if c.Unfit == nil {
		return ""
	}
	return strings.TrimPrefix(errors.Cause(c.Unfit).Error(), "epl: ")
}

func indent(text string) string { return "  " + strings.ReplaceAll(text, "\n", "\n  ") }

// write prints the report as text. page is the file that shows more; "" if there is none.
func (r *report) write(w *strings.Builder, page string) {
	fmt.Fprintf(w, "program %d %q: %s\n", r.Number, r.Recorded.Name, r.Kind)
	if r.Refused != "" {
		paragraph(w, "REFUSED: "+r.Refused)
	}
	paragraph(w, r.counts())
	if r.Unknown != "" {
		paragraph(w, r.Unknown)
	}
	if page != "" {
		fmt.Fprintf(w, "  page: %s\n", page)
	}
	r.writeTaskGraphs(w)
	if len(r.Placement) > 0 {
		w.WriteString("\n  placement\n")
		sentences(w, r.Placement...)
	}
	r.writeWays(w)
	r.writeCut(w)
	r.writeSchedule(w)
	r.writeMemory(w)
	r.writeEngine(w)
	r.writeVariables(w, page)
	r.writeCollections(w)
	r.writeSteps(w)
}

// paragraph prints wrapped text, indented.
func paragraph(w *strings.Builder, text string) {
	for line := range strings.SplitSeq(text, "\n") {
		wrapped(w, "  ", line)
	}
}

// sentences prints lines of a section, wrapped.
func sentences(w *strings.Builder, all ...string) {
	for _, s := range all {
		wrapped(w, "    ", s)
	}
}

func wrapped(w *strings.Builder, indent, text string) {
	for _, part := range wrap(text, textWidth-len(indent)) {
		w.WriteString(indent + part + "\n")
	}
}

func (r *report) counts() string {
	s := words.Count(r.Recorded.NumOps(), "op")
	if slices.ContainsFunc(r.Steps, func(s stepReport) bool { return s.Changes > 0 }) {
		s += fmt.Sprintf(", %d after passes", r.Final.NumOps())
	}
	s += fmt.Sprintf("; %s; %s of %s", words.Count(len(r.Recorded.Inputs), "input"), words.Count(len(r.Variables), "variable"), bytesText(r.VariableBytes))
	if n := len(r.Recorded.Gradients); n > 0 {
		s += "; " + words.Count(n, "gradient")
	}
	s += "; " + words.Count(r.Updates+r.Results, "output")
	if r.Updates > 0 {
		s += fmt.Sprintf(" (%s, %s)", words.Count(r.Updates, "update"), words.Count(r.Results, "result"))
	}
	return s
}

func (r *report) writeTaskGraphs(w *strings.Builder) {
	t := table{head: []string{">#", "name", "strategy", ">forward", ">backward", ">apply", ">variables", ">bytes", "annotated at"}}
	for _, g := range r.TaskGraphs {
		t.row(orDash(g.ID >= 0, fmt.Sprint(g.ID)), plain(g.Title), g.Strategy, dash(g.Ops[ir.Forward]), dash(g.Ops[ir.Backward]), dash(g.Ops[ir.Apply]),
			dash(g.Variables), g.Bytes, g.AnnotatedAt)
	}
	t.section(w, "TaskGraphs, with ops as recorded (parameters and constants not counted)")
}

func (r *report) writeVariables(w *strings.Builder, page string) {
	if len(r.Variables) > maxVariables {
		r.writeVariableGroups(w, page)
		return
	}
	t := table{head: []string{"path", "shape", ">bytes", "TaskGraph", "gradient", "new value"}}
	for _, v := range r.Variables {
		t.row(pathText(v.Path), v.Shape, v.Bytes, plain(v.TaskGraph.Title()), orDash(v.Gradient != nil, fmt.Sprint(v.Gradient)), v.NewValue)
	}
	t.section(w, "variables")
}

func (r *report) writeVariableGroups(w *strings.Builder, page string) {
	all := "the page that EPL_DUMP=directory writes lists each"
	if page != "" {
		all = "the page lists each"
	}
	t := table{head: []string{"path", "TaskGraph", ">variables", ">bytes", ">trainable", ">gradients", ">updated"}}
	for _, g := range groupVariables(r.Variables) {
		t.row(g.path, g.taskGraphText(), len(g.variables), g.bytes(), dash(g.count(func(v variableReport) bool { return v.Trainable })),
			dash(g.count(func(v variableReport) bool { return v.Gradient != nil })), dash(g.count(func(v variableReport) bool { return v.Update != nil })))
	}
	t.section(w, "variables, in groups ("+all+")")
}

func (r *report) writeCollections(w *strings.Builder) {
	const most = 4 // values shown of each
	t := table{head: []string{"key", ">values", "which"}}
	for _, c := range r.Recorded.Collections {
		var which []string
		for _, v := range c.Values[:min(most, len(c.Values))] {
			text := v.String() + " " + ir.ShapeText(v.Shape)
			if v.Op.Source != "" {
				text += " (" + string(v.Op.Source) + ")"
			}
			which = append(which, text)
		}
		if more := len(c.Values) - most; more > 0 {
			which = append(which, fmt.Sprintf("and %d more", more))
		}
		t.row(plain(c.Key), len(c.Values), strings.Join(which, ", "))
	}
	t.section(w, "collections")
}

func (r *report) writeSteps(w *strings.Builder) {
	if len(r.Steps) == 0 {
		if r.Refused == "" {
			w.WriteString("\n  passes: none; it runs op by op as GoMLX built it\n")
		}
		return
	}
	w.WriteString("\n  passes\n")
	t := table{head: []string{"name", ">changes", ">ops", "why"}}
	var idle []string
	for _, s := range r.Steps {
		if s.Changes == 0 && s.OpsBefore == s.OpsAfter {
			idle = append(idle, s.Pass)
			continue
		}
		t.row(s.Pass, s.Changes, fmt.Sprintf("%d → %d", s.OpsBefore, s.OpsAfter), s.Why)
	}
	if len(t.rows) > 0 {
		t.write(w, "    ")
	}
	if len(idle) > 0 {
		fmt.Fprintf(w, "    found nothing to change: %s\n", strings.Join(idle, ", "))
	}
	if len(r.Off) > 0 {
		fmt.Fprintf(w, "    switched off: %s\n", strings.Join(r.Off, ", "))
	}
}
