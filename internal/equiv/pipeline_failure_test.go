// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package equiv

import (
	"errors"
	"testing"

	"github.com/gomlx/compute/dtypes"
	. "github.com/gomlx/gomlx/core/graph"
	"github.com/gomlx/gomlx/ml/layers"
	"github.com/gomlx/gomlx/ml/model"
	"github.com/gomlx/gomlx/ml/train"

	"github.com/easyparallel/epl"
)

// refused trains a model that must not get to its first step.
func refused(t *testing.T, devices int, params map[string]any, build func(scope *model.Scope, x *Node) *Node, words ...string) {
	t.Helper()
	noLeak(t)
	env := newPipeline(t, devices, 2, params)
	m := Model{"refused", build, Models()[0].Loss, Regression(4, 8)}
	_, err := TrainOn(env.Backend(), env.Dataset(Dataset{m.Batch}), m, epl.Optimizer(sgd()), 2)
	mustFail(t, err, append(words, "LoopStep=0", "epl: ")...)
	for i, d := range env.Stats().Devices {
		if d.Runs > 0 {
			t.Errorf("device %d ran %d times", i, d.Runs)
		}
	}
}

func asModel(stages int, build func(int) func(scope *model.Scope, inputs []*Node) []*Node) func(scope *model.Scope, x *Node) *Node {
	return func(scope *model.Scope, x *Node) *Node { return build(stages)(scope, []*Node{x})[0] }
}

func TestStagesThatDoNotFitTheDevicesAreRefused(t *testing.T) {
	three := asModel(3, stagedMLP().Build)
	t.Run("too few", func(t *testing.T) {
		refused(t, 2, nil, three, "a replica needs 3 devices", "stage_0: 1, stage_1: 1, stage_2: 1", "the cluster has 2", "use 3 devices", "cluster.colocate_split_and_replicate")
	})
	t.Run("not a multiple", func(t *testing.T) {
		refused(t, 4, nil, three, "4 devices do not divide into replicas of 3", "use 3 or 6 devices")
	})
	interleaved := map[string]any{"pipeline.strategy": "Interleaved", "pipeline.stages_per_device": 2}
	t.Run("stages per device", func(t *testing.T) {
		refused(t, 2, interleaved, three, "3 TaskGraphs cannot be placed 2 on each device", "2 or 4 TaskGraphs", "pipeline.stages_per_device")
	})
	t.Run("interleaved", func(t *testing.T) {
		refused(t, 3, interleaved, asModel(4, stagedMLP().Build), "3 devices do not divide into replicas of 2", "pipeline.stages_per_device")
	})
	t.Run("out of order", func(t *testing.T) {
		refused(t, 2, interleaved, asModel(4, Reordered), "pipeline.stages_per_device", "in the order in which data flow", "last (equiv/pipeline_models.go:")
	})
}

func TestSettingsOfAPipelineThatMakeNoSenseAreRefused(t *testing.T) {
	for _, c := range []struct {
		params map[string]any
		words  []string
	}{
		{map[string]any{"pipeline.num_micro_batch": 0}, []string{"pipeline.num_micro_batch = 0", "at least 1"}},
		{map[string]any{"pipeline.num_micro_batch": -3}, []string{"pipeline.num_micro_batch = -3", "at least 1"}},
		{map[string]any{"pipeline.strategy": "Interleaved"}, []string{`"Interleaved"`, "pipeline.stages_per_device", "set it to 2 or more"}},
		{map[string]any{"pipeline.stages_per_device": 2}, []string{"pipeline.stages_per_device = 2", `needs pipeline.strategy "Interleaved"`}},
		{map[string]any{"pipeline.strategy": "GPipe"}, []string{`"GPipe"`, "PreferForward"}},
	} {
		_, err := epl.NewConfig(c.params)
		mustFail(t, err, c.words...)
	}
}

