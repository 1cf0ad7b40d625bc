package passes

import (
	"slices"

	"github.com/easyparallel/epl/ir"
	"github.com/easyparallel/epl/ir/analysis"
)

// applyGroups divides what the optimizer computes into regions, each for some of the variables, of about as many bytes: what
// one needs while it runs is gone when the next begins.
//
// Variables that are kept on the host come for their group: then there are as many groups as regions of forward, eight at
// least.
func applyGroups(p *ir.Program, o Options) (int, error) {
	index, groups := analysis.Of(p), max(o.ApplyGroups, 1)
	if o.Offload {
		groups = max(groups, 8)
		groups = max(groups, index.Regions())
	}
	if groups < 2 || p.Local == nil {
		return 0, nil
	}
	// An optimizer takes variable after variable, so that what belongs together is computed together.
	var updates []*ir.Value
	var total int64
	for _, x := range p.Variables {
		for _, v := range x.Updates() {
			if isApply(v.Op) {
				updates = append(updates, v)
				total += v.Bytes()
			}
		}
	}
	slices.SortStableFunc(updates, func(x, y *ir.Value) int { return index.Position(x.Op) - index.Position(y.Op) })
	group := map[*ir.Op]int{}
	var before int64
	for _, v := range updates {
		g := int(min(before*int64(groups)/max(total, 1), int64(groups-1)))
		before += v.Bytes()
		var need func(*ir.Value)
		need = func(v *ir.Value) {
			if was, ok := group[v.Op]; isApply(v.Op) && (!ok || g < was) {
				group[v.Op] = g
				v.Op.Uses(need)
			}
		}
		need(v)
	}
	n := 0
	for op, g := range group {
		if op.Region != g {
			op.Region = g
			n++
		}
	}
	return n, nil
}
