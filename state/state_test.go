// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package state

import (
	"math/rand"
	"slices"
	"strings"
	"testing"

	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/shapes"
)

// divide cuts a tensor as plans do: rows of a dim over k devices, the first of which have more, and of what each has, padded equal parts over
// n replicas.
func divide(dims []int, dim, k, n int) (all []Region) {
	box := Whole(dims)
	at := 0
	for i := range k {
		b := Box(slices.Clone(box.Start), slices.Clone(box.Limit))
		if k > 1 {
			size := dims[dim] / k
			if i < dims[dim]%k {
				size++
			}
			b.Start[dim], b.Limit[dim] = at, at+size
			b = Box(b.Start, b.Limit)
			at += size
		}
		part := (b.Size() + n - 1) / n
		for j := range n {
			r := b
			r.From, r.To = min(j*part, b.To), min((j+1)*part, b.To)
			all = append(all, r)
		}
	}
	return all
}

// somehow draws dimensions and a way to divide them.
func somehow(r *rand.Rand) (dims []int, regions func() []Region) {
	for range r.Intn(4) {
		dims = append(dims, 1+r.Intn(7))
	}
	return dims, func() []Region {
		dim, k := 0, 1
		if len(dims) > 0 {
			dim, k = r.Intn(len(dims)), 1+r.Intn(4)
		}
		return divide(dims, dim, k, 1+r.Intn(5))
	}
}

func TestRegionsOfPlansCoverATensorOnce(t *testing.T) {
	r := rand.New(rand.NewSource(1))
	for range 500 {
		dims, regions := somehow(r)
		all := regions()
		if err := Cover(dims, all); err != nil {
			t.Fatalf("%v %v: %v", dims, all, err)
		}
		i := r.Intn(len(all))
		if all[i].Size() == 0 {
			continue
		}
		if err := Cover(dims, slices.Delete(slices.Clone(all), i, i+1)); err == nil {
			t.Fatalf("%v: nothing is missing in %v without %v", dims, all, all[i])
		}
		if err := Cover(dims, append(slices.Clone(all), all[i])); err == nil || !strings.Contains(err.Error(), "in common") {
			t.Fatalf("%v: %v with %v twice: %v", dims, all, all[i], err)
		}
	}
}

// What was written in some regions is read in others.
func TestWhatIsCutByOnePlanIsPutTogetherByAnother(t *testing.T) {
	r := rand.New(rand.NewSource(2))
	for range 500 {
		dims, regions := somehow(r)
		whole := Whole(dims)
		data := make([]byte, 2*whole.Size())
		r.Read(data)
		cut := func(want Region) []byte {
			b := make([]byte, 2*want.Size())
			if err := Cut(dtypes.Int16, dims, b, want, data, whole); err != nil {
				t.Fatal(err)
			}
			return b
		}
		saved := regions()
		for _, want := range regions() {
			got := make([]byte, 2*want.Size())
			for _, has := range saved {
				from := cut(has)
				Overlap(dims, has, want, func(x Run) { copy(got[2*x.In:2*(x.In+x.Len)], from[2*x.At:]) })
			}
			if !slices.Equal(got, cut(want)) {
				t.Fatalf("%v: %v read from %v", dims, want, saved)
			}
		}
	}
}

func TestElementsOfARegionAreInRowMajorOrder(t *testing.T) {
	data := []byte{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11}
	for _, c := range []struct {
		r    Region
		want []byte
	}{
		{Region{Start: []int{0, 1}, Limit: []int{3, 3}, From: 0, To: 6}, []byte{1, 2, 5, 6, 9, 10}},
		{Region{Start: []int{0, 1}, Limit: []int{3, 3}, From: 1, To: 4}, []byte{2, 5, 6}},
		{Region{Start: []int{1, 0}, Limit: []int{3, 4}, From: 3, To: 6}, []byte{7, 8, 9}},
	} {
		got := make([]byte, len(c.want))
		if err := Cut(dtypes.Uint8, []int{3, 4}, got, c.r, data, Whole([]int{3, 4})); err != nil || !slices.Equal(got, c.want) {
			t.Errorf("%v: %v, %v", c.r, got, err)
		}
	}
}

