// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

// Package analysis derives from a program what several packages ask of it, so that nobody derives it again: who reads a
// value, the stage of an op, what runs once per step, what crosses regions, what is live,
// which blocks repeat.
//
// What goes in is a verified [ir.Program]; what comes out is an [Index] of it, a program without dead ops, by [Sweep], or
// the blocks of a [Line].
package analysis

import (
	"github.com/easyparallel/epl/ir"
)

// Index answers questions about a program and the ops that main had when the index was made. Each kind of answer is
// computed once, when it is first asked for. Whoever changes what an answer depends on makes a new index. It is not for
// concurrent use.
type Index struct {
	p        *ir.Program
	ops      []*ir.Op
	stages   map[*ir.TaskGraph]int
	position byOp[int]
	users    map[*ir.Value][]*ir.Op
	flow     byOp[flow]
	crossing map[*ir.Value]bool
	regions  int
}

// Of returns the index of a program.
func Of(p *ir.Program) *Index { return &Index{p: p, ops: p.Main.Ops} }

// StageOf is the index of the stage that a TaskGraph belongs to; 0 if the program has no stages. It depends on the
// program's stages only.
func (x *Index) StageOf(t *ir.TaskGraph) int {
	if x.stages == nil {
		x.stages = map[*ir.TaskGraph]int{}
		for i, s := range x.p.Stages {
			for _, t := range s.TaskGraphs {
				x.stages[t] = i
			}
		}
	}
	return x.stages[t]
}

// Stage is that of the TaskGraph which the op has now.
func (x *Index) Stage(op *ir.Op) int { return x.StageOf(op.TaskGraph) }

// Position is where an op stands in main.
func (x *Index) Position(op *ir.Op) int {
	if x.position == nil {
		x.position = newByOp[int](x.ops)
		for i, op := range x.ops {
			x.position[op.ID] = i
		}
	}
	return x.position.of(op)
}

// byOp holds something about ops by their number, which is unique in a program.
type byOp[T any] []T

func newByOp[T any](ops []*ir.Op) byOp[T] {
	n := 0
	for _, op := range ops {
		n = max(n, op.ID+1)
	}
	return make(byOp[T], n)
}

// of is what is held about an op; zero: nothing is.
func (b byOp[T]) of(op *ir.Op) (x T) {
	if op.ID >= 0 && op.ID < len(b) {
		x = b[op.ID]
	}
	return x
}

// Users are the ops of main that read a value, by an input or in a function: in order, each once.
func (x *Index) Users(v *ir.Value) []*ir.Op {
	if x.users == nil {
		x.users = make(map[*ir.Value][]*ir.Op, len(x.ops))
		for _, op := range x.ops {
			op.Uses(func(v *ir.Value) {
				if u := x.users[v]; len(u) == 0 || u[len(u)-1] != op {
					x.users[v] = append(u, op)
				}
			})
		}
	}
	return x.users[v]
}

// Crossing are the values of forward that are read in a later region of forward. The caller must not change them.
func (x *Index) Crossing() map[*ir.Value]bool {
	x.readRegions()
	return x.crossing
}

// Regions is how many regions forward has.
func (x *Index) Regions() int {
	x.readRegions()
	return x.regions
}

func (x *Index) readRegions() {
	if x.crossing != nil {
		return
	}
	x.crossing = map[*ir.Value]bool{}
	for _, op := range x.ops {
		if op.IsLeaf() || op.Phase != ir.Forward {
			continue
		}
		x.regions = max(x.regions, op.Region+1)
		op.Uses(func(v *ir.Value) {
			if !v.Op.IsLeaf() && v.Op.Region < op.Region {
				x.crossing[v] = true
			}
		})
	}
}

// flow says what an op is computed from, in a program with a local view.
type flow struct{ merged, exchanged, bound bool }

func (x *Index) flowOf(op *ir.Op) flow {
	if x.flow == nil {
		x.flow = newByOp[flow](x.ops)
		for _, op := range x.ops {
			f := flow{exchanged: op.IsExchange(), bound: op.IsMerge() || op.IsExchange() || op.IsTransfer()}
			op.Uses(func(v *ir.Value) {
				from := x.flow.of(v.Op)
				f.merged = f.merged || from.merged || v.Op.IsMerge()
				f.exchanged = f.exchanged || from.exchanged
				_, given := v.Op.Attrs.(*ir.Parameter)
				f.bound = f.bound || from.bound || given && v.IsPlaced() // devices have parts of the variable
			})
			f.exchanged, f.bound = f.exchanged && !op.Varying, f.bound && !op.Varying
			x.flow[op.ID] = f
		}
	}
	return x.flow.of(op)
}

// Merged tells whether the op reads what instances were merged to, directly or not.
func (x *Index) Merged(op *ir.Op) bool { return x.flowOf(op).merged }

// Bound tells of an op that does not differ between instances whether it runs on its own device: it merges instances or
// exchanges values, or it reads what does, or parts of variables. Others can be computed on any device.
func (x *Index) Bound(op *ir.Op) bool { return x.flowOf(op).bound }

// PerInstance tells whether every instance computes the op, on its device: what varies, and what devices exchange for that.
// Merges aside, the rest runs once per step.
func (x *Index) PerInstance(op *ir.Op) bool {
	switch {
	case op.IsLeaf() || op.IsMerge():
		return false
	case op.Varying:
		return true
	}
	f := x.flowOf(op)
	return f.exchanged && !f.merged && op.Phase != ir.Apply
}

// RandomState tells whether the value is the state that a random op left behind.
func RandomState(v *ir.Value) bool {
	switch v.Op.Attrs.(type) {
	case *ir.RNGBitGenerator:
		return v.Index == 0
	case *ir.Identity, *ir.OptimizationBarrier, *ir.SchedulingBarrier:
		return RandomState(v.Op.Inputs[v.Index])
	}
	return false
}
