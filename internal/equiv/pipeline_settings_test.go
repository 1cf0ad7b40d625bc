// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package equiv

import (
	"fmt"
	"math"
	"testing"

	"github.com/gomlx/compute/dtypes"
	. "github.com/gomlx/gomlx/core/graph"
	"github.com/gomlx/gomlx/ml/model"
	"github.com/gomlx/gomlx/ml/train/optimizer"
	"github.com/gomlx/gomlx/ml/train/optimizer/cosineschedule"

	"github.com/easyparallel/epl"
)

// stagedModel finds a model by its name.
func stagedModel(t testing.TB, name string) Staged {
	t.Helper()
	for _, m := range StagedModels() {
		if m.Name == name {
			return m
		}
	}
	t.Fatalf("there is no model %q", name)
	return Staged{}
}

// fewPlans are some that differ in everything.
func fewPlans() []pipelinePlan {
	plans := []pipelinePlan{
		{stages: 2, replicas: 2, micro: 3, strategy: "PreferBackward"},
		{stages: 3, replicas: 2, micro: 4, strategy: "ZeroBubble"},
		{stages: 4, replicas: 1, micro: 2, strategy: "PreferForward"},
		{stages: 3, replicas: 1, micro: 5, strategy: "PreferBackwardOptimizer"},
		{stages: 4, replicas: 1, micro: 3, strategy: "Interleaved", perDevice: 2},
	}
	if testing.Short() {
		return plans[:2]
	}
	return plans
}

func TestOptimizersOnAPipelineGiveWhatTheyGiveOnOneDevice(t *testing.T) {
	after := map[string]any{"communication.clip_after_allreduce": true}
	cases := []struct {
		name   string
		make   func() optimizer.Interface
		params map[string]any
		adam   bool // it divides by the size of gradients, which makes much of rounding errors: losses only
	}{
		{"sgd with decay", func() optimizer.Interface { return optimizer.StochasticGradientDescent() }, nil, false},
		{"adam", func() optimizer.Interface { return optimizer.Adam().LearningRate(1e-3).Done() }, nil, true},
		{"adam with weight decay", func() optimizer.Interface { return optimizer.Adam().LearningRate(1e-3).WeightDecay(0.01).Done() }, nil, true},
		{"adamax", func() optimizer.Interface { return optimizer.Adam().LearningRate(1e-3).Adamax().Done() }, nil, true},
		{"rmsprop", func() optimizer.Interface { return optimizer.RMSProp().LearningRate(1e-3).Done() }, nil, true},
		{"global norm", func() optimizer.Interface { return epl.ClipByGlobalNorm(sgd(), 0.01) }, after, false},
		{"value", func() optimizer.Interface { return epl.ClipByValue(sgd(), 0.001) }, after, false},
		{"adam and global norm", func() optimizer.Interface {
			return epl.ClipByGlobalNorm(optimizer.Adam().LearningRate(1e-3).Done(), 0.01)
		}, after, true},
	}
	for _, c := range cases {
		for i, p := range fewPlans() {
			m := stagedModel(t, []string{"tied", "shared-by-all", "unused", "regularised"}[i%4])
			t.Run(fmt.Sprintf("%s/%s/%s", c.name, m.Name, p), func(t *testing.T) {
				t.Parallel()
				want := m.alone(t, p.stages, p.batches(), c.make(), 5)
				got := m.piped(t, p.env(t, c.params), p.stages, c.make(), 5)
				if !c.adam {
					mustBeClose(t, want, got)
				} else if err := CloseLosses(want, got, 1e-3); err != nil {
					t.Error(err)
				}
			})
		}
	}
}

// dataParallel trains as many instances as a pipeline has, each on one device.
func dataParallel(t testing.TB, m Staged, p pipelinePlan, params map[string]any, opt optimizer.Interface, steps int) *Run {
	t.Helper()
	return m.piped(t, newCluster(t, p.replicas, p.micro, params), p.stages, opt, steps)
}

// What is done to the gradients of each instance is not what one device does to the gradient of all: data parallel
// training is the measure.
func TestAPipelineClipsTheGradientsOfEachInstanceAsDataParallelTrainingDoes(t *testing.T) {
	clips := map[string]func() optimizer.Interface{
		"global norm": func() optimizer.Interface { return epl.ClipByGlobalNorm(sgd(), 0.01) },
		"value":       func() optimizer.Interface { return epl.ClipByValue(sgd(), 0.001) },
	}
	for name, clip := range clips {
		for i, p := range fewPlans() {
			m := stagedModel(t, []string{"tied", "shared-by-all", "skips"}[i%3])
			t.Run(fmt.Sprintf("%s/%s/%s", name, m.Name, p), func(t *testing.T) {
				t.Parallel()
				want := dataParallel(t, m, p, nil, clip(), 3)
				mustBeClose(t, want, m.piped(t, p.env(t, nil), p.stages, clip(), 3))
				if after := m.alone(t, p.stages, p.batches(), clip(), 3); CloseWeights(after, want, 1e-6) == nil {
					t.Error("clipping each instance's gradients changed nothing")
				}
			})
		}
	}
}

