// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"io"
	"math"
	"path/filepath"
	"time"

	"github.com/gomlx/compute/dtypes"
	. "github.com/gomlx/gomlx/core/graph" //nolint:all // the way GoMLX models are written
	"github.com/gomlx/gomlx/core/tensors"
	"github.com/gomlx/gomlx/ml/model"
	"github.com/gomlx/gomlx/ml/train"
	"github.com/gomlx/gomlx/ml/train/loss"
	"github.com/gomlx/gomlx/ml/train/optimizer"

	"github.com/easyparallel/epl"
	"github.com/easyparallel/epl/data"
	"github.com/easyparallel/epl/hf"
)

// training is a network that learns.
type training struct {
	env       *epl.Env
	network   gpt
	tokenizer *hf.BPE
	f         flags
	store     *model.Store
	saver     *epl.Checkpoint // nil: nothing is saved
	trainer   *train.Trainer
	peak      float64 // flops per second of all devices; 0: it is not known
}

func newTraining(env *epl.Env, network gpt, tokenizer *hf.BPE, f flags) (*training, error) {
	t := &training{env: env, network: network, tokenizer: tokenizer, f: f, store: model.NewStore()}
	t.store.SetParam(model.ParamInitialSeed, f.seed)
	if f.modelDir != "" {
		folder, err := hf.Find(f.modelDir)
		if err != nil {
			return nil, err
		}
		if err := network.load(env, t.store, folder); err != nil {
			return nil, err
		}
	}
	if f.outputDir != "" { // a checkpoint that is there counts, and not what it began with
		var err error
		t.saver, err = env.Checkpoints(t.store).Dir(filepath.Join(f.outputDir, "checkpoints")).Keep(2).EverySteps(f.eval).Done() // + epl
		if err != nil {
			return nil, err
		}
	}
	t.trainer = train.NewTrainer(env.Backend(), t.store, func(scope *model.Scope, ids *Node) *Node { return network.logits(scope, ids, nil) },
		loss.SparseCategoricalCrossEntropyLogits, epl.Optimizer(f.rule()), nil, nil) // + epl
	var err error
	t.peak, err = f.peak(env)
	return t, err
}

// rule is how weights learn from gradients.
func (f flags) rule() optimizer.Interface {
	var rule optimizer.Interface
	if f.optimizer == "sgd" {
		rule = optimizer.StochasticGradientDescent().WithDecay(false).WithLearningRate(f.rate)
	} else {
		rule = optimizer.Adam().LearningRate(f.rate).Betas(0.9, 0.95).WeightDecay(f.decay).Done()
	}
	if f.clip == 0 {
		return rule
	}
	return epl.ClipByGlobalNorm(rule, f.clip) // + epl
}

// precision is the type that products are computed in.
func (f flags) precision() dtypes.DType {
	switch f.amp {
	case "float16":
		return dtypes.Float16
	case "bfloat16":
		return dtypes.BFloat16
	}
	return dtypes.Float32
}

// fit trains up to the last step, prints how it goes, and returns the loss of that step and that on text that was not trained with.
func (t *training) fit(c corpus, out io.Writer) (last, valid float64, err error) {
	own, err := t.env.Files([]string{"all windows"}) // + epl: with io.slicing, the worker's share of them
	if err != nil {
		return 0, 0, err
	}
	batches, err := data.FromIndex("train", c.train, data.IndexOptions{Batch: t.f.batch, Epochs: data.Endless, Shuffle: true, Seed: uint64(t.f.seed), Part: own.Part})
	if err != nil {
		return 0, 0, err
	}
	held, err := data.FromIndex("valid", c.valid, data.IndexOptions{Batch: min(t.f.batch, c.valid.Len()), DropLast: true})
	if err != nil {
		return 0, 0, err
	}
	evaluate := func() (float64, error) {
		metrics, err := t.trainer.Eval(held)
		if err != nil {
			return 0, err
		}
		return float64(tensors.ToScalar[float32](metrics[0])), nil
	}
	loop := train.NewLoop(t.trainer)
	last = math.NaN()
	if t.f.steps <= loop.LoopStep { // -steps 0, or the checkpoint has them all
		if valid, err = evaluate(); err == nil {
			fmt.Fprintf(out, "step %5d  valid %.4f  perplexity %.2f\n", loop.LoopStep, valid, math.Exp(valid))
		}
		return last, valid, err
	}
	var began time.Time // after what compiles, and after an evaluation
	steps := 0
	loop.OnStep("report", 100, func(loop *train.Loop, metrics []*tensors.Tensor) error {
		step := loop.LoopStep + 1
		steps++
		if step != t.f.steps && step%t.f.eval != 0 {
			if began.IsZero() {
				began, steps = time.Now(), 0
			}
			return nil
		}
		last = float64(tensors.ToScalar[float32](metrics[0])) // waits for the step
		speed := t.speed(steps, began)
		if valid, err = evaluate(); err != nil {
			return err
		}
		fmt.Fprintf(out, "step %5d  loss %.4f  valid %.4f  perplexity %.2f%s\n", step, last, valid, math.Exp(valid), speed)
		began, steps = time.Now(), 0
		return nil
	})
	if t.saver != nil {
		loop.OnStep("checkpoints", 100, func(loop *train.Loop, metrics []*tensors.Tensor) error {
			if loop.LoopStep+1 == t.f.steps {
				return nil // it is saved below: a save that is still being written skips the next one
			}
			return t.saver.OnStep(loop, metrics) // + epl
		})
	}
	if _, err = loop.RunToGlobalStep(t.env.Dataset(batches), t.f.steps); err != nil { // + epl
		return last, valid, err
	}
	if t.saver != nil {
		err = t.saver.Save() // + epl
	}
	return last, valid, err
}

// speed is how fast training was since a time: tokens per second, and the share of what the devices could compute (MFU).
func (t *training) speed(steps int, began time.Time) string {
	if began.IsZero() || steps == 0 {
		return ""
	}
	tokens := float64(steps*t.env.GlobalBatch()*t.f.length) / time.Since(began).Seconds() // + epl
	flops := tokens * t.network.flops(t.f.length)
	text := fmt.Sprintf("  %.0f tokens/s  %.1f GFLOP/s", tokens, flops/1e9)
	if t.peak > 0 {
		text += fmt.Sprintf("  MFU %.1f%%", 100*flops/t.peak)
	}
	return text
}