func TestARegionThatIsNotThereIsAnError(t *testing.T) {
	has := Box([]int{0}, []int{4})
	if err := Cut(dtypes.Uint8, []int{8}, make([]byte, 4), Box([]int{2}, []int{6}), make([]byte, 4), has); err == nil {
		t.Error("half of it was enough")
	}
	for _, r := range []Region{Box([]int{5}, []int{9}), Box([]int{3}, []int{2}), {Start: []int{0}, Limit: []int{4}, From: 2, To: 5}, Whole(nil)} {
		if r.Check([]int{8}) == nil {
			t.Errorf("%v is no region of 8 elements", r)
		}
	}
}

func TestWritersShareWhatSeveralHold(t *testing.T) {
	const mb = 1 << 20
	whole := func(path string, n int, ranks ...int) Variable {
		return Variable{path, shapes.Make(dtypes.Uint8, n), []Held{{Whole([]int{n}), ranks}}}
	}
	worker := func(rank int) int { return rank / 2 }
	all := []Variable{
		whole("/replicated", 40*mb, 0, 1, 2, 3, 4, 5), // on all devices of 3 workers
		whole("/small", 5, 0, 2, 4),
		whole("/stage", 6*mb, 4, 5), // only on the last worker
		{"/zero", shapes.Make(dtypes.Uint8, 5), []Held{ // padded to parts of 2
			{Region{[]int{0}, []int{5}, 0, 2}, []int{0}}, {Region{[]int{0}, []int{5}, 2, 4}, []int{2}},
			{Region{[]int{0}, []int{5}, 4, 5}, []int{3}}, {Region{[]int{0}, []int{5}, 5, 5}, []int{4}}}},
		whole("/empty", 0, 0, 2),
	}
	pieces := Deal(all, worker)
	load := map[int]int{}
	regions := map[string][]Region{}
	for _, p := range pieces {
		load[worker(p.Owner)] += p.Bytes()
		regions[p.Path] = append(regions[p.Path], p.Region)
		for _, v := range all {
			if v.Path == p.Path && !slices.ContainsFunc(v.Held, func(h Held) bool {
				return slices.Contains(h.Ranks, p.Owner) && h.From <= p.Region.From && p.Region.To <= h.To
			}) {
				t.Errorf("%s%v is given to rank %d, which does not hold it", p.Path, p.Region, p.Owner)
			}
		}
	}
	for _, v := range all {
		if err := Cover(v.Shape.Dimensions, regions[v.Path]); err != nil || len(regions[v.Path]) == 0 {
			t.Errorf("%s: %v", v.Path, err)
		}
	}
	for w, n := range load {
		if n > 20*mb {
			t.Errorf("worker %d writes %d MB of 46", w, n/mb)
		}
	}
	slices.Reverse(all)
	if again := Deal(all, worker); !slices.EqualFunc(again, pieces, func(a, b Piece) bool { return a.Path == b.Path && a.Owner == b.Owner && a.Region.Equal(b.Region) }) {
		t.Error("it depends on the order of the variables")
	}
}

func TestRegionsAreChosenInOrderUntilAllIsThere(t *testing.T) {
	r := rand.New(rand.NewSource(3))
	for range 500 {
		dims, regions := somehow(r)
		all := regions()
		twice := append(slices.Clone(all), all...) // as two machines have them
		chosen, err := Choose(dims, twice)
		if err != nil {
			t.Fatalf("%v %v: %v", dims, all, err)
		}
		for _, i := range chosen {
			if i >= len(all) || all[i].Size() == 0 {
				t.Fatalf("%v: %v is chosen of %v", dims, i, twice)
			}
		}
		i := r.Intn(len(all))
		if all[i].Size() == 0 {
			continue
		}
		if chosen, err := Choose(dims, slices.Delete(twice, i, i+1)); err != nil || !slices.Contains(chosen, i+len(all)-1) {
			t.Fatalf("%v without the first %v: %v, %v", dims, all[i], chosen, err)
		}
		if _, err := Choose(dims, slices.Delete(slices.Clone(all), i, i+1)); err == nil {
			t.Fatalf("%v: nothing is missing in %v without %v", dims, all, all[i])
		}
	}
	// Machines whose workers are as many as they like have cut a region in other shares.
	part := func(from, to int) Region { return Region{Start: []int{0}, Limit: []int{10}, From: from, To: to} }
	chosen, err := Choose([]int{10}, []Region{part(0, 5), part(0, 3), part(3, 7), part(7, 10)})
	if err != nil || !slices.Equal(chosen, []int{0, 2, 3}) {
		t.Errorf("%v, %v", chosen, err)
	}
}
