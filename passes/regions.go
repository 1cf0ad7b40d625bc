// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package passes

import (
	"github.com/pkg/errors"

	"github.com/easyparallel/epl/ir"
)

// regions divides what a device does for a micro-batch, as chosen.
func regions(p *ir.Program, o Options) (int, error) {
	if !o.Divides() || !p.IsTraining() {
		return 0, nil
	}
	r := o.Choices.Regions
	if r == nil {
		return 0, open("regions")
	}
	if len(r.Of) != len(p.Main.Ops) {
		return 0, errors.Errorf("epl: the plan divides %d ops into regions, and the program has %d here", len(r.Of), len(p.Main.Ops))
	}
	for i, op := range p.Main.Ops {
		op.Region = r.Of[i]
	}
	for _, i := range r.Keep {
		if i < 0 || i >= len(p.Main.Ops) {
			return 0, errors.Errorf("epl: the plan keeps what op %d computes, and the program has %d ops here", i, len(p.Main.Ops))
		}
		p.Main.Ops[i].Keep = true
	}
	if r.Count == 1 {
		return 0, nil
	}
	return r.Count, nil
}

// Divides tells whether ops get regions.
func (o Options) Divides() bool { return o.Regions || o.Checkpoint != "" }

// Settle raises regions where an op is in an earlier one than what it reads, or backward in one of forward, which has so
// many.
func Settle(p *ir.Program, regions int) {
	for _, op := range p.Main.Ops {
		if op.IsLeaf() || op.Phase == ir.Apply {
			continue
		}
		if op.Phase == ir.Backward {
			op.Region = max(op.Region, regions)
		}
		op.Uses(func(v *ir.Value) {
			if !v.Op.IsLeaf() && v.Op.Phase == op.Phase {
				op.Region = max(op.Region, v.Op.Region)
			}
		})
	}
}

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
