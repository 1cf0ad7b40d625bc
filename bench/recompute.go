// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"os"

	. "github.com/gomlx/gomlx/core/graph" //nolint:all // the way GoMLX models are written
	"github.com/gomlx/gomlx/ml/model"
	"github.com/gomlx/gomlx/ml/train/loss"
	"github.com/gomlx/gomlx/ml/zoo/transformer"

	"github.com/easyparallel/epl"
	"github.com/easyparallel/epl/internal/equiv"
)

// recomputeRows compare a deep transformer with and without recompute, on one device: what it saves, and what it costs.
func recomputeRows() []Row {
	const peer = "EPL without recompute"
	p := problem{deepTransformer, loss.SparseCategoricalCrossEntropyLogits, equiv.Tokens(8, 64, 64)}
	auto := settings{"gradient_checkpoint.type": "auto"}
	on := func(s settings) func() (side, error) {
		return func() (side, error) {
			env, err := s.init()
			if err != nil {
				return side{}, err
			}
			return p.steps(env.Backend(), epl.Optimizer(sgd()), func() { _ = env.Close() }), nil
		}
	}
	return []Row{
		{Name: "recompute/activations/transformer-24", Peer: peer, Pairs: 1, Target: 4, Custom: func(int) (Result, error) {
			ours, err := p.activations(auto)
			if err != nil {
				return Result{}, err
			}
			theirs, err := p.activations(nil)
			if err != nil {
				return Result{}, err
			}
			fmt.Fprintf(os.Stderr, "  all but weights takes %.1f MB instead of %.1f\n", float64(ours)/1e6, float64(theirs)/1e6)
			r := float64(theirs) / float64(ours)
			return Result{Ratio: r, Low: r, High: r, Target: 4}, nil
		}},
		{Name: "recompute/step/transformer-24", Peer: peer, Pairs: 7, Warm: 2, Target: 1 / 1.35, Ours: on(auto), Theirs: on(nil)},
	}
}

// deepTransformer is GoMLX's language model with 24 layers and dropout.
func deepTransformer(scope *model.Scope, x *Node) *Node {
	return transformer.New(scope).WithVocabSize(64).WithEmbedDim(128).WithNumLayers(24).WithNumHeads(4).WithHeadDim(32).
		WithMaxPosEmbed(64).WithDropout(0.1).WithCausalMask(true).Logits(x, transformer.CallOptions{})
}

// activations is how many bytes a device has at most in a step, besides weights.
func (p problem) activations(s settings) (int64, error) {
	env, err := s.init()
	if err != nil {
		return 0, err
	}
	side := p.steps(env.Backend(), epl.Optimizer(sgd()), func() { _ = env.Close() })
	defer side.close()
	if _, err := side.once(); err != nil {
		return 0, err
	}
	d := env.Stats().Devices[0]
	return d.PeakBytes - d.Peak["weights"], nil
}
