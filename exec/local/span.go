// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package local

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"slices"
	"sync"

	"github.com/gomlx/compute"
	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/gomlx/ml/train"
	"github.com/pkg/errors"

	"github.com/easyparallel/epl/comm"
	"github.com/easyparallel/epl/exec"
	"github.com/easyparallel/epl/ir"
	"github.com/easyparallel/epl/schedule"
)

// span runs a program without gradients on model replicas that have devices of several workers. All workers call it at the same time,
// with the same batches or with different ones.
type span struct {
	runner   *Runner
	program  *ir.Program
	schedule *schedule.Program
	replicas [][]int    // their ranks
	steppers []*stepper // by model replica; nil where no device is this worker's
}

// newSpan compiles the schedule of one model replica for those that have devices of this worker.
func newSpan(h exec.Halves, runner *Runner) (*span, error) {
	x := &span{runner: runner, program: h.Forward, schedule: h.Schedule, replicas: h.Replicas, steppers: make([]*stepper, len(h.Replicas))}
	for r, ranks := range h.Replicas {
		if !slices.ContainsFunc(ranks, func(rank int) bool { return runner.Job.WorkerOf(rank) == runner.Job.Worker }) {
			continue
		}
		var err error
		if x.steppers[r], err = newStepper(h.Forward, onReplica(h.Schedule, ranks), runner, h.Step); err != nil {
			return nil, err
		}
	}
	return x, nil
}

// finalize frees what was compiled.
func (x *span) finalize() {
	for _, s := range x.steppers {
		if s != nil {
			s.Finalize()
		}
	}
}

// spanned is a batch that some worker has.
type spanned struct {
	owner int          // the first worker that has it
	has   map[int]bool // workers that have it
	data  []any
	outs  []any // on the host
}

// compute returns the results of this worker's batches, which are data on the host. buffers are the parameters of the program: the
// variables are read. The workers tell each other what batches they have; each different one is computed by one model replica.
func (x *span) compute(mine [][]any, buffers []*Buffer) (results [][]any, err error) {
	j, name := x.runner.Job, x.program.Name
	variables := make([]*Buffer, len(buffers))
	isData := map[*ir.Value]bool{}
	for _, v := range x.program.Inputs {
		isData[v] = true
	}
	told := []int64{0, int64(len(mine))}
	for i, v := range x.program.Main.Params {
		if !isData[v] {
			variables[i] = buffers[i]
			if !buffers[i].isEqual() {
				told[0]++
			}
		}
	}
	for i := range x.replicas {
		var d [2]int64
		if i < len(mine) {
			d = digest(mine[i])
		}
		told = append(told, d[:]...)
	}
	all, err := gather(j.Leaders, name, told...)
	if err != nil {
		return nil, err
	}
	var batches, own []*spanned
	loose := false
	known := map[[2]int64]*spanned{}
	for w, t := range all {
		loose = loose || t[0] > 0
		for i := range int(t[1]) {
			d := [2]int64{t[2+2*i], t[3+2*i]}
			b := known[d]
			if b == nil {
				b = &spanned{owner: w, has: map[int]bool{}, data: make([]any, len(x.program.Inputs)), outs: make([]any, len(x.program.Main.Outputs))}
				known[d], batches = b, append(batches, b)
			}
			b.has[w] = true
			if w == j.Worker {
				b.data, own = mine[i], append(own, b)
			}
		}
	}
	if loose {
		if err := equalize(j, name, variables); err != nil {
			return nil, err
		}
	}
	for _, b := range batches {
		if len(b.has) == len(all) {
			continue
		}
		for i, v := range x.program.Inputs {
			if b.data[i] == nil {
				b.data[i] = newFlat(v.Shape)
			}
			if err := j.Leaders.Do(comm.Call{Op: comm.Broadcast, Buf: b.data[i], Root: b.owner, Program: name}); err != nil {
				return nil, err
			}
		}
	}
	errs := make([]error, len(x.steppers))
	var wg sync.WaitGroup
	for r, s := range x.steppers {
		if s != nil {
			wg.Go(func() {
				for i := r; i < len(batches) && errs[r] == nil; i += len(x.replicas) {
					errs[r] = x.run(r, batches[i], variables)
				}
			})
		}
	}
	wg.Wait()
	if err := firstCause(errs); err != nil {
		return nil, err
	}
	for i, b := range batches {
		for k, v := range x.program.Main.Outputs {
			if b.outs[k] == nil {
				b.outs[k] = newFlat(v.Shape)
			}
			if err := j.Leaders.Do(comm.Call{Op: comm.Broadcast, Buf: b.outs[k], Root: x.holder(i%len(x.replicas), v), Program: name}); err != nil {
				return nil, err
			}
		}
	}
	for _, b := range own {
		results = append(results, b.outs)
	}
	return results, nil
}

