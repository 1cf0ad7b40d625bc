// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"io"

	"github.com/gomlx/gomlx/core/tensors"
	"github.com/gomlx/gomlx/ml/model"
	"github.com/gomlx/gomlx/ml/train"
	"github.com/gomlx/gomlx/ml/train/loss"
	"github.com/gomlx/gomlx/ml/train/optimizer"

	"github.com/easyparallel/epl"
	"github.com/easyparallel/epl/examples/internal/pictures"
)

// result is what a training run was like.
type result struct {
	devices    int
	losses     []float32        // of each step
	sent       map[string]int64 // bytes that the busiest device of this worker sent in a step, by kind
	top1, top5 float32          // accuracy, averaged over the last steps
}

// train trains the classifier, and prints how it goes and what the devices sent.
func (f flags) train(p *pictures.Set, out io.Writer) (r result, err error) {
	env, err := f.init() // + epl
	if err != nil {
		return r, err
	}
	defer env.Close()  // + epl
	if !env.IsMain() { // + epl
		out = io.Discard
	}
	r.devices = env.Cluster().TotalDevices() // + epl
	c := classifier{trunk: f.trunk, classes: f.classes, devices: 1}
	if f.split {
		c.devices = r.devices
	}
	images, err := f.dataset(env, p, f.batch*c.devices)
	if err != nil {
		return r, err
	}
	store := model.NewStore()
	store.SetParam(model.ParamInitialSeed, f.seed) // the same numbers every time
	sgd := optimizer.StochasticGradientDescent().WithDecay(false).WithLearningRate(f.rate)
	trainer := train.NewTrainer(env.Backend(), store, c.logits, loss.SparseCategoricalCrossEntropyLogits,
		epl.Optimizer(sgd), metrics(), nil) // + epl
	loop := train.NewLoop(trainer)
	loop.OnStep("loss", 0, func(loop *train.Loop, metrics []*tensors.Tensor) error {
		if loop.LoopStep == loop.StartStep {
			fmt.Fprintf(out, "%d classes on %s, %d images in a step\n",
				f.classes, counted(r.devices, "device"), env.GlobalBatch()) // + epl
		}
		r.losses = append(r.losses, tensors.ToScalar[float32](metrics[0]))
		r.top1, r.top5 = tensors.ToScalar[float32](metrics[2]), tensors.ToScalar[float32](metrics[3])
		if done, every := loop.LoopStep+1, max(f.steps/10, 1); done%every == 0 {
			fmt.Fprintf(out, "step %4d  loss %6.3f  top-1 %5.1f%%  top-5 %5.1f%%\n",
				done, mean(r.losses[done-every:]), 100*r.top1, 100*r.top5)
		}
		return nil
	})
	if _, err := loop.RunSteps(images, f.steps); err != nil {
		return r, err
	}
	r.sent = sentInAStep(env.Stats(), f.steps, r.devices) // + epl
	f.printBytes(out, r, store)
	if f.explain {
		return r, env.Explain(out) // + epl
	}
	return r, nil
}

func mean(of []float32) (sum float32) {
	for _, x := range of {
		sum += x
	}
	return sum / float32(len(of))
}
