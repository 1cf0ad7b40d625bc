// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package compile

import (
	"fmt"
	"strings"

	"github.com/gomlx/compute"

	"github.com/easyparallel/epl/record"
)

// lookEvery is after how many steps EPL looks whether a loss scale skips them all: reading a value waits for the step.
const lookEvery = 8

// watched is a training program with a loss scale. One that skips every step trains on nothing, which must not go unnoticed.
type watched struct {
	compute.Executable
	e      *Engine
	output int // the new number of steps that were skipped in a row
	scale  string
	steps  int
	enough int // so many are said
}

// watched watches the steps that a training program skips, if it has a loss scale.
func (e *Engine) watched(exec compute.Executable, c *Compiled) compute.Executable {
	if e.opts.Job != nil && e.opts.Job.Worker > 0 { // the others have the same programs
		return exec
	}
	for i, o := range c.Recorded.Outputs {
		if o.Updates != nil && strings.HasSuffix(o.Updates.Path, "/"+record.SkippedSteps) {
			return &watched{Executable: exec, e: e, output: i, scale: e.opts.Config.AMP.LossScale.String(), enough: lookEvery}
		}
	}
	return exec
}

// Execute implements compute.Executable.
func (x *watched) Execute(inputs []compute.Buffer, donate []bool, device compute.DeviceNum) ([]compute.Buffer, error) {
	outs, err := x.Executable.Execute(inputs, donate, device)
	if err != nil {
		return outs, err
	}
	if x.steps++; x.steps%lookEvery != 0 {
		return outs, nil
	}
	skipped := []int32{0}
	if ok, err := x.e.Peek(outs[x.output], skipped); !ok || err != nil {
		return outs, err
	}
	switch n := int(skipped[0]); {
	case n < lookEvery:
		x.enough = lookEvery
	case n >= x.enough:
		x.enough = 2 * n
		x.e.Notice(fmt.Sprint("skipped steps ", n), x.warning(n), true)
	}
	return outs, nil
}

// warning says what was skipped, and what to do.
func (x *watched) warning(n int) string {
	how := fmt.Sprintf("the loss scale is fixed (amp.loss_scale = %s): use \"dynamic\" or a smaller one", x.scale)
	if x.e.opts.Config.AMP.LossScale.Dynamic {
		how = "the loss scale has gone down to 1, and does not help (amp.loss_scale = dynamic): divide the loss or the targets by a number"
	}
	return fmt.Sprintf("epl: the last %d steps were skipped, because gradients are not finite, and changed no variable; %s, "+
		"or set amp.dtype to bfloat16, which has the range of float32", n, how)
}
