package shard

import (
	"slices"

	"github.com/pkg/errors"

	"github.com/easyparallel/epl/ir"
)

// Partition rewrites the program so that every op runs on one device, with what that device has of its operands. Stages of
// one device stay as they are, but for what they read from others.
//
// Afterwards results, new values of variables and gradients are those on the first device of their stage;
// [ir.Variable.Copies] are the same on the others. The loss and collections may be the part that the first device has.
func Partition(p *ir.Program) (*Report, error) {
	x := &partition{p: p, of: map[*ir.TaskGraph]*group{}, outside: map[int]*group{}}
	if err := x.readStages(); err != nil {
		return nil, err
	}
	if !slices.ContainsFunc(p.Stages, func(s ir.Stage) bool { return len(s.Places) > 1 }) {
		return &Report{}, nil
	}
	plan, gathered := x.propagate()
	x.expand(plan)
	return report(p, gathered), nil
}

// partition is what both parts of the work need to know.
type partition struct {
	p       *ir.Program
	batch   int // how many samples a micro-batch has; 0 if there is no telling
	of      map[*ir.TaskGraph]*group
	outside map[int]*group // of ops outside every TaskGraph, by their device
}

// group is the devices of a stage.
type group struct{ places []int }

// key is a value as seen by a stage.
type key struct {
	value *ir.Value
	group *group
}

func (x *partition) readStages() error {
	for _, in := range x.p.Inputs {
		if in.Shape.Rank() > 0 && !in.Shape.IsDynamic() {
			x.batch = dims(in)[0]
			break
		}
	}
	for _, s := range x.p.Stages {
		g := &group{s.Places}
		for _, t := range s.TaskGraphs {
			x.of[t] = g
			k := len(s.Places)
			if k == 1 {
				continue
			}
			if t.Kind == ir.Split {
				return errors.Errorf("epl: TaskGraph %q (%s) is split over %d devices, which is not supported yet by this version; use replicate(%d)",
					t.Title(), t.Source, k, k)
			}
			if x.batch != 0 && x.batch < k {
				return errors.Errorf("epl: TaskGraph %q (%s) asks for %d devices, but a micro-batch has only %d samples: "+
					"use batches of %d samples or more, or ask for fewer devices", t.Title(), t.Source, k, x.batch, k)
			}
		}
	}
	return nil
}

// groupOf is the devices that compute an op.
func (x *partition) groupOf(op *ir.Op) *group {
	if op.TaskGraph != nil {
		return x.of[op.TaskGraph]
	}
	if x.outside[op.Place] == nil {
		x.outside[op.Place] = &group{[]int{op.Place}}
	}
	return x.outside[op.Place]
}

// isBatch tells whether a value is data that is dealt to the devices of a stage by samples.
func (x *partition) isBatch(v *ir.Value) bool {
	return slices.Contains(x.p.Inputs, v) && v.Shape.Rank() > 0 && !v.Shape.IsDynamic() && dims(v)[0] == x.batch
}
