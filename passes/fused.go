package passes

import (
	"github.com/easyparallel/epl/ir"
	"github.com/easyparallel/epl/ir/analysis"
)

// fused replaces a fused op by its written-out twin where parts of the twin are computed anyway, because gradients go
// through them. It forgets the twins of the others, so that they can die. Sums inside the two are ordered
// differently: results agree within rounding.
func fused(p *ir.Program) int {
	live := analysis.Live(p, nil)
	by := map[*ir.Value]*ir.Value{}
	for _, op := range p.Main.Ops {
		if op.Twin == nil {
			continue
		}
		slice, _ := ir.Between(op.Twin, op.Inputs)
		for o := range slice {
			if live[o] && !isCheap(o) {
				for i, v := range op.Outputs {
					by[v] = op.Twin[i]
				}
				break
			}
		}
		op.Twin = nil
	}
	return replace(p, by)
}

// isCheap tells whether an op only moves data: computing it twice is no reason to give up a fused op.
func isCheap(op *ir.Op) bool {
	switch op.Attrs.(type) {
	case *ir.Reshape, *ir.DynamicReshape, *ir.BroadcastInDim, *ir.DynamicBroadcastInDim, *ir.Transpose, *ir.ConvertDType, *ir.Slice, *ir.Identity, *ir.Iota:
		return true
	}
	return op.IsLeaf()
}
