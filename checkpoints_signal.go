// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package epl

import (
	"time"

	"github.com/gomlx/gomlx/core/tensors"
	"github.com/gomlx/gomlx/ml/train"
	"github.com/pkg/errors"
)

// ErrInterrupted is what ends training after a signal, when the checkpoint is on disk: see [CheckpointBuilder.OnSignal]. errors.Is finds it.
var ErrInterrupted = errors.New("epl: training was interrupted by a signal; its checkpoint is saved, and the same command goes on from there")

// signalTime is how long a worker waits for a signal that another one has got.
const signalTime = 2 * time.Second

// interrupt saves if any worker has got a signal, and ends training on those that have. Which step that is after, all workers agree on.
func (c *Checkpoint) interrupt(loop *train.Loop, metrics []*tensors.Tensor) (end bool, _ error) {
	if c.signals == nil || c.env.plans {
		return false, nil
	}
	select {
	case s := <-c.signals:
		if c.interrupted = true; c.env.IsMain() {
			warn("%v: a checkpoint of step %d is saved, and training ends", s, loop.LoopStep+1)
		}
	default:
	}
	mine := int64(0)
	if c.interrupted {
		mine = 1
	}
	somebody, err := c.group.largest(mine)
	if err != nil || somebody == 0 {
		return false, err
	}
	if err := c.takeMetrics(loop, metrics); err != nil {
		return true, err
	}
	if err := c.Save(); err != nil {
		return true, err
	}
	if !c.interrupted { // it may be on its way to this worker, too
		select {
		case <-c.signals:
			c.interrupted = true
		case <-time.After(signalTime):
		}
	}
	if !c.interrupted {
		return false, nil // an elastic job goes on from here, without those that end
	}
	return true, ErrInterrupted
}
