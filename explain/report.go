// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package explain

import (
	"fmt"
	"slices"
	"strings"

	"github.com/gomlx/compute/support/humanize"

	"github.com/easyparallel/epl/cluster"
	"github.com/easyparallel/epl/config"
	"github.com/easyparallel/epl/internal/words"
	"github.com/easyparallel/epl/ir"
	"github.com/easyparallel/epl/passes"
)

// report is what there is to say about a compiled program. [Program.Write] prints it and the page shows it, so that the two never disagree.
type report struct {
	*Program
	Final     *ir.Program // after the last pass that ran
	Decisions []decision  // those of the plan of a training program, for the page
	Kind      string      // "training step"
	Unknown   string      // what EPL does not know, as a sentence
	Refused   string      // why the program does not run; "" if it does

	VariableBytes    int64
	Updates, Results int // outputs of the program

	TaskGraphs []taskGraphReport // the last has ID -1 if anything lies outside every TaskGraph
	Variables  []variableReport
	Placement  []string // sentences; none if the program was not placed
	Steps      []stepReport
	Off        []string // passes that are switched off
}

// taskGraphReport counts ops without parameters and constants, which compute nothing.
type taskGraphReport struct {
	ID          int // -1: outside every TaskGraph
	Title       string
	Strategy    string
	Ops, Final  [3]int // per phase, as recorded and after the last pass
	Variables   int
	Bytes       int64 // of the variables
	AnnotatedAt string
}

type variableReport struct {
	*ir.Variable
	Shape    string
	Bytes    int64
	Gradient *ir.Value // nil: none
	NewValue string    // for people: a value, "unchanged" or "unknown"
}

// decision is one of a plan, with where it comes from if that is the configuration.
type decision struct{ Name, Value, Why string }

type stepReport struct {
	passes.Step
	Why string
}

// newReport describes a program. final is the program after the last pass that ran.
func newReport(c *Program, final *ir.Program) *report {
	p := c.Recorded
	r := &report{Program: c, Final: final, Kind: "training step"}
	switch {
	case !p.OutputsKnown:
		r.Kind = "not annotated"
		r.Unknown = "EPL did not see the GoMLX graph of this program, because nothing in it is annotated: " +
			"all its outputs count as results, and all of it is one TaskGraph."
	case !p.IsTraining():
		r.Kind = "no gradients"
		r.Unknown = "EPL knows of no gradients: this evaluates or predicts, or its optimizer is not wrapped by epl.Optimizer."
	}
	if c.Plan != nil && p.IsTraining() {
		why := map[string]string{}
		for _, s := range c.Plan.Settings {
			why[s.Key] = s.Why
		}
		for _, f := range c.Plan.Facts() {
			r.Decisions = append(r.Decisions, decision{f.Name, shorten(f.Value, 200), why[f.Name]})
		}
	}
	for _, o := range p.Outputs {
		r.Updates += one(o.Updates != nil)
	}
	if r.Results = len(p.Outputs) - r.Updates; p.Guard() != nil {
		r.Results-- // GoMLX does not get it
	}
	if c.Err != nil {
		r.Refused = strings.TrimPrefix(c.Err.Error(), fmt.Sprintf("program %q: ", p.Name))
	}
	r.taskGraphs()
	r.variables()
	switch {
	case c.Placement != nil:
		r.Placement = placementSentences(c.Placement, c.Config)
		if c.Plan.Why != "" {
			r.Placement = append([]string{c.Plan.Why}, r.Placement...)
		}
	case c.Err == nil && !p.IsTraining():
		r.Placement = []string{"it runs as a whole, on the first device of every worker"}
	}
	if c.Plan != nil && c.Plan.Dealt != "" {
		r.Placement = append(r.Placement, c.Plan.Dealt)
	}
	r.steps()
	return r
}

func (r *report) taskGraphs() {
	p := r.Recorded
	at := func(t *ir.TaskGraph) *taskGraphReport {
		if t == nil {
			return &r.TaskGraphs[len(p.TaskGraphs)]
		}
		return &r.TaskGraphs[t.ID]
	}
	for _, t := range p.TaskGraphs {
		r.TaskGraphs = append(r.TaskGraphs, taskGraphReport{ID: t.ID, Title: t.Title(), Strategy: strategyText(t), AnnotatedAt: annotatedAt(t)})
	}
	outside := taskGraphReport{ID: -1, Title: "outside", Strategy: "-", AnnotatedAt: "nowhere, or shared by several"}
	r.TaskGraphs = append(r.TaskGraphs, outside)
	for _, op := range p.Main.Ops {
		at(op.TaskGraph).Ops[op.Phase] += one(!op.IsLeaf())
	}
	for _, op := range r.Final.Main.Ops {
		at(op.TaskGraph).Final[op.Phase] += one(!op.IsLeaf())
	}
	for _, v := range p.Variables {
		t := at(v.TaskGraph)
		t.Variables++
		t.Bytes += v.Param.Bytes()
		r.VariableBytes += v.Param.Bytes()
	}
	if *at(nil) == outside {
		r.TaskGraphs = r.TaskGraphs[:len(p.TaskGraphs)]
	}
}

