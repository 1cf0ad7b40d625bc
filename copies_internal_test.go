// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package epl

import (
	"fmt"
	"math/rand"
	"slices"
	"strings"
	"testing"

	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/shapes"

	"github.com/easyparallel/epl/state"
)

// Whatever is where, every launcher may be lost, if there are two, and all is still in the memory of the others; and if none is lost, nothing is fetched from elsewhere.
func TestCopiesOutliveEveryLauncher(t *testing.T) {
	r := rand.New(rand.NewSource(1))
	for range 300 {
		places := make([]copyPlace, 1+r.Intn(5))
		memories := map[string]bool{}
		for w := range places {
			m := r.Intn(3)
			places[w] = copyPlace{fmt.Sprint("memory ", m), fmt.Sprint("machine ", m/2)}
			memories[places[w].Memory] = true
		}
		workerOf := func(rank int) int { return rank / 2 } // two devices each
		var variables []state.Variable
		for i := range 6 {
			n := 3 << 20 * r.Intn(2) / 3
			v := state.Variable{Path: fmt.Sprint("/", i), Shape: shapes.Make(dtypes.Uint8, 12+n)}
			parts := 1 + r.Intn(3) // by ZeRO, or a split
			for p := range parts {
				size := v.Shape.Size()
				h := state.Held{Region: state.Region{Start: []int{0}, Limit: []int{size}, From: p * size / parts, To: (p + 1) * size / parts}}
				h.Ranks = append(h.Ranks, r.Perm(2 * len(places))[:1+r.Intn(2*len(places))]...)
				slices.Sort(h.Ranks)
				v.Held = append(v.Held, h)
			}
			variables = append(variables, v)
		}
		plans := make([]copyPlan, len(places))
		for w := range places {
			plans[w] = planCopies(variables, places, workerOf, w)
		}
		for lost := range memories {
			if len(memories) == 1 {
				lost = ""
			}
			for _, v := range variables {
				var regions []state.Region
				for w, p := range plans {
					for _, k := range p.kept {
						if lender := plans[k.from]; k.index >= lender.lent || !lender.mine[k.index].Region.Equal(k.Region) || lender.mine[k.index].Path != k.Path {
							t.Fatalf("worker %d keeps %v of worker %d, which is not among %v", w, k, k.from, lender.mine[:lender.lent])
						}
						if places[w].Memory == places[k.from].Memory {
							t.Fatalf("worker %d keeps what its own launcher has", w)
						}
						if k.Path == v.Path && places[w].Memory != lost {
							regions = append(regions, k.Region)
						}
					}
					for _, m := range p.mine {
						if m.Path == v.Path && places[w].Memory != lost {
							regions = append(regions, m.Region)
						}
					}
				}
				if _, err := state.Choose(v.Shape.Dimensions, regions); err != nil {
					t.Fatalf("without %q, %s of %v: %v", lost, v.Path, places, err)
				}
			}
		}
	}
}

func TestAnotherMachineIsPreferredToAnotherLauncher(t *testing.T) {
	places := []copyPlace{{"a", "one"}, {"b", "one"}, {"c", "two"}, {"d", "two"}}
	if k := keeperOf(0, places, make([]int, 4)); k != 2 {
		t.Errorf("worker %d keeps it", k)
	}
	if k := keeperOf(0, places, []int{0, 0, 5, 0}); k != 3 {
		t.Errorf("worker %d keeps it, although it has more", k)
	}
	if k := keeperOf(0, places[:2], make([]int, 2)); k != 1 {
		t.Errorf("worker %d keeps it, where there is one machine", k)
	}
	if k := keeperOf(0, places[:1], make([]int, 1)); k != -1 {
		t.Errorf("worker %d keeps it, where there is one launcher", k)
	}
}

func TestCopiesNeedAnElasticJob(t *testing.T) {
	cfg, err := NewConfig(map[string]any{"recovery.copies": 1})
	if err != nil {
		t.Fatal(err)
	}
	_, err = Init(cfg)
	if err == nil || !strings.Contains(err.Error(), "recovery.copies is 1, but no launcher holds memory for copies: the job is not elastic") {
		t.Errorf("%v", err)
	}
	if _, err := NewConfig(map[string]any{"recovery.copies": 2}); err == nil || !strings.Contains(err.Error(), "must be an integer from 0 to 1") {
		t.Errorf("%v", err)
	}
}
