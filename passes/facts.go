// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package passes

import (
	"fmt"
	"slices"

	"github.com/pkg/errors"

	"github.com/easyparallel/epl/ir"
)

// Fact is something that holds in a program, because recording or a pass has seen to it.
type Fact string

// The facts. The first two hold in a recorded program.
const (
	// OpOf: backward ops know the forward ops that they belong to, see [ir.Op.Of]. A pass that may drop or replace these ops ends it.
	OpOf Fact = "op-of"
	// GlobalView: the program computes what one device computes of a batch; nothing is of an instance or of a device.
	GlobalView Fact = "global-view"
	// Stages: the program has the stages of the plan, and ops of forward and backward the TaskGraphs they run in.
	Stages Fact = "stages"
	// Precision: values have the dtypes that they are computed in, and so the bytes that they take.
	Precision Fact = "precision"
	// Regions: ops have the regions of the plan. What is inserted later joins that of its neighbour.
	Regions Fact = "regions"
	// Instances: the program has a local view if it has several instances, stages, or runs in pieces.
	Instances Fact = "instances"
	// Places: ops have the device group of their stage.
	Places Fact = "places"
	// SPMD: an op stands for all devices of its stage, and its results have placements.
	SPMD Fact = "spmd"
	// Copies: what backward computes again is written down.
	Copies Fact = "copies"
	// Parts: values that are flat over the model replicas have that placement.
	Parts Fact = "parts"
)

// recorded are the facts of a program as recorded.
var recorded = []Fact{OpOf, GlobalView}

// begin checks that the program may go through the pass, and notes that it does.
func (pass Pass) begin(p *ir.Program) error {
	again := slices.Contains(p.Passes, pass.Name)
	if again && pass.Once {
		return errors.Errorf("epl: internal error: program %q has been through pass %q, which may run only once", p.Name, pass.Name)
	}
	for _, f := range pass.Needs {
		if err := f.check(p, pass.Name); err != nil {
			return err
		}
	}
	if slices.Contains(pass.Ends, OpOf) {
		for _, op := range p.Main.Ops {
			op.Of = nil
		}
	}
	if !again {
		p.Passes = append(p.Passes, pass.Name)
	}
	return nil
}

// check is an error if the fact does not hold in a program, for a pass that needs it.
func (f Fact) check(p *ir.Program, pass string) error {
	holds, why := slices.Contains(recorded, f), ""
	for _, name := range p.Passes {
		i := slices.IndexFunc(Table, func(x Pass) bool { return x.Name == name })
		if i < 0 {
			return errors.Errorf("epl: internal error: program %q has been through pass %q, which is not in the table", p.Name, name)
		}
		switch {
		case slices.Contains(Table[i].Leaves, f):
			holds = true
		case slices.Contains(Table[i].Ends, f):
			holds, why = false, fmt.Sprintf("pass %q has ended it", name)
		}
	}
	if holds {
		return nil
	}
	if i := slices.IndexFunc(Table, func(x Pass) bool { return slices.Contains(x.Leaves, f) }); i >= 0 && why == "" {
		why = fmt.Sprintf("it comes from pass %q, which has not run", Table[i].Name)
	}
	return errors.Errorf("epl: internal error: pass %q needs the fact %q, which does not hold in program %q: %s", pass, f, p.Name, why)
}
