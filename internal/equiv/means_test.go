// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package equiv

import (
	"testing"

	"github.com/gomlx/gomlx/ml/train/loss"
	"github.com/gomlx/gomlx/ml/train/optimizer"

	"github.com/easyparallel/epl"
)

// Whoever looks at all gradients before a weight is updated needs no second copy of them.
func TestMeansOfGradientsOverMicroBatchesTakeNoMemoryOfTheirOwn(t *testing.T) {
	const width = 128
	m := Model{"mlp", MLP(3, width, false), loss.MeanSquaredError, Regression(2, width)}
	peak := func(params map[string]any, opt optimizer.Interface) int64 {
		env := newCluster(t, 1, 3, params)
		trainParallel(t, env, m, opt, 1)
		return env.Predicted().Devices[0].PeakBytes
	}
	plain := peak(nil, sgd())
	for what, got := range map[string]int64{
		"reliability.nan = skip": peak(map[string]any{"reliability.nan": "skip"}, sgd()),
		"a global norm":          peak(map[string]any{"communication.clip_after_allreduce": true}, epl.ClipByGlobalNorm(sgd(), 1)),
	} {
		if got > plain+width*width*4 {
			t.Errorf("%s: %d bytes, without it %d", what, got, plain)
		}
	}
}
