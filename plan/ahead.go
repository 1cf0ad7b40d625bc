// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package plan

import (
	"fmt"
	"slices"

	"github.com/easyparallel/epl/config"
	"github.com/easyparallel/epl/cost"
	"github.com/easyparallel/epl/internal/words"
	"github.com/easyparallel/epl/ir"
	"github.com/easyparallel/epl/ir/analysis"
)

// Ahead is a program without gradients in two: what depends on no variable that it updates, which model replicas can compute for
// several batches at the same time, before it is their turn; and the rest, which is computed batch after batch. Where workers run a
// program together and most of it depends on such variables, there is no Rest, and they are data of Forward.
type Ahead struct {
	Forward, Rest *Result
	// ForwardArgs and RestArgs are their parameters, by their index in the program. Rest first takes the results of Forward.
	ForwardArgs, RestArgs []int
}

// DecideAhead decides whether batches of a program without gradients are dealt to model replicas; nil: they are not. They are in any
// case where workers have data of their own, or run it together. updated tells which parameters of the program are variables that it
// updates. r is what was decided about the program itself. why is for people; "": there is nothing to say.
func DecideAhead(r *Result, p *ir.Program, updated func(*ir.Value) bool, cfg *config.Config, t Target) (a *Ahead, why string, err error) {
	sliced := t.Slicing
	t = Target{Cluster: t.Cluster, Passes: t.Passes, AsWritten: t.AsWritten, Attention: t.Attention, Fused: t.Fused, Planner: t.Planner, Trained: t.Trained, Apart: t.Apart}
	index, live := analysis.Of(p), analysis.Live(p)
	late := map[*ir.Op]bool{}
	var all, early int64
	for _, op := range p.Main.Ops {
		late[op] = op.IsLeaf() && updated(op.Outputs[0])
		op.Uses(func(v *ir.Value) { late[op] = late[op] || late[v.Op] })
		if live[op] {
			n := cost.Of(op).Flops
			all += n
			if !late[op] {
				early += n
			}
		}
	}
	if early*2 < all && !sliced {
		why = "batches of env.Dataset are computed one after the other, though there are several model replicas: most of the program depends on variables " +
			"that it updates, such as the state of random numbers"
		if r.Together {
			a, err = inOne(p, updated, cfg, t)
		}
		return a, why, err
	}
	var between []*ir.Value
	for _, op := range p.Main.Ops {
		if late[op] || !live[op] || op.IsLeaf() && !slices.Contains(p.Inputs, op.Outputs[0]) {
			continue
		}
		for _, v := range op.Outputs {
			if slices.Contains(p.Main.Outputs, v) || slices.ContainsFunc(index.Users(v), func(op *ir.Op) bool { return late[op] && live[op] }) {
				between = append(between, v)
			}
		}
	}
	in := func(q *ir.Program, v *ir.Value) *ir.Value { return q.Main.Ops[index.Position(v.Op)].Outputs[v.Index] }

	forward, rest := p.Clone(), p.Clone()
	var results, given []*ir.Value
	var gives []*ir.Op
	by := map[*ir.Value]*ir.Value{}
	for i, v := range between {
		results = append(results, in(forward, v))
		op := rest.NewOp(&ir.Parameter{Name: fmt.Sprintf("ahead%d", i), Shape: v.Shape}, nil, v.Shape)
		op.Func = rest.Main
		gives, given = append(gives, op), append(given, op.Outputs[0])
		by[in(rest, v)] = op.Outputs[0]
	}
	forward.Main.Outputs, forward.Outputs, forward.OutputsKnown = results, make([]ir.Output, len(results)), true
	for _, v := range forward.Variables {
		v.Update = nil
	}
	a = &Ahead{ForwardArgs: prune(forward)}
	if _, a.Forward, err = Decide(forward, cfg, t); err != nil || len(a.Forward.Replicas) < 2 && !sliced && !r.Together {
		return nil, "", err // it reads no variable
	}
	if r.Together && !a.Forward.Together { // the first half reads no variable that others have
		a, err = inOne(p, updated, cfg, t)
		return a, "", err
	}
	if len(a.Forward.Replicas) == 0 {
		a.Forward.Replicas = r.Replicas
	}
	if len(a.Forward.Replicas) == 0 {
		a.Forward.Replicas = [][]int{{0}}
	}
	rest.ReplaceUses(by)
	rest.Main.Ops = slices.Concat(gives, rest.Main.Ops)
	a.RestArgs = prune(rest)
	rest.Main.Params, rest.Inputs = slices.Concat(given, rest.Main.Params), slices.Concat(given, rest.Inputs)
	whole(rest)
	t.Trained = nil
	_, a.Rest, err = Decide(rest, cfg, t)
	why = "batches of env.Dataset are dealt to %s, each of which computes what depends on no variable that the program updates for the next batch; " +
		"the rest follows batch by batch, in order"
	if r.Together {
		why = "all workers run it together: batches of env.Dataset, or what each worker calls it with, are dealt to %s; what depends on variables " +
			"that the program updates every worker computes by itself, batch by batch"
	}
	if sliced {
		why = "every worker computes what depends on no variable that the program updates for batches of its own (io.slicing), on %s; " +
			"the rest every worker computes for the batches of all, round by round and worker by worker"
	}
	return a, fmt.Sprintf(why, words.Count(len(a.Forward.Replicas), "model replica")), err
}

