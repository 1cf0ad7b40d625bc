// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package passes

import (
	"slices"

	"github.com/easyparallel/epl/ir"
	"github.com/easyparallel/epl/ir/analysis"
	"github.com/easyparallel/epl/shard"
)

// places says on which devices of a model replica every op runs: those of its stage. What was inserted since stages were
// found joins what it reads.
func places(p *ir.Program, o Options) (n int, err error) {
	if p.Stages == nil {
		return 0, nil
	}
	index := analysis.Of(p)
	groups := make([]int, len(p.Stages)) // by stage
	for i, s := range p.Stages {
		groups[i] = slices.IndexFunc(p.Groups(), func(g []int) bool { return g[0] == s.Places[0] })
	}
	merged := func(op *ir.Op) bool { return op.IsMerge() || index.Merged(op) }
	for _, op := range p.Main.Ops {
		if op.IsLeaf() {
			continue
		}
		var largest *ir.Value
		joined := false // it is where something is that it reads
		op.Uses(func(v *ir.Value) {
			joined = joined || !v.Op.IsLeaf() && v.Op.TaskGraph == op.TaskGraph && op.TaskGraph != nil
			if (v.Op.Varying || merged(v.Op)) && !v.Op.IsLeaf() && v.Op.TaskGraph != nil && (largest == nil || v.Bytes() > largest.Bytes()) {
				largest = v
			}
		})
		// Merges, and ops between them and apply, were put in front of apply ops, whose TaskGraph they got.
		if largest != nil && !joined && (op.IsMerge() || op.TaskGraph == nil || index.Merged(op) && op.Phase != ir.Apply) {
			op.TaskGraph = largest.Op.TaskGraph
		}
		if op.TaskGraph == nil {
			op.TaskGraph = p.Stages[0].TaskGraphs[0]
		}
		if at := groups[index.Stage(op)]; op.Place != at {
			op.Place = at
			n++
		}
	}
	if p.Local.MicroBatches > 1 {
		n += splitMerges(p, index)
	}
	return n, nil
}

// splitMerges merges the gradients of a variable that several stages use stage by stage, and adds them up afterwards:
// one gradient per step travels between stages, not one per micro-batch.
func splitMerges(p *ir.Program, index *analysis.Index) int {
	x := &splitter{Index: index, p: p, merged: map[*ir.Value]bool{}}
	for _, op := range p.Main.Ops {
		if op.IsMerge() {
			x.merged[op.Inputs[0]] = true
		}
	}
	by := map[*ir.Value]*ir.Value{}
	for _, op := range slices.Clone(p.Main.Ops) {
		m, ok := op.Attrs.(*ir.Merge)
		if !ok || !m.How.Adds() || op.Phase != ir.Backward {
			continue
		}
		if sum := x.split(op, op.Inputs[0]); sum != nil {
			by[op.Outputs[0]] = sum
		}
	}
	return replace(p, by)
}

type splitter struct {
	*analysis.Index
	p      *ir.Program
	merged map[*ir.Value]bool
}

// split merges the parts of a value in front of its own merge, and returns their sum; nil if all are of one stage.
func (x *splitter) split(merge *ir.Op, v *ir.Value) *ir.Value {
	add, ok := v.Op.Attrs.(*ir.Add)
	if !ok || len(x.Users(v)) != 1 {
		return nil
	}
	crosses := false
	for _, in := range v.Op.Inputs {
		if in.Op.IsLeaf() || !in.Op.Varying || x.merged[in] || !in.Shape.Equal(v.Shape) {
			return nil
		}
		crosses = crosses || x.Stage(in.Op) != x.Stage(v.Op)
	}
	if !crosses || v.Op.Inputs[0] == v.Op.Inputs[1] {
		return nil
	}
	var parts []*ir.Value
	for _, in := range v.Op.Inputs {
		part := x.split(merge, in)
		if part == nil {
			op := x.p.CopyOp(merge, []*ir.Value{in})
			x.p.Main.InsertBefore(merge, op)
			op.TaskGraph, op.Place = in.Op.TaskGraph, in.Op.Place
			x.merged[in] = true
			part = op.Outputs[0]
		}
		parts = append(parts, part)
	}
	sum := x.p.NewOp(add, parts, v.Shape)
	x.p.Main.InsertBefore(merge, sum)
	sum.TaskGraph, sum.Place = v.Op.TaskGraph, v.Op.Place
	return sum.Outputs[0]
}

// partition divides the work of stages that have several devices, as chosen.
func partition(p *ir.Program, o Options) (int, error) {
	if !shard.Partitions(p) {
		return 0, nil
	}
	if o.Choices.Shards == nil {
		return 0, open("shard")
	}
	before := p.NumOps()
	chosen := o.Choices.Shards
	choice, err := chosen.In(p)
	if err != nil {
		return 0, err
	}
	report, err := shard.Partition(p, choice)
	if err != nil {
		return 0, err
	}
	if report.Undealt != "" {
		o.warn("few samples", report.Undealt)
	}
	for _, line := range chosen.Lines() {
		o.note(line)
	}
	if rows := shard.Listing(p, chosen, report); o.Table != nil && len(rows) > 0 {
		o.Table(shard.Head, rows)
	}
	for _, line := range report.Lines() {
		o.note(line)
	}
	return p.NumOps() - before, nil
}
