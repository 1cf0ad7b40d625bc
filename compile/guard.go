// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package compile

import (
	"fmt"

	"github.com/gomlx/compute"
	"github.com/gomlx/compute/shapes"

	"github.com/easyparallel/epl/config"
	"github.com/easyparallel/epl/ir"
)

// guarded is a training program that gives a verdict on each of its steps, as its last output: see [ir.Output]. GoMLX does not get that.
//
// With reliability.nan = skip a verdict is read when the next step begins, by when it is there: nothing waits for it. With stop it is read at once: who trains reads the
// loss there, too, and nobody may save before.
type guarded struct {
	compute.Executable
	e     *Engine
	c     *Compiled
	steps int64 // that were begun

	last    compute.Buffer // the verdict that was not read yet; nil: there is none
	skipped int64
	inARow  int64
	enough  int64 // so many are said
}

// guarded takes the verdict away from GoMLX, if the program has one.
func (e *Engine) guarded(exec compute.Executable, c *Compiled) compute.Executable {
	if c.Recorded.Guard() == nil {
		return exec
	}
	x := &guarded{Executable: exec, e: e, c: c, enough: 1}
	if e.nan() != config.NaNIgnore {
		e.mu.Lock()
		e.guards = append(e.guards, x)
		e.mu.Unlock()
	}
	return x
}

func (e *Engine) nan() string { return e.opts.Config.Reliability.NaN }

// Outputs implements compute.Executable.
func (x *guarded) Outputs() []shapes.Shape {
	all := x.Executable.Outputs()
	return all[:len(all)-1]
}

// Execute implements compute.Executable.
func (x *guarded) Execute(inputs []compute.Buffer, donate []bool, device compute.DeviceNum) ([]compute.Buffer, error) {
	if err := x.settle(); err != nil {
		return nil, err
	}
	if x.e.nan() == config.NaNStop {
		return x.executeOrStop(inputs, donate, device)
	}
	outs, err := x.Executable.Execute(inputs, donate, device)
	if err != nil {
		return nil, err
	}
	x.steps++
	x.last = outs[len(outs)-1]
	return outs[:len(outs)-1], nil
}

// verdict reads the verdict of the last step.
func (x *guarded) verdict() (int32, error) {
	verdict := []int32{ir.Counts}
	if x.last == nil {
		return ir.Counts, nil
	}
	_, err := x.e.Peek(x.last, verdict)
	if e := x.last.Finalize(); err == nil {
		err = e
	}
	x.last = nil
	return verdict[0], err
}

// settle counts the last step, if it was skipped.
func (x *guarded) settle() error {
	v, err := x.verdict()
	if err != nil || x.e.nan() != config.NaNSkip {
		return err
	}
	if v == ir.Counts {
		x.inARow = 0
	}
	if v != ir.NotFinite {
		return nil
	}
	x.skipped++
	x.inARow++
	if x.skipped >= x.enough {
		x.enough = 2 * x.skipped
		x.e.Notice(fmt.Sprint("not finite ", x.c.Number, " ", x.steps), x.warning(), true)
	}
	return nil
}

// warning says what was skipped.
func (x *guarded) warning() string {
	s := fmt.Sprintf("epl: step %d was skipped, because its loss or gradients are not finite (reliability.nan = skip): it changed no variable, and its batches are not used again; ", x.steps)
	if x.skipped > 1 {
		s += fmt.Sprintf("it is one of %d such steps of %d; ", x.skipped, x.steps)
	}
	if x.inARow > 1 && x.inARow == x.skipped {
		s += fmt.Sprintf("the last %d steps all were, so that nothing is learned; ", x.inARow)
	}
	return s + "reliability.nan = stop names the op"
}

// Skipped is how many steps were skipped because they were not finite, since the start.
func (e *Engine) Skipped() (n int64, err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, x := range e.guards {
		if err := x.settle(); err != nil {
			return n, err
		}
		n += x.skipped
	}
	return n, nil
}
