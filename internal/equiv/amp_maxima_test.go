// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package equiv

import (
	"fmt"
	"testing"

	. "github.com/gomlx/gomlx/core/graph"
	"github.com/gomlx/gomlx/ml/layers"
	"github.com/gomlx/gomlx/ml/layers/norm"
	"github.com/gomlx/gomlx/ml/model"
	"github.com/gomlx/gomlx/ml/train/loss"
	"github.com/gomlx/gomlx/ml/train/optimizer"
)

// maxima is a model whose gradients look for the largest elements: of windows of an image, of all its pixels, and of two branches. Dots read some
// of them, and the loss others.
func maxima() Parted {
	return Parted{Name: "maxima", Least: 2, Most: 3, Loss: loss.SparseCategoricalCrossEntropyLogits, Batch: Images(8, 6),
		Build: func(s Strategies) func(scope *model.Scope, inputs []*Node) []*Node {
			return func(scope *model.Scope, inputs []*Node) []*Node {
				x := inputs[0]
				for i := range s {
					s.part(x, i, func() {
						scope := scope.In("part_%d", i)
						x = layers.Convolution(scope, x).Channels(8).KernelSize(3).PadSame().Done()
						x = norm.LayerNorm(scope, x, -1).Done()
						if i == 0 {
							x = MaxPool(x).Window(2).Done()
						}
						if s.last(i) {
							y := layers.Dense(scope.In("hidden"), x, true, 16)
							other := scope.In("other")
							y = Max(y, norm.LayerNorm(other, layers.Dense(other, x, true, 16), -1).Done())
							y = layers.Dense(scope.In("head"), ReduceMax(y, 1, 2), true, 6)
							last := scope.In("last")
							x = Add(y, ReduceMax(norm.LayerNorm(last, layers.Dense(last, x, true, 6), -1).Done(), 1, 2))
						}
					})
				}
				return []*Node{x}
			}
		}}
}

// mustMoveAlike compares what training adds to the weights.
func mustMoveAlike(t *testing.T, start, want, got *Run, tolerance float64) {
	t.Helper()
	var update, diff []float64
	for v := range want.Store.IterVariables() {
		if v.Trainable {
			x := numbers(v.MustValue())
			moved, _ := distance(numbers(start.Store.GetVariable(v.Path()).MustValue()), x)
			apart, _ := distance(x, numbers(got.Store.GetVariable(v.Path()).MustValue()))
			update, diff = append(update, moved), append(diff, apart)
		}
	}
	_, norm := distance(update, update)
	if _, apart := distance(diff, diff); !(apart <= tolerance*norm) {
		t.Errorf("updates differ by %.2g of their norm", apart/norm)
	}
}

// In bfloat16 some elements that are nearly the largest become so, and one in a hundred gradients goes elsewhere.
func TestMixedPrecisionFindsTheSameMaximaUnderEveryPlan(t *testing.T) {
	tolerances := map[string]float64{"bfloat16": 0.12, "float16": 0.03}
	rate := func(r float64) optimizer.Interface {
		return optimizer.StochasticGradientDescent().WithDecay(false).WithLearningRate(r).Done()
	}
	for i, p := range []splitPlan{
		{parts: []int{1, 1}, colocate: true, replicas: 1, micro: 1},
		{parts: []int{1, 1}, colocate: true, replicas: 2, micro: 2},
		{parts: []int{-1, -1}, replicas: 2, micro: 2},
		{parts: []int{-1, 2}, replicas: 2, micro: 2},
		{parts: []int{2, 2}, colocate: true, replicas: 2, micro: 1},
		{parts: []int{2, -1, 3}, replicas: 1, micro: 3},
	} {
		w := inParts(maxima(), p)
		t.Run(p.String(), func(t *testing.T) {
			t.Parallel()
			start, want := w.run(t, nil, rate(1e-30), 1), w.run(t, nil, rate(0.1), 1)
			for j, params := range []map[string]any{
				nil,
				{"gradient_checkpoint.type": "auto"},
				{"zero.level": "v1"},
				{"zero.level": "v2", "gradient_checkpoint.type": "auto"},
			} {
				if p.replicas == 1 && params["zero.level"] != nil {
					continue
				}
				h := halves[(i+j)%2]
				t.Run(fmt.Sprint(params, h.name), func(t *testing.T) {
					mustMoveAlike(t, start, want, w.run(t, inHalf(h.name, params), rate(0.1), 1), tolerances[h.name])
				})
			}
		})
	}
}
