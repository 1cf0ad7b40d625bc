// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package epl_test

import (
	"fmt"
	"log"
	"os"
	"strings"

	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/shapes"
	. "github.com/gomlx/gomlx/core/graph" //nolint:all // the way GoMLX models are written
	"github.com/gomlx/gomlx/core/tensors"
	"github.com/gomlx/gomlx/ml/dataset"
	"github.com/gomlx/gomlx/ml/layers"
	"github.com/gomlx/gomlx/ml/layers/activation"
	"github.com/gomlx/gomlx/ml/model"
	"github.com/gomlx/gomlx/ml/train"
	"github.com/gomlx/gomlx/ml/train/loss"
	"github.com/gomlx/gomlx/ml/train/optimizer"
	"github.com/pkg/errors"

	"github.com/easyparallel/epl"
)

// A whole program: the lines that EPL adds to it are marked.
func Example() {
	Model := func(scope *model.Scope, x *Node) *Node {
		epl.SetDefaultStrategy(x, epl.Replicate(1)) // + epl
		x = activation.Relu(layers.Dense(scope.In("hidden"), x, true, 8))
		return layers.Dense(scope.In("out"), x, true, 1)
	}
	batch := train.Batch{
		Inputs: []*tensors.Tensor{tensors.FromValue([][]float32{{0, 0}, {0, 1}, {1, 0}, {1, 1}})},
		Labels: []*tensors.Tensor{tensors.FromValue([][]float32{{0}, {1}, {1}, {0}})},
	}
	ds := dataset.Const(batch)

	env, err := epl.Init(nil) // + epl
	if err != nil {
		log.Fatal(err)
	}
	defer env.Close() // + epl
	store := model.NewStore()
	store.SetParam(model.ParamInitialSeed, int64(1))                                // the same start every time
	trainer := train.NewTrainer(env.Backend(), store, Model, loss.MeanSquaredError, // backend from epl
		epl.Optimizer(optimizer.Adam().LearningRate(0.05).Done()), nil, nil) // + epl
	loop := train.NewLoop(trainer)
	metrics, err := loop.RunSteps(env.Dataset(ds), 200) // + epl
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("learnt:", tensors.ToScalar[float32](metrics[0]) < 0.05)
	// Output: learnt: true
}

// A pipeline: two stages on a device each, and four micro-batches in a step. On 4 devices it would have two model
// replicas, on 8 four.
func Example_pipeline() {
	Model := func(scope *model.Scope, x *Node) *Node {
		epl.With(x, epl.Replicate(1, "stage_0"), func() {
			x = activation.Relu(layers.Dense(scope.In("hidden"), x, true, 8))
		})
		epl.With(x, epl.Replicate(1, "stage_1"), func() {
			x = layers.Dense(scope.In("out"), x, true, 1)
		})
		return x
	}
	cfg, err := epl.NewConfig(map[string]any{"pipeline.num_micro_batch": 4})
	if err != nil {
		log.Fatal(err)
	}
	env, err := epl.Init(cfg, epl.WithLocalDevices(2))
	if err != nil {
		log.Fatal(err)
	}
	defer env.Close()
	store := model.NewStore()
	store.SetParam(model.ParamInitialSeed, int64(1)) // the same start every time
	trainer := train.NewTrainer(env.Backend(), store, Model, loss.MeanSquaredError,
		epl.Optimizer(optimizer.Adam().LearningRate(0.05).Done()), nil, nil)
	ds := dataset.Const(train.Batch{
		Inputs: []*tensors.Tensor{tensors.FromValue([][]float32{{0, 0}, {0, 1}, {1, 0}, {1, 1}})},
		Labels: []*tensors.Tensor{tensors.FromValue([][]float32{{0}, {1}, {1}, {0}})},
	})
	metrics, err := train.NewLoop(trainer).RunSteps(env.Dataset(ds), 200)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("learnt:", tensors.ToScalar[float32](metrics[0]) < 0.05)
	// Output: learnt: true
}

