// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package shard_test

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/gomlx/compute/dtypes"
	. "github.com/gomlx/gomlx/core/graph"
	"github.com/gomlx/gomlx/core/tensors"
	"github.com/gomlx/gomlx/ml/layers"
	"github.com/gomlx/gomlx/ml/layers/norm"
	"github.com/gomlx/gomlx/ml/model"
	"github.com/gomlx/gomlx/ml/train/loss"
	"github.com/gomlx/gomlx/ml/train/optimizer"

	"github.com/easyparallel/epl"
	"github.com/easyparallel/epl/internal/equiv"
	"github.com/easyparallel/epl/ir"
	"github.com/easyparallel/epl/passes"
	"github.com/easyparallel/epl/plan"
	"github.com/easyparallel/epl/schedule"
	"github.com/easyparallel/epl/shard"
)

// models are those of which a step is partitioned. Batches have 7 samples, which divide among no number of devices.
func models() []equiv.Model {
	mse, entropy := loss.MeanSquaredError, loss.SparseCategoricalCrossEntropyLogits
	return []equiv.Model{
		{Name: "mlp", Build: equiv.MLP(3, 16, false), Loss: mse, Batch: equiv.Regression(7, 8)},
		{Name: "batch normalisation", Build: equiv.MLP(2, 16, true), Loss: mse, Batch: equiv.Regression(7, 8)},
		{Name: "transformer with dropout", Build: equiv.Transformer(false), Loss: entropy, Batch: equiv.Tokens(7, 6, 32)},
		{Name: "skip", Build: equiv.Skip, Loss: mse, Batch: equiv.Regression(7, 8)},
		{Name: "gradient in the model", Build: equiv.OwnGradient, Loss: mse, Batch: equiv.Regression(7, 8)},
		{Name: "gradients of its own", Build: equiv.CustomGradient, Loss: mse, Batch: equiv.Regression(7, 8)},
		{Name: "convolution", Build: images, Loss: mse, Batch: pictures},
		{Name: "embedding", Build: embedding, Loss: entropy, Batch: equiv.Tokens(7, 6, 32)},
	}
}

func images(scope *model.Scope, x *Node) *Node {
	epl.With(x, epl.Replicate(1, "trunk"), func() {
		x = Tanh(layers.Convolution(scope.In("a"), x).Channels(4).KernelSize(3).PadSame().Done())
		x = MaxPool(x).Window(2).Done()
		x = Tanh(layers.Convolution(scope.In("b"), x).Channels(6).KernelSize(3).Strides(2).PadSame().Done())
		x = norm.BatchNorm(scope.In("norm"), x, -1).UseBackendInference(false).Done()
		x = MeanPool(x).Window(2).Done()
	})
	epl.With(x, epl.Replicate(1, "head"), func() {
		x = layers.Dense(scope.In("head"), Reshape(x, x.Shape().Dimensions[0], -1), true, 1)
	})
	return x
}

func pictures(step int) (inputs, labels []*tensors.Tensor) {
	in, labels := equiv.Regression(7, 8*8*3)(step)
	flat, _ := tensors.CopyFlatData[float32](in[0])
	return []*tensors.Tensor{tensors.FromFlatDataAndDimensions(flat, 7, 8, 8, 3)}, labels
}

func embedding(scope *model.Scope, x *Node) *Node {
	var e *Node
	epl.With(x, epl.Replicate(1, "embedding"), func() {
		e = layers.Embedding(scope.In("tokens"), x, dtypes.Float32, 32, 8, false)
		position := scope.In("positions").VariableWithValue("w", make([]float32, 6)).NodeValue(x)
		e = Add(e, ExpandAndBroadcast(position, e.Shape().Dimensions, []int{0, 2}))
	})
	epl.With(x, epl.Replicate(1, "out"), func() {
		e = layers.Dense(scope.In("out"), e, true, 32)
	})
	return e
}

// recorded returns the train step of a model as recorded.
func recorded(t testing.TB, m equiv.Model) *ir.Program {
	t.Helper()
	backend, r := equiv.NewRecorder(nil)
	sgd := optimizer.StochasticGradientDescent()
	if _, err := equiv.Train(backend, m, epl.Optimizer(sgd), 1); err != nil {
		t.Fatalf("%+v", err)
	}
	for _, p := range r.Programs {
		if p.IsTraining() {
			return p
		}
	}
	t.Fatal("nothing was trained")
	return nil
}

