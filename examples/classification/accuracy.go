// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"

	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/shapes"
	. "github.com/gomlx/gomlx/core/graph" //nolint:all // the way GoMLX models are written
	"github.com/gomlx/gomlx/ml/model"
	"github.com/gomlx/gomlx/ml/train/metric"
)

// These metrics never need the logits of all classes in one place: they compare each logit with a number per image, and
// reduce over the classes. Classes are compared as integers: as floats, those above 2^24 would not differ.

// top1 is the share of images whose largest logit is that of their class.
func top1(_ *model.Scope, labels, logits []*Node) *Node {
	best := ArgMax(logits[0], -1, labels[0].DType())
	return share(Equal(best, Squeeze(labels[0], -1)))
}

// topK is the share of images for which fewer than k logits are larger than that of their class.
func topK(k int) metric.BaseMetricGraph {
	return func(_ *model.Scope, labels, logits []*Node) *Node {
		x, label := logits[0], labels[0]
		classes := Iota(x.Graph(), shapes.Make(label.DType(), 1, x.Shape().Dim(-1)), -1)
		own := ReduceAndKeep(Where(Equal(classes, label), x, ZerosLike(x)), ReduceSum, -1)
		larger := ReduceSum(ConvertDType(GreaterThan(x, own), dtypes.Int32), -1)
		return share(LessThan(larger, Scalar(x.Graph(), dtypes.Int32, k)))
	}
}

// share is the part of a batch for which something is true.
func share(is *Node) *Node { return ReduceAllMean(ConvertDType(is, dtypes.Float32)) }

// metrics are the accuracies, averaged over the last steps.
func metrics() (all []metric.Interface) {
	for _, k := range []int{1, 5} {
		fn := top1
		if k > 1 {
			fn = topK(k)
		}
		name := fmt.Sprintf("top-%d", k)
		all = append(all, metric.NewExponentialMovingAverageMetric(name, name, metric.AccuracyMetricType, fn, nil, 0.1))
	}
	return all
}
