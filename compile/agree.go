// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package compile

import (
	"fmt"
	"strings"

	"github.com/pkg/errors"

	"github.com/easyparallel/epl/explain"
	"github.com/easyparallel/epl/ir"
	"github.com/easyparallel/epl/plan"
)

// plan plans a program. In a job the first worker decides, and hands the plan out to the others, which apply it: for a training
// program, on which all workers agree before. A pinned plan all of them have.
func (e *Engine) plan(c *Compiled, look func(name, why string, p *ir.Program)) error {
	o, j := e.opts, e.opts.Job
	o.Batches = e.kept()
	if j == nil || !c.Recorded.IsTraining() {
		return o.plan(c, look)
	}
	defer j.Joint()()
	e.mu.Lock()
	e.steppers++
	c.stepper = e.steppers
	e.mu.Unlock()
	if err := j.Agree(fmt.Sprintf("training program %d", c.stepper), ir.Stable(explain.InWords(c.Recorded)+c.Recorded.String())); err != nil {
		return err
	}
	if o.Pinned != nil {
		return o.plan(c, look)
	}
	var mine strings.Builder
	var refused error
	if j.Worker == 0 {
		if refused = o.plan(c, look); refused != nil {
			mine.WriteString(refused.Error())
		} else if err := c.Plan.Encode(&mine); err != nil {
			return err
		}
	}
	text, err := j.HandOut(c.Recorded.Name, mine.String())
	switch {
	case refused != nil:
		return refused
	case err != nil || j.Worker == 0:
		return err
	case !strings.HasPrefix(text, "{"):
		return errors.New(text) // why there is no plan
	}
	if o.Pinned, err = plan.Decode(strings.NewReader(text)); err != nil {
		return err
	}
	return o.plan(c, look)
}

// agree returns when all workers have made the same of a training program.
func (e *Engine) agree(c *Compiled) error {
	defer e.opts.Job.Joint()()
	var text strings.Builder
	for _, f := range c.Plan.Facts() {
		fmt.Fprintf(&text, "%s: %s\n", f.Name, f.Value)
	}
	text.WriteString(c.Final.String() + c.Schedule.String())
	return e.opts.Job.Agree(fmt.Sprintf("the plan of training program %d", c.stepper), ir.Stable(text.String()))
}
