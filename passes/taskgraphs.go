// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package passes

import (
	"github.com/pkg/errors"

	"github.com/easyparallel/epl/ir"
	"github.com/easyparallel/epl/ir/analysis"
)

// taskGraphs gives the program its stages, and every op of forward and backward a TaskGraph, as chosen, so that each runs somewhere.
// It runs first: passes that look for equal ops must know where ops run.
func taskGraphs(p *ir.Program, o Options) (int, error) {
	if !o.Staged() {
		return 0, nil
	}
	c := o.Choices.TaskGraphs
	if c == nil {
		return 0, open("taskgraphs")
	}
	for _, i := range c.Stages {
		if i < 0 || i >= min(len(p.TaskGraphs), len(o.Places)) {
			return 0, errors.Errorf("epl: the plan has TaskGraph %d as a stage, and the program has %d", i, len(p.TaskGraphs))
		}
	}
	p.Stages = o.Stages(p, c.Stages)
	return Assign(p, c.Ops, c.Variables)
}

// Staged tells whether the program runs in several stages, or a stage on several devices.
func (o Options) Staged() bool {
	return len(o.Places) > 0 && (len(o.Places) > 1 && !o.Colocate || len(o.Places[0]) > 1)
}

// Stages are those of a program: its TaskGraphs in the order given, or all of them together.
func (o Options) Stages(p *ir.Program, order []int) (stages []ir.Stage) {
	if o.Colocate {
		return []ir.Stage{{TaskGraphs: p.TaskGraphs, Places: o.Places[0], Weights: o.weights(0)}}
	}
	for _, i := range order {
		stages = append(stages, ir.Stage{TaskGraphs: p.TaskGraphs[i : i+1 : i+1], Places: o.Places[i], Weights: o.weights(i)})
	}
	return stages
}

// weights are those of the devices of a TaskGraph.
func (o Options) weights(i int) []int {
	if i < len(o.Weights) {
		return o.Weights[i]
	}
	return nil
}

// Assign gives ops of forward and backward and variables their TaskGraphs, by index, -1: none. The optimizer follows the variables.
// It returns how many ops have another one than before.
func Assign(p *ir.Program, ops, variables Runs) (n int, err error) {
	if len(ops) != len(p.Main.Ops) || len(variables) != len(p.Variables) {
		return 0, errors.Errorf("epl: the plan has the TaskGraphs of %d ops and %d variables, and program %q has %d and %d",
			len(ops), len(variables), p.Name, len(p.Main.Ops), len(p.Variables))
	}
	of := func(i int) *ir.TaskGraph {
		if i < 0 || i >= len(p.TaskGraphs) {
			return nil
		}
		return p.TaskGraphs[i]
	}
	for i, op := range p.Main.Ops {
		if t := of(ops[i]); op.Phase != ir.Apply && t != op.TaskGraph {
			op.TaskGraph = t
			if !op.IsLeaf() {
				n++
			}
		}
	}
	for i, v := range p.Variables {
		if t := of(variables[i]); t != nil {
			v.Param.Op.TaskGraph = t
		}
	}
	index := analysis.Of(p)
	p.ReadOriginals(func(op *ir.Op) int {
		if p.Stages == nil {
			return op.TaskGraph.ID
		}
		return index.Stage(op)
	})
	p.PlaceApply(nil)
	for _, v := range p.Variables {
		v.TaskGraph = v.Param.Op.TaskGraph
	}
	return n, nil
}
