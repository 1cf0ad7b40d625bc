// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package ir

import (
	"fmt"
	"slices"

	"github.com/pkg/errors"
)

// Stage is the TaskGraphs that run together on some devices of a model replica.
type Stage struct {
	TaskGraphs []*TaskGraph
	Places     []int // its devices, by their index among those of the model replica
	// Axes is how many of them there are along each axis of the stage's mesh, which they fill row by row; nil: there is one axis.
	Axes []int
	// Weights are those of its devices, among which dims are divided in proportion; nil: they are equal.
	Weights []int
}

// Division is the devices along an axis of the mesh.
func (s Stage) Division(axis Axis) Division {
	d := Even(s.Mesh()[axis-Model])
	if s.Axes == nil {
		d.Weights = s.Weights
	}
	return d
}

// Mesh is how many devices there are along each axis, from [Model] on.
func (s Stage) Mesh() []int {
	if s.Axes == nil {
		return []int{len(s.Places)}
	}
	return s.Axes
}

// Divisions are the devices of each group, and what weights they have.
func (p *Program) Divisions() (all []Division) {
	for _, places := range p.Groups() {
		d := Even(len(places))
		for _, s := range p.Stages {
			if s.Places[0] == places[0] {
				d = s.Division(Model)
			}
		}
		all = append(all, d)
	}
	return all
}

// Groups are the devices of a model replica that run the same stages, by their index in it. Stages have the same devices, or none in
// common. Ops are placed by the index of their group: see Op.Place.
func (p *Program) Groups() (groups [][]int) {
	for _, s := range p.Stages {
		if !slices.ContainsFunc(groups, func(g []int) bool { return g[0] == s.Places[0] }) {
			groups = append(groups, s.Places)
		}
	}
	if groups == nil {
		return [][]int{{0}}
	}
	slices.SortFunc(groups, func(x, y []int) int { return x[0] - y[0] })
	return groups
}

// ReadOriginals lets a backward op that repeats forward ops read what its stage got from earlier ones in forward, and not
// what an earlier stage computes again: in backward, values flow to earlier stages only. It is the same value. It needs
// Op.Of, and asks for the stages of backward ops in a TaskGraph.
func (p *Program) ReadOriginals(stage func(*Op) int) {
	for _, op := range p.Main.Ops {
		if op.Phase != Backward || op.TaskGraph == nil {
			continue
		}
		for i, in := range op.Inputs {
			if in == nil || in.Op.Origin != Rematerialised || in.Op.Of == nil || in.Op.TaskGraph == nil || stage(in.Op) >= stage(op) {
				continue
			}
			if _, barrier := in.Op.Attrs.(*SchedulingBarrier); barrier {
				op.Inputs[i] = in.Op.Inputs[in.Index]
			} else {
				op.Inputs[i] = in.Op.Of.Op.Outputs[in.Index]
			}
		}
	}
}

// Collective is what devices do to change a placement.
type Collective int

// The collectives.
const (
	AllReduceOf     Collective = iota + 1 // everyone gets the reduction of all values
	AllGatherOf                           // everyone gets all values, one after the other
	ReduceScatterOf                       // everyone gets a part of the reduction of all values
	AllToAllOf                            // everyone gives everyone else a part of its value
)

var collectiveNames = [...]string{"", "all-reduce", "all-gather", "reduce-scatter", "all-to-all"}

// String returns the word used in program text.
func (c Collective) String() string {
	if int(c) < len(collectiveNames) {
		return collectiveNames[c]
	}
	return fmt.Sprintf("collective(%d)", int(c))
}

// Reduction says how values are reduced to one.
type Reduction int

// The reductions.
const (
	ReduceBySum Reduction = iota + 1
	ReduceByMax
	ReduceByMin
)

var reductionNames = [...]string{"", "sum", "max", "min"}

// String returns the word used in program text.
func (r Reduction) String() string {
	if int(r) < len(reductionNames) {
		return reductionNames[r]
	}
	return fmt.Sprintf("reduction(%d)", int(r))
}

// stages checks that stages and places are what the rest of the program needs.
func (v *verifier) stages() error {
	if v.p.Stages == nil {
		return nil
	}
	in := map[*TaskGraph]bool{}
	for i, s := range v.p.Stages {
		if len(s.Places) == 0 {
			return errors.Errorf("stage %d has no device", i)
		}
		n := 1
		for _, k := range s.Mesh() {
			n *= k
		}
		if n != len(s.Places) {
			return errors.Errorf("stage %d has %d devices, and a mesh of %d", i, len(s.Places), n)
		}
		if d := (Division{len(s.Places), s.Weights}); !d.ok() || d.Weights != nil && s.Axes != nil {
			return errors.Errorf("stage %d: weights are for the devices of one axis, and between 1 and %d: it has %d devices, the weights %v and the axes %v", i, MaxWeight, len(s.Places), s.Weights, s.Axes)
		}
		for _, t := range s.TaskGraphs {
			if in[t] || !slices.Contains(v.p.TaskGraphs, t) {
				return errors.Errorf("TaskGraph %q of stage %d is in two stages, or not in the program", t.Name, i)
			}
			in[t] = true
		}
	}
	for _, t := range v.p.TaskGraphs {
		if !in[t] {
			return errors.Errorf("TaskGraph %q is in no stage", t.Name)
		}
	}
	return nil
}

// places checks the group of an op.
func (v *verifier) places(op *Op) error {
	if v.groups == 0 {
		v.groups = len(v.p.Groups())
	}
	if op.Place < 0 || op.Place >= v.groups {
		return errors.Errorf("it is on group %d of devices, and a model replica has %d", op.Place, v.groups)
	}
	return nil
}
