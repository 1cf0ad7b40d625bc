// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package schedule

import (
	"math/rand"
	"slices"
	"strings"
	"testing"

	"github.com/gomlx/compute/dtypes"

	"github.com/easyparallel/epl/ir"
)

// Fewer buckets than the cap allows are made where that is wanted, but one for each family.
func TestThereAreAsManyBucketsAsWanted(t *testing.T) {
	r := rand.New(rand.NewSource(1))
	p := ir.NewProgram("x")
	a, b := tensors(p, r, slices.Repeat([]int{8}, 20), dtypes.Float32), tensors(p, r, slices.Repeat([]int{8}, 10), dtypes.Float32)
	for wanted, want := range map[int]int{0: 2, 1: 2, 2: 2, 3: 3, 5: 5, 8: 5} {
		splits, err := share([][]*ir.Op{a, b}, 5, wanted)
		if err != nil {
			t.Fatal(err)
		}
		if got := splits[0][dtypes.Float32] + splits[1][dtypes.Float32]; got != want {
			t.Errorf("%d buckets where %d are wanted, at most 5 of two families", got, wanted)
		}
	}
}

// fused are the buckets of all families, which share a cap.
func fused(t *testing.T, maxSplits int, families ...[]*ir.Op) (groups [][]*ir.Op) {
	t.Helper()
	splits, err := share(families, maxSplits, maxSplits)
	if err != nil {
		t.Fatal(err)
	}
	for i, merges := range families {
		groups = append(groups, fuse(merges, splits[i])...)
	}
	return groups
}

// Gradients that are merged in parts, and those that stay whole, cannot be in one bucket, but they share a cap.
func TestFamiliesOfGradientsShareTheCap(t *testing.T) {
	r := rand.New(rand.NewSource(1))
	for range 500 {
		p := ir.NewProgram("x")
		families := make([][]*ir.Op, 1+r.Intn(3))
		for i := range families {
			sizes := make([]int, r.Intn(20))
			for j := range sizes {
				sizes[j] = r.Intn(1 << r.Intn(16))
			}
			families[i] = tensors(p, r, sizes, dtypes.Float32, dtypes.Float64)
		}
		splits := len(families) + r.Intn(6)
		perKind, merges := map[dtypes.DType]int{}, 0
		for _, group := range fused(t, splits, families...) {
			perKind[dtypeOf(group[0])]++
			merges += len(group)
		}
		for d, n := range perKind {
			if n > splits {
				t.Fatalf("%d buckets of %s, at most %d are allowed", n, d, splits)
			}
		}
		for _, f := range families {
			merges -= len(f)
		}
		if merges != 0 {
			t.Fatalf("buckets hold %d merges more than there are", merges)
		}
	}
}

// The family with most bytes gets what is left, so that a few small gradients do not cost half of the overlap.
func TestSmallFamiliesGetOneBucket(t *testing.T) {
	p, r := ir.NewProgram("x"), rand.New(rand.NewSource(1))
	large := tensors(p, r, []int{1000, 1000, 1000, 1000, 1000, 1000, 1000, 1000}, dtypes.Float32)
	small := tensors(p, r, []int{1, 2, 3, 4}, dtypes.Float32)
	splits, err := share([][]*ir.Op{large, small}, 5, 5)
	if err != nil || splits[0][dtypes.Float32] != 4 || splits[1][dtypes.Float32] != 1 {
		t.Errorf("got %v, %v", splits, err)
	}
}

func TestACapThatCannotBeKeptIsRefused(t *testing.T) {
	p, r := ir.NewProgram("x"), rand.New(rand.NewSource(1))
	a, b := tensors(p, r, []int{10}, dtypes.Float32), tensors(p, r, []int{10}, dtypes.Float32)
	_, err := share([][]*ir.Op{a, b}, 1, 1)
	if err == nil || !strings.Contains(err.Error(), "epl: communication.max_splits = 1: gradients of float32 need 2 buckets") {
		t.Errorf("got %v", err)
	}
}

// A bucket has all gradients of a region, so that it can start when the region ends; with enough buckets each region has one.
func TestABucketEndsWhereARegionDoes(t *testing.T) {
	p := ir.NewProgram("x")
	merges := tensors(p, rand.New(rand.NewSource(1)), []int{100, 90, 100, 70, 80, 90, 120, 60}, dtypes.Float32)
	region := map[*ir.Op]int{}
	for i, m := range merges {
		region[m] = min(i/3, 2)
	}
	for splits, want := range map[int][]int{1: {8}, 2: {3, 5}, 3: {3, 3, 2}, 8: {3, 3, 2}} {
		var sizes []int
		for _, g := range fuseRegions(merges, map[dtypes.DType]int{dtypes.Float32: splits}, func(m *ir.Op) int { return region[m] }) {
			sizes = append(sizes, len(g))
		}
		if !slices.Equal(sizes, want) {
			t.Errorf("%d splits give buckets of %d merges, want %d", splits, sizes, want)
		}
	}
}

// Where the cap allows a bucket for each large gradient, none waits for another; small ones go with the next.
func TestLargeGradientsTravelAloneIfThereAreBucketsForAll(t *testing.T) {
	for _, c := range []struct {
		sizes []int
		most  int
		want  []int // gradients of each bucket
	}{
		{[]int{100, 200, 100}, 3, []int{1, 1, 1}},
		{[]int{1, 100, 1, 200, 1, 100}, 5, []int{2, 2, 2}},
		{[]int{100, 1, 200, 100, 1}, 4, []int{1, 2, 1, 1}},
		{[]int{100, 1, 200, 100, 1}, 3, []int{3, 2}},          // none is left for the last
		{[]int{40, 10, 40, 10, 40, 10}, 6, []int{1, 2, 2, 1}}, // the small ones are not few
	} {
		var got []int
		for _, group := range fused(t, c.most, tensors(ir.NewProgram("x"), rand.New(rand.NewSource(1)), c.sizes, dtypes.Float32)) {
			got = append(got, len(group))
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("gradients of %v elements are %v to a bucket of %d, not %v", c.sizes, got, c.most, c.want)
		}
	}
}
