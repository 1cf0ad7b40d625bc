// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package shard

import (
	"slices"
	"testing"

	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/shapes"

	"github.com/easyparallel/epl/ir"
)

func TestDevicesGetRowsThatDifferByOneUnitAtMost(t *testing.T) {
	for _, c := range []struct {
		n, unit, k int
		want       []int
	}{
		{10, 1, 4, []int{3, 3, 2, 2}}, {8, 1, 4, []int{2, 2, 2, 2}}, {4, 1, 4, []int{1, 1, 1, 1}}, {5, 1, 1, []int{5}},
		{70, 7, 4, []int{21, 21, 14, 14}}, {12, 3, 4, []int{3, 3, 3, 3}},
	} {
		if got := ir.Even(c.k).Shares(c.n, c.unit); !slices.Equal(got, c.want) {
			t.Errorf("%d rows in units of %d over %d devices: %v, want %v", c.n, c.unit, c.k, got, c.want)
		}
		s, end := shapes.Make(dtypes.Float32, 3, c.n), 0
		for j := range c.k {
			from, to := shardOf(1, c.unit).Rows(c.n, j, ir.Even(c.k))
			local := shardOf(1, c.unit).Local(s, j, ir.Even(c.k)).Dimensions
			if from != end || to-from != c.want[j] || !slices.Equal(local, []int{3, c.want[j]}) {
				t.Errorf("device %d of %d has rows %d to %d, shape %v", j, c.k, from, to, local)
			}
			end = to
		}
	}
	if fits(3, 1, 4) || fits(14, 7, 3) || fits(10, 3, 2) || !fits(21, 7, 3) {
		t.Error("every device must get at least one whole unit")
	}
}

func TestPlacementsAreTheSameIfDevicesHaveTheSameRows(t *testing.T) {
	s := shapes.Make(dtypes.Float32, 12, 12)
	for _, c := range []struct {
		p, q Placement
		k    int
		want bool
	}{
		{shardOf(0, 1), shardOf(0, 3), 2, true},
		{shardOf(0, 1), shardOf(0, 3), 3, false}, // 4, 4, 4 and 6, 3, 3
		{shardOf(0, 1), shardOf(1, 1), 2, false},
		{shardOf(0, 1), Placement{}, 2, false},
		{partialOf(ir.ReduceBySum), partialOf(ir.ReduceBySum), 2, true},
		{partialOf(ir.ReduceBySum), partialOf(ir.ReduceByMax), 2, false},
	} {
		if got := same(c.p, c.q, s, ir.Even(c.k)); got != c.want {
			t.Errorf("%s and %s over %d devices are the same: %v", c.p, c.q, c.k, got)
		}
	}
}

// A reshape from [12] to [4, 3] needs shards of whole rows of 3.
func TestRowsMayBeWholeStepsOfAFactorByLuck(t *testing.T) {
	f := Factor{Size: 4, In: []Ref{{0, 3}}, Out: []Ref{{0, 1}}}
	for _, c := range []struct {
		unit, k, want int
		ok            bool
	}{
		{3, 2, 1, true}, {3, 3, 1, true}, {6, 2, 2, true},
		{1, 2, 1, true},  // 6, 6
		{1, 4, 1, true},  // 3, 3, 3, 3
		{1, 3, 1, false}, // 4, 4, 4
	} {
		unit, ok := f.unitOf(f.In[0], shardOf(0, c.unit), shapes.Make(dtypes.Float32, 12), ir.Even(c.k))
		if ok != c.ok || ok && unit != c.want {
			t.Errorf("units of %d over %d devices: steps of %d, %v", c.unit, c.k, unit, ok)
		}
	}
}

// Devices get rows in proportion to their weights, and each at least one unit.
func TestRowsAreInProportionToWeights(t *testing.T) {
	for _, c := range []struct {
		n, unit int
		weights []int
		want    []int
	}{
		{12, 1, []int{2, 1}, []int{8, 4}}, {8, 1, []int{2, 1}, []int{5, 3}}, {70, 7, []int{3, 1, 1}, []int{42, 14, 14}},
		{4, 1, []int{9, 1}, []int{3, 1}}, {4, 1, []int{1, 9}, []int{1, 3}}, {10, 1, []int{100, 1, 100}, []int{5, 1, 4}},
		{5, 1, []int{4, 5, 4}, []int{2, 2, 1}},
		{3, 1, []int{1, 1, 9}, []int{1, 1, 1}}, {6, 2, []int{1, 1, 9}, []int{2, 2, 2}},
	} {
		d := ir.Division{Devices: len(c.weights), Weights: c.weights}
		if got := d.Shares(c.n, c.unit); !slices.Equal(got, c.want) || d.Most(c.n, c.unit) != slices.Max(c.want) {
			t.Errorf("%d rows in units of %d over %s: %v, at most %d, want %v", c.n, c.unit, d, got, d.Most(c.n, c.unit), c.want)
		}
	}
	s, d := shapes.Make(dtypes.Float32, 8), ir.Division{Devices: 2, Weights: []int{2, 1}}
	if same(shardOf(0, 1), shardOf(0, 2), s, d) || !same(shardOf(0, 2), shardOf(0, 2), s, d) || same(shardOf(0, 1), shardOf(0, 4), s, d) {
		t.Error("5 and 3 rows are not 6 and 2, nor 4 and 4")
	}
}
