// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package schedule

import (
	"slices"

	"github.com/easyparallel/epl/exec/lower"
	"github.com/easyparallel/epl/ir"
)

// Padding is rows that devices have for nothing: those of what they run together are as many on all of them.
type Padding struct {
	Rows   int // of a dim
	Padded int // so many they have together
	Values int // of which that is so
}

// Padding is what devices of a place pad, and which part of what they have and compute it is.
func (p *Program) Padding(place int) (all []Padding, part float64) {
	var bytes, padding float64
	see := func(v *ir.Value) {
		bytes += float64(v.Bytes())
		if !lower.Uneven(v) {
			return
		}
		at, k := v.On(ir.Model), v.Devices(ir.Model)
		n := v.Shape.Dimensions[at.Dim]
		padded := k * v.Division(ir.Model).Most(n, at.Unit)
		padding += float64(v.Bytes()) * float64(padded-n) / float64(padded)
		i := slices.IndexFunc(all, func(x Padding) bool { return x.Rows == n && x.Padded == padded })
		if i < 0 {
			i, all = len(all), append(all, Padding{Rows: n, Padded: padded})
		}
		all[i].Values++
	}
	for _, s := range p.Segments {
		if s.Place != place || s.Mesh == nil {
			continue
		}
		for _, v := range s.Inputs {
			see(v)
		}
		for _, op := range s.Ops {
			for _, v := range op.Outputs {
				see(v)
			}
		}
	}
	return all, padding / max(bytes, 1)
}