func TestAStageWithoutWorkIsRefused(t *testing.T) {
	t.Run("empty", func(t *testing.T) {
		refused(t, 3, nil, func(scope *model.Scope, x *Node) *Node {
			stage(x, 0, func() { x = hidden(scope, x, 0, 8) })
			stage(x, 1, func() {})
			stage(x, 2, func() { x = layers.Dense(scope.In("out"), x, true, 1) })
			return x
		}, "stage_1 (equiv/pipeline_models.go:", "nothing to compute", "leave the annotation out")
	})
	t.Run("dead", func(t *testing.T) {
		refused(t, 3, nil, func(scope *model.Scope, x *Node) *Node {
			stage(x, 0, func() { x = hidden(scope, x, 0, 8) })
			stage(x, 1, func() { _ = Sin(hidden(scope, x, 1, 8)) })
			stage(x, 2, func() { x = layers.Dense(scope.In("out"), x, true, 1) })
			return x
		}, "stage_1 (equiv/pipeline_models.go:", "nothing to compute", "leave the annotation out")
	})
	t.Run("default", func(t *testing.T) {
		refused(t, 3, nil, func(scope *model.Scope, x *Node) *Node {
			epl.SetDefaultStrategy(x, epl.Replicate(1, "nothing"))
			return asModel(2, DefaultStages)(scope, x)
		}, "nothing (equiv/pipeline_failure_test.go:", "nothing to compute")
	})
}

func TestStagesThatWaitForEachOtherAreRefused(t *testing.T) {
	t.Run("A B A", func(t *testing.T) {
		refused(t, 2, nil, func(scope *model.Scope, x *Node) *Node {
			epl.SetDefaultStrategy(x, epl.Replicate(1, "A"))
			x = hidden(scope, x, 0, 8)
			epl.With(x, epl.Replicate(1, "B"), func() { x = hidden(scope, x, 1, 8) })
			return layers.Dense(scope.In("out"), x, true, 1)
		}, "A (equiv/pipeline_failure_test.go:", "reads a value of B", "cannot wait for each other", "Open a new TaskGraph", "cluster.colocate_split_and_replicate")
	})
	t.Run("through ops outside", func(t *testing.T) {
		refused(t, 2, nil, func(scope *model.Scope, x *Node) *Node {
			epl.SetDefaultStrategy(x, epl.Replicate(1, "A"))
			a := hidden(scope, x, 0, 8)
			epl.With(x, epl.Replicate(1, "B"), func() { x = Mul(hidden(scope, x, 1, 8), a) })
			x = Sin(x)
			return layers.Dense(scope.In("out"), x, true, 1)
		}, "A (equiv/pipeline_failure_test.go:", "cannot wait for each other")
	})
}

func TestATrainingStepOfAPipelineOnPlainBatchesSaysToUseEnvDataset(t *testing.T) {
	noLeak(t)
	m := stagedMLP()
	env := newPipeline(t, 2, 3, nil)
	_, err := m.train(env.Backend(), 2, Dataset{m.Batch}, epl.Optimizer(sgd()), 2)
	mustFail(t, err, "3 instances", "env.Dataset")
}

func TestAForgottenOptimizerWrapperOfAPipelineIsAnError(t *testing.T) {
	noLeak(t)
	m := stagedMLP()
	env := newPipeline(t, 2, 2, nil)
	_, err := m.train(env.Backend(), 2, env.Dataset(Dataset{m.Batch}), sgd(), 2)
	mustFail(t, err, "pipeline.num_micro_batch = 2 would have no effect", "epl.Optimizer")
}

