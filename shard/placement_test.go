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
		if got := ir.Shares(c.n, c.unit, c.k); !slices.Equal(got, c.want) {
			t.Errorf("%d rows in units of %d over %d devices: %v, want %v", c.n, c.unit, c.k, got, c.want)
		}
		s, end := shapes.Make(dtypes.Float32, 3, c.n), 0
		for j := range c.k {
			from, to := shardOf(1, c.unit).Rows(c.n, j, c.k)
			local := shardOf(1, c.unit).Local(s, j, c.k).Dimensions
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
		if got := same(c.p, c.q, s, c.k); got != c.want {
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
		unit, ok := f.unitOf(f.In[0], shardOf(0, c.unit), shapes.Make(dtypes.Float32, 12), c.k)
		if ok != c.ok || ok && unit != c.want {
			t.Errorf("units of %d over %d devices: steps of %d, %v", c.unit, c.k, unit, ok)
		}
	}
}
