// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package main

import (
	"time"

	"github.com/gomlx/compute"
	. "github.com/gomlx/gomlx/core/graph" //nolint:all // the way GoMLX models are written
	"github.com/gomlx/gomlx/core/tensors"
	"github.com/gomlx/gomlx/ml/layers"
	"github.com/gomlx/gomlx/ml/layers/activation"
	"github.com/gomlx/gomlx/ml/model"
	"github.com/gomlx/gomlx/ml/train"
	"github.com/gomlx/gomlx/ml/train/loss"
	"github.com/gomlx/gomlx/ml/train/optimizer"
	"github.com/gomlx/gomlx/ml/zoo/transformer"

	"github.com/easyparallel/epl"
	"github.com/easyparallel/epl/internal/equiv"
)

const plainPeer = "plain GoMLX"

// Rows are all comparisons, in the order of the table.
var Rows = rows()

func rows() []Row {
	tiny := problem{mlp(8, 8, 1), loss.MeanSquaredError, equiv.Regression(8, 8)}
	mlp512 := problem{mlp(512, 512, 1), loss.MeanSquaredError, equiv.Regression(256, 64)}
	lm := problem{languageModel, loss.SparseCategoricalCrossEntropyLogits, equiv.Tokens(8, 32, 64)}
	var all []Row
	for _, x := range []struct {
		name  string
		p     problem
		pairs int
	}{{"mlp-tiny", tiny, 1000}, {"mlp-512", mlp512, 200}, {"transformer", lm, 200}, {"mlp-25M/64", wideMLP(64), 30}, {"mlp-25M/256", wideMLP(256), 15}} {
		for _, passes := range []string{"none", "all"} {
			all = append(all, Row{Name: x.name + "/passes-" + passes, Peer: plainPeer, Pairs: x.pairs, Warm: 3,
				Ours: func() (side, error) { return x.p.onEPL(passes) }, Theirs: x.p.onPlain})
		}
	}
	for _, x := range []struct {
		name string
		p    problem
	}{{"mlp-512", mlp512}, {"transformer", lm}} {
		for _, passes := range []string{"none", "all"} {
			all = append(all, Row{Name: x.name + "/first-step/passes-" + passes, Peer: plainPeer, Pairs: 20, Warm: 1,
				Ours:   func() (side, error) { return x.p.firstStep(func() (side, error) { return x.p.onEPL(passes) }) },
				Theirs: func() (side, error) { return x.p.firstStep(x.p.onPlain) }})
		}
	}
	for _, batch := range []int{64, 256} {
		all = append(all, torchRow(batch, wideMLP(batch)))
	}
	all = append(all, parallelRows()...)
	all = append(all, allReduceRows()...)
	all = append(all, hiddenRow())
	all = append(all, commRows()...)
	all = append(append(all, scalingRows()...), zeroRows()...)
	all = append(all, bucketRows()...)
	all = append(append(all, pipelineRows()...), splitRows()...)
	all = append(append(all, recomputeRows()...), engineRows()...)
	return append(all, reliabilityRows()...)
}

// problem is a model with data.
type problem struct {
	build func(scope *model.Scope, x *Node) *Node
	loss  train.LossFn
	batch func(step int) (inputs, labels []*tensors.Tensor)
}

func (p problem) onEPL(passes string) (side, error) {
	env, err := epl.Init(nil, epl.WithPasses(passes))
	if err != nil {
		return side{}, err
	}
	return p.steps(env.Backend(), epl.Optimizer(sgd()), func() { _ = env.Close() }), nil
}

func (p problem) onPlain() (side, error) {
	b := equiv.Plain()
	return p.steps(b, sgd(), b.Finalize), nil
}

func sgd() optimizer.Interface {
	return optimizer.StochasticGradientDescent().WithDecay(false).WithLearningRate(1e-3)
}

// steps measures train steps.
func (p problem) steps(b compute.Backend, opt optimizer.Interface, close func()) side {
	trainer := train.NewTrainer(b, newStore(), p.build, p.loss, opt, nil, nil)
	step := 0
	return side{close: close, once: func() (time.Duration, error) {
		in, labels := p.batch(step % 4)
		step++
		start := time.Now()
		_, err := trainer.TrainStep(train.Batch{Inputs: in, Labels: labels})
		return time.Since(start), err
	}}
}

// firstStep measures the first step of a new trainer: building, recording, compiling, initialising and running.
func (p problem) firstStep(fresh func() (side, error)) (side, error) {
	return side{once: func() (time.Duration, error) {
		s, err := fresh()
		if err != nil {
			return 0, err
		}
		defer s.close()
		return s.once()
	}}, nil
}

func newStore() *model.Store {
	store := model.NewStore()
	store.SetParam(model.ParamInitialSeed, int64(42))
	return store
}

// mlp has two hidden layers and one for the output.
func mlp(width1, width2, out int) func(scope *model.Scope, x *Node) *Node {
	return func(scope *model.Scope, x *Node) *Node {
		x = activation.Relu(layers.Dense(scope.In("0"), x, true, width1))
		x = activation.Relu(layers.Dense(scope.In("1"), x, true, width2))
		return layers.Dense(scope.In("2"), x, true, out)
	}
}

func languageModel(scope *model.Scope, x *Node) *Node {
	return transformer.New(scope).WithVocabSize(64).WithEmbedDim(64).WithNumLayers(2).WithNumHeads(4).WithHeadDim(16).
		WithMaxPosEmbed(64).WithCausalMask(true).Logits(x, transformer.CallOptions{})
}

// vectors makes inputs and labels of the same width.
func vectors(batch, dim int) func(step int) (inputs, labels []*tensors.Tensor) {
	return func(step int) (inputs, labels []*tensors.Tensor) {
		make := func(seed int) *tensors.Tensor {
			in, _ := equiv.Regression(batch, dim)(seed)
			return in[0]
		}
		return []*tensors.Tensor{make(2 * step)}, []*tensors.Tensor{make(2*step + 1)}
	}
}
