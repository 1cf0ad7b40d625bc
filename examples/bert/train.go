// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"io"
	"math"
	"path/filepath"

	"github.com/gomlx/gomlx/core/tensors"
	"github.com/gomlx/gomlx/ml/model"
	"github.com/gomlx/gomlx/ml/model/checkpoint"
	"github.com/gomlx/gomlx/ml/train"
	"github.com/gomlx/gomlx/ml/train/optimizer"
	"github.com/gomlx/gomlx/ui/commandline"

	"github.com/easyparallel/epl"
)

// fit trains the network, prints how it goes, writes the answers, and returns their scores.
func fit(env *epl.Env, network bert, data questions, f flags, out io.Writer) (final scores, err error) {
	store := model.NewStore()
	store.SetParam(model.ParamInitialSeed, f.seed)
	if f.modelDir != "" {
		if err := network.load(env, store, f.modelDir); err != nil {
			return final, err
		}
	}
	save := func(*train.Loop, []*tensors.Tensor) error { return nil }
	if f.outputDir != "" {
		handler, err := checkpoint.Build(store).Dir(filepath.Join(f.outputDir, "checkpoints")).Keep(2).Done()
		if err != nil {
			return final, err
		}
		save = env.OnFirstWorker(handler.SaveOnStepFn) // + epl
	}
	predict, err := newPredictor(env, store, network, f)
	if err != nil {
		return final, err
	}
	report := func(state string) (scores, error) {
		answers, err := predict.answers(data)
		if err != nil {
			return scores{}, err
		}
		s := evaluate(data.dev, answers)
		fmt.Fprintf(out, "%s  exact match %5.1f  F1 %5.1f\n", state, s.exact, s.f1)
		if f.outputDir != "" && env.IsMain() { // + epl
			err = writeAnswers(filepath.Join(f.outputDir, "predictions.json"), answers)
		}
		return s, err
	}
	steps := f.totalSteps(env, len(data.trainWindows))
	trainer := train.NewTrainer(env.Backend(), store, network.logits, answerLoss,
		epl.Optimizer(f.optimizer(steps)), nil, nil) // + epl
	loop := train.NewLoop(trainer)
	if steps <= loop.LoopStep { // -epochs 0, or the checkpoint has them all
		return report(fmt.Sprintf("step %5d", loop.LoopStep))
	}
	if f.bar {
		commandline.AttachProgressBar(loop)
	}
	train.EveryNSteps(loop, f.every(steps), "evaluate", 100, func(loop *train.Loop, metrics []*tensors.Tensor) error {
		if loop.LoopStep+1 == steps {
			return nil // there is a report at the end
		}
		if _, err := report(progress(loop.LoopStep+1, metrics)); err != nil {
			return err
		}
		return save(loop, metrics)
	})
	own, err := env.Files([]string{data.name}) // + epl
	if err != nil {
		return final, err
	}
	ds := batches{size: f.batch, seed: uint64(f.seed) + uint64(loop.LoopStep)}
	for i, w := range data.trainWindows {
		if own.Part.Has(i) {
			ds.windows = append(ds.windows, w)
		}
	}
	metrics, err := loop.RunToGlobalStep(env.Dataset(ds), steps) // + epl
	if err != nil {
		return final, err
	}
	if final, err = report(progress(steps, metrics)); err != nil {
		return final, err
	}
	return final, save(loop, metrics)
}

// progress tells where the training is: the step, and the loss averaged over the last ones.
func progress(step int, metrics []*tensors.Tensor) string {
	return fmt.Sprintf("step %5d  loss %.3f", step, tensors.ToScalar[float32](metrics[1]))
}

// totalSteps is how long to train. A step takes -batch windows for each micro-batch of each model replica.
func (f flags) totalSteps(env *epl.Env, windows int) int {
	if f.steps > 0 {
		return f.steps
	}
	devices := max(f.stages, f.autoStages, 1) // of a model replica
	if env.Config().Cluster.ColocateSplitAndReplicate {
		devices = 1
	}
	replicas := max(env.Cluster().TotalDevices()/devices, 1)
	return int(math.Ceil(f.epochs * float64(windows) / float64(f.batch*f.microBatches*replicas)))
}

// every is how many steps are between two reports.
func (f flags) every(steps int) int {
	if f.eval > 0 {
		return f.eval
	}
	const reports = 8
	return (steps + reports - 1) / reports
}

func (f flags) optimizer(steps int) optimizer.Interface {
	adam := adamW{rate: f.rate, warmup: int(f.warmup * float64(steps)), steps: steps}
	if f.clip == 0 {
		return adam
	}
	return epl.ClipByGlobalNorm(adam, f.clip) // + epl
}
