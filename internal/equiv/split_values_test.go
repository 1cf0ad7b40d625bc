// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package equiv

import (
	"fmt"
	"math"
	"testing"

	"github.com/gomlx/compute/dtypes"
	. "github.com/gomlx/gomlx/core/graph"
	"github.com/gomlx/gomlx/core/tensors"
	"github.com/gomlx/gomlx/ml/layers"
	"github.com/gomlx/gomlx/ml/model"
	"github.com/gomlx/gomlx/ml/train"
	"github.com/gomlx/gomlx/ml/train/metric"

	"github.com/easyparallel/epl"
)

// topAccuracy is how often the class is among the k likeliest.
func topAccuracy(k int) metric.Interface {
	return metric.NewBaseMetric("top", "top", "accuracy", func(_ *model.Scope, labels, predictions []*Node) *Node {
		logits := Reshape(predictions[0], -1, predictions[0].Shape().Dim(-1))
		_, best := TopK(logits, k, -1)
		hit := Equal(ConvertDType(best, dtypes.Int32), Reshape(labels[0], -1, 1))
		return ReduceAllMean(ReduceSum(ConvertDType(hit, dtypes.Float32), -1))
	}, nil)
}

func TestMetricsOverShardedLogitsAreThoseOfOneDevice(t *testing.T) {
	for i, p := range append(fewSplits(), splitPlan{parts: []int{8}, replicas: 1, micro: 1}) {
		m := partedModel([]string{"classifier", "tied"}[i%2])
		t.Run(m.Name+"/"+p.String(), func(t *testing.T) {
			t.Parallel()
			var values [2][]float64
			for k, env := range []*epl.Env{nil, p.env(t, nil)} {
				backend, ds, opt := Plain(), train.Dataset(Dataset{Joined(m.Batch, p.batches())}), sgd()
				if env != nil {
					backend, ds, opt = env.Backend(), env.Dataset(Dataset{m.Batch}), epl.Optimizer(opt)
				}
				metrics := []metric.Interface{
					metric.NewSparseCategoricalAccuracy("accuracy", "acc"),
					metric.NewMovingAverageSparseCategoricalAccuracy("moving", "mov", 0.1),
					topAccuracy(3),
					metric.NewMeanMetric("size", "size", "size", func(_ *model.Scope, _, predictions []*Node) *Node {
						return ReduceAllMean(Square(predictions[0]))
					}, nil),
				}
				loop := train.NewLoop(train.NewTrainer(backend, newStore(), m.under(p).Build(0), m.Loss, opt, metrics, nil))
				loop.OnStep("metrics", 0, func(_ *train.Loop, metrics []*tensors.Tensor) error {
					for _, x := range metrics {
						values[k] = append(values[k], numbers(x)...)
					}
					return nil
				})
				if _, err := loop.RunSteps(ds, 4); err != nil {
					t.Fatalf("%+v", err)
				}
			}
			if len(values[0]) != len(values[1]) || len(values[0]) < 4*5 {
				t.Fatalf("%d values and %d", len(values[0]), len(values[1]))
			}
			for i, want := range values[0] {
				if got := values[1][i]; math.Abs(got-want) > 1e-5*(1+math.Abs(want)) {
					t.Errorf("value %d is %v, not %v", i, got, want)
				}
			}
		})
	}
}

// results runs training steps that return sharded values, merged as the collections say, the old and the new value of
// weights, constants and inputs.
func (p splitPlan) results(t *testing.T, env *epl.Env, ds train.Dataset, steps int) (all [][]float64) {
	t.Helper()
	backend := Plain()
	if env != nil {
		backend = env.Backend()
	}
	s := Strategies{}
	for _, k := range p.parts {
		if k < 0 {
			s = append(s, epl.Replicate(-k))
		} else {
			s = append(s, epl.Split(k))
		}
	}
	exec := model.MustNewExec(backend, newStore(), func(scope *model.Scope, x, y *Node) []*Node {
		g := x.Graph()
		weights := func(i int) *Node {
			return scope.Store().GetVariable(fmt.Sprintf("/part_%d/dense/weights", i)).NodeValue(g)
		}
		var out, olds []*Node
		for i := range s {
			s.part(x, i, func() {
				x = Tanh(layers.Dense(scope.In("part_%d", i), x, true, 13))
				olds = append(olds, weights(i))
				sum, whole, mean, each := ReduceAllSum(x), Sin(x), ReduceAllMean(Square(x)), ReduceMax(Cos(x), 0)
				epl.AddToCollection(epl.GlobalSum, sum)
				epl.AddToCollection(epl.GlobalConcat, whole)
				epl.AddToCollection(epl.GlobalMean, mean)
				out = append(out, sum, whole, mean, each)
			})
		}
		last := layers.Dense(scope.In("out"), x, true, 1)
		loss := ReduceAllMean(Square(Sub(last, y)))
		epl.Optimizer(sgd()).UpdateGraph(scope, g, loss)
		epl.AddToCollection(epl.GlobalConcat, last, y)
		out = append(out, loss, loss, last, y, Const(g, []float32{1, 2}))
		for i := range s {
			v := weights(i)
			out = append(out, olds[i], v, Sub(v, olds[i]), ReduceAllSum(v))
		}
		return out
	})
	for batch, err := range ds.Iter() {
		if err != nil {
			t.Fatal(err)
		}
		results, err := exec.Call(batch.Inputs[0], batch.Labels[0])
		if err != nil {
			t.Fatalf("%+v", err)
		}
		for _, r := range results {
			all = append(all, numbers(r))
		}
		if steps--; steps == 0 {
			break
		}
	}
	return all
}

