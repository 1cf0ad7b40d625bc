// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package shard

import (
	"fmt"
	"slices"

	"github.com/easyparallel/epl/ir"
)

// Report is what [Partition] did that a user may want to know.
type Report struct {
	// Variables are those that are sharded, without those that the optimizer keeps for them.
	Variables []*ir.Variable
	// Shared are variables that should be sharded, but are on every device as a whole, because other stages read them.
	Shared []*ir.Variable
	// Gathered are the ops that are computed on whole values by every device of their stage though they are sharded, in the
	// order of the program, those of the same operation together.
	Gathered [][]*ir.Op
	// Weights are the variables that devices gather for an op that needs them whole.
	Weights []*ir.Variable
	// Undealt is a sentence about the replicated TaskGraphs whose devices all compute the whole batch, because it has fewer samples
	// than they are; "": there is none.
	Undealt string
	// Exchanges are those between the devices of stages: how many there are of each collective, and the bytes of the values. The
	// first are of one instance, the others of the whole step.
	Exchanges, Once map[ir.Collective]Exchanges
}

// Exchanges are collectives of one kind.
type Exchanges struct {
	Count int
	Bytes int64
}

// report looks at the partitioned program.
func (x *problem) report(vars *sharding, todo *plan) *Report {
	r := &Report{Variables: vars.chosen, Shared: vars.shared, Exchanges: map[ir.Collective]Exchanges{}, Once: map[ir.Collective]Exchanges{},
		Gathered: grouped(todo.gathered, (*ir.Op).Type), Undealt: x.undealt()}
	for _, s := range todo.steps {
		if s.kind != gatherStep && s.kind != turnStep || s.phase == ir.Apply {
			continue
		}
		if v := x.values[s.in[0].value].of; v != nil && !slices.Contains(r.Weights, v) {
			r.Weights = append(r.Weights, v)
		}
	}
	for _, op := range x.p.Main.Ops {
		if op.IsExchange() {
			_, how := op.Change()
			in := r.Exchanges
			if x.p.Local != nil && !op.Varying {
				in = r.Once
			}
			e, v, w := in[how], op.Inputs[0], op.Outputs[0]
			e.Count++
			e.Bytes += max(v.Bytes(), w.Bytes())
			in[how] = e
		}
	}
	return r
}

// undealt looks for TaskGraphs that have more devices than a batch has samples.
func (x *problem) undealt() (sentence string) {
	n := 0
	for _, s := range x.p.Stages {
		for _, t := range s.TaskGraphs {
			if k := len(s.Places); t.Kind == ir.Replicate && x.batch > 0 && x.batch < k {
				if n++; n == 1 {
					sentence = fmt.Sprintf("a batch of %d has fewer samples than TaskGraph %q (%s) has devices, %d", x.batch, t.Title(), t.Source, k)
				}
			}
		}
	}
	switch n {
	case 0:
		return ""
	case 1:
	case 2:
		sentence += ", as another TaskGraph has"
	default:
		sentence += fmt.Sprintf(", as %d others have", n-1)
	}
	return sentence + ": each device computes the whole batch"
}

// Lines describe the report for people; [Listing] has the variables.
func (r *Report) Lines() []string {
	var lines []string
	for _, x := range []struct {
		exchanges map[ir.Collective]Exchanges
		when      string
	}{{r.Exchanges, ""}, {r.Once, ", once per step"}} {
		for _, how := range []ir.Collective{ir.AllReduceOf, ir.ReduceScatterOf, ir.AllGatherOf, ir.AllToAllOf} {
			if e := x.exchanges[how]; e.Count > 0 {
				lines = append(lines, fmt.Sprintf("%d × %s between the devices of a stage, of %d bytes%s", e.Count, how, e.Bytes, x.when))
			}
		}
	}
	for _, v := range r.Weights {
		lines = append(lines, fmt.Sprintf("%s is sharded, and gathered for an op that needs all of it", v.Path))
	}
	for _, v := range r.Shared {
		lines = append(lines, fmt.Sprintf("%s is not sharded: another stage reads it", v.Path))
	}
	for _, g := range r.Gathered {
		line := fmt.Sprintf("%s is computed on whole values by every device (%d times", g[0].Type(), len(g))
		if g[0].Source != "" {
			line += ", first at " + string(g[0].Source)
		}
		lines = append(lines, line+")")
	}
	return lines
}
