// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/gob"
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/gomlx/gomlx/core/tensors"
	"github.com/gomlx/gomlx/ml/model"
	"github.com/gomlx/gomlx/ml/train"
	"github.com/gomlx/gomlx/ml/train/optimizer"
	"github.com/gomlx/gomlx/support/exceptions"

	"github.com/easyparallel/epl"
	"github.com/easyparallel/epl/internal/equiv"
)

const (
	steps       = 5
	evaluations = 3 // batches, of a try that evaluates
)

// part is what a process is to do that was started as a worker: the variable has it as JSON.
type part struct {
	Try     string // by its name
	Batches int    // that are one, of a try on one device
	Backend string
	File    string        // for the result
	Timeout time.Duration // communication.timeout
}

const partVariable = "EPL_EXAMPLE_NCCL"

// result is what a worker found.
type result struct {
	Losses  []float32 // of training, then of evaluation
	Weights map[string][]float32
	Explain string
	Sent    map[string]int64 // bytes, through the host
}

// played does the part of a worker, if this process is one.
func played() bool {
	text := os.Getenv(partVariable)
	if text == "" {
		return false
	}
	var p part
	err := json.Unmarshal([]byte(text), &p)
	if err == nil {
		err = p.play()
	}
	if err != nil {
		fmt.Printf("FAILED: %v\n", err)
		os.Exit(1)
	}
	return true
}

func (p part) play() error {
	t, ok := find(p.Try)
	if !ok {
		return fmt.Errorf("there is no %q", p.Try)
	}
	r, err := t.train(p)
	if err != nil {
		return err
	}
	f, err := os.Create(p.File)
	if err != nil {
		return err
	}
	if err := gob.NewEncoder(f).Encode(r); err != nil {
		return err
	}
	return f.Close()
}

// train trains on the devices of all workers; as one process, on one device.
func (t try) train(p part, opts ...epl.Option) (*result, error) {
	cfg, err := epl.NewConfig(t.settings(p.Timeout))
	if err != nil {
		return nil, err
	}
	env, err := epl.Init(cfg, append([]epl.Option{epl.WithInner(p.Backend)}, opts...)...)
	if err != nil {
		return nil, err
	}
	defer env.Close()
	if b, ok := t.network.(bert); ok && t.does == different {
		b.hidden += 8 * env.Cluster().WorkerIndex()
		t.network = b
	}
	batches := t.network.batches
	if p.Batches > 1 {
		batches = equiv.Joined(batches, p.Batches)
	}
	store, err := t.start()
	if err != nil {
		return nil, err
	}
	// Adam divides by the size of gradients, which hides wrong factors and makes rounding of small ones large: not with this epsilon.
	opt := epl.Optimizer(optimizer.Adam().LearningRate(0.5).Epsilon(1).Done())
	trainer := train.NewTrainer(env.Backend(), store, t.network.build(t.stages), t.network.loss(), opt, nil, nil)
	loop := train.NewLoop(trainer)
	r := &result{Weights: map[string][]float32{}, Sent: map[string]int64{}}
	loop.OnStep("loss", 0, func(l *train.Loop, metrics []*tensors.Tensor) error {
		if r.Losses = append(r.Losses, tensors.ToScalar[float32](metrics[0])); len(r.Losses) == steps && t.does == killed {
			fmt.Println(inTheMiddle)
		}
		return nil
	})
	n := steps
	if t.does == killed {
		n = 1 << 20
	}
	if panicked := exceptions.TryCatch[error](func() { // by the loop, if a loss cannot be read
		_, err = loop.RunSteps(env.Dataset(equiv.Dataset{Batch: batches}), n)
	}); panicked != nil {
		err = panicked
	}
	if err != nil {
		return nil, err
	}
	if t.evaluates {
		for b, err := range env.Dataset(equiv.Dataset{Batch: t.network.batches}).Iter() {
			if err != nil {
				return nil, err
			}
			metrics, err := trainer.EvalStep(b)
			if err != nil {
				return nil, err
			}
			if r.Losses = append(r.Losses, tensors.ToScalar[float32](metrics[0])); len(r.Losses) == steps+evaluations {
				break
			}
		}
	}
	for v := range store.IterVariables() {
		if v.Trainable {
			value, err := v.Value()
			if err != nil {
				return nil, err
			}
			if r.Weights[v.Path()], err = tensors.CopyFlatData[float32](value); err != nil {
				return nil, err
			}
		}
	}
	for _, d := range env.Stats().Devices {
		for how, bytes := range d.Sent {
			r.Sent[how] += bytes
		}
	}
	var text strings.Builder
	if err := env.Explain(&text); err != nil {
		return nil, err
	}
	r.Explain = text.String()
	return r, nil
}

// inTheMiddle is what a worker says that is to train for ever.
const inTheMiddle = "trains"

// start is the network before its first step, with the initial weights that the CPU draws: backends draw different ones.
func (t try) start() (*model.Store, error) {
	store := model.NewStore()
	store.SetParam(model.ParamInitialSeed, int64(42))
	trainer := train.NewTrainer(equiv.Plain(), store, t.network.build(t.stages), t.network.loss(), optimizer.StochasticGradientDescent(), nil, nil)
	in, labels := t.network.batches(0)
	if _, err := trainer.EvalStep(train.Batch{Inputs: in, Labels: labels}); err != nil {
		return nil, err
	}
	for v := range store.IterVariables() {
		if err := v.MustValue().ToLocal(); err != nil {
			return nil, err
		}
	}
	return store, nil
}
