// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package explain

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/gomlx/compute/support/humanize"

	"github.com/easyparallel/epl/internal/words"
	"github.com/easyparallel/epl/ir"
	"github.com/easyparallel/epl/plan"
	"github.com/easyparallel/epl/schedule"
)

// writeWays prints which ways EPL compared, and why it did not choose the others.
func (r *report) writeWays(w *strings.Builder) {
	if r.Plan == nil || len(r.Plan.Ways) == 0 {
		return
	}
	w.WriteString("\n  ways to run it, compared by EPL (auto.auto_parallel); times and memory are predicted\n")
	t := table{head: []string{"way", ">micro-batches", ">samples", ">step", ">device-hours", ">memory", "why"}}
	for _, x := range foldWays(r.Plan.Ways) {
		memory := ""
		if x.Peak > 0 {
			memory = humanize.Bytes(x.Peak)
		}
		t.row(x.String(), x.MicroBatches, x.Samples, humanize.Duration(x.Step), fmt.Sprintf("%.3g", x.DeviceHours()), memory, x.reason())
	}
	t.write(w, "    ")
	sentences(w, "samples are those of a step; device-hours are for a million samples, all devices together; memory is that of the device that needs most")
	t = table{head: []string{"if", ">step", "best then", ">its step"}}
	for _, c := range changeRows(r.Plan.Changes) {
		t.row(c.If, c.Step, c.Best, c.BestStep)
	}
	t.section(w, "on another cluster, the best of these ways")
}

// changeRow is a [plan.Change] in words.
type changeRow struct{ If, Step, Best, BestStep string }

func changeRows(all []plan.Change) (rows []changeRow) {
	for _, c := range all {
		row := changeRow{If: c.If, Step: "does not fit", Best: "none of those compared"}
		if c.Step > 0 {
			row.Step, row.Best = humanize.Duration(c.Step), "the same"
		}
		if c.Best != "" {
			row.Best, row.BestStep = c.Best, humanize.Duration(c.BestStep)
		}
		rows = append(rows, row)
	}
	return rows
}

// wayRow is a way, or several that differ in settings: the best of them.
type wayRow struct {
	*plan.Way
	more int // others
}

// foldWays makes one row of the ways that differ only in settings, those that save memory and those of an order, but for the one that has none of them. Ways come best first.
func foldWays(all []plan.Way) (rows []wayRow) {
	plain, set := map[string]int{}, map[string]int{} // the row of a way without such settings, and with, by its name without
	for i := range all {
		w, bare := &all[i], all[i]
		bare.Settings, bare.Stages, bare.PerDevice = nil, w.Stages/max(w.PerDevice, 1), 0
		name := bare.String()
		n, known := set[name]
		same, fits := plain[name]
		switch {
		case w.String() == name:
			plain[name] = len(rows)
			rows = append(rows, wayRow{w, 0})
		case known:
			rows[n].more++
			if best := rows[n].Way; best.Unfit && (!w.Unfit || w.Peak > 0 && w.Peak < best.Peak) {
				rows[n].Way = w
			}
		case fits && !rows[same].Unfit:
			rows[same].more++
		default:
			set[name] = len(rows)
			rows = append(rows, wayRow{w, 0})
		}
	}
	return rows
}

// reason says why a way was not chosen, or that it was.
func (w wayRow) reason() string {
	text := cmp.Or(w.Why, "chosen")
	if w.more > 0 {
		text += fmt.Sprintf("; %d more with other settings", w.more)
	}
	return text
}

// writeCut prints how EPL cut the program into stages.
func (r *report) writeCut(w *strings.Builder) {
	if r.Cut == nil {
		return
	}
	w.WriteString("\n  stages, cut by EPL (auto.auto_parallel); times are estimates for a micro-batch\n")
	var t table
	t.head, t.rows = r.Cut.Table()
	t.write(w, "    ")
	sentences(w, r.Cut.Notes...)
}