func TestALearningRateThatFollowsAScheduleDoesSoOnAllStages(t *testing.T) {
	for i, p := range fewPlans() {
		m := stagedModel(t, []string{"tied", "skips"}[i%2])
		t.Run(p.String(), func(t *testing.T) {
			t.Parallel()
			plain := m.Build
			m.Build = func(stages int) func(scope *model.Scope, inputs []*Node) []*Node {
				return func(scope *model.Scope, inputs []*Node) []*Node {
					cosineschedule.New(scope, inputs[0].Graph(), dtypes.Float32).PeriodSteps(4).WarmUpSteps(2).LearningRate(0.05).Done()
					return plain(stages)(scope, inputs)
				}
			}
			mustBeClose(t, m.alone(t, p.stages, p.batches(), sgd(), 7), m.piped(t, p.env(t, nil), p.stages, sgd(), 7))
		})
	}
}

func TestAPipelineSumsGradientsIfAskedTo(t *testing.T) {
	params := map[string]any{"communication.gradients_reduce_method": "sum"}
	for i, p := range fewPlans() {
		m := stagedModel(t, []string{"shared-by-all", "skips", "embeddings"}[i%3])
		t.Run(p.String(), func(t *testing.T) {
			t.Parallel()
			rate := func(x float64) optimizer.Interface {
				return optimizer.StochasticGradientDescent().WithDecay(false).WithLearningRate(x)
			}
			want := m.alone(t, p.stages, p.batches(), rate(0.01*float64(p.batches())), 3)
			got := m.piped(t, p.env(t, params), p.stages, rate(0.01), 3)
			if err := CloseLosses(want, got, 1e-5); err != nil {
				t.Error(err)
			}
			for v := range want.Store.IterVariables() {
				if v.Trainable {
					if d, n := distance(numbers(v.MustValue()), numbers(got.Store.GetVariable(v.Path()).MustValue())); d > 1e-5*(n+1e-3) {
						t.Errorf("%s differs by %g at a norm of %g", v.Path(), d, n)
					}
				}
			}
		})
	}
}

func TestSettingsOfCommunicationDoNotChangeWhatAPipelineLearns(t *testing.T) {
	settings := []map[string]any{
		{"communication.max_splits": 1},
		{"communication.max_splits": 7, "communication.num_communicators": 3},
		{"communication.sparse_as_dense": true},
		{"communication.sparse_as_dense": false, "communication.num_communicators": 1},
	}
	for i, params := range settings {
		for j, p := range fewPlans() {
			m := stagedModel(t, []string{"tied", "embeddings", "late-integers"}[(i+j)%3])
			t.Run(fmt.Sprintf("%d/%s/%s", i, m.Name, p), func(t *testing.T) {
				t.Parallel()
				mustBeClose(t, m.alone(t, p.stages, p.batches(), sgd(), 3), m.piped(t, p.env(t, params), p.stages, sgd(), 3))
			})
		}
	}
}

func TestGradientsOfAPipelineThatTravelAsFloat16StayClose(t *testing.T) {
	for i, p := range fewPlans() {
		m := stagedModel(t, []string{"tied", "skips"}[i%2])
		t.Run(p.String(), func(t *testing.T) {
			t.Parallel()
			want := m.alone(t, p.stages, p.batches(), sgd(), 3)
			got := m.piped(t, p.env(t, map[string]any{"communication.fp16": true}), p.stages, sgd(), 3)
			if err := CloseWeights(want, got, 1e-3); err != nil {
				t.Error(err)
			}
			exact := CloseWeights(want, got, 1e-7) == nil
			if p.replicas > 1 && exact {
				t.Error("the gradients did not travel as float16")
			}
			if err := CloseWeights(want, got, 1e-5); p.replicas == 1 && err != nil {
				t.Errorf("with one model replica no gradient travels, but: %v", err)
			}
		})
	}
}

func TestSparseGradientsOfAPipelineTravelSparse(t *testing.T) {
	m := stagedModel(t, "embeddings")
	p := pipelinePlan{stages: 3, replicas: 2, micro: 2}
	for _, dense := range []bool{false, true} {
		env := p.env(t, map[string]any{"communication.sparse_as_dense": dense})
		m.piped(t, env, p.stages, sgd(), 2)
		var gathered int64
		for _, d := range env.Stats().Devices {
			gathered += d.Sent["all-gather"]
		}
		if (gathered > 0) == dense && !*onGPUs { // which gather by themselves
			t.Errorf("sparse_as_dense %v: all-gather sent %d bytes", dense, gathered)
		}
	}
}

func TestNaNGradientsOfOneMicroBatchAreSkippedOnEveryStage(t *testing.T) {
	m := stagedMLP()
	clean := m.Batch
	m.Batch = poisoned(clean, 4) // in the second step
	plain := m.Build
	m.Build = func(stages int) func(scope *model.Scope, inputs []*Node) []*Node {
		return func(scope *model.Scope, inputs []*Node) []*Node {
			scope.Store().SetParam("/"+optimizer.ParamClipNaN, true)
			return plain(stages)(scope, inputs)
		}
	}
	env := pipelinePlan{stages: 2, replicas: 1, micro: 3}.env(t, nil)
	run := m.stepByStep(t, env, 2, 4)
	for v := range run.Store.IterVariables() {
		if v.Trainable {
			for _, x := range numbers(v.MustValue()) {
				if math.IsNaN(x) {
					t.Fatalf("%s has become NaN", v.Path())
				}
			}
		}
	}
	if !math.IsNaN(float64(run.Losses[1])) || math.IsNaN(float64(run.Losses[3])) {
		t.Errorf("the losses are %v", run.Losses)
	}
}