func TestResultsOfSplitTaskGraphsAreThoseOfDataParallelTraining(t *testing.T) {
	batch := partedModel("mlp").Batch
	for _, p := range append(fewSplits(), splitPlan{parts: []int{4}, replicas: 1, micro: 1}) {
		t.Run(p.String(), func(t *testing.T) {
			t.Parallel()
			one, env := p.alone().env(t, nil), p.env(t, nil)
			want := p.alone().results(t, one, one.Dataset(Dataset{batch}), 3)
			got := p.results(t, env, env.Dataset(Dataset{batch}), 3)
			if p.batches() == 1 {
				want = p.results(t, nil, Dataset{batch}, 3)
			}
			for i := range want {
				if len(want[i]) != len(got[i]) {
					t.Fatalf("output %d has %d elements, want %d", i, len(got[i]), len(want[i]))
				}
				if d, n := distance(want[i], got[i]); d > 1e-5*(n+1e-2) {
					t.Errorf("output %d differs by %g at a norm of %g", i, d, n)
				}
			}
		})
	}
}

func TestInstanceWeightMakesAMaskedLossOfASplitThatOfOneLargeBatch(t *testing.T) {
	masked := func(weighted bool) Parted {
		return Parted{Name: "masked", Build: func(s Strategies) func(scope *model.Scope, inputs []*Node) []*Node {
			return func(scope *model.Scope, inputs []*Node) []*Node {
				x, mask := inputs[0], inputs[1]
				for i := range s {
					s.part(x, i, func() { x = Tanh(layers.Dense(scope.In("part_%d", i), x, true, 13)) })
				}
				count := unrecognised(ReduceAllSum(mask))
				if weighted {
					epl.AddToCollection(epl.InstanceWeight, count)
				}
				y := layers.Dense(scope.In("out"), x, true, 1)
				train.AddMainLoss(Div(ReduceAllSum(Mul(Square(AddScalar(y, 1)), mask)), count))
				return []*Node{y}
			}
		}, Batch: maskedBatch}
	}
	for _, p := range fewSplits() {
		t.Run(p.String(), func(t *testing.T) {
			t.Parallel()
			want := masked(false).measure(t, p, 5)
			mustBeClose(t, want, masked(true).under(p).piped(t, p.env(t, nil), 0, sgd(), 5))
			without := masked(false).under(p).piped(t, p.env(t, nil), 0, sgd(), 5)
			if CloseWeights(want, without, 1e-4) == nil && p.batches() > 1 {
				t.Error("the masks are too alike: without weights the result is the same")
			}
		})
	}
}

// Dropout has the bits of one device wherever its elements are; the same run twice gives the same bits throughout.
func TestDropoutUnderSplitHasTheBitsOfOneDevice(t *testing.T) {
	masks := func(t *testing.T, p splitPlan, backend *epl.Env) (all [][]float64) {
		t.Helper()
		exec := model.MustNewExec(backend.Backend(), newStore(), func(scope *model.Scope, x *Node) []*Node {
			scope.Store().SetTraining(x.Graph(), true)
			var out []*Node
			for i, k := range p.parts {
				strategy := epl.Split(max(k, 1))
				if k < 0 {
					strategy = epl.Replicate(-k)
				}
				epl.With(x, strategy, func() {
					x = Tanh(layers.Dense(scope.In("part_%d", i), x, true, 13))
					mask := layers.DropoutStatic(scope.In("dropout_%d", i), OnesLike(x), 0.5)
					epl.AddToCollection(epl.GlobalConcat, mask)
					out = append(out, mask)
					x = Mul(x, mask)
				})
			}
			epl.Optimizer(sgd()).UpdateGraph(scope, x.Graph(), ReduceAllMean(Square(x)))
			return out
		})
		for batch, err := range backend.Dataset(Dataset{Regression(6, 8)}).Iter() {
			if err != nil {
				t.Fatal(err)
			}
			results, err := exec.Call(batch.Inputs[0])
			if err != nil {
				t.Fatalf("%+v", err)
			}
			for _, r := range results {
				all = append(all, numbers(r))
			}
			if len(all) > 2*len(p.parts) {
				break
			}
		}
		return all
	}
	for _, p := range fewSplits() {
		t.Run(p.String(), func(t *testing.T) {
			t.Parallel()
			want, got := masks(t, p.alone(), p.alone().env(t, nil)), masks(t, p, p.env(t, nil))
			for i := range want {
				if d, _ := distance(want[i], got[i]); len(want[i]) != len(got[i]) || d != 0 {
					t.Errorf("mask %d has other bits", i)
				}
			}
		})
	}
}

func TestTrainingUnderSplitIsReproducible(t *testing.T) {
	for i, p := range fewSplits() {
		m := partedModel([]string{"dropout", "batch-norm"}[i%2])
		t.Run(m.Name+"/"+p.String(), func(t *testing.T) {
			t.Parallel()
			run := func() *Run { return m.under(p).piped(t, p.env(t, nil), 0, sgd(), 5) }
			if err := SameBits(run(), run()); err != nil {
				t.Error(err)
			}
		})
	}
}
