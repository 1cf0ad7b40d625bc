// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package equiv

import (
	"testing"

	. "github.com/gomlx/gomlx/core/graph"
	"github.com/gomlx/gomlx/ml/layers"
	"github.com/gomlx/gomlx/ml/model"
	"github.com/gomlx/gomlx/ml/train/loss"

	"github.com/easyparallel/epl"
)

// Variables get their first values in parts, too: a model that fits into all devices together but into none by itself
// starts, trains, and has the weights of one device.
func TestAModelLargerThanADeviceTrainsSplit(t *testing.T) {
	const devices, classes = 4, 20000 // 5 MB of weights
	large := func(k int) Model {
		return Model{"large", func(scope *model.Scope, x *Node) *Node {
			epl.With(x, epl.Split(k, "head"), func() {
				x = layers.Dense(scope.In("first"), x, true, 64)
				x = layers.Dense(scope.In("head"), Tanh(x), false, classes)
			})
			return x
		}, loss.SparseCategoricalCrossEntropyLogits, Classes(2, 8, classes)}
	}
	limit := map[string]any{"cluster.device_memory": 5 << 20, "cluster.colocate_split_and_replicate": false}
	env := newCluster(t, devices, 1, limit)
	got := trainParallel(t, env, large(devices), sgd(), 3)
	if err := CloseWeights(train1(t, large(1), sgd(), 3, nil), got, 1e-5); err != nil {
		t.Error(err)
	}
	for d, s := range env.Stats().Devices {
		if s.PeakBytes > 5<<20 {
			t.Errorf("device %d had %d bytes", d, s.PeakBytes)
		}
	}
	if *onGPUs {
		return // a step is one module on one device, and the fake does not say what it needs besides weights
	}
	one := newCluster(t, 1, 1, limit)
	_, err := TrainOn(one.Backend(), one.Dataset(Dataset{large(1).Batch}), large(1), epl.Optimizer(sgd()), 1)
	mustFail(t, err, "cluster.device_memory")
}
