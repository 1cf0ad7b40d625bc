// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package passes

import (
	"github.com/easyparallel/epl/ir"
	"github.com/easyparallel/epl/ir/analysis"
)

// fused replaces a fused op by its written-out twin where parts of the twin are computed anyway, because gradients go
// through them. It forgets the twins of the others, so that they can die. Sums inside the two are ordered
// differently: results agree within rounding.
func fused(p *ir.Program) int {
	live := analysis.Live(p)
	by := map[*ir.Value]*ir.Value{}
	for _, op := range p.Main.Ops {
		if op.Twin != nil && WritesOut(op, live) {
			for i, v := range op.Twin {
				by[op.Outputs[i]] = v
			}
		}
		op.Twin = nil
	}
	return replace(p, by)
}

// WritesOut tells whether the twin of a fused op takes its place.
func WritesOut(op *ir.Op, live map[*ir.Op]bool) bool { return computed(WrittenOut(op), live) }

// computed tells whether some of these ops are needed anyway. Computing twice what only moves data is no reason to give up a fused op.
func computed(parts, live map[*ir.Op]bool) bool {
	for o := range parts {
		switch o.Attrs.(type) {
		case *ir.Reshape, *ir.DynamicReshape, *ir.BroadcastInDim, *ir.DynamicBroadcastInDim, *ir.Transpose, *ir.ConvertDType, *ir.Slice, *ir.Identity, *ir.Iota:
		default:
			if live[o] && !o.IsLeaf() {
				return true
			}
		}
	}
	return false
}