// inOne is a program whose updated variables are data, and their new values results.
func inOne(p *ir.Program, updated func(*ir.Value) bool, cfg *config.Config, t Target) (a *Ahead, err error) {
	q := p.Clone()
	a = &Ahead{}
	for i, v := range p.Main.Params {
		a.ForwardArgs = append(a.ForwardArgs, i)
		if updated(v) {
			q.Inputs = append(q.Inputs, q.Main.Params[i])
		}
	}
	q.Variables = slices.DeleteFunc(q.Variables, func(x *ir.Variable) bool { return slices.Contains(q.Inputs, x.Param) })
	q.Outputs, q.OutputsKnown, q.Loss, q.Collections = make([]ir.Output, len(q.Main.Outputs)), true, nil, nil
	_, a.Forward, err = Decide(q, cfg, t)
	return a, err
}

// prune drops what no result needs, parameters included, and returns the indices of those that stay.
func prune(p *ir.Program) (stay []int) {
	p.Loss, p.Collections = nil, nil
	analysis.Sweep(p)
	index := analysis.Of(p)
	needed := func(v *ir.Value) bool {
		x := p.Variable(v)
		return x != nil && x.Update != nil || len(index.Users(v)) > 0 || slices.Contains(p.Main.Outputs, v)
	}
	var params []*ir.Value
	for i, v := range p.Main.Params {
		if needed(v) {
			stay, params = append(stay, i), append(params, v)
		}
	}
	p.Main.Params = params
	p.Main.Ops = slices.DeleteFunc(p.Main.Ops, func(op *ir.Op) bool {
		_, is := op.Attrs.(*ir.Parameter)
		return is && !needed(op.Outputs[0])
	})
	p.Variables = slices.DeleteFunc(p.Variables, func(x *ir.Variable) bool { return !needed(x.Param) })
	p.Inputs = slices.DeleteFunc(p.Inputs, func(v *ir.Value) bool { return !needed(v) })
	return stay
}

// whole makes the program one TaskGraph, so that it runs on one device.
func whole(p *ir.Program) {
	p.TaskGraphs = []*ir.TaskGraph{{Kind: ir.Replicate, Devices: 1, Implicit: true}}
	for _, op := range p.Main.Ops {
		op.TaskGraph = p.TaskGraphs[0]
	}
	inFuncs(p)
	for _, x := range p.Variables {
		x.TaskGraph = p.TaskGraphs[0]
	}
}