// EPL finds the stages of a model that has no annotations.
func Example_automaticStages() {
	Model := func(scope *model.Scope, x *Node) *Node {
		for i := range 4 {
			x = activation.Relu(layers.Dense(scope.In("hidden_%d", i), x, true, 8))
		}
		return layers.Dense(scope.In("out"), x, true, 1)
	}
	cfg, err := epl.NewConfig(map[string]any{
		"auto.auto_parallel":       true,
		"pipeline.num_stages":      2,
		"pipeline.num_micro_batch": 4,
	})
	if err != nil {
		log.Fatal(err)
	}
	env, err := epl.Init(cfg, epl.WithLocalDevices(2))
	if err != nil {
		log.Fatal(err)
	}
	defer env.Close()
	trainer := train.NewTrainer(env.Backend(), model.NewStore(), Model, loss.MeanSquaredError,
		epl.Optimizer(optimizer.Adam().Done()), nil, nil)
	ds := dataset.Const(train.Batch{
		Inputs: []*tensors.Tensor{tensors.FromValue([][]float32{{1, 2}})},
		Labels: []*tensors.Tensor{tensors.FromValue([][]float32{{1}})},
	})
	if _, err := train.NewLoop(trainer).RunSteps(env.Dataset(ds), 10); err != nil {
		log.Fatal(err)
	}
	for i, d := range env.Stats().Devices {
		fmt.Println(i, d.Runs > 0)
	}
	// Output:
	// 0 true
	// 1 true
}

func ExampleInit() {
	env, err := epl.Init(nil)
	if err != nil {
		log.Fatal(err)
	}
	defer env.Close()
	fmt.Println(env.Backend().Name())
	// Output: epl
}

func ExampleNewConfig() {
	cfg, err := epl.NewConfig(map[string]any{"cluster.colocate_split_and_replicate": true})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(cfg)
	_, err = epl.NewConfig(map[string]any{"cluster.colocate_split_replicate": true})
	fmt.Println(err)
	// Output:
	// cluster.colocate_split_and_replicate = true (from code)
	// epl: unknown configuration key "cluster.colocate_split_replicate" (did you mean "cluster.colocate_split_and_replicate"?)
}

func ExampleWithLocalDevices() {
	env, err := epl.Init(nil, epl.WithLocalDevices(4))
	if err != nil {
		log.Fatal(err)
	}
	defer env.Close()
	fmt.Println(env.Cluster().TotalDevices())
	// Output: 4
}

func ExampleWithInner() {
	env, err := epl.Init(nil, epl.WithInner("go"))
	if err != nil {
		log.Fatal(err)
	}
	defer env.Close()
	fmt.Println(strings.HasPrefix(env.Backend().Description(), "Easy Parallel Library over "))
	// Output: true
}

func ExampleWithDefaultStrategy() {
	env, err := epl.Init(nil, epl.WithDefaultStrategy(epl.Replicate(1)))
	if err != nil {
		log.Fatal(err)
	}
	defer env.Close()
}

func ExampleWithPasses() {
	// To compare with plain GoMLX bit by bit, run exactly the ops that it built.
	env, err := epl.Init(nil, epl.WithPasses("none"))
	if err != nil {
		log.Fatal(err)
	}
	defer env.Close()
}

// Two TaskGraphs, which are the stages of a pipeline when the model is trained. Prediction runs as a whole.
func ExampleWith() {
	Model := func(scope *model.Scope, x *Node) *Node {
		epl.With(x, epl.Replicate(1, "stage_0"), func() {
			x = activation.Relu(layers.Dense(scope.In("stage_0"), x, true, 8))
		})
		epl.With(x, epl.Replicate(1, "stage_1"), func() {
			x = layers.Dense(scope.In("stage_1"), x, true, 1)
		})
		return x
	}
	fmt.Println(predict(nil, Model))
	// Output: [1 1]
}

// predict runs a model on one sample and returns the shape of what comes out.
func predict(cfg *epl.Config, fn func(scope *model.Scope, x *Node) *Node) []int {
	env, err := epl.Init(cfg)
	if err != nil {
		log.Fatal(err)
	}
	defer env.Close()
	exec := model.MustNewExec(env.Backend(), model.NewStore(), fn)
	return exec.MustCall1([][]float32{{1, 2, 3}}).Shape().Dimensions
}

