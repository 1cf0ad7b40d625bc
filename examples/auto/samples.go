// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package main

import (
	"iter"
	"math/rand/v2"

	"github.com/gomlx/gomlx/core/tensors"
	"github.com/gomlx/gomlx/ml/train"
)

// samples is a dataset without end: noise, with a peak at a feature that says the class.
func (f flags) samples() train.Dataset { return peaks(f) }

type peaks flags

// Name implements train.Dataset.
func (peaks) Name() string { return "peaks" }

// Iter implements train.Dataset.
func (p peaks) Iter() iter.Seq2[train.Batch, error] {
	return func(yield func(train.Batch, error) bool) {
		random := rand.New(rand.NewPCG(1, 2))
		for more := true; more; {
			x, class := make([]float32, p.batch*p.width), make([]int32, p.batch)
			for i := range x {
				x[i] = float32(random.NormFloat64())
			}
			for i := range class {
				class[i] = int32(random.IntN(min(p.classes, p.width)))
				x[i*p.width+int(class[i])] += 5
			}
			more = yield(train.Batch{
				Inputs: []*tensors.Tensor{tensors.FromFlatDataAndDimensions(x, p.batch, p.width)},
				Labels: []*tensors.Tensor{tensors.FromFlatDataAndDimensions(class, p.batch, 1)},
			}, nil)
		}
	}
}
