package passes

import (
	"slices"

	"github.com/easyparallel/epl/ir"
)

// applyGroups divides what the optimizer computes into regions, each for some of the variables, of about as many bytes: what
// one needs while it runs is gone when the next begins.
//
// Variables that are kept on the host come for their group: then there are as many groups as regions of forward, eight at
// least.
func applyGroups(p *ir.Program, o Options) (int, error) {
	groups := max(o.ApplyGroups, 1)
	if o.Offload {
		groups = max(groups, 8)
		for _, op := range p.Main.Ops {
			if op.Phase == ir.Forward {
				groups = max(groups, op.Region+1)
			}
		}
	}
	if groups < 2 || p.Local == nil {
		return 0, nil
	}
	index := map[*ir.Op]int{}
	for i, op := range p.Main.Ops {
		index[op] = i
	}
	// An optimizer takes variable after variable, so that what belongs together is computed together.
	var updates []*ir.Value
	var total int64
	for _, x := range p.Variables {
		if x.Update == nil {
			continue
		}
		for _, v := range append([]*ir.Value{x.Update}, x.Copies...) {
			if isApply(v.Op) {
				updates = append(updates, v)
				total += v.Bytes()
			}
		}
	}
	slices.SortStableFunc(updates, func(x, y *ir.Value) int { return index[x.Op] - index[y.Op] })
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
	for op, g := range group {
		op.Region = g
	}
	return len(group), nil
}
