// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package equiv

import (
	"testing"

	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/shapes"
	. "github.com/gomlx/gomlx/core/graph"
	"github.com/gomlx/gomlx/ml/layers/norm"
	"github.com/gomlx/gomlx/ml/model"
	"github.com/gomlx/gomlx/ml/train/loss"
)

// halfTransformer multiplies in bfloat16 and does all else in float32, as do its weights.
func halfTransformer(s Strategies) func(scope *model.Scope, inputs []*Node) []*Node {
	const vocabulary, width, heads, headDim, hidden = 19, 10, 5, 2, 31
	return func(scope *model.Scope, inputs []*Node) []*Node {
		ids := inputs[0]
		half := func(x *Node) *Node { return ConvertDType(x, dtypes.BFloat16) }
		full := func(x *Node) *Node { return ConvertDType(x, dtypes.Float32) }
		var x *Node
		for i := range s {
			s.part(ids, i, func() {
				scope := scope.In("part_%d", i)
				weights := func(name string, dims ...int) *Node {
					return scope.VariableWithShape(name, shapes.Make(dtypes.Float32, dims...)).NodeValue(ids)
				}
				if i == 0 {
					x = Gather(weights("words", vocabulary, width), InsertAxes(ids, -1))
				}
				h := half(norm.LayerNorm(scope.In("norm_1"), x, -1).Done())
				query := Einsum("bsd,dhk->bhsk", h, half(weights("query", width, heads, headDim)))
				key := Einsum("bsd,dhk->bhsk", h, half(weights("key", width, heads, headDim)))
				value := Einsum("bsd,dhk->bhsk", h, half(weights("value", width, heads, headDim)))
				attention := half(Softmax(full(Einsum("bhqk,bhsk->bhqs", query, key)), -1))
				h = Einsum("bhqs,bhsk->bhqk", attention, value)
				x = Add(x, full(Einsum("bhsk,hkd->bsd", h, half(weights("output", heads, headDim, width)))))
				h = half(norm.LayerNorm(scope.In("norm_2"), x, -1).Done())
				h = Tanh(Einsum("bsd,df->bsf", h, half(weights("up", width, hidden))))
				x = Add(x, full(Einsum("bsf,fd->bsd", h, half(weights("down", hidden, width)))))
				if s.last(i) {
					x = full(Einsum("bsd,dv->bsv", half(x), half(weights("out", width, vocabulary))))
				}
			})
		}
		return []*Node{x}
	}
}

// Terms that devices have are rounded each before they are added up, in float32: the type has 8 bits.
func TestSplitTransformersComputeInBFloat16(t *testing.T) {
	m := Parted{Name: "bfloat16", Least: 1, Most: 3, Build: halfTransformer, Loss: loss.SparseCategoricalCrossEntropyLogits, Batch: Tokens(8, 5, 19)}
	long := m
	long.Batch = Tokens(2, 61, 19)
	for name, m := range map[string]Parted{"weights": m, "words": long} {
		for _, p := range append(fewSplits(), splitPlan{parts: []int{4}, replicas: 1, micro: 1}) {
			t.Run(name+"/"+p.String(), func(t *testing.T) {
				t.Parallel()
				if p.parts[0] < -2 && name == "words" {
					p.parts = []int{-2, 2}
				}
				want, got := m.measure(t, p, 3), m.under(p).piped(t, p.env(t, nil), 0, sgd(), 3)
				if err := CloseWeights(want, got, 3e-2); err != nil { // some are hardly more than a sum of gradients that cancel
					t.Error(err)
				}
				if err := CloseLosses(want, got, 1e-2); err != nil {
					t.Error(err)
				}
			})
		}
	}
}
