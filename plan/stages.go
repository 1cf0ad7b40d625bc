// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package plan

import (
	"fmt"
	"slices"

	"github.com/gomlx/compute/support/humanize"
	"github.com/pkg/errors"

	"github.com/easyparallel/epl/config"
	"github.com/easyparallel/epl/ir"
	"github.com/easyparallel/epl/ir/analysis"
	"github.com/easyparallel/epl/passes"
)

// tolerance is how much slower the slowest stage may be, in percent, for blocks to stay whole.
const tolerance = 5

// Stages cuts a training program without annotations into n stages, in the order in which its forward ops were
// recorded, so that the slowest stage is as fast as can be on the devices that stages get on a target: its forward and backward ops, and what
// it waits for from other stages. Blocks that the model repeats stay whole if that makes the slowest stage at most 5%
// slower.
//
// The program stays as it is: [Cut.Apply] cuts it.
func Stages(p *ir.Program, n int, cfg *config.Config, t Target) (*Cut, error) {
	switch {
	case n < 1:
		return nil, errors.Errorf("epl: a program cannot be cut into %d stages; set pipeline.num_stages to at least 1", n)
	case !p.IsTraining():
		return nil, errors.Errorf("epl: internal error: program %q has no gradients and is cut into stages", p.Name)
	case len(p.TaskGraphs) != 1 || !p.TaskGraphs[0].Implicit:
		return nil, errors.Errorf("epl: internal error: program %q has annotations and is cut into stages", p.Name)
	}
	return t.chain(p).cut(n, t.pace(p, n, 1, cfg))
}

// chain is a program in one line, for the first device.
func (t Target) chain(p *ir.Program) *chain {
	h := t.hardware()
	return chainOf(p, h.Devices[0].Profile, h.Inside)
}

// cut is the best cut into n stages.
func (c *chain) cut(n int, p pace) (*Cut, error) {
	whole, ok := c.divide(n, c.anywhere(), p)
	if !ok {
		return nil, errors.Errorf("epl: program %q cannot be cut into %d stages: its forward part has %d ops that compute something; "+
			"set pipeline.num_stages to at most %d", c.p.Name, n, c.costly[len(c.Ops)], c.costly[len(c.Ops)])
	}
	runs := c.Blocks()
	best, note := whole, ""
	switch blocks, ok := c.divide(n, c.betweenBlocks(runs), p); {
	case !ok:
		note = "There are fewer places between blocks than stages, so that blocks are cut."
	case blocks.slowest > whole.slowest+whole.slowest*tolerance/100:
		note = fmt.Sprintf("Blocks are cut: whole ones would make the slowest stage take %s instead of %s per micro-batch.",
			humanize.Duration(blocks.slowest), humanize.Duration(whole.slowest))
	default:
		best = blocks
	}
	cut := c.explain(best, runs, p)
	if note != "" {
		cut.Notes = append(cut.Notes, note)
	}
	c.assign(best, cut)
	return cut, nil
}

// stage is the one that a position is in.
func (d division) stage(at int) int {
	i, _ := slices.BinarySearch(d.ends, at+1)
	return i
}

// assign says which stage ops and variables are of.
func (c *chain) assign(d division, cut *Cut) {
	stage := func(at int, ok bool) int {
		if !ok {
			return -1
		}
		return d.stage(at)
	}
	homes := c.homes()
	cut.Ops = each(c.p.Main.Ops, func(op *ir.Op) int { at, ok := c.at[op]; return stage(at, ok) })
	cut.Variables = each(c.p.Variables, func(v *ir.Variable) int { at, ok := homes[v]; return stage(at, ok) })
}

// Apply cuts a program in place: it gets TaskGraphs instead of its implicit one, named "stage 0" and so on, and every
// op and variable one of them, except inputs, constants, and what apply does for all of them, which stay outside.
func (c *Cut) Apply(p *ir.Program) error {
	p.TaskGraphs = nil
	for i, part := range c.parts() {
		kind := ir.Replicate
		if part.Split {
			kind = ir.Split
		}
		p.TaskGraphs = append(p.TaskGraphs, &ir.TaskGraph{ID: i, Name: part.Name, Kind: kind, Devices: part.Devices})
	}
	if _, err := passes.Assign(p, c.Ops, c.Variables); err != nil {
		return err
	}
	return p.Verify()
}

// parts are the TaskGraphs.
func (c *Cut) parts() []Part {
	if c.Parts != nil {
		return c.Parts
	}
	parts := make([]Part, len(c.Stages))
	for i := range parts {
		parts[i] = Part{Name: fmt.Sprintf("stage %d", i), Devices: 1}
	}
	return parts
}

// homes are the positions of the variables that forward or backward read: those of their first readers. A variable that
// is trained but not read lives at the start.
func (c *chain) homes() map[*ir.Variable]int {
	homes, index := map[*ir.Variable]int{}, analysis.Of(c.p)
	for _, v := range c.p.Variables {
		home, live, found := 0, false, false
		for _, op := range index.Users(v.Param) {
			if at, ok := c.at[op]; ok && (!found || c.live[op] && (!live || at < home)) {
				home, live, found = at, c.live[op], true
			}
		}
		if found || v.Trainable {
			homes[v] = home
		}
	}
	return homes
}
