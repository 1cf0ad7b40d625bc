// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package plan

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/pkg/errors"

	"github.com/easyparallel/epl/config"
	"github.com/easyparallel/epl/ir"
	"github.com/easyparallel/epl/ir/analysis"
	"github.com/easyparallel/epl/shard"
)

// Trained is a training program that was planned, for programs without gradients that read its variables.
type Trained struct {
	Plan  *Plan
	Final *ir.Program // as it runs: its variables have their stages
}

// Follows is the last of the training programs whose weights a program without gradients reads; nil: there is none.
func Follows(p *ir.Program, trained []*Trained) *Trained {
	read := map[string]*ir.Value{}
	for _, v := range p.Variables {
		read[v.Path] = v.Param
	}
	for _, x := range slices.Backward(trained) {
		if slices.ContainsFunc(x.Final.Variables, func(v *ir.Variable) bool {
			return v.Trainable && read[v.Path] != nil && read[v.Path].Shape.Equal(v.Param.Shape)
		}) {
			return x
		}
	}
	return nil
}

// Layout says where the variables of a training program are, as far as it matters for programs that follow it.
func (x *Trained) Layout() string {
	var w strings.Builder
	fmt.Fprintln(&w, x.Plan.Placement, x.Plan.Weights.of())
	for _, v := range x.Final.Variables {
		if v.Trainable && v.TaskGraph != nil {
			fmt.Fprintln(&w, v.Path, v.TaskGraph.ID)
		}
	}
	if s := x.Plan.Choices.Shards; s != nil {
		fmt.Fprintln(&w, s.Variables)
	}
	return w.String()
}

// placeForward places a program without gradients on a model replica.
func (pl *Plan) placeForward(r *Result, cfg *config.Config, t Target) error {
	q, err := pl.forward(r.Recorded, cfg, t)
	if err != nil {
		return err
	}
	placement := pl.placement(t.Cluster)
	if len(placement.Virtual) > 0 {
		all := assignmentOf(placement)
		r.Replicas, r.Together = all.ranks, q != nil && all.spans(t.Cluster)
	}
	for _, ranks := range r.Replicas {
		for i := range ranks {
			if !r.Together {
				ranks[i] -= t.Cluster.LocalDevices()[0].Rank
			}
		}
	}
	if q != nil {
		r.Recorded, r.Placement = q, placement
	}
	return nil
}

// forward decides where a program without gradients runs: on model replicas that lie on this worker, or on all of them, if some have
// devices of several workers, which then call it together. It makes of the program what runs on one of them; nil if that is the program
// as a whole, on one device. It follows the training program that has its variables; before there is one, its own annotations.
func (pl *Plan) forward(p *ir.Program, cfg *config.Config, t Target) (*ir.Program, error) {
	updates := func(v *ir.Variable) bool { return v.Trainable && v.Update != nil }
	if len(p.Variables) == 0 || slices.ContainsFunc(p.Variables, updates) {
		return nil, nil // it initializes, or trains without epl.Optimizer
	}
	x := Follows(p, t.Trained)
	if x == nil {
		if pl.place(p, cfg, t) != nil || pl.within(pl.Placement, pl.Replicas, t) < 2 {
			return nil, nil
		}
		pl.Why = "it runs forward by its annotations, as no training program has its variables yet: it is planned again when one has"
		return p.Clone(), nil
	}
	if pl.within(x.Plan.Placement, x.Plan.Replicas, t) < 2 {
		return nil, nil
	}
	gathered := "none of which is gathered"
	if z := x.Plan.Choices.Zero; z != nil && len(z.Weights) > 0 {
		gathered = "of which each gathers what model replicas share, once after every step"
	}
	pl.Why = fmt.Sprintf("it runs forward under the plan of training program %q: on the devices that have its variables, %s", x.Plan.Program.Name, gathered)
	if assignmentOf(pl.placement(t.Cluster)).spans(t.Cluster) {
		pl.Why += "; model replicas have devices of several workers, which run it together; a worker that calls it alone reads the variables of the others"
	}
	q := p.Clone()
	x.stages(q)
	pl.Choices.Shards, pl.Weights = x.shards(q), x.Plan.Weights
	return q, errors.WithMessage(q.Verify(), "stages of a training program")
}