func (r *report) variables() {
	p := r.Recorded
	gradients := map[*ir.Variable]*ir.Value{}
	for _, g := range p.Gradients {
		gradients[g.Variable] = g.Value
	}
	for _, v := range p.Variables {
		x := variableReport{Variable: v, Shape: ir.ShapeText(v.Param.Shape), Bytes: v.Param.Bytes(), Gradient: gradients[v], NewValue: "unknown"}
		if v.Update != nil {
			x.NewValue = v.Update.String()
		} else if p.OutputsKnown {
			x.NewValue = "unchanged"
		}
		r.Variables = append(r.Variables, x)
	}
}

// steps tells what passes did, in the order of the table. If the program was refused, passes that did not run may be on.
func (r *report) steps() {
	forXLA := slices.ContainsFunc(passes.Table, func(p passes.Pass) bool {
		return p.XLA && slices.ContainsFunc(r.Program.Steps, func(s passes.Step) bool { return s.Pass == p.Name })
	})
	for _, p := range passes.Table {
		if i := slices.IndexFunc(r.Program.Steps, func(s passes.Step) bool { return s.Pass == p.Name }); i >= 0 {
			r.Steps = append(r.Steps, stepReport{r.Program.Steps[i], p.Why})
		} else if r.Err == nil && (!p.XLA || forXLA) {
			r.Off = append(r.Off, p.Name)
		}
	}
}

func strategyText(t *ir.TaskGraph) string {
	s := t.Strategy()
	for _, pin := range t.Pins {
		s += fmt.Sprintf(" shard %s at dim %d", plain(pin.Variable), pin.Dim)
	}
	return s
}

func annotatedAt(t *ir.TaskGraph) string {
	switch {
	case t.Implicit:
		return "nowhere: it is all of the program"
	case t.Default && t.Source == "":
		return "default strategy of Init"
	case t.Default:
		return string(t.Source) + " (default)"
	}
	return string(t.Source)
}

// placementSentences say how many replicas there are, and why; which TaskGraphs share devices; and who is where.
func placementSentences(p *cluster.Placement, cfg *config.Config) []string {
	all, replica := map[cluster.Device]bool{}, map[cluster.Device]bool{}
	shared := false
	for _, v := range p.Virtual {
		for i, group := range v.Groups {
			for _, d := range group {
				all[d] = true
				if i == 0 {
					shared = shared || replica[d]
					replica[d] = true
				}
			}
		}
	}
	s := []string{"1 model replica, on " + words.Count(len(all), "device")}
	if p.Replicas > 1 {
		s[0] = fmt.Sprintf("%d devices hold %d model replicas of %s each", len(all), p.Replicas, words.Count(len(replica), "device"))
	}
	if shared {
		setting := "cluster.colocate_split_and_replicate"
		if cfg != nil && cfg.Pipeline.StagesPerDevice > 1 {
			setting = fmt.Sprintf("pipeline.stages_per_device = %d", cfg.Pipeline.StagesPerDevice)
		}
		s = append(s, "TaskGraphs share devices ("+setting+")")
	}
	if cfg != nil && cfg.Cluster.CoresPerDevice > 0 {
		s = append(s, fmt.Sprintf("each device has %s (cluster.cores_per_device)", words.Count(cfg.Cluster.CoresPerDevice, "thread")))
	}
	s = append(s, devicesText(p))
	if len(all) > 1 {
		s = append(s, "VD is the virtual device of a TaskGraph: [ ] are its devices in a model replica; w is a worker, g a device of it")
	}
	return s
}

// devicesText is the placement's own text, with neighbours on the same devices taken together: "VD0…VD3=[g0] VD4=[g1]".
func devicesText(p *cluster.Placement) string {
	var text []string
	first, devices := "", ""
	for part := range strings.SplitSeq(strings.TrimPrefix(p.String(), "VD"), " VD") {
		name, where, _ := strings.Cut(part, "=")
		if where != devices {
			first, devices = name, where
			text = append(text, "")
		}
		names := "VD" + first
		if name != first {
			names += "…VD" + name
		}
		text[len(text)-1] = names + "=" + where
	}
	return strings.Join(text, " ")
}

func bytesText(n int64) string { return humanize.Bytes(n) }

// plural is the ending of a noun that is counted.
func plural(n int) string {
	if n == 1 {
		return ""
	}
	return "s"
}
