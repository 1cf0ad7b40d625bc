// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package plan

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/gomlx/compute/support/humanize"
)

// Diff says what differs between two plans, and what that costs; "" if nothing does.
func Diff(a, b *Plan) string {
	var w strings.Builder
	names, x, y := joined(a.Facts(), b.Facts())
	table := tabwriter.NewWriter(&w, 0, 0, 2, ' ', 0)
	for _, name := range names {
		if x[name] != y[name] {
			fmt.Fprintf(table, "%s\t%s\t→ %s\n", name, shown(x[name], y[name]), shown(y[name], x[name]))
		}
	}
	_ = table.Flush() // a Builder takes all
	if costs := diffCosts(a.Costs, b.Costs); costs != "" {
		if w.Len() > 0 {
			w.WriteString("\n")
		}
		w.WriteString("costs\n" + costs)
	}
	return w.String()
}

// joined are the names of facts of two plans, in their order, and the values of each.
func joined(a, b []Fact) (names []string, x, y map[string]string) {
	x, y = map[string]string{}, map[string]string{}
	for _, f := range a {
		names, x[f.Name] = append(names, f.Name), f.Value
	}
	after := 0 // where the next fact of b alone goes
	for _, f := range b {
		y[f.Name] = f.Value
		if i := slices.Index(names, f.Name); i >= 0 {
			after = i + 1
			continue
		}
		names = slices.Insert(names, after, f.Name)
		after++
	}
	return names, x, y
}

// shown is a value for people: "-" if there is none, and of a long one the part where it differs from another.
func shown(value, other string) string {
	const most, before = 60, 20
	if value == "" {
		return "-"
	}
	runes := []rune(value)
	if len(runes) <= most {
		return value
	}
	same := 0
	for o := []rune(other); same < len(runes) && same < len(o) && runes[same] == o[same]; {
		same++
	}
	start := ""
	if same > most-before {
		start, runes = "…", runes[same-before:]
	}
	if len(runes) > most {
		return start + string(runes[:most]) + "…"
	}
	return start + string(runes)
}

// diffCosts compares what steps take; "" if that is the same.
func diffCosts(a, b Costs) string {
	var w strings.Builder
	table := tabwriter.NewWriter(&w, 0, 0, 2, ' ', 0)
	row := func(what string, x, y int64, text func(int64) string) {
		if x == y {
			return
		}
		change := "new"
		switch {
		case y == 0:
			change = "gone"
		case x != 0:
			change = fmt.Sprintf("%+.1f%%", 100*(float64(y)/float64(x)-1))
		}
		fmt.Fprintf(table, "  %s\t%s\t→ %s\t%s\n", what, text(x), text(y), change)
	}
	bytes := func(n int64) string { return humanize.Bytes(n) }
	row("devices of a replica", int64(len(a.Devices)), int64(len(b.Devices)), func(n int64) string { return fmt.Sprint(n) })
	x, y := a.worst(), b.worst()
	row("memory of the device that needs most", x.Peak, y.Peak, bytes)
	uses := maps.Clone(x.Uses)
	maps.Copy(uses, y.Uses)
	for _, use := range slices.Sorted(maps.Keys(uses)) {
		row("  for "+use, x.Uses[use], y.Uses[use], bytes)
	}
	row("flops of a replica, a micro-batch", a.flops(), b.flops(), flopsText)
	for _, what := range []string{GradientsMerged, sentBetween, exchangedInStage, weightsGathered} {
		row("bytes "+what, a.traffic(what), b.traffic(what), bytes)
	}
	row("idle time, if stages take equally long", int64(1000*a.Idle+0.5), int64(1000*b.Idle+0.5),
		func(n int64) string { return fmt.Sprintf("%.1f%%", float64(n)/10) })
	row("time of a step", int64(1e9*a.StepSeconds), int64(1e9*b.StepSeconds), func(n int64) string { return time.Duration(n).Round(time.Microsecond).String() })
	_ = table.Flush()
	return w.String()
}

