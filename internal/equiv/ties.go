// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package equiv

import (
	"github.com/gomlx/compute/dtypes"
	. "github.com/gomlx/gomlx/core/graph"
	"github.com/gomlx/gomlx/core/tensors"
	"github.com/gomlx/gomlx/ml/layers"
	"github.com/gomlx/gomlx/ml/layers/activation"
	"github.com/gomlx/gomlx/ml/model"
)

// Pooled takes the maximum over the words of a sentence, of which many are the same. Their rows tie, and the gradient goes to all
// of them: so rows that are equal on one device must be equal to the last bit on several.
func Pooled(s Strategies) func(scope *model.Scope, inputs []*Node) []*Node {
	return func(scope *model.Scope, inputs []*Node) []*Node {
		x := inputs[0]
		for i := range s {
			s.part(x, i, func() {
				if i == 0 {
					x = layers.Embedding(scope.In("words"), x, dtypes.Float32, 19, 12, false)
				}
				x = activation.Gelu(layers.Dense(scope.In("up_%d", i), x, true, 24))
				x = layers.Dense(scope.In("down_%d", i), x, true, 12)
				if s.last(i) {
					x = layers.Dense(scope.In("out"), ReduceMax(x, 1), true, 19)
				}
			})
		}
		return []*Node{x}
	}
}

// repeated are sentences of few words. The pure-Go backend takes the rows of small products by three and computes those that are
// left over in another order, so that equal rows may differ in the last bit, on one device too: both sizes are multiples of three.
func repeated(batch, length int) func(step int) (inputs, labels []*tensors.Tensor) {
	return func(step int) (inputs, labels []*tensors.Tensor) {
		words, next := make([]int32, batch*length), make([]int32, batch)
		for i := range words {
			words[i] = int32((step*7 + i/length*3 + i%length*i%length%3) % 19)
		}
		for i := range next {
			next[i] = int32((step + 5*i) % 19)
		}
		return []*tensors.Tensor{tensors.FromFlatDataAndDimensions(words, batch, length)},
			[]*tensors.Tensor{tensors.FromFlatDataAndDimensions(next, batch, 1)}
	}
}
