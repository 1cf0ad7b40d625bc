package plan

import (
	"fmt"
	"strings"

	"github.com/gomlx/compute/support/humanize"
)

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