// run computes a batch on a model replica, and takes the results that a device of this worker has.
func (x *span) run(replica int, b *spanned, variables []*Buffer) error {
	s := x.steppers[replica]
	args := make([]compute.Buffer, len(variables))
	for i, v := range variables {
		args[i] = v
	}
	for i, v := range x.program.Inputs {
		args[s.param[v]] = &Buffer{runner: x.runner, shape: v.Shape, flat: b.data[i]}
	}
	outs, err := s.Execute(args, nil, 0)
	if err != nil {
		return err
	}
	for i, v := range x.program.Main.Outputs {
		if x.holder(replica, v) == x.runner.Job.Worker {
			if b.outs[i], err = toHost(outs[i], v.Shape); err != nil {
				return err
			}
		}
		if err := outs[i].Finalize(); err != nil {
			return err
		}
	}
	return nil
}

// holder is the worker that has a result of a model replica.
func (x *span) holder(replica int, v *ir.Value) int {
	for _, r := range x.schedule.Results {
		if r.Value == v {
			return x.runner.Job.WorkerOf(x.replicas[replica][x.schedule.Groups[r.Place][0]])
		}
	}
	panic(fmt.Sprintf("epl: internal error: nobody has %s", v))
}

// digest tells batches apart.
func digest(data []any) (d [2]int64) {
	h := sha256.New()
	for _, x := range data {
		_, _ = h.Write(dtypes.UnsafeByteSliceFromAny(x))
	}
	sum := h.Sum(nil)
	for i := range d {
		d[i] = int64(binary.LittleEndian.Uint64(sum[8*i:]))
	}
	return d
}

// together returns what all workers together compute of the batch whose turn it is. If there are further batches, and model replicas
// for them, it is computed of these as well.
func (a *ahead) together(feed *Feed, buffers []*Buffer) (*started, error) {
	args := make([]*Buffer, len(a.args))
	for i, at := range a.args {
		args[i] = buffers[at]
	}
	if feed == nil {
		r, err := a.rounds(args, nil)
		if err != nil {
			return nil, err
		}
		return a.given(r, 0), nil
	}
	variables := a.variables(buffers)
	if !feed.round.holds(a, variables) {
		batches := []train.Batch{*feed.head}
		if !feed.taken && a.halves[0].Rest != nil {
			all, err := feed.take(len(a.span.replicas))
			if err != nil {
				return nil, err
			}
			batches, feed.all = all, all[:1] // the others get feeds of their own
		}
		r, err := a.rounds(args, batches)
		if err != nil {
			return nil, err
		}
		r.by, r.variables = a, variables
		feed.round, feed.number = r, 0
		for i, b := range batches[1:] {
			next := NewFeed(b, feed.more, feed.next)
			next.round, next.number = r, i+1
			feed.others = append(feed.others, next)
		}
	}
	return a.given(feed.round, feed.number), nil
}

// rounds computes some batches of this worker; what is no tensor of a batch is the same for all.
func (a *ahead) rounds(args []*Buffer, batches []train.Batch) (*round, error) {
	var mine [][]any
	for n := range max(len(batches), 1) {
		var data []any
		for _, v := range a.span.program.Inputs {
			at := a.span.program.Main.Params
			for i, b := range args {
				if at[i] != v {
					continue
				}
				var flat any
				var err error
				if b.feed != nil {
					flat, err = b.feed.host(batches[n], b.index)
				} else {
					flat, err = toHost(b, v.Shape)
				}
				if err != nil {
					return nil, err
				}
				data = append(data, flat)
			}
		}
		mine = append(mine, data)
	}
	results, err := a.span.compute(mine, args)
	return &round{results: results}, errors.WithMessagef(err, "program %q", a.name)
}
