// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package equiv

import (
	"fmt"
	"testing"

	"github.com/gomlx/gomlx/ml/train/optimizer"

	"github.com/easyparallel/epl"
)

// newCluster makes EPL on several devices, with all TaskGraphs of a model replica on one.
func newCluster(t testing.TB, devices, micro int, params map[string]any, opts ...epl.Option) *epl.Env {
	t.Helper()
	all := map[string]any{"cluster.colocate_split_and_replicate": true, "pipeline.num_micro_batch": micro}
	for k, v := range params {
		all[k] = v
	}
	cfg, err := epl.NewConfig(all)
	if err != nil {
		t.Fatal(err)
	}
	env, err := epl.Init(cfg, append(opts, epl.WithLocalDevices(devices))...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = env.Close() })
	return env
}

func sgd() optimizer.Interface { return optimizer.StochasticGradientDescent().WithDecay(false) }

func TestDataParallelTrainingGivesTheWeightsOfOneDeviceOnTheSameSamples(t *testing.T) {
	models := []Model{
		{"mlp", MLP(2, 16, false), Models()[0].Loss, Regression(8, 8)},
		{"transformer", Transformer0, Models()[1].Loss, Tokens(2, 16, 32)},
	}
	for _, m := range models {
		for _, devices := range []int{1, 2, 3, 4, 8} {
			for _, micro := range []int{1, 2, 5} {
				t.Run(fmt.Sprintf("%s/%dx%d", m.Name, devices, micro), func(t *testing.T) {
					t.Parallel()
					single := m
					single.Batch = Joined(m.Batch, devices*micro)
					want := train1(t, single, sgd(), 5, nil)
					env := newCluster(t, devices, micro, nil)
					got, err := TrainOn(env.Backend(), env.Dataset(Dataset{m.Batch}), m, epl.Optimizer(sgd()), 5)
					if err != nil {
						t.Fatalf("%+v", err)
					}
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
}
