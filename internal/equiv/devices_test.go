// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package equiv

import (
	"fmt"
	"testing"

	. "github.com/gomlx/gomlx/core/graph"
	"github.com/gomlx/gomlx/ml/layers"
	"github.com/gomlx/gomlx/ml/layers/activation"
	"github.com/gomlx/gomlx/ml/model"

	"github.com/easyparallel/epl"
)

// wide has a stage of several devices for each number.
func wide(devices ...int) func(scope *model.Scope, x *Node) *Node {
	return func(scope *model.Scope, x *Node) *Node {
		for i, k := range devices {
			epl.With(x, epl.Replicate(k, fmt.Sprintf("stage_%d", i)), func() {
				x = layers.Dense(scope.In("layer_%d", i), x, true, 16)
				x = activation.Gelu(x)
				if i == len(devices)-1 {
					x = layers.Dense(scope.In("out"), x, true, 1)
				}
			})
		}
		return x
	}
}

// The devices of a stage share a micro-batch: that of the whole model, however its samples divide.
func TestStagesOfSeveralDevicesGiveTheWeightsOfOneDevice(t *testing.T) {
	for _, devices := range [][]int{{2}, {3}, {2, 1}, {1, 2}, {2, 2}, {3, 2}, {2, 4}, {1, 3, 2}} {
		total := 0
		for _, k := range devices {
			total += k
		}
		for _, c := range []struct{ replicas, micro int }{{1, 1}, {1, 3}, {2, 2}} {
			t.Run(fmt.Sprintf("%v/%dx%d", devices, c.replicas, c.micro), func(t *testing.T) {
				t.Parallel()
				m := Model{"mlp", wide(devices...), Models()[0].Loss, Regression(10, 8)}
				single := m
				single.Batch = Joined(m.Batch, c.replicas*c.micro)
				want := train1(t, single, sgd(), 3, nil)
				got := trainParallel(t, newPipeline(t, total*c.replicas, c.micro, nil), m, sgd(), 3)
				if err := CloseWeights(want, got, 1e-5); err != nil {
					t.Error(err)
				}
				if err := CloseLosses(want, got, 1e-5); err != nil {
					t.Error(err)
				}
			})
		}
	}
}
