// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package shard

import (
	"slices"

	"github.com/gomlx/compute/shapes"

	"github.com/easyparallel/epl/ir"
)

// Placement says how the devices of a stage hold a value.
type Placement = ir.Placement

// The kinds of placements that are chosen.
const (
	Replicated = ir.Replicated
	Sharded    = ir.Sharded
	Partial    = ir.Partial
)

// shardOf is the placement of a value that is sharded along a dim.
func shardOf(dim, unit int) Placement { return Placement{Kind: Sharded, Dim: dim, Unit: unit} }

// partialOf is the placement of a value that must still be reduced.
func partialOf(r ir.Reduction) Placement { return Placement{Kind: Partial, Reduce: r} }

// fits tells whether each of k devices gets something of n rows in units.
func fits(n, unit, k int) bool { return unit > 0 && n%unit == 0 && n/unit >= k }

// same tells whether two placements of a value of shape s over the devices of a division are the same thing. Other units may give the same
// rows: all do that divide what each device has, if all have as much.
func same(p, q Placement, s shapes.Shape, d ir.Division) bool {
	if p == q {
		return true
	}
	if p.Kind != Sharded || q.Kind != Sharded || p.Dim != q.Dim {
		return false
	}
	n, k := s.Dimensions[p.Dim], d.Devices
	if d.Weights != nil {
		return slices.Equal(d.Shares(n, p.Unit), d.Shares(n, q.Unit))
	}
	return n%k == 0 && n/k%p.Unit == 0 && n/k%q.Unit == 0
}