// Every call opens a new TaskGraph, for what is outside the scopes of [With].
func ExampleSetDefaultStrategy() {
	Model := func(scope *model.Scope, x *Node) *Node {
		epl.SetDefaultStrategy(x, epl.Replicate(1, "stage_0"))
		x = activation.Relu(layers.Dense(scope.In("stage_0"), x, true, 8))
		epl.SetDefaultStrategy(x, epl.Replicate(1, "stage_1"))
		return layers.Dense(scope.In("stage_1"), x, true, 1)
	}
	fmt.Println(predict(nil, Model))
	// Output: [1 1]
}

// Data parallelism: one model replica on each device.
func ExampleReplicate() {
	Model := func(scope *model.Scope, x *Node) *Node {
		epl.With(x, epl.Replicate(1), func() {
			x = layers.Dense(scope.In("all"), x, true, 4)
		})
		return x
	}
	fmt.Println(predict(nil, Model))
	// Output: [1 4]
}

// Data parallelism for the body of a model, tensor parallelism for a large classifier, on the same devices.
func ExampleSplit() {
	const devices = 1 // on a cluster: env.Cluster().TotalDevices()
	Model := func(scope *model.Scope, x *Node) *Node {
		epl.With(x, epl.Replicate(devices, "body"), func() {
			x = activation.Relu(layers.Dense(scope.In("body"), x, true, 8))
		})
		epl.With(x, epl.Split(devices, "classifier"), func() {
			x = layers.Dense(scope.In("classifier"), x, true, 1000)
		})
		return x
	}
	cfg, err := epl.NewConfig(map[string]any{"cluster.colocate_split_and_replicate": true})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(predict(cfg, Model))
	// Output: [1 1000]
}

// Pins the sharding of a variable: the columns of the weights.
func ExampleStrategy_Shard() {
	classifier := epl.Split(1, "classifier").Shard("weights", 1)
	Model := func(scope *model.Scope, x *Node) *Node {
		epl.With(x, classifier, func() { x = layers.Dense(scope, x, false, 10) })
		return x
	}
	fmt.Println(predict(nil, Model))
	// Output: [1 10]
}

// A mixture of experts: the variables of the experts are defined in a split, and so are sharded wherever they are used.
// The rest of the model is replicated over the same devices.
func Example_mixtureOfExperts() {
	cfg, err := epl.NewConfig(map[string]any{"cluster.colocate_split_and_replicate": true})
	if err != nil {
		log.Fatal(err)
	}
	env, err := epl.Init(cfg)
	if err != nil {
		log.Fatal(err)
	}
	defer env.Close()
	devices := env.Cluster().TotalDevices()
	Model := func(scope *model.Scope, x *Node) *Node {
		const experts, width = 4, 3
		epl.SetDefaultStrategy(x, epl.Replicate(devices, "gating"))
		gate := Softmax(layers.Dense(scope.In("gate"), x, false, experts))
		var weights *Node
		epl.With(x, epl.Split(devices, "experts"), func() {
			shape := shapes.Make(dtypes.Float32, experts, width, width)
			weights = scope.VariableWithShape("experts", shape).NodeValue(x.Graph())
		})
		each := Einsum("bi,eij->bej", x, weights)
		return Einsum("be,bej->bj", gate, each)
	}
	exec := model.MustNewExec(env.Backend(), model.NewStore(), Model)
	fmt.Println(exec.MustCall1([][]float32{{1, 2, 3}}).Shape().Dimensions)
	// Output: [1 3]
}

func ExampleOptimizer() {
	env, err := epl.Init(nil)
	if err != nil {
		log.Fatal(err)
	}
	defer env.Close()
	Model := func(scope *model.Scope, x *Node) *Node { return layers.Dense(scope, x, true, 1) }
	trainer := train.NewTrainer(env.Backend(), model.NewStore(), Model, loss.MeanSquaredError,
		epl.Optimizer(optimizer.Adam().LearningRate(1e-3).Done()), nil, nil)
	fmt.Println(trainer.GlobalStep())
	// Output: 0
}

// A loss over the samples that a mask selects. Its denominator depends on the data, so that model replicas and
// micro-batches must be weighted by it.
func ExampleAddToCollection() {
	MaskedLoss := func(errors, mask *Node) *Node {
		selected := ReduceAllSum(mask)
		epl.AddToCollection(epl.InstanceWeight, selected)
		return Div(ReduceAllSum(Mul(errors, mask)), selected)
	}
	env, err := epl.Init(nil)
	if err != nil {
		log.Fatal(err)
	}
	defer env.Close()
	exec := MustNewExec(env.Backend(), MaskedLoss)
	fmt.Println(exec.MustCall([]float32{1, 5, 3}, []float32{1, 0, 1})[0].Value())
	// Output: 2
}

