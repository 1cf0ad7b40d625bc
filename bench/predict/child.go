// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"iter"
	"os"
	"runtime/debug"
	"strconv"
	"strings"
	"time"

	. "github.com/gomlx/gomlx/core/graph" //nolint:all // the way GoMLX models are written
	"github.com/gomlx/gomlx/ml/model"
	"github.com/gomlx/gomlx/ml/train"
	"github.com/gomlx/gomlx/ml/train/optimizer"

	"github.com/gomlx/gomlx/core/tensors"

	"github.com/easyparallel/epl"
	"github.com/easyparallel/epl/internal/equiv"
	"github.com/easyparallel/epl/internal/procmem"
)

// measuredMemory is what a worker took in a step, in bytes.
type measuredMemory struct {
	Devices []int64 // by device: the peak that the runtime metered
	Account int64   // what is predicted of all devices together
	Process int64   // what the process grew by, from before the model to the peak of a step; 0: it is not known
	Plan    string  // the fingerprint of what ran
}

// training is a way that runs in this process.
type training struct {
	env     *epl.Env
	trainer *train.Trainer
	next    func() (train.Batch, error, bool)
}

// start makes the trainer. Nothing is built yet.
func (w way) start() (*training, error) {
	cfg, err := epl.NewConfig(w.settings())
	if err != nil {
		return nil, err
	}
	env, err := epl.Init(cfg, epl.WithLocalDevices(w.Devices))
	if err != nil {
		return nil, err
	}
	n := networks[w.Network]
	store := model.NewStore()
	store.SetParam(model.ParamInitialSeed, int64(1))
	build := func(scope *model.Scope, x *Node) *Node { return n.build(w, scope, x) }
	t := &training{env: env, trainer: train.NewTrainer(env.Backend(), store, build, n.loss, epl.Optimizer(optimizer.Adam().Done()), nil, nil)}
	var batches [4][2][]*tensors.Tensor // the same again: making them takes time that is no step's
	for i := range batches {
		batches[i][0], batches[i][1] = n.data(i)
	}
	t.next, _ = iter.Pull2(env.Dataset(equiv.Dataset{Batch: func(i int) (in, labels []*tensors.Tensor) {
		clone := func(all []*tensors.Tensor) (cloned []*tensors.Tensor) {
			for _, x := range all {
				y, err := x.LocalClone()
				if err != nil {
					panic(err)
				}
				cloned = append(cloned, y)
			}
			return cloned
		}
		return clone(batches[i%4][0]), clone(batches[i%4][1])
	}}).Iter())
	return t, nil
}

// step is a training step, in milliseconds.
func (t *training) step() (float64, error) {
	batch, err, _ := t.next()
	if err != nil {
		return 0, err
	}
	start := time.Now()
	_, err = t.trainer.TrainStep(batch)
	return float64(time.Since(start).Nanoseconds()) / 1e6, err
}

// predict makes the plan, which EPL_PLAN_OUT asks for.
func (w way) predict() error {
	t, err := w.start()
	if err != nil {
		return err
	}
	if _, err = t.step(); err == nil || !strings.Contains(err.Error(), os.Getenv(epl.EnvPlanOut)) {
		return fmt.Errorf("the plan was not made: %w", err)
	}
	return nil
}

// train does steps when it is told how many, and answers with their times. First it answers with the memory of a step.
func (w way) train(orders io.Reader, answers io.Writer) error {
	t, err := w.start()
	if err != nil {
		return err
	}
	defer t.env.Close()
	m, err := t.memory()
	if err != nil {
		return err
	}
	encoder := json.NewEncoder(answers)
	if err := encoder.Encode(m); err != nil {
		return err
	}
	for lines := bufio.NewScanner(orders); lines.Scan(); {
		n, err := strconv.Atoi(lines.Text())
		if err != nil {
			return err
		}
		times := make([]float64, n)
		for i := range times {
			if times[i], err = t.step(); err != nil {
				return err
			}
		}
		if err := encoder.Encode(times); err != nil {
			return err
		}
	}
	return nil
}

// memory does some steps, and says what one took. The garbage collector works hard meanwhile, so that the process has little more than it needs.
func (t *training) memory() (m measuredMemory, err error) {
	steps := func(n int) {
		for i := 0; i < n && err == nil; i++ {
			_, err = t.step()
		}
	}
	debug.FreeOSMemory()
	before := procmem.Now()
	steps(2)          // the first also builds, compiles and initialises
	_ = t.env.Stats() // from here on
	usual := debug.SetGCPercent(5)
	debug.FreeOSMemory()
	known := procmem.Reset() == nil
	steps(2)
	if known {
		m.Process = procmem.Peak() - before
	}
	debug.SetGCPercent(usual)
	if err != nil {
		return m, err
	}
	for _, d := range t.env.Stats().Devices {
		m.Devices = append(m.Devices, d.PeakBytes)
	}
	for _, d := range t.env.Predicted().Devices {
		m.Account += d.PeakBytes
	}
	m.Plan = t.env.Plan().Result
	steps(1)
	return m, err
}
