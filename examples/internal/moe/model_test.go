// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package moe

import (
	"fmt"
	"math"
	"slices"
	"testing"

	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/shapes"
	. "github.com/gomlx/gomlx/core/graph" //nolint:all // the way GoMLX models are written
	"github.com/gomlx/gomlx/core/tensors"
	"github.com/gomlx/gomlx/ml/model"

	"github.com/easyparallel/epl"
)

func newEnv(t *testing.T, opts ...epl.Option) *epl.Env {
	t.Helper()
	env, err := epl.Init(nil, opts...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = env.Close() })
	return env
}

func TestEveryOtherLayerHasExperts(t *testing.T) {
	for layers, want := range map[int]string{1: "[0]", 2: "[1]", 3: "[0 2]", 4: "[1 3]"} {
		m := T5{Layers: layers}
		var got []int
		for i := range layers {
			if m.hasExperts(i) {
				got = append(got, i)
			}
		}
		if fmt.Sprint(got) != want {
			t.Errorf("%d layers: %v", layers, got)
		}
	}
}

func TestExpertsAreVariablesOfAllOfThem(t *testing.T) {
	store := model.NewStore()
	g := NewGraph(newEnv(t).Backend(), "network")
	ids := Parameter(g, "ids", shapes.Make(dtypes.Int32, 2, 6))
	m := T5{Layers: 2, Width: 8, FF: 10, Heads: 2, Vocabulary: 30, Devices: 1, Form: FormScope,
		Gate: Gate{Experts: 3, TopK: 2, CapacityFactor: 1}}
	out := m.Logits(store.RootScope(), []*Node{ids, ids})
	if err := out[0].Shape().CheckDims(2, 6, 30); err != nil {
		t.Error(err)
	}
	if err := out[1].Shape().CheckDims(2); err != nil {
		t.Error(err)
	}
	var experts []string
	for v := range store.IterVariables() {
		if v.Shape().Rank() == 3 {
			experts = append(experts, fmt.Sprint(v.Path(), v.Shape().Dimensions))
		}
	}
	slices.Sort(experts)
	want := []string{"/decoder/layer_1/experts/in[3 8 10]", "/decoder/layer_1/experts/out[3 10 8]",
		"/encoder/layer_1/experts/in[3 8 10]", "/encoder/layer_1/experts/out[3 10 8]"}
	if !slices.Equal(experts, want) {
		t.Errorf("got %q", experts)
	}
}

// A translation is written word by word; what is said about a word must not depend on those that come after it, or the
// network would learn from what it is not told later.
func TestWordsDoNotDependOnThoseAfterThem(t *testing.T) {
	for _, topK := range []int{1, 2} {
		m := T5{Layers: 2, Width: 8, FF: 8, Heads: 2, Vocabulary: 20, Devices: 1, Form: FormScope,
			Gate: Gate{Experts: 3, TopK: topK, CapacityFactor: 0.7}}
		exec, err := model.NewExec(newEnv(t).Backend(), model.NewStore(), func(scope *model.Scope, inputs []*Node) *Node {
			return m.Logits(scope, inputs)[0]
		})
		if err != nil {
			t.Fatal(err)
		}
		logits := func(target []int32) []float32 {
			out, err := exec.Call([][]int32{{4, 5, 6, 1, 0, 0}}, [][]int32{target})
			if err != nil {
				t.Fatalf("%+v", err)
			}
			return tensors.MustCopyFlatData[float32](out[0])
		}
		whole, part := logits([]int32{3, 7, 8, 9, 10, 11}), logits([]int32{3, 7, 8, 0, 0, 0})
		for i := range 3 * 20 {
			if math.Abs(float64(whole[i]-part[i])) > 1e-5 {
				t.Fatalf("top %d: word %d is %v, and %v with words after it", topK, i/20, part[i], whole[i])
			}
		}
		if slices.Equal(whole[3*20:4*20], part[3*20:4*20]) {
			t.Error("the words before a word do not matter")
		}
	}
}

func TestDistancesHaveTheBucketsOfT5(t *testing.T) {
	for _, c := range []struct {
		distance int
		bothWays bool
		want     int32
	}{
		{0, true, 0}, {-1, true, 1}, {1, true, 17}, {-7, true, 7}, {-8, true, 8}, {-12, true, 9}, {-200, true, 15}, {200, true, 31},
		{0, false, 0}, {3, false, 0}, {-3, false, 3}, {-15, false, 15}, {-16, false, 16}, {-127, false, 31}, {-1000, false, 31},
	} {
		if got := bucket(c.distance, c.bothWays); got != c.want {
			t.Errorf("%+v: %d", c, got)
		}
	}
}
