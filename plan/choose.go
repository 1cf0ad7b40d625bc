// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package plan

import (
	"slices"

	"github.com/easyparallel/epl/ir"
	"github.com/easyparallel/epl/ir/analysis"
	"github.com/easyparallel/epl/passes"
	"github.com/easyparallel/epl/shard"
)

// Choose chooses what a pass applies to the program, as far as the options leave that open, and writes it into them.
func Choose(pass string, p *ir.Program, o *passes.Options) (err error) {
	c := &o.Choices
	switch pass {
	case "taskgraphs":
		c.TaskGraphs, err = chooseTaskGraphs(p, *o)
	case "regions":
		c.Regions, err = chooseRegions(p, *o)
	case "shard":
		if shard.Partitions(p) {
			c.Shards, err = shard.Search(p)
		}
	case "zero":
		c.Zero = passes.ChooseParts(p, *o)
	case "apply-groups":
		c.Groups = chooseGroups(p, *o)
	}
	return err
}

// chooseGroups divides what the optimizer computes into groups, each for some of the variables, of about as many bytes: what
// one needs while it runs is gone when the next begins.
func chooseGroups(p *ir.Program, o passes.Options) *passes.GroupChoice {
	index := analysis.Of(p)
	groups := max(o.ApplyGroups, 1)
	if o.Offload { // variables come from the host for their group
		groups = max(groups, 8, index.Regions())
	}
	if groups < 2 || p.Local == nil {
		return nil
	}
	chosen := &passes.GroupChoice{Count: groups, Of: slices.Repeat(passes.Runs{-1}, len(p.Main.Ops)), Variables: make([][]string, groups)}
	// An optimizer takes variable after variable, so that what belongs together is computed together.
	type update struct {
		*ir.Value
		name string // of the variable
	}
	var updates []update
	var total int64
	names := p.VariableNames()
	for i, x := range p.Variables {
		if v := x.Update; v != nil && passes.IsApply(v.Op) {
			updates = append(updates, update{v, names[i]})
			total += v.Bytes()
		}
	}
	slices.SortStableFunc(updates, func(x, y update) int { return index.Position(x.Op) - index.Position(y.Op) })
	var before int64
	for _, v := range updates {
		g := int(min(before*int64(groups)/max(total, 1), int64(groups-1)))
		before += v.Bytes()
		chosen.Variables[g] = append(chosen.Variables[g], v.name)
		var need func(*ir.Value)
		need = func(v *ir.Value) {
			if !passes.IsApply(v.Op) {
				return
			}
			if was := &chosen.Of[index.Position(v.Op)]; *was < 0 || g < *was {
				*was = g
				v.Op.Uses(need)
			}
		}
		need(v.Value)
	}
	return chosen
}
