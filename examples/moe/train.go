// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"io"

	"github.com/gomlx/compute"
	"github.com/gomlx/gomlx/core/tensors"
	"github.com/gomlx/gomlx/ml/model"
	"github.com/gomlx/gomlx/ml/train"
	"github.com/gomlx/gomlx/ml/train/optimizer"
	"github.com/gomlx/gomlx/ui/commandline"

	"github.com/easyparallel/epl"
	"github.com/easyparallel/epl/examples/internal/moe"
)

// fit trains the network with batches of so many pairs, prints how it goes, and returns the loss of each step. deal is
// env.Dataset, which deals batches to micro-batches; without EPL it returns what it is given.
func fit(backend compute.Backend, deal func(train.Dataset) train.Dataset, network moe.T5, c *corpus, f flags, batch int,
	out io.Writer) (losses []float32, err error) {

	store := model.NewStore()
	store.SetParam(model.ParamInitialSeed, f.seed)
	trainer := train.NewTrainer(backend, store, network.Logits, moe.Loss(f.balance),
		epl.Optimizer(optimizer.Adam().LearningRate(f.rate).Done()), nil, nil) // + epl
	translate, err := newTranslator(backend, store, network, f.batch)
	if err != nil {
		return nil, err
	}
	loop := train.NewLoop(trainer)
	if f.bar {
		commandline.AttachProgressBar(loop)
	}
	loop.OnStep("evaluate", 100, func(loop *train.Loop, metrics []*tensors.Tensor) error {
		losses = append(losses, tensors.ToScalar[float32](metrics[0]))
		step := loop.LoopStep + 1
		if step%f.eval != 0 && step != f.steps {
			return nil
		}
		fmt.Fprintf(out, "step %4d  loss %.3f", step, tensors.ToScalar[float32](metrics[1]))
		if len(c.held) == 0 {
			fmt.Fprintln(out)
			return nil
		}
		s, err := translate.score(c.held, c.length)
		if err != nil {
			return err
		}
		fmt.Fprintf(out, "  right: %5.1f%% of words, %5.1f%% of %d sentences\n", 100*s.words, 100*s.sentences, len(c.held))
		if step == f.steps {
			return translate.show(c, out)
		}
		return nil
	})
	_, err = loop.RunSteps(deal(batches{c, batch, uint64(f.seed)}), f.steps) // + epl
	return losses, err
}
