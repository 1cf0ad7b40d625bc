package passes

import (
	"github.com/easyparallel/epl/ir"
	"github.com/easyparallel/epl/ir/analysis"
)

// replace makes users of the keys use what they map to, and drops what dies of it. It returns the number of
// replacements.
func replace(p *ir.Program, by map[*ir.Value]*ir.Value) int {
	if len(by) > 0 {
		p.ReplaceUses(by)
		analysis.Sweep(p)
	}
	return len(by)
}