// within takes of a placement the model replicas that lie on this worker, or all, if workers run them together. It returns how many
// devices each has; 0: there is none.
func (pl *Plan) within(placement [][][]int, replicas int, t Target) int {
	pl.Replicas, pl.MicroBatches, pl.Placement = replicas, 1, placement
	if ranks := assignmentOf(pl.placement(t.Cluster)); !t.Apart && ranks.spans(t.Cluster) {
		return len(ranks.ranks[0])
	}
	pl.Replicas, pl.Placement = 0, make([][][]int, len(placement))
	devices := map[int]bool{}
	for r := range replicas {
		elsewhere := func(groups [][]int) bool {
			return slices.ContainsFunc(groups[r], func(rank int) bool { return t.Cluster.Device(rank).Worker != t.Cluster.WorkerIndex() })
		}
		if slices.ContainsFunc(placement, elsewhere) {
			continue
		}
		pl.Replicas++
		for i, groups := range placement {
			pl.Placement[i] = append(pl.Placement[i], groups[r])
			for _, rank := range groups[r] {
				devices[rank] = true
			}
		}
	}
	return len(devices) / max(pl.Replicas, 1)
}

// stages gives ops and variables of a program that follows the TaskGraphs of the training program: variables those they have there,
// ops those of the same annotation, or that of the variable they read. The pass taskgraphs attaches the others. No op comes before
// one that it reads.
func (x *Trained) stages(q *ir.Program) {
	index := analysis.Of(x.Final)
	var graphs []*ir.TaskGraph
	named, times := map[string]*ir.TaskGraph{}, map[string]int{}
	key := func(t *ir.TaskGraph) string { // the same model makes the same annotations in the same order
		k := fmt.Sprint(t.Name, t.Strategy(), t.Source)
		times[k]++
		return fmt.Sprint(k, times[k])
	}
	stage := map[*ir.TaskGraph]int{}
	for _, t := range x.Final.TaskGraphs {
		c := *t
		graphs = append(graphs, &c)
		named[key(t)], stage[&c] = &c, index.StageOf(t)
	}
	clear(times)
	same := map[*ir.TaskGraph]*ir.TaskGraph{}
	for _, t := range q.TaskGraphs {
		if !t.Implicit {
			same[t] = named[key(t)]
		}
	}
	homes := map[string]*ir.TaskGraph{}
	for _, v := range x.Final.Variables {
		if v.TaskGraph != nil {
			homes[v.Path] = graphs[v.TaskGraph.ID]
		}
	}
	q.TaskGraphs = graphs
	home := map[*ir.Op]*ir.TaskGraph{}
	for _, v := range q.Variables {
		v.TaskGraph = cmp.Or(homes[v.Path], same[v.TaskGraph])
		home[v.Param.Op] = v.TaskGraph
	}
	later := func(t, u *ir.TaskGraph) *ir.TaskGraph {
		if t == nil || u != nil && stage[u] > stage[t] {
			return u
		}
		return t
	}
	at := map[*ir.Op]*ir.TaskGraph{} // of what an op is computed from, the one of the last stage
	for _, op := range q.Main.Ops {
		if op.IsLeaf() {
			op.TaskGraph = home[op]
			continue
		}
		var from, variable *ir.TaskGraph
		op.Uses(func(v *ir.Value) {
			from = later(from, at[v.Op])
			variable = later(variable, home[v.Op])
		})
		if op.TaskGraph = cmp.Or(same[op.TaskGraph], variable); op.TaskGraph != nil {
			op.TaskGraph = later(op.TaskGraph, from)
		}
		at[op] = later(op.TaskGraph, from)
	}
	inFuncs(q)
}

// inFuncs gives ops of closures the TaskGraphs of the ops that have them, and those of other functions none.
func inFuncs(p *ir.Program) {
	var follow func(op *ir.Op)
	follow = func(op *ir.Op) {
		for _, f := range op.Funcs {
			if f.Parent != nil {
				for _, o := range f.Ops {
					o.TaskGraph = op.TaskGraph
					follow(o)
				}
			}
		}
	}
	for _, f := range p.Funcs {
		for _, op := range f.Ops {
			op.TaskGraph = nil
			follow(op)
		}
	}
	for _, op := range p.Main.Ops {
		follow(op)
	}
}

// shards are those of the training program, of the variables that a program which follows it reads.
func (x *Trained) shards(q *ir.Program) *shard.Chosen {
	s := &shard.Chosen{}
	if x.Plan.Choices.Shards == nil {
		return s
	}
	paths := map[string]string{}
	for i, name := range x.Final.VariableNames() {
		paths[name] = x.Final.Variables[i].Path
	}
	placed := map[string]shard.Placement{}
	for _, v := range x.Plan.Choices.Shards.Variables {
		placed[paths[v.Variable]] = v.Placement
	}
	for i, name := range q.VariableNames() {
		if p, ok := placed[q.Variables[i].Path]; ok {
			s.Variables = append(s.Variables, shard.Variable{Variable: name, Placement: p})
		}
	}
	return s
}
