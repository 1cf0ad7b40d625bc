// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package local

import (
	"fmt"
	"reflect"
	"slices"

	"github.com/gomlx/compute"
	"github.com/pkg/errors"

	"github.com/easyparallel/epl/emit"
	"github.com/easyparallel/epl/exec"
	"github.com/easyparallel/epl/ir"
	"github.com/easyparallel/epl/schedule"
)

// Devices that can communicate by themselves run segments together: see schedule.Program.Joint.

// jointly makes the lists of such devices; nil: they run what they are given one by one. why says so, by place, where devices could do otherwise.
func jointly(s *schedule.Program, runner *Runner, opts exec.StepOptions) (joint *schedule.Program, why []error) {
	job := runner.Job
	o := schedule.JointOptions{Half: opts.FP16Scale}
	if opts.Alone && job != nil {
		o.First, job = job.First(), nil
	}
	o.Worker = func(rank int) int {
		if job == nil {
			return 0
		}
		return job.WorkerOf(rank)
	}
	o.Can = func(ranks []int) error {
		for _, d := range runner.devices {
			g, ok := d.(emit.Grouper)
			if !ok {
				return errNoGroups
			}
			if s.Local.Shares != nil {
				return errUnequal
			}
			if err := g.CanGroup(ranks); err != nil {
				return err
			}
		}
		return nil
	}
	joint, why = s.Joint(o)
	for place, err := range why {
		if errors.Is(err, errNoGroups) {
			why[place] = nil
		} else if err != nil {
			runner.Notice(fmt.Sprintf("not together %d", place), fmt.Sprintf("epl: program %q: devices of stage group %d communicate through the host, because %v", s.Name, place, err), true)
		}
	}
	return joint, why
}

// Lists implements exec.Grouped.
func (x *stepper) Lists() (*schedule.Program, []error) {
	if !x.together {
		return nil, x.why
	}
	return x.schedule, x.why
}

// Lists implements exec.Grouped: model replicas do the same.
func (a *ahead) Lists() (*schedule.Program, []error) {
	if a.span == nil {
		if g, ok := a.halves[0].Forward.(exec.Grouped); ok {
			return g.Lists()
		}
		return nil, nil
	}
	for _, s := range a.span.steppers {
		if s != nil {
			return s.Lists()
		}
	}
	return nil, nil
}

var (
	errNoGroups = errors.New("the backend has no collectives")
	errUnequal  = errors.New("model replicas have different numbers of micro-batches, and devices that run a segment together all have to run it")
)

// joint visits the executables by which devices wait for each other.
func (x *stepper) joint(visit func(emit.Joint)) {
	x.each(func(e compute.Executable) {
		if j, ok := e.(emit.Joint); ok {
			visit(j)
		}
	})
}

// Where devices run segments together, all take part in every micro-batch, and so instances run that a step lacks. Segments select what they give away: see
// schedule.Program.Joint. What the host merges leaves it out.

// unused lets go of values of an instance that the step lacks, and tells whether it does.
func (r *run) unused(micro int, values ...*ir.Value) (lacks bool, err error) {
	if r.deal.exists(r.replica, micro) {
		return false, nil
	}
	for _, v := range values {
		if err := r.free(schedule.Slot{Value: v, Micro: micro}); err != nil {
			return true, err
		}
	}
	return true, nil
}

// given is a tensor of the batch of an instance, on the host. One that the step lacks gets that of another one, whose values surely can be computed with, or
// zeros if this worker has none.
func (r *run) given(v *ir.Value, micro int, use func(flat any) error) (err error) {
	if len(r.batches) == 0 {
		return use(newFlat(v.Shape))
	}
	t := tensorsOf(r.batches[r.deal.index[r.replica][micro]%len(r.batches)])[r.tensor[v]]
	if e := t.ConstFlatData(func(flat any) { err = use(flat) }); e != nil {
		return e
	}
	return err
}

// shorten leaves out of results what instances give that the step lacks, where devices concatenate: all of them, in the order of micro-batches and replicas.
func (r *run) shorten() error {
	for _, x := range r.schedule.Results {
		at := schedule.Slot{Value: x.Value, Micro: schedule.Once}
		m, ok := x.Value.Op.Attrs.(*ir.Merge)
		if !ok || m.How != ir.Concat || m.Pad || r.values[at] == nil || r.deal.total() == r.schedule.Local.Instances() {
			continue
		}
		bucket := slices.IndexFunc(r.schedule.Buckets, func(b schedule.Bucket) bool { return slices.Contains(b.Merges, x.Value.Op) })
		if !r.schedule.Buckets[bucket].Inside {
			continue
		}
		_, flat, _, err := r.view(x.Value, schedule.Once)
		if err != nil {
			return err
		}
		_, replicas, _ := r.members(r.schedule.Buckets[bucket])
		shape := x.Value.Op.Inputs[0].LocalShape(r.at()).Clone()
		one, n := shape.Size(), 0
		all := reflect.MakeSlice(reflect.TypeOf(flat), 0, 0)
		for micro := range r.schedule.Local.MicroBatches {
			for i, replica := range replicas {
				if r.deal.exists(replica, micro) {
					from := (micro*len(replicas) + i) * one
					all = reflect.AppendSlice(all, reflect.ValueOf(flat).Slice(from, from+one))
					n++
				}
			}
		}
		shape.Dimensions[0] *= n
		b, err := r.device.backend.BufferFromFlatData(0, all.Interface(), shape)
		if err != nil {
			return err
		}
		if err := r.keep(at, b); err != nil {
			return err
		}
	}
	return nil
}
