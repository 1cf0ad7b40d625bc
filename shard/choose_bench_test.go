// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package shard_test

import (
	"testing"

	"github.com/gomlx/gomlx/ml/train/optimizer"

	"github.com/easyparallel/epl/shard"
)

// It has to take less than two seconds, with Partition.
func BenchmarkChoosingForTwentyFourLayers(b *testing.B) {
	t := &testing.T{}
	p := split(t, recordedWith(t, deep(24), optimizer.Adam().Done()), 4)
	for b.Loop() {
		c, err := shard.Search(p)
		if err != nil {
			b.Fatal(err)
		}
		b.ReportMetric(float64(c.Estimates), "estimates")
	}
}