// writeSchedule prints how a training step runs on several devices or micro-batches.
func (r *report) writeSchedule(w *strings.Builder) {
	s := r.Schedule
	if s == nil && len(r.Program.Notes) == 0 {
		return
	}
	w.WriteString("\n  a step\n")
	training := s != nil && r.Recorded.IsTraining()
	if training {
		l := s.Local
		dealt := fmt.Sprintf("%s × %s", words.Count(l.Replicas, "model replica"), words.Count(l.MicroBatches, "micro-batch"))
		if shares := r.Plan.Shares; shares != nil {
			dealt = fmt.Sprintf("%s × %s micro-batches", words.Count(l.Replicas, "model replica"), shares)
		}
		sentences(w, fmt.Sprintf("%s = %s of the program per step; gradients, results and state are merged", dealt, words.Count(l.Instances(), "instance")))
	}
	switch {
	case s == nil:
	case !training || s.Pipeline.Stages > 1:
		r.writeStages(w, training)
	default:
		r.writeInstance(w)
	}
	for _, n := range r.Program.Notes { // what passes have to say
		if n.Head == nil {
			sentences(w, n.Line)
			continue
		}
		t := table{n.Head, n.Rows}
		t.write(w, "    ")
	}
	r.writeTogether(w)
	if !training {
		return
	}
	t := table{head: []string{">bucket", "merged by", "what", ">values", ">bytes", "after"}}
	for i, b := range s.Buckets {
		how := b.How.String()
		if b.Parts {
			how += ", reduce-scatter"
		}
		t.row(i, how, bucketText(b), len(b.Merges), b.Bytes(), s.Segments[b.After].Name)
	}
	t.write(w, "    ")
}

// writeTogether says which devices run segments together, with what collectives inside, and which communicate through the host though they need not.
func (r *report) writeTogether(w *strings.Builder) {
	for place, err := range r.Host {
		if err != nil {
			sentences(w, fmt.Sprintf("devices of stage group %d communicate through the host, because %v", place, err))
		}
	}
	if r.Lists == nil {
		return
	}
	for place := range r.Lists.Places {
		segments, count := 0, map[ir.Collective]int{}
		for _, s := range r.Lists.Segments {
			if s.Place != place || s.Mesh == nil || s.Mesh.Devices() == 1 {
				continue
			}
			segments++
			for _, op := range s.First.Ops {
				if a, ok := op.Attrs.(*ir.Communicate); ok {
					count[a.How]++
				}
			}
		}
		if segments == 0 {
			continue
		}
		var inside []string
		for _, how := range slices.Sorted(maps.Keys(count)) {
			inside = append(inside, fmt.Sprintf("%d %s", count[how], how))
		}
		sentences(w, fmt.Sprintf("devices of stage group %d run %s together, with collectives inside: %s",
			place, words.Count(segments, "segment"), cmp.Or(strings.Join(inside, ", "), "none")))
		type kind struct {
			place int
			how   ir.How
			why   string
		}
		for _, some := range grouped(r.Lists.Buckets, func(b schedule.Bucket) kind { return kind{b.Place, b.How, b.Host} }) {
			values := 0
			for _, b := range some {
				values += len(b.Merges)
			}
			if b := some[0]; b.Place == place && b.Host != "" {
				sentences(w, fmt.Sprintf("the host merges %s of stage group %d by %s, because %s", words.Count(values, "value"), place, b.How, b.Host))
			}
		}
		if all, part := r.Lists.Padding(place); len(all) > 0 {
			var padded []string
			for _, x := range all {
				padded = append(padded, fmt.Sprintf("%d rows to %d in %s", x.Rows, x.Padded, words.Count(x.Values, "value")))
			}
			sentences(w, fmt.Sprintf("sizes that do not divide among devices of stage group %d are padded: %s: %.2g %% of what they have and compute is padding",
				place, strings.Join(padded, ", "), 100*part))
		}
	}
}