// staged runs all passes for stages with the given numbers of devices, and as many TaskGraphs.
func staged(t testing.TB, p *ir.Program, devices ...int) {
	t.Helper()
	on, err := passes.Parse("all", nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"shard", "recompute", "zero", "apply-groups"} { // the first is what is tested, the others need it
		delete(on, name)
	}
	o := passes.Options{Local: &ir.Local{Replicas: 1, MicroBatches: 2}, Before: plan.Choose}
	next := 0
	for _, k := range devices {
		var places []int
		for range k {
			places = append(places, next)
			next++
		}
		o.Places = append(o.Places, places)
	}
	if len(p.TaskGraphs) > len(devices) { // all on the first
		o.Colocate, o.Places = true, o.Places[:1]
		for range p.TaskGraphs[1:] {
			o.Places = append(o.Places, o.Places[0])
		}
	}
	if _, err := passes.Run(p, on, o, nil); err != nil {
		t.Fatalf("%+v", err)
	}
}

func compare(t *testing.T, p *ir.Program, seed uint64) *shard.Report {
	t.Helper()
	want, got, r := partitioned(t, p, nil, draw(p, rand.New(rand.NewPCG(seed, 1)), 32))
	for i := range want {
		same(t, fmt.Sprintf("output %d", i), want[i], got[i])
	}
	return r
}

func TestAStepOnSeveralDevicesGivesTheResultsOfOne(t *testing.T) {
	for _, m := range models() {
		whole := recorded(t, m)
		for k := 2; k <= 4; k++ {
			t.Run(fmt.Sprintf("%s/%d", m.Name, k), func(t *testing.T) {
				p := whole.Clone()
				staged(t, p, k)
				r := compare(t, p, uint64(k))
				for _, line := range r.Lines() {
					t.Log(line)
				}
			})
		}
	}
}

func TestStagesMayHaveDifferentNumbersOfDevices(t *testing.T) {
	for _, m := range models() {
		whole := recorded(t, m)
		if len(whole.TaskGraphs) != 2 {
			continue
		}
		for _, k := range [][]int{{1, 2}, {2, 1}, {2, 2}, {2, 3}, {4, 3}, {3, 4}} {
			t.Run(fmt.Sprintf("%s/%v", m.Name, k), func(t *testing.T) {
				p := whole.Clone()
				staged(t, p, k...)
				compare(t, p, 7)
			})
		}
	}
}

// Whatever stage an op is in, it finds what it needs.
func TestOpsDealtToStagesAtRandomGiveTheSameResults(t *testing.T) {
	for i, m := range models() {
		whole := recorded(t, m)
		for seed := range uint64(6) {
			t.Run(fmt.Sprintf("%s/%d", m.Name, seed), func(t *testing.T) {
				rng := rand.New(rand.NewPCG(seed, uint64(i)))
				p := whole.Clone()
				staged(t, p, 2)
				place := 0
				p.Stages, p.TaskGraphs = nil, nil
				for j := range 3 {
					tg := &ir.TaskGraph{ID: j, Devices: 1 + rng.IntN(4)}
					p.TaskGraphs = append(p.TaskGraphs, tg)
					s := ir.Stage{TaskGraphs: []*ir.TaskGraph{tg}}
					for range tg.Devices {
						s.Places = append(s.Places, place)
						place++
					}
					if seed%2 == 1 {
						s.Weights = weights(rng, tg.Devices)
					}
					p.Stages = append(p.Stages, s)
				}
				for _, op := range p.Main.Ops {
					j := rng.IntN(3)
					op.TaskGraph, op.Place = p.TaskGraphs[j], j
				}
				for _, v := range p.Variables {
					v.TaskGraph = nil
				}
				if err := p.Verify(); err != nil {
					t.Fatal(err)
				}
				compare(t, p, seed)
			})
		}
	}
}

// What comes out can be scheduled, whatever the stages.
func TestPartitionedStepsCanBeScheduled(t *testing.T) {
	for _, m := range append(models(), splitModels()...) {
		whole := recorded(t, m)
		n := len(whole.TaskGraphs)
		for _, devices := range [][]int{{2, 2, 2, 2}, {1, 2, 3, 1}, {2, 3, 1, 2}} {
			for _, strategy := range []schedule.Strategy{schedule.PreferForward, schedule.PreferBackward, schedule.ZeroBubble} {
				p := whole.Clone()
				if m.Name == "experts" || m.Name == "experts outside" { // they go back and forth
					devices = devices[:1]
				}
				staged(t, p, devices[:min(n, len(devices))]...)
				_, choice := search(t, p)
				if _, err := expanded(p, choice); err != nil {
					t.Fatal(err)
				}
				var ranks []int
				for _, g := range p.Groups() {
					for range g {
						ranks = append(ranks, len(ranks))
					}
				}
				if _, err := schedule.Build(p, schedule.Options{MaxSplits: 5, Strategy: strategy, Ranks: [][]int{ranks}}); err != nil {
					t.Errorf("%s on %v, %s: %v", m.Name, devices, strategy, err)
				}
			}
		}
	}
}