// worst is the device that needs the most memory.
func (c Costs) worst() DeviceCost {
	d := DeviceCost{Uses: map[string]int64{}}
	for _, x := range c.Devices {
		if x.Peak > d.Peak {
			d = x
		}
	}
	return d
}

func (c Costs) flops() (n int64) {
	for _, x := range c.Devices {
		n += x.ForwardFlops + x.BackwardFlops
	}
	return n
}

func (c Costs) traffic(what string) int64 {
	for _, t := range c.Traffic {
		if t.What == what {
			return t.Bytes
		}
	}
	return 0
}

// Fact is one decision, for people, and for comparing plans.
type Fact struct{ Name, Value string }

// Facts are all decisions of the plan, without reasons and costs.
func (pl *Plan) Facts() (facts []Fact) {
	add := func(name, format string, args ...any) {
		facts = append(facts, Fact{name, fmt.Sprintf(format, args...)})
	}
	add("program", "%q of %d ops, %s", pl.Program.Name, pl.Program.Ops, pl.Program.Fingerprint)
	add("cluster", "%s", pl.Cluster)
	add("passes", "%s", pl.Passes)
	for _, s := range pl.Settings {
		add(s.Key, "%s", s.Value)
	}
	add("model replicas", "%d", pl.Replicas)
	add("micro-batches of a replica", "%d", pl.MicroBatches)
	if pl.Shares != nil {
		add("micro-batches of each replica", "%v", pl.Shares.MicroBatches)
	}
	if pl.Weights != nil {
		add("weights of devices", "%v", pl.Weights.Of)
	}
	for i, groups := range pl.Placement {
		add(fmt.Sprintf("devices of TaskGraph %d", i), "%v", groups)
	}
	for i, s := range pl.Stages {
		add(fmt.Sprintf("stage %d", i), "%s, %s on devices %v of a replica: %d ops, %d variables", strings.Join(s.TaskGraphs, ", "), s.Strategy, s.Places, s.Ops, len(s.Variables))
	}
	if c := pl.Choices.TaskGraphs; c != nil {
		text, _ := c.Ops.MarshalText() // it cannot fail
		add("TaskGraphs of ops", "%s", text)
	}
	if r := pl.Choices.Regions; r != nil {
		text, _ := r.Of.MarshalText()
		add("regions", "%d of forward, %d values kept", r.Count, len(r.Keep))
		add("regions of ops", "%s, kept %v", text, r.Keep)
	}
	if s := pl.Choices.Shards; s != nil {
		for _, v := range s.Variables {
			add("sharding of "+v.Variable, "%s", v.Placement)
		}
		for _, d := range s.Data {
			add("sharding of "+d.Name, "%s", d.Placement)
		}
	}
	if z := pl.Choices.Zero; z != nil {
		add("flat over replicas", "%s", listed(z.Divided))
		add("weights flat over replicas", "%s", listed(z.Weights))
		add("gradients reduce-scattered", "%d, ops %v", len(z.Gradients), z.Gradients)
	}
	if g := pl.Choices.Groups; g != nil {
		text, _ := g.Of.MarshalText()
		add("apply groups", "%d", g.Count)
		add("apply groups of ops", "%s", text)
	}
	var bytes int64
	var buckets []string
	for _, b := range pl.Buckets {
		bytes += b.Bytes
		parts := ""
		if b.Parts {
			parts = " by reduce-scatter"
		}
		buckets = append(buckets, fmt.Sprintf("%s of %d on %v%s %s", b.How, b.Values, b.Places, parts, humanize.Bytes(b.Bytes)))
	}
	if len(buckets) > 0 {
		add("buckets", "%d, %s: %s", len(buckets), humanize.Bytes(bytes), strings.Join(buckets, ", "))
	}
	return facts
}

// listed are names, with how many there are.
func listed(names []string) string {
	if len(names) == 0 {
		return "none"
	}
	return fmt.Sprintf("%d: %s", len(names), strings.Join(names, ", "))
}