// One device of a pipeline runs out of memory while the others wait for it.
func TestADeviceOfAPipelineWithTooLittleMemorySaysWhatItNeedsItFor(t *testing.T) {
	m := stagedMLP()
	m.Build = func(stages int) func(scope *model.Scope, inputs []*Node) []*Node {
		return func(scope *model.Scope, inputs []*Node) []*Node {
			x := inputs[0]
			for i := range stages {
				stage(x, i, func() {
					if i == 1 { // a large value that no fusion avoids, and no large weights
						big := Tanh(BroadcastToDims(InsertAxes(x, -1), append(x.Shape().Dimensions, 1000)...))
						x = MulScalar(Einsum("bik,bik->bi", Sin(big), big), 1.0/1000)
					}
					x = hidden(scope, x, i, 8)
				})
			}
			return []*Node{layers.Dense(scope.In("out"), x, true, 1)}
		}
	}
	for _, p := range fewPlans() {
		t.Run(p.String(), func(t *testing.T) {
			noLeak(t)
			if *onGPUs && p.stages == 2 {
				t.Skip("forward and backward of the last stage are one module: the large value is inside, and the fake does not say what modules need")
			}
			env := p.env(t, map[string]any{"cluster.device_memory": "200KB"})
			_, err := m.train(env.Backend(), p.stages, env.Dataset(Dataset{m.Batch}), epl.Optimizer(sgd()), 2)
			device := "epl: device 1"
			if p.replicas > 1 { // the same stage of another model replica may be first
				device = "epl: device "
			}
			mustFail(t, err, device, "run ", "cluster.device_memory", "weights ", "activations ", "smaller micro-batch")
		})
	}
}

func TestAnErrorOfTheDatasetInTheMiddleOfAStepIsPassedOn(t *testing.T) {
	m := stagedMLP()
	for _, p := range fewPlans() {
		t.Run(p.String(), func(t *testing.T) {
			noLeak(t)
			for _, at := range []int{0, 1, p.batches(), p.batches() + 1, 2*p.batches() - 1} {
				for _, panics := range []bool{false, true} {
					ds := custom(func(yield func(train.Batch, error) bool) {
						for i := 0; ; i++ {
							var err error
							if i == at {
								if panics {
									panic("disk on fire")
								}
								err = errors.New("disk on fire")
							}
							if !yield(oneBatch(m.Batch, i), err) {
								return
							}
						}
					})
					env := p.env(t, nil)
					_, err := m.train(env.Backend(), p.stages, env.Dataset(ds), epl.Optimizer(sgd()), 4)
					mustFail(t, err, "disk on fire")
				}
			}
		})
	}
}

// A step that fails on one device, after others have done their part, ends on all of them.
func TestAStepThatFailsOnOneStageEndsOnAll(t *testing.T) {
	for _, p := range fewPlans() {
		t.Run(p.String(), func(t *testing.T) {
			noLeak(t)
			m := stagedMLP()
			env := p.env(t, nil)
			exec := model.MustNewExec(env.Backend(), newStore(), func(scope *model.Scope, x, y *Node) *Node {
				var odd *Node
				for i := range p.stages {
					stage(x, i, func() {
						x = hidden(scope, x, i, 8)
						if i == 1 {
							odd = ConvertDType(MulScalar(ReduceAllSum(x), 1000), dtypes.Int64)
						}
					})
				}
				loss := ReduceAllMean(Square(Sub(layers.Dense(scope.In("out"), x, true, 1), y)))
				epl.Optimizer(sgd()).UpdateGraph(scope, x.Graph(), loss)
				return odd
			})
			for batch, err := range env.Dataset(Dataset{m.Batch}).Iter() {
				if err != nil {
					t.Fatal(err)
				}
				_, err = exec.Call(batch.Inputs[0], batch.Labels[0])
				mustFail(t, err, "differs between instances 0 and 1", "epl.AddToCollection", "equiv/pipeline_failure_test.go")
				break
			}
		})
	}
}

// A program that is no training step runs on one device, as a whole, whatever its annotations.
func TestProgramsWithOtherStagesThanTheTrainingStepRun(t *testing.T) {
	m := stagedMLP()
	for _, p := range fewPlans() {
		t.Run(p.String(), func(t *testing.T) {
			env := p.env(t, nil)
			run := m.piped(t, env, p.stages, sgd(), 1)
			for stages := 1; stages <= p.stages; stages++ { // the beginning of the model
				predict := model.MustNewExec(env.Backend(), run.Store, func(scope *model.Scope, x *Node) *Node {
					for i := range stages {
						stage(x, i, func() { x = hidden(scope, x, i, 12) })
					}
					return x
				})
				if _, err := predict.Call(oneBatch(m.Batch, 0).Inputs[0]); err != nil {
					t.Errorf("%d stages: %v", stages, err)
				}
			}
		})
	}
}
