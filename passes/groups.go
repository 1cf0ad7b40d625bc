package passes

import (
	"github.com/pkg/errors"

	"github.com/easyparallel/epl/ir"
)

// applyGroups divides what the optimizer computes into regions, as chosen.
func applyGroups(p *ir.Program, o Options) (n int, err error) {
	if o.ApplyGroups < 2 && !o.Offload || p.Local == nil {
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
