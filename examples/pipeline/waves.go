// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package main

import (
	"iter"
	"math"
	"math/rand/v2"

	"github.com/gomlx/gomlx/core/tensors"
	"github.com/gomlx/gomlx/ml/train"
)

const samples = 64 // of a micro-batch

// waves is a dataset without end: the mean of the features' sines is to be learnt, times 10.
type waves struct{}

// Name implements train.Dataset.
func (waves) Name() string { return "waves" }

// Iter implements train.Dataset.
func (waves) Iter() iter.Seq2[train.Batch, error] {
	return func(yield func(train.Batch, error) bool) {
		random := rand.New(rand.NewPCG(1, 2))
		for more := true; more; {
			x, y := make([]float32, samples*width), make([]float32, samples)
			for i := range x {
				x[i] = float32(random.NormFloat64())
				y[i/width] += float32(10 * math.Sin(float64(x[i])) / width)
			}
			more = yield(train.Batch{
				Inputs: []*tensors.Tensor{tensors.FromFlatDataAndDimensions(x, samples, width)},
				Labels: []*tensors.Tensor{tensors.FromFlatDataAndDimensions(y, samples, 1)},
			}, nil)
		}
	}
}
