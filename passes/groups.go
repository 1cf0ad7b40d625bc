package passes

import (
	"slices"

	"github.com/pkg/errors"

	"github.com/easyparallel/epl/ir"
	"github.com/easyparallel/epl/ir/analysis"
)

// applyGroups divides what the optimizer computes into regions, as chosen.
func applyGroups(p *ir.Program, o Options) (n int, err error) {
	if o.groups(analysis.Of(p)) < 2 || p.Local == nil {
		return 0, nil
	}
	g := o.Choices.Groups
	if g == nil {
		return 0, open("apply-groups")
	}
	if len(g.Of) != len(p.Main.Ops) {
		return 0, errors.Errorf("epl: the plan has %d ops in groups of the optimizer or outside, and the program has %d here", len(g.Of), len(p.Main.Ops))
	}
	for i, op := range p.Main.Ops {
		if g.Of[i] >= 0 && op.Region != g.Of[i] {
			op.Region = g.Of[i]
			n++
		}
	}
	return n, nil
}

// groups is how many groups the optimizer takes one after the other. Variables that are kept on the host come for their group: then
// there are as many as regions of forward, eight at least.
func (o Options) groups(index *analysis.Index) int {
	groups := max(o.ApplyGroups, 1)
	if o.Offload {
		groups = max(groups, 8, index.Regions())
	}
	return groups
}

// chooseGroups divides what the optimizer computes into groups, each for some of the variables, of about as many bytes: what
// one needs while it runs is gone when the next begins.
func chooseGroups(p *ir.Program, o Options) *GroupChoice {
	index := analysis.Of(p)
	groups := o.groups(index)
	if groups < 2 || p.Local == nil {
		return nil
	}
	chosen := &GroupChoice{Count: groups, Of: slices.Repeat(Runs{-1}, len(p.Main.Ops)), Variables: make([][]string, groups)}
	// An optimizer takes variable after variable, so that what belongs together is computed together.
	type update struct {
		*ir.Value
		name string // of the variable; "" of copies
	}
	var updates []update
	var total int64
	names := p.VariableNames()
	for i, x := range p.Variables {
		name := names[i]
		for _, v := range x.Updates() {
			if isApply(v.Op) {
				updates = append(updates, update{v, name})
				total += v.Bytes()
				name = ""
			}
		}
	}
	slices.SortStableFunc(updates, func(x, y update) int { return index.Position(x.Op) - index.Position(y.Op) })
	var before int64
	for _, v := range updates {
		g := int(min(before*int64(groups)/max(total, 1), int64(groups-1)))
		before += v.Bytes()
		if v.name != "" {
			chosen.Variables[g] = append(chosen.Variables[g], v.name)
		}
		var need func(*ir.Value)
		need = func(v *ir.Value) {
			if !isApply(v.Op) {
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