func ExampleEnv_Backend() {
	env, err := epl.Init(nil)
	if err != nil {
		log.Fatal(err)
	}
	defer env.Close()
	exec := MustNewExec(env.Backend(), func(x *Node) *Node { return Sqrt(x) })
	fmt.Println(exec.MustCall([]float32{4, 9})[0].Value())
	// Output: [2 3]
}

func ExampleEnv_Dataset() {
	env, err := epl.Init(nil)
	if err != nil {
		log.Fatal(err)
	}
	defer env.Close()
	one := tensors.FromValue([][]float32{{1}})
	ds := dataset.Take(dataset.Const(train.Batch{Inputs: []*tensors.Tensor{one}}), 3)
	batches := 0
	for range env.Dataset(ds).Iter() {
		batches++
	}
	fmt.Println(batches)
	// Output: 3
}

func ExampleEnv_Cluster() {
	env, err := epl.Init(nil)
	if err != nil {
		log.Fatal(err)
	}
	defer env.Close()
	c := env.Cluster()
	fmt.Println(c.WorkerIndex(), c.WorkerNum(), c.TotalDevices())
	// Output: 0 1 1
}

func ExampleEnv_Config() {
	env, err := epl.Init(nil)
	if err != nil {
		log.Fatal(err)
	}
	defer env.Close()
	fmt.Println(env.Config().Pipeline.NumMicroBatch)
	// Output: 1
}

func ExampleEnv_Explain() {
	env, err := epl.Init(nil)
	if err != nil {
		log.Fatal(err)
	}
	defer env.Close()
	exec := MustNewExec(env.Backend(), func(x *Node) *Node { return Add(Sin(x), Sin(x)) })
	exec.MustCall([]float32{1, 2})
	if err := env.Explain(os.Stdout); err != nil {
		log.Fatal(err)
	}
}

// Four devices hold a model replica each, and take a batch each in every step.
func ExampleEnv_Stats() {
	env, err := epl.Init(nil, epl.WithLocalDevices(4))
	if err != nil {
		log.Fatal(err)
	}
	defer env.Close()
	Model := func(scope *model.Scope, x *Node) *Node { return layers.Dense(scope, x, false, 1) }
	trainer := train.NewTrainer(env.Backend(), model.NewStore(), Model, loss.MeanSquaredError,
		epl.Optimizer(optimizer.StochasticGradientDescent()), nil, nil)
	ds := dataset.Const(train.Batch{
		Inputs: []*tensors.Tensor{tensors.FromValue([][]float32{{1, 2}})},
		Labels: []*tensors.Tensor{tensors.FromValue([][]float32{{1}})},
	})
	if _, err := train.NewLoop(trainer).RunSteps(env.Dataset(ds), 10); err != nil {
		log.Fatal(err)
	}
	for i, d := range env.Stats().Devices {
		fmt.Println(i, d.Runs >= 10, d.Sent["all-reduce"] > 0)
	}
	// Output:
	// 0 true true
	// 1 true true
	// 2 true true
	// 3 true true
}

func ExampleClipByGlobalNorm() {
	opt := epl.Optimizer(epl.ClipByGlobalNorm(optimizer.Adam().Done(), 1))
	fmt.Println(opt != nil)
	// Output: true
}

func ExampleClipByValue() {
	opt := epl.Optimizer(epl.ClipByValue(optimizer.Adam().Done(), 0.5))
	fmt.Println(opt != nil)
	// Output: true
}

func ExampleEnv_Close() {
	env, err := epl.Init(nil)
	if err != nil {
		log.Fatal(err)
	}
	if err := env.Close(); err != nil {
		log.Fatal(err)
	}
	_, err = MustNewExec(env.Backend(), func(x *Node) *Node { return Sqrt(x) }).Call(float32(4))
	fmt.Println(errors.Cause(err))
	// Output: epl: this Env is closed, and its devices are gone: call env.Close when all is done, and copy out what you need before
}
