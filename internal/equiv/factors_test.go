// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package equiv

import (
	"fmt"
	"maps"
	"testing"

	"github.com/gomlx/compute/dtypes"
	. "github.com/gomlx/gomlx/core/graph"
	"github.com/gomlx/gomlx/ml/layers"
	"github.com/gomlx/gomlx/ml/model"
	"github.com/gomlx/gomlx/ml/train/optimizer"

	"github.com/easyparallel/epl"
)

// wideModels have layers that are wider than their batches are large.
func wideModels() []Model {
	return []Model{
		{"mlp", MLP(3, 528, false), Models()[0].Loss, Regression(2, 48)},
		{"tokens", func(scope *model.Scope, x *Node) *Node {
			x = layers.Embedding(scope.In("embed"), x, dtypes.Float32, 32, 24, false)
			x = Tanh(layers.Dense(scope.In("first"), x, true, 528)) // [1, 2, 528]: samples and tokens are contracted
			x = Tanh(layers.Dense(scope.In("second"), x, true, 540))
			return layers.Dense(scope.In("last"), x, false, 32)
		}, Models()[1].Loss, Tokens(1, 2, 32)},
	}
}

// reduced is how much a step reduces.
func reduced(env *epl.Env) (bytes int64) {
	for _, d := range env.Stats().Devices {
		bytes += d.Sent["all-reduce"] + d.Sent["reduce-scatter"]
	}
	return bytes
}

// Wide layers whose gradients' factors are gathered end at the weights of one device, with every level of ZeRO and with none, and reduce less.
func TestGatheredFactorsGiveTheWeightsOfOneDevice(t *testing.T) {
	const steps = 3
	numbers := []int{2, 4, 3}
	if testing.Short() {
		numbers = numbers[2:]
	}
	for _, m := range wideModels() {
		for _, devices := range numbers {
			single := m
			single.Batch = Joined(m.Batch, devices)
			for name, opt := range map[string]func() optimizer.Interface{"sgd": sgd, "adam": adam} {
				want := train1(t, single, opt(), steps, nil)
				for _, params := range append([]map[string]any{{}, {"communication.gradients_reduce_method": "mean", "optimizer.num_apply_group": 2}}, zeroLevels...) {
					t.Run(fmt.Sprintf("%s/%d/%s/%v", m.Name, devices, name, params["zero.level"]), func(t *testing.T) {
						t.Parallel()
						train := func(gather bool) int64 {
							all := map[string]any{"communication.gather_factors": gather}
							maps.Copy(all, params)
							env := newCluster(t, devices, 1, all)
							if err := CloseWeights(want, trainParallel(t, env, m, opt(), steps), 1e-4); err != nil {
								t.Errorf("gather_factors %v: %s", gather, err)
							}
							return reduced(env)
						}
						with := train(true)
						if devices != 3 || testing.Short() {
							return
						}
						without := train(false)
						state := name == "adam" && params["zero.level"] == nil // which every replica keeps
						if (with < without) == state && !*onGPUs {
							t.Errorf("%d bytes are reduced with factors, %d without", with, without)
						}
					})
				}
			}
		}
	}
}

// Where a step lacks instances, where the gradient is clipped, checked or weighted, and in mixed precision, gathering factors changes nothing but rounding.
func TestGatheredFactorsGoWithOtherSettings(t *testing.T) {
	for i, params := range []map[string]any{
		{},
		{"communication.clip_after_allreduce": true, "zero.level": "v1"},
		{"communication.gradients_reduce_method": "sum"},
		{"gradient_checkpoint.type": "auto"},
		{"gradient_checkpoint.type": "auto", "zero.level": "v2"},
		{"offload.level": "v0", "zero.level": "v1"},
		{"reliability.nan": "skip"},
		{"reliability.check_every": 1},
		{"amp.level": "O1", "amp.dtype": "bfloat16", "zero.level": "v0"},
		{"communication.fp16": true},
		{"communication.max_splits": 1, "zero.level": "v1"},
	} {
		m := wideModels()[i%2]
		t.Run(fmt.Sprint(m.Name, params), func(t *testing.T) {
			train := func(gather bool) *Run {
				all := map[string]any{"communication.gather_factors": gather}
				maps.Copy(all, params)
				env := newCluster(t, 3, 1, all)
				run, err := TrainOn(env.Backend(), env.Dataset(first(m, 7)), m, epl.Optimizer(epl.ClipByGlobalNorm(sgd(), 0.5)), 3) // the last step has one of three
				if err != nil {
					t.Fatalf("%+v", err)
				}
				return run
			}
			if err := CloseWeights(train(false), train(true), 1e-3); err != nil {
				t.Error(err)
			}
		})
	}
}
