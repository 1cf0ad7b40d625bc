// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package compile

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/gomlx/compute"
	"github.com/pkg/errors"

	"github.com/easyparallel/epl/exec/replay"
	"github.com/easyparallel/epl/ir"
	"github.com/easyparallel/epl/passes"
)

// executeOrStop runs a step, and ends training if it is not finite. The batches stay until that is known: the step is computed again with them.
func (x *guarded) executeOrStop(inputs []compute.Buffer, donate []bool, device compute.DeviceNum) (outs []compute.Buffer, failed error) {
	kept := slices.Clone(donate)
	for i, v := range x.c.Recorded.Main.Params {
		if i < len(donate) && donate[i] && slices.Contains(x.c.Recorded.Inputs, v) {
			kept[i] = false
			defer func() {
				if err := inputs[i].Finalize(); err != nil && failed == nil {
					failed = err
				}
			}()
		}
	}
	outs, err := x.Executable.Execute(inputs, kept, device)
	if err != nil {
		return nil, err
	}
	x.steps++
	x.last = outs[len(outs)-1]
	outs = outs[:len(outs)-1]
	v, err := x.verdict()
	if err != nil {
		return nil, err
	}
	if v == ir.NotFinite {
		return nil, x.notFinite(inputs, outs)
	}
	return outs, nil
}

// cause is what a worker found out about a step that is not finite.
type cause struct {
	Batch int // of those that it looked at, which it was; -1: all that it found was finite
	Text  string
}

// notFinite is the error of a step that is not finite. In a job each worker computes some of the batches again; all return what was found in the first.
func (x *guarded) notFinite(inputs, outs []compute.Buffer) error {
	c, err := x.cause(inputs, outs)
	if err != nil {
		c = cause{-1, "and that could not be computed again: " + err.Error()}
	}
	if j := x.e.opts.Job; j != nil {
		if c, err = x.firstCause(c); err != nil {
			return err
		}
	}
	step := fmt.Sprintf("step %d", x.steps)
	if g, ok := x.globalStep(outs); ok && g+1 != x.steps {
		step += fmt.Sprintf(" of this run (global step %d)", g+1)
	}
	err = errors.Errorf("epl: %s is not finite, and changed no variable (reliability.nan = stop): %s", step, c.Text)
	if j := x.e.opts.Job; j != nil {
		j.Trouble(err)
	}
	return err
}

// cause computes the batches of this worker again.
func (x *guarded) cause(inputs, outs []compute.Buffer) (cause, error) {
	p, j := x.c.Recorded, x.e.opts.Job
	if j != nil {
		defer j.Busy("computing a step again that is not finite")()
	}
	backend, err := compute.NewWithConfig("go:ops_sequential")
	if err != nil {
		return cause{}, err
	}
	defer backend.Finalize()
	variables := map[int]any{}
	n, mine, all := 1, 0, 1 // of n batches every all-th one, from mine on
	for _, v := range p.Inputs {
		n = x.e.BatchesOf(inputs[slices.Index(p.Main.Params, v)])
	}
	if j != nil && !j.Sliced {
		mine, all = j.Worker, len(j.Devices)
	}
	for b := mine; b < n; b += all {
		found, err := replay.Find(p, backend, func(i int) (any, error) {
			v := p.Variable(p.Main.Params[i])
			if v == nil {
				return x.e.Given(inputs[i], b)
			}
			if variables[i] == nil {
				if variables[i], err = x.e.Given(x.kept(v, inputs[i], outs), 0); err != nil {
					return nil, errors.WithMessagef(err, "variable %q", v.Path)
				}
			}
			if state, ok := variables[i].([]uint64); ok && strings.HasSuffix(v.Path, "#rngState") {
				state = slices.Clone(state)
				passes.Fold(state, b)
				return state, nil
			}
			return variables[i], nil
		})
		if err != nil {
			return cause{}, err
		}
		if found != nil {
			which := fmt.Sprintf("batch %d", b)
			if n > 1 {
				which += fmt.Sprintf(" of the %d of the step", n)
			}
			return cause{b, fmt.Sprintf("computed again op by op, %s: %s", which, found)}, nil
		}
	}
	return cause{-1, x.unexplained()}, nil
}

// kept is a variable as it was before the step, which has changed none.
func (x *guarded) kept(v *ir.Variable, input compute.Buffer, outs []compute.Buffer) compute.Buffer {
	for i, o := range x.c.Recorded.Outputs {
		if o.Updates == v {
			return outs[i]
		}
	}
	return input
}

// unexplained is what is said if no number is found that is not finite.
func (x *guarded) unexplained() string {
	s := "computed again op by op in float32, all of its numbers are finite: "
	if x.e.opts.Config.AMP.Level != "" {
		return s + "they leave the range of " + x.e.opts.Config.AMP.DType + " (amp.dtype); or a device has computed something wrong"
	}
	return s + "a device has computed something wrong, or the gradients of several batches add up to more than a number can be"
}

// firstCause is what the workers have found in the first batch, for all of them.
func (x *guarded) firstCause(mine cause) (cause, error) {
	j := x.e.opts.Job
	peers := j.Peers()
	text, err := json.Marshal(mine)
	if err != nil {
		return mine, err
	}
	all, err := peers.Gather("cause", text)
	if err != nil {
		return mine, err
	}
	first := mine
	for w, text := range all {
		var c cause
		if err := json.Unmarshal(text, &c); err != nil {
			return mine, err
		}
		if c.Batch >= 0 && (first.Batch < 0 || c.Batch < first.Batch || c.Batch == first.Batch && w <= j.Worker) {
			if first = c; j.Sliced {
				first.Text = peers.Name(w) + ": " + c.Text
			}
		}
	}
	return first, nil
}

// globalStep is what this worker has of it, before the step.
func (x *guarded) globalStep(outs []compute.Buffer) (int64, bool) {
	step := []int64{0}
	for i, o := range x.c.Recorded.Outputs {
		if o.Updates != nil && strings.HasSuffix(o.Updates.Path, "/global_step") {
			ok, err := x.e.Peek(outs[i], step)
			return step[0], ok && err == nil
		}
	}
	return 0, false
}
