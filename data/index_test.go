// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package data

import (
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/gomlx/gomlx/core/tensors"
	"github.com/pkg/errors"
)

// ordinals has samples that are their own numbers, with a random one beside.
type ordinals struct{ n, fails int }

func (c ordinals) Len() int { return c.n }

func (c ordinals) Sample(i int, random *rand.Rand) (Sample, error) {
	if i == c.fails {
		return Sample{}, errors.New("it is broken")
	}
	return Sample{Inputs: []*tensors.Tensor{tensors.FromScalar(int64(i)), tensors.FromScalar(random.Int64())}}, nil
}

// read returns the samples of an iteration, batch by batch, up to so many.
func read(t *testing.T, ds Skipper, most int) (all [][]int64, random []int64) {
	t.Helper()
	for batch, err := range ds.Iter() {
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, tensors.MustCopyFlatData[int64](batch.Inputs[0]))
		random = append(random, tensors.MustCopyFlatData[int64](batch.Inputs[1])...)
		if len(all) == most {
			break
		}
	}
	return all, random
}

func index(t *testing.T, n int, o IndexOptions) Skipper {
	t.Helper()
	ds, err := FromIndex("numbers", ordinals{n, -1}, o)
	if err != nil {
		t.Fatal(err)
	}
	return ds
}

func TestEverySampleIsReadOnceInAnEpoch(t *testing.T) {
	for _, n := range []int{1, 2, 3, 7, 64, 65, 1000} {
		for _, shuffle := range []bool{false, true} {
			all, _ := read(t, index(t, n, IndexOptions{Batch: 3, Shuffle: shuffle, Seed: 5}), -1)
			got := slices.Concat(all...)
			if sorted := slices.IsSorted(got); sorted == shuffle && n > 3 {
				t.Errorf("%d samples, shuffled %t: %v", n, shuffle, got)
			}
			slices.Sort(got)
			for i, x := range got {
				if len(got) != n || int(x) != i {
					t.Fatalf("%d samples, shuffled %t: %v", n, shuffle, got)
				}
			}
		}
	}
}

// Orders differ between epochs, iterations and seeds, and a sample can be anywhere in them.
func TestOrdersAreDifferentAndUniform(t *testing.T) {
	ds := index(t, 50, IndexOptions{Batch: 50, Epochs: 2, Shuffle: true, Seed: 1})
	orders, _ := read(t, ds, -1)
	more, _ := read(t, ds, -1)
	other, _ := read(t, index(t, 50, IndexOptions{Batch: 50, Shuffle: true, Seed: 2}), -1)
	orders = slices.Concat(orders, more, other)
	for i := range orders {
		for k := range i {
			if slices.Equal(orders[i], orders[k]) {
				t.Errorf("orders %d and %d are the same", k, i)
			}
		}
	}
	const n, rounds = 5, 4000
	var counts [n][n]int
	for key := range uint64(rounds) {
		for i := range uint64(n) {
			counts[i][permuted(i, n, mixed(key))]++
		}
	}
	for i, row := range counts {
		for at, count := range row {
			if count < rounds/n*8/10 || count > rounds/n*12/10 {
				t.Errorf("sample %d is %d times of %d at %d", i, count, rounds, at)
			}
		}
	}
}

// Wherever training stopped, another dataset goes on with the same samples: those of epochs, of the next iteration and what is random in them included.
func TestAnyPositionGoesOnWithTheSameSamples(t *testing.T) {
	for _, o := range []IndexOptions{
		{Batch: 3, Epochs: 3, Shuffle: true, Seed: 9},
		{Batch: 4, Epochs: 2, DropLast: true},
		{Batch: 2, Epochs: Endless, Shuffle: true, Part: Part{First: 1, Own: 2, Of: 3}},
	} {
		first := index(t, 11, o)
		want, random := read(t, first, 8)
		later, _ := read(t, first, 4)
		for n := range want {
			ds := index(t, 11, o)
			if err := ds.Skip(n); err != nil {
				t.Fatal(err)
			}
			got, gotRandom := read(t, ds, len(want)-n)
			if !slices.EqualFunc(got, want[n:], slices.Equal) || !slices.Equal(gotRandom, random[len(slices.Concat(want[:n]...)):]) {
				t.Errorf("%+v, from %d on: got %v, want %v", o, n, got, want[n:])
			}
			if got, _ := read(t, ds, 4); !slices.EqualFunc(got, later, slices.Equal) {
				t.Errorf("%+v, the iteration after: got %v, want %v", o, got, later)
			}
		}
	}
	if err := index(t, 1, IndexOptions{Batch: 1}).Skip(-1); err == nil {
		t.Error("a negative number was skipped")
	}
}

// With io.slicing, workers have shares of the same order: together they are all samples.
func TestSharesOfWorkersAreAllSamples(t *testing.T) {
	for _, shares := range [][]int{{1, 1}, {2, 1}, {1, 3, 2}} {
		of, first := 0, 0
		for _, own := range shares {
			of += own
		}
		var all []int64
		for _, own := range shares {
			part, _ := read(t, index(t, 20, IndexOptions{Batch: 4, Shuffle: true, Seed: 3, Part: Part{First: first, Own: own, Of: of}}), -1)
			all = append(all, slices.Concat(part...)...)
			first += own
		}
		if slices.Sort(all); len(all) != 20 || len(slices.Compact(all)) != 20 {
			t.Errorf("%v: %v", shares, all)
		}
	}
}

func TestWhatIsWrongWithAnIndexIsSaid(t *testing.T) {
	for want, o := range map[string]IndexOptions{
		"batches of 0 samples":                  {},
		"has -2 epochs":                         {Batch: 1, Epochs: -2},
		"none for this worker":                  {Batch: 1, Part: Part{First: 3, Own: 1, Of: 4}},
		"no part of 2 samples from 1 on":        {Batch: 1, Part: Part{First: 1, Own: 2, Of: 2}},
		"no batch of 5, and DropLast leaves it": {Batch: 5, DropLast: true},
		"-1 readers":                            {Batch: 1, Readers: -1},
	} {
		if _, err := FromIndex("numbers", ordinals{2, -1}, o); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("want %s, got %v", want, err)
		}
	}
	ds, err := FromIndex("numbers", ordinals{4, 2}, IndexOptions{Batch: 1})
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for _, err = range ds.Iter() {
		n++
	}
	if n != 3 || err == nil || !strings.Contains(err.Error(), `the dataset "numbers": sample 2: it is broken`) {
		t.Errorf("%d batches, then %v", n, err)
	}
}