func (r *report) writeInstance(w *strings.Builder) {
	instance, backward := 0, 0
	for _, x := range r.Schedule.Segments {
		if x.Kind == schedule.Apply || x.Place != 0 || x.Adds != nil {
			continue
		}
		instance++
		if x.Kind != schedule.Forward { // those of a timeline are apart
			backward++
		}
	}
	sentences(w, fmt.Sprintf("an instance runs in %s; the optimizer runs once per step on every device, after the merges", words.Count(instance, "segment")))
	if backward > 1 {
		sentences(w, "while one bucket of gradients is reduced, backward computes the next")
	}
}

// writeStages prints the pipeline. A program that does not train goes through it once, forward.
func (r *report) writeStages(w *strings.Builder, training bool) {
	p := r.Schedule.Pipeline
	order, err := p.Order()
	if err != nil {
		sentences(w, err.Error())
		return
	}
	t := table{head: []string{">stage", "TaskGraph", "devices of a replica", ">variables", ">sends"}}
	text := "a batch goes forward through " + words.Count(p.Stages, "stage")
	if training {
		t.head = append(t.head[:4], ">forward sends", ">backward sends", ">in flight", "order")
		text = fmt.Sprintf("%s in the order %s", words.Count(p.Stages, "stage"), p.Strategy)
		if p.Groups < p.Stages {
			text += fmt.Sprintf(" on %s of devices", words.Count(p.Groups, "group"))
		}
		text += fmt.Sprintf("; with equal stages and instant transfers the bubble is %.1f%% of the time", 100*plan.Idle(p))
	}
	sentences(w, text)
	for i, stage := range r.Final.Stages {
		names, held, on, back := r.stage(i)
		cells := []any{i, names, placesText(stage.Places), held, on}
		if group := i % p.Groups; training {
			cells = append(cells, back, p.InFlight(group), orderText(p, order[group]))
		}
		t.row(cells...)
	}
	t.write(w, "    ")
	if training {
		sentences(w, "bytes sent are those of a micro-batch; in flight is how many micro-batches a device keeps values of at most; "+
			"once per step stages send each other "+bytesText(r.Schedule.OnceBytes()))
	}
}

// stage has the TaskGraphs of a stage, the bytes of its variables, and those it sends in forward and backward of a micro-batch.
func (r *report) stage(i int) (names string, held, on, back int64) {
	stage := r.Final.Stages[i]
	var titles []string
	for _, x := range stage.TaskGraphs {
		titles = append(titles, plain(x.Title()))
	}
	for _, x := range r.Schedule.Variables {
		if slices.Contains(x.Places, r.Schedule.PlaceOf(stage.Places[0])) {
			held += x.Param.Shape.ByteSize()
		}
	}
	for _, x := range r.Schedule.Transfers {
		switch {
		case x.Once || x.Input || x.From != r.Schedule.PlaceOf(stage.Places[0]) || r.stageOf(x.Value) != i:
		case x.Value.Op.Phase == ir.Forward:
			on += r.Schedule.Carries(x)
		default:
			back += r.Schedule.Carries(x)
		}
	}
	return strings.Join(titles, ", "), held, on, back
}

func (r *report) stageOf(v *ir.Value) int {
	return slices.IndexFunc(r.Final.Stages, func(s ir.Stage) bool { return slices.Contains(s.TaskGraphs, v.Op.TaskGraph) })
}

// placesText lists numbers; those of many that follow each other as a range.
func placesText(places []int) string {
	if n := len(places); n > 8 && places[n-1]-places[0] == n-1 {
		return fmt.Sprintf("%d…%d", places[0], places[n-1])
	}
	text := fmt.Sprint(places)
	return strings.Trim(text, "[]")
}

// orderText is what a group does, as far as it fits.
func orderText(p schedule.Pipeline, tasks []schedule.Task) string {
	const most = 12
	text := p.Text(tasks[:min(most, len(tasks))])
	if len(tasks) > most {
		text += " …"
	}
	return text
}

func bucketText(b schedule.Bucket) string {
	if b.Merges[0].Phase == ir.Backward {
		if b.How == ir.Concat {
			return "rows or indices of a sparse gradient"
		}
		return "gradients"
	}
	if b.How == ir.First {
		return "state of the random number generator"
	}
	return "results and state"
}
