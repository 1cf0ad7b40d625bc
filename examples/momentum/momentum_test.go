// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package momentum_test

import (
	"testing"

	"github.com/gomlx/compute"
	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/shapes"
	. "github.com/gomlx/gomlx/core/graph" //nolint:all // the way GoMLX models are written
	"github.com/gomlx/gomlx/core/tensors"
	"github.com/gomlx/gomlx/ml/model"
	"github.com/gomlx/gomlx/ml/model/initializer"
	"github.com/gomlx/gomlx/ml/train"
	"github.com/gomlx/gomlx/ml/train/loss"
	"github.com/gomlx/gomlx/ml/train/optimizer"

	"github.com/easyparallel/epl"
	"github.com/easyparallel/epl/examples/momentum"
)

// byHand is three steps on the loss mean((x·w-y)²) in plain arithmetic. All numbers are small multiples of powers of
// two, so that float32 holds every intermediate result and there is nothing to round.
func byHand(rate, momentum float32, x [2][2]float32, y, w [2]float32) (weights, velocity [2]float32) {
	weights = w
	for range 3 {
		var gradient [2]float32
		for i := range x {
			err := x[i][0]*weights[0] + x[i][1]*weights[1] - y[i]
			gradient[0] += err * x[i][0] // 2·err·x over a batch of 2
			gradient[1] += err * x[i][1]
		}
		for j := range weights {
			velocity[j] = momentum*velocity[j] + gradient[j]
			weights[j] -= rate * velocity[j]
		}
	}
	return weights, velocity
}

func TestThreeStepsOfMomentumAreThoseComputedByHand(t *testing.T) {
	const rate, decay = 0.25, 0.5
	x, y := [2][2]float32{{1, 0}, {1, 2}}, [2]float32{1, 3}
	wantWeights, wantVelocity := byHand(rate, decay, x, y, [2]float32{})

	env, err := epl.Init(nil)
	if err != nil {
		t.Fatal(err)
	}
	defer env.Close()
	plain, err := compute.NewWithConfig("go:ops_sequential")
	if err != nil {
		t.Fatal(err)
	}
	defer plain.Finalize()
	for name, backend := range map[string]compute.Backend{"EPL": env.Backend(), "plain": plain} {
		t.Run(name, func(t *testing.T) {
			store := model.NewStore()
			linear := func(scope *model.Scope, x *Node) *Node {
				w := scope.WithInitializer(initializer.Zero).VariableWithShape("w", shapes.Make(dtypes.Float32, 2, 1))
				return MatMul(x, w.NodeValue(x.Graph()))
			}
			opt := epl.Optimizer(momentum.Optimizer{Rate: rate, Momentum: decay})
			trainer := train.NewTrainer(backend, store, linear, loss.MeanSquaredError, opt, nil, nil)
			batch := func() train.Batch {
				return train.Batch{
					Inputs: []*tensors.Tensor{tensors.FromValue([][]float32{x[0][:], x[1][:]})},
					Labels: []*tensors.Tensor{tensors.FromValue([][]float32{{y[0]}, {y[1]}})},
				}
			}
			for range 3 {
				if _, err := trainer.TrainStep(batch()); err != nil {
					t.Fatalf("%+v", err)
				}
			}
			for path, want := range map[string][2]float32{"/w": wantWeights, "/momentum/w": wantVelocity} {
				v := store.GetVariable(path)
				if v == nil {
					t.Fatalf("there is no variable %s", path)
				}
				got := tensors.MustCopyFlatData[float32](v.MustValue())
				if [2]float32(got) != want {
					t.Errorf("%s is %v after three steps, by hand it is %v", path, got, want)
				}
			}
			if store.GetVariable("/momentum/w").Trainable {
				t.Error("the velocity is trainable")
			}
			if step := optimizer.GetGlobalStep(store); step != 3 {
				t.Errorf("the global step is %d, not 3", step)
			}
			if err := opt.Clear(store.RootScope()); err != nil || store.GetVariable("/momentum/w") != nil {
				t.Errorf("Clear keeps the velocity (%v)", err)
			}
		})
	}
}
