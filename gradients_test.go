// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package epl_test

import (
	"iter"
	"maps"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/gomlx/gomlx/core/tensors"
	"github.com/gomlx/gomlx/ml/model"
	"github.com/gomlx/gomlx/ml/train"
	"github.com/gomlx/gomlx/ml/train/loss"

	"github.com/easyparallel/epl"
	"github.com/easyparallel/epl/metrics"
)

// otherBatches are all different, so that each replica and micro-batch has a gradient of its own.
type otherBatches struct{ nan bool }

func (otherBatches) Name() string { return "batches" }

func (o otherBatches) Iter() iter.Seq2[train.Batch, error] {
	return func(yield func(train.Batch, error) bool) {
		for k := 0; ; k++ {
			x, y := make([]float32, 6*5), make([]float32, 6)
			for i := range x {
				x[i] = float32(math.Sin(float64(i + 7*k)))
				y[i/5] += x[i] * float32(k%3)
			}
			if o.nan && k == 1 {
				x[0] = float32(math.NaN())
			}
			if !yield(train.Batch{Inputs: []*tensors.Tensor{tensors.FromFlatDataAndDimensions(x, 6, 5)}, Labels: []*tensors.Tensor{tensors.FromFlatDataAndDimensions(y, 6, 1)}}, nil) {
				return
			}
		}
	}
}

// distributions is a sink that keeps the histograms of the last step.
type distributions map[string]*metrics.Histogram

func (distributions) Write(metrics.Record) error { return nil }
func (distributions) Close() error               { return nil }

func (d distributions) WriteHistogram(_ int64, _ time.Time, name string, h *metrics.Histogram) error {
	d[name] = h
	return nil
}

// floats are the elements of all trained variables, by path.
func floats(t *testing.T, store *model.Store) map[string][]float32 {
	t.Helper()
	all := map[string][]float32{}
	for v := range store.IterVariables() {
		if v.Trainable {
			all[v.Path()] = tensors.MustCopyFlatData[float32](v.MustValue())
		}
	}
	return all
}

// watchGradients trains a plan for two steps by gradient descent with a rate of 1, and returns the weights after each, and the histograms of the second.
func watchGradients(t *testing.T, p savedPlan, more map[string]any, data otherBatches) (before, after map[string][]float32, seen distributions) {
	t.Helper()
	params := map[string]any{"cluster.colocate_split_and_replicate": true}
	maps.Copy(params, p.params)
	maps.Copy(params, more)
	env, store := newEnv(t, params, epl.WithLocalDevices(p.devices)), model.NewStore()
	trainer := train.NewTrainer(env.Backend(), store, p.model, loss.MeanSquaredError, epl.Optimizer(sgd().WithDecay(false).WithLearningRate(1)), nil, nil)
	loop := train.NewLoop(trainer)
	seen = distributions{}
	loop.OnStep("metrics", 100, env.Metrics(seen).Histograms(2).Gradients().OnStep)
	next, stop := iter.Pull2(env.Dataset(data).Iter())
	defer stop()
	one := func() map[string][]float32 {
		if _, err := loop.RunSteps(pulled{next}, 1); err != nil {
			t.Fatalf("%+v", err)
		}
		return floats(t, store)
	}
	before = one()
	return before, one(), seen
}

// pulled goes on with an iteration.
type pulled struct {
	next func() (train.Batch, error, bool)
}

func (pulled) Name() string { return "pulled" }

func (p pulled) Iter() iter.Seq2[train.Batch, error] {
	return func(yield func(train.Batch, error) bool) {
		for {
			if batch, err, ok := p.next(); !ok || !yield(batch, err) {
				return
			}
		}
	}
}

// Under every plan the gradients that are told are those that the optimizer got: what gradient descent takes from the weights.
func TestHistogramsOfGradientsHaveWhatTheOptimizerGot(t *testing.T) {
	for name, p := range savedPlans {
		t.Run(name, func(t *testing.T) {
			before, after, seen := watchGradients(t, p, nil, otherBatches{})
			if len(before) != 6 || len(seen) != 12 {
				t.Fatalf("%d variables, %d histograms", len(before), len(seen))
			}
			for path, old := range before {
				h := seen["gradients"+path]
				if h == nil {
					t.Fatalf("%s has no histogram of its gradient", path)
				}
				sum, squares := 0.0, 0.0
				for i, x := range old {
					g := float64(x - after[path][i])
					sum, squares = sum+g, squares+g*g
				}
				if h.Count != int64(len(old)) || squares == 0 || math.Abs(h.Sum-sum) > 1e-4*(1+math.Abs(sum)) || math.Abs(h.Squares-squares) > 1e-4*(1e-3+squares) {
					t.Errorf("%s: %d elements, sum %g, sum of squares %g, want %d, %g, %g", path, h.Count, h.Sum, h.Squares, len(old), sum, squares)
				}
			}
		})
	}
}

// The gradients of a step that does not count are told too: they say why.
func TestHistogramsHaveGradientsOfASkippedStep(t *testing.T) {
	before, after, seen := watchGradients(t, savedPlans["one device"], map[string]any{"reliability.nan": "skip"}, otherBatches{nan: true})
	for path, old := range before {
		if h := seen["gradients"+path]; h == nil || h.NotFinite == 0 {
			t.Errorf("%s: %+v", path, h)
		}
		for i, x := range old {
			if after[path][i] != x {
				t.Fatalf("%s changed", path)
			}
		}
	}
}

func TestGradientsThatComeTooLateAreAnError(t *testing.T) {
	env, store := newEnv(t, map[string]any{"cluster.colocate_split_and_replicate": true}), model.NewStore()
	loop := train.NewLoop(train.NewTrainer(env.Backend(), store, savedPlans["one device"].model, loss.MeanSquaredError, epl.Optimizer(sgd()), nil, nil))
	if _, err := loop.RunSteps(env.Dataset(otherBatches{}), 1); err != nil {
		t.Fatal(err)
	}
	loop.OnStep("metrics", 100, env.Metrics(distributions{}).Histograms(1).Gradients().OnStep)
	if _, err := loop.RunSteps(env.Dataset(otherBatches{}), 1); err == nil || !strings.Contains(err.Error(), "before the first step") {
		t.Error(err)
	}
}
