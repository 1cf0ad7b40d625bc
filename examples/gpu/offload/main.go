// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

// Command offload trains a model whose weights, gradients and optimizer state together are larger than a GPU: weights and state are in memory of
// the host, and come to the GPU when they are needed. It prints what was predicted of the GPU's memory, and what the GPU had.
//
//	go run ./examples/gpu/offload -gib 34 -width 16384
//
// The host needs three times the weights, and XLA has to be told that it may pin so much: XLA_PJRT_GPU_HOST_MEMORY_LIMIT_GB=110.
package main

import (
	"flag"
	"fmt"
	"log"
	"math"
	"os"
	"time"

	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/shapes"
	"github.com/gomlx/gomlx/core/graph"
	"github.com/gomlx/gomlx/core/tensors"
	"github.com/gomlx/gomlx/ml/layers"
	"github.com/gomlx/gomlx/ml/model"
	"github.com/gomlx/gomlx/ml/train/optimizer"

	"github.com/easyparallel/epl"
	"github.com/easyparallel/epl/internal/procmem"
	_ "github.com/easyparallel/epl/xla"
)

var (
	backend  = flag.String("backend", "xla:cuda", "what to train on")
	level    = flag.String("offload", "v0", "offload.level; empty: all is on the GPU")
	gib      = flag.Float64("gib", 34, "GiB of weights")
	width    = flag.Int("width", 16384, "width of a layer")
	batch    = flag.Int("batch", 16, "batch size")
	steps    = flag.Int("steps", 4, "steps")
	explains = flag.Bool("explain", false, "say what EPL did")
)

const unit = 1 << 30

func main() {
	flag.Parse()
	if err := train(); err != nil {
		log.Fatalf("%v", err)
	}
}

func train() error {
	depth := max(1, int(*gib*unit/float64(4**width**width)))
	weights := float64(depth) * float64(4**width**width) / unit
	fmt.Printf("%d layers of %d×%d: %.1f GiB of weights, %.1f GiB with optimizer state, %.1f GiB with gradients\n",
		depth, *width, *width, weights, 3*weights, 4*weights)
	cfg, err := epl.NewConfig(map[string]any{"offload.level": *level})
	if err != nil {
		return err
	}
	env, err := epl.Init(cfg, epl.WithInner(*backend))
	if err != nil {
		return err
	}
	defer env.Close()
	if *explains {
		defer func() { _ = env.Explain(os.Stdout) }()
	}
	opt := epl.Optimizer(optimizer.Adam().LearningRate(1e-6).DType(dtypes.Float32).Done())
	store := model.NewStore()
	store.SetParam(model.ParamInitialSeed, int64(42))
	step, err := model.NewExec(env.Backend(), store, func(scope *model.Scope, x, labels *graph.Node) *graph.Node {
		for i := range depth {
			w := scope.In("layer_%d", i).VariableWithShape("weights", shapes.Make(dtypes.Float32, *width, *width)).NodeValue(x.Graph())
			x = graph.Add(x, graph.MulScalar(graph.Tanh(graph.Dot(x, w).Product()), 0.1))
		}
		x = layers.Dense(scope.In("out"), x, true, 1)
		loss := graph.ReduceAllMean(graph.Square(graph.Sub(x, labels)))
		opt.UpdateGraph(scope, loss.Graph(), loss)
		return loss
	})
	if err != nil {
		return err
	}
	x, labels := make([][]float32, *batch), make([][]float32, *batch)
	for i := range x {
		x[i] = make([]float32, *width)
		for j := range x[i] {
			x[i][j] = float32(math.Sin(float64(i**width + j)))
		}
		labels[i] = []float32{float32(i % 2)}
	}
	for i := range *steps {
		start := time.Now()
		out, err := step.Call(tensors.FromValue(x), tensors.FromValue(labels))
		if err != nil {
			return err
		}
		fmt.Printf("step %d: loss %.6f, %.2f s; the host had %.1f GiB at most\n", i, tensors.ToScalar[float32](out[0]), time.Since(start).Seconds(), float64(procmem.Peak())/unit)
	}
	want, got := env.Predicted().Devices[0].PeakBytes, env.Stats().Devices[0].Allocated
	fmt.Printf("predicted %.2f GiB on the GPU; it had %.2f GiB at most (%+.1f %%)\n", float64(want)/unit, float64(got)/unit, 100*float64(got-want)/float64(want))
	return nil
}
