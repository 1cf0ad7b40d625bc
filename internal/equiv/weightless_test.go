// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package equiv

import (
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/shapes"
	. "github.com/gomlx/gomlx/core/graph"
	"github.com/gomlx/gomlx/core/tensors"
	"github.com/gomlx/gomlx/ml/layers"
	"github.com/gomlx/gomlx/ml/layers/norm"
	"github.com/gomlx/gomlx/ml/model"
	"github.com/gomlx/gomlx/ml/train"
	"github.com/gomlx/gomlx/ml/train/optimizer"

	"github.com/easyparallel/epl"
)

// weightless has batches that weigh nothing, whose loss and gradients are NaN: 0/0, and NaN among what an embedding and a dense layer
// read. The loss is none that EPL takes apart.
func weightless(normed bool, empty func(step int) bool) Staged {
	return Staged{"weightless", func(stages int) func(scope *model.Scope, inputs []*Node) []*Node {
		return func(scope *model.Scope, inputs []*Node) []*Node {
			x, mask, tokens := inputs[0], inputs[1], inputs[2]
			x = Add(x, layers.Embedding(scope.In("tokens"), tokens, dtypes.Float32, 8, 4, false))
			for i := range stages {
				stage(x, i, func() { x = hidden(scope, x, i, 8) })
			}
			if normed {
				x = norm.BatchNorm(scope.In("norm"), x, -1).UseBackendInference(false).Done()
			}
			y := layers.Dense(scope.In("out"), x, true, 1)
			count := ReduceAllSum(mask)
			epl.AddToCollection(epl.InstanceWeight, count)
			train.AddMainLoss(Div(ReduceAllSum(Mul(Square(AddScalar(y, 1)), mask)), unrecognised(count)))
			return []*Node{y}
		}
	}, nil, func(step int) (in, labels []*tensors.Tensor) {
		in, _ = maskedBatch(step)
		if empty(step) {
			for _, x := range in {
				x.MustMutableFlatData(func(flat any) { clear(flat.([]float32)) })
			}
			in[0].MustMutableFlatData(func(flat any) { flat.([]float32)[3] = float32(math.NaN()) })
		}
		tokens := make([]int32, 8)
		for i := range tokens {
			tokens[i] = int32((i*3 + step) % 8)
		}
		return append(in, tensors.FromFlatDataAndDimensions(tokens, 8)), nil
	}}
}

// without leaves the batches out that weigh nothing, and gives the others on one device.
func without(batch func(int) (in, labels []*tensors.Tensor), k int, empty func(step int) bool) func(int) (in, labels []*tensors.Tensor) {
	return func(step int) (in, labels []*tensors.Tensor) {
		var ins [][]*tensors.Tensor
		for i := range k {
			if !empty(step*k + i) {
				x, _ := batch(step*k + i)
				ins = append(ins, x)
			}
		}
		return concat(ins), nil
	}
}

func TestInstancesOfWeightZeroContributeNothing(t *testing.T) {
	empty := func(step int) bool { return step%3 == 1 }
	m := weightless(false, empty)
	for _, c := range []struct {
		pipelinePlan
		params map[string]any
	}{
		{pipelinePlan{stages: 1, replicas: 3, micro: 1}, nil},
		{pipelinePlan{stages: 1, replicas: 1, micro: 3}, nil},
		{pipelinePlan{stages: 1, replicas: 3, micro: 2}, map[string]any{"zero.level": "v1"}},
		{pipelinePlan{stages: 1, replicas: 3, micro: 2}, map[string]any{"zero.level": "v2"}},
		{pipelinePlan{stages: 1, replicas: 3, micro: 2}, map[string]any{"communication.sparse_as_dense": true}},
		{pipelinePlan{stages: 2, replicas: 3, micro: 2}, nil},
		{pipelinePlan{stages: 2, replicas: 1, micro: 3, strategy: "PreferForward"}, map[string]any{"gradient_checkpoint.type": "auto"}},
	} {
		t.Run(fmt.Sprint(c.pipelinePlan, c.params), func(t *testing.T) {
			t.Parallel()
			one := m
			one.Batch = without(m.Batch, c.batches(), empty)
			want := one.alone(t, c.stages, 1, sgd(), 4)
			if c.stages == 1 {
				mustBeClose(t, want, dataParallel(t, m, c.pipelinePlan, c.params, sgd(), 4))
				return
			}
			mustBeClose(t, want, m.piped(t, c.env(t, c.params), c.stages, sgd(), 4))
		})
	}
}

// The optimizer gets gradients of 0, as from a loss of GoMLX whose mask selects nothing: SGD changes nothing, momentum goes on.
func TestAStepInWhichNothingWeighsAnythingHasGradientsOfZero(t *testing.T) {
	for _, opt := range []struct {
		name  string
		new   func() optimizer.Interface
		moves bool
	}{{"sgd", sgd, false}, {"adam", adam, true}} {
		for _, params := range []map[string]any{nil, {"zero.level": "v1"}, {"zero.level": "v2"}} {
			t.Run(fmt.Sprint(opt.name, params), func(t *testing.T) {
				m := weightless(true, func(step int) bool { return step >= 4 }) // from the second step on
				env := newCluster(t, 2, 2, params)
				first := m.piped(t, env, 1, opt.new(), 1)
				second := m.piped(t, newCluster(t, 2, 2, params), 1, opt.new(), 2)
				if loss := second.Losses[1]; loss != 0 {
					t.Errorf("the loss of the second step is %v", loss)
				}
				moved := false
				for v := range first.Store.IterVariables() {
					x, y := numbers(v.MustValue()), second.Store.GetVariable(v.Path())
					if y == nil || strings.HasSuffix(v.Path(), "global_step") || strings.HasSuffix(v.Path(), "avg_weight") { // a metric has a path that is drawn at random; steps are counted
						continue
					}
					for i, now := range numbers(y.MustValue()) {
						if math.IsNaN(now) {
							t.Fatalf("%s became NaN", v.Path())
						}
						moved = moved || v.Trainable && now != x[i]
						if now != x[i] && (!opt.moves || strings.HasPrefix(v.Path(), "/norm/") && !v.Trainable) {
							t.Fatalf("%s changed from %v to %v", v.Path(), x[i], now)
						}
					}
				}
				if moved != opt.moves {
					t.Errorf("weights moved: %v", moved)
				}
			})
		}
	}
}

// A weight is a number of its own, which variables and results in half precision need not have.
func TestWeightsMayBeBeyondHalfPrecision(t *testing.T) {
	for _, dtype := range []dtypes.DType{dtypes.Float16, dtypes.BFloat16} {
		run := func(factor float64) *Run {
			m := Staged{"half", func(int) func(scope *model.Scope, inputs []*Node) []*Node {
				return func(scope *model.Scope, inputs []*Node) []*Node {
					x, mask := ConvertDType(inputs[0], dtype), inputs[1]
					w := scope.VariableWithShape("w", shapes.Make(dtype, 4, 3)).NodeValue(x.Graph())
					y := ConvertDType(Dot(x, w).Product(), dtypes.Float32)
					epl.AddToCollection(epl.InstanceWeight, MulScalar(ReduceAllSum(mask), factor))
					train.AddMainLoss(ReduceAllMean(Square(AddScalar(y, 1))))
					return []*Node{y}
				}
			}, nil, maskedBatch}
			return m.piped(t, newCluster(t, 2, 2, nil), 1, sgd(), 3)
		}
		if err := CloseWeights(run(1), run(1e5), 1e-2); err != nil {
			t.Errorf("%s: %v", dtype, err)
		}
	}
}
