// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package compile

import (
	"fmt"
	"slices"
	"sync"

	"github.com/gomlx/compute"
	"github.com/gomlx/compute/shapes"
	"github.com/pkg/errors"

	"github.com/easyparallel/epl/emit"
	"github.com/easyparallel/epl/exec"
	"github.com/easyparallel/epl/ir"
	"github.com/easyparallel/epl/plan"
	"github.com/easyparallel/epl/schedule"
)

// forward is a program without gradients. It is planned again when a training program comes that has its variables elsewhere.
type forward struct {
	e *Engine

	mu      sync.RWMutex // for reading while it runs
	exec    compute.Executable
	c       *Compiled
	trained int    // training programs when it was planned
	layout  string // of the one that it follows
	dealt   bool   // it was decided whether its batches are dealt to model replicas
	// apart runs the program where this worker calls it alone, though its model replicas have devices of others; nil: it has not yet.
	apart *forward
}

// follow keeps a program without gradients where its variables are.
func (e *Engine) follow(exec compute.Executable, c *Compiled) *forward {
	return &forward{e: e, exec: exec, c: c, trained: len(c.trained), layout: c.variables()}
}

// trained are the training programs so far, for programs without gradients to follow.
func (e *Engine) trained() (all []*plan.Trained) {
	for _, c := range e.Programs() {
		if c.Err == nil && c.Recorded.IsTraining() {
			all = append(all, &plan.Trained{Plan: c.Plan, Final: c.Final})
		}
	}
	return all
}

// variables says where those of a program are that training programs have; "": none has.
func (c *Compiled) variables() string {
	if x := plan.Follows(c.source, c.trained); x != nil {
		return x.Layout()
	}
	return ""
}

// plan plans the program anew, if its variables have moved.
func (x *forward) plan() error {
	x.mu.Lock()
	defer x.mu.Unlock()
	c := newCompiled(x.c.source, x.c.Number, x.e.opts.Config)
	c.trained, c.apart = x.e.trained(), x.c.apart
	if len(c.trained) == x.trained {
		return nil
	}
	x.trained = len(c.trained)
	if c.variables() == x.layout {
		return nil
	}
	exec, err := x.e.compile(c, &watch{})
	if err != nil {
		return err
	}
	x.exec.Finalize()
	x.exec, x.dealt, x.layout = exec, false, c.variables()
	x.now(c)
	return nil
}

// now is what became of the program.
func (x *forward) now(c *Compiled) {
	if x.c = c; c.apart {
		return // it is the other way that is explained
	}
	x.e.mu.Lock()
	defer x.e.mu.Unlock()
	x.e.programs[c.Number-1] = c
}

// deal lets batches of env.Dataset be dealt to model replicas, if there are several. Which variables the program updates is known
// when it is called: it may have them.
func (x *forward) deal(donate []bool) error {
	x.mu.Lock()
	defer x.mu.Unlock()
	e, c := x.e, x.c
	sliced := e.opts.Job != nil && e.opts.Job.Sliced
	if x.dealt || len(c.Replicas) < 2 && !sliced && !c.Together || e.noFeed(c) != "" {
		return nil
	}
	x.dealt = true
	updated := map[*ir.Value]bool{}
	for i, v := range c.source.Main.Params {
		if y := c.source.Variable(v); y != nil {
			updated[v] = y.Update != nil || i < len(donate) && donate[i]
		}
	}
	t := e.opts.Target
	t.Trained, t.Slicing, t.Apart = c.trained, sliced, c.apart
	a, why, err := plan.DecideAhead(&c.Result, c.source, func(v *ir.Value) bool { return updated[v] }, e.opts.Config, t)
	if err != nil {
		return err
	}
	said := *c
	pl := *c.Plan
	pl.Dealt, said.Plan = why, &pl
	defer x.now(&said)
	if a == nil {
		return nil
	}
	h := exec.Halves{Name: c.source.Name, Whole: x.exec, Forward: a.Forward.Final, Schedule: a.Forward.Schedule, Replicas: a.Forward.Replicas, Together: a.Forward.Together,
		ForwardArgs: a.ForwardArgs, RestArgs: a.RestArgs}
	if h.Schedule != nil {
		h.Step = e.forward(a.Forward)
	} else {
		h.Once = e.onDevice(a.Forward, "")
	}
	if a.Rest != nil {
		h.Rest, h.RestWhole = a.Rest.Final, e.onDevice(a.Rest, "")
	}
	made, err := e.Ahead(h)
	if err == nil {
		x.exec = made
		said.together(made)
	}
	return err
}

// Finalize implements compute.Executable.
func (x *forward) Finalize() {
	x.exec.Finalize()
	if x.apart != nil {
		x.apart.Finalize()
	}
}

// Inputs implements compute.Executable.
func (x *forward) Inputs() ([]string, []shapes.Shape) { return x.exec.Inputs() }

// Outputs implements compute.Executable.
func (x *forward) Outputs() []shapes.Shape { return x.exec.Outputs() }

// Execute implements compute.Executable.
func (x *forward) Execute(inputs []compute.Buffer, donate []bool, device compute.DeviceNum) ([]compute.Buffer, error) {
	j := x.e.opts.Job
	if j != nil {
		defer j.Running()()
	}
	if err := x.plan(); err != nil {
		return nil, err
	}
	x.mu.RLock()
	c, ready := x.c, x.exec
	x.mu.RUnlock()
	if a, ok := ready.(exec.Ahead); c.Together && !(ok && a.Computed(inputs)) {
		all, err := j.Meet(c.source.Name, c.fingerprint())
		if err != nil {
			return nil, err
		}
		if !all {
			return x.alone(inputs, donate, device)
		}
		defer j.Joint()()
	}
	if c.Together || x.e.Fed(inputs) {
		if err := x.deal(donate); err != nil {
			return nil, err
		}
	}
	x.mu.RLock()
	defer x.mu.RUnlock()
	return x.exec.Execute(inputs, donate, device)
}

// alone runs the program on this worker, though its model replicas have devices of others.
func (x *forward) alone(inputs []compute.Buffer, donate []bool, device compute.DeviceNum) ([]compute.Buffer, error) {
	x.mu.Lock()
	if x.apart == nil {
		c := newCompiled(x.c.source, x.c.Number, x.e.opts.Config)
		c.trained, c.apart = x.e.trained(), true
		exec, err := x.e.compile(c, &watch{})
		if err != nil {
			x.mu.Unlock()
			return nil, err
		}
		x.apart = x.e.follow(exec, c)
	}
	y := x.apart
	x.mu.Unlock()
	if limit, needs := x.e.opts.Config.Cluster.DeviceMemory, y.c.Account.Peak(); limit > 0 && needs > limit {
		return nil, errors.Errorf("epl: program %q: worker %d calls it alone, and needs %d bytes on a device that has %d (cluster.device_memory), because its variables "+
			"are on devices of several workers: call it on all workers, which then run it together", y.c.source.Name, x.e.opts.Job.Worker, needs, limit)
	}
	return y.Execute(inputs, donate, device)
}

// noFeed is why a program without gradients cannot take batches of env.Dataset; "": it can.
func (e *Engine) noFeed(c *Compiled) string {
	if e.Deals() {
		for _, v := range c.Final.Variables {
			if v.Trainable && v.Update != nil {
				return fmt.Sprintf("epl: program %q updates the trainable variable %q from batches of env.Dataset, but EPL knows no gradients to reduce: "+
					"wrap the optimizer in epl.Optimizer", c.Recorded.Name, v.Path)
			}
		}
	}
	return ""
}

// forward says how the schedule of a program without gradients is run.
func (e *Engine) forward(r *plan.Result) exec.StepOptions {
	comm := e.opts.Config.Communication
	return exec.StepOptions{Communicators: comm.NumCommunicators, Timeout: comm.Timeout, Memory: e.opts.Config.Cluster.DeviceMemory,
		Plans: r.Listings, Forward: true, Alone: !r.Together}
}

// offloads tells whether variables are in the memory of the host.
func (e *Engine) offloads() bool {
	for _, c := range slices.Backward(e.Programs()) {
		if c.Err == nil && c.Recorded.IsTraining() {
			return c.Config.Offload.Level != ""
		}
	}
	return e.opts.Config.Offload.Level != ""
}

// onDevice says how a program is run as a whole. noFeed is why it cannot take batches of env.Dataset; "": it can.
func (e *Engine) onDevice(r *plan.Result, noFeed string) exec.WholeOptions {
	limit, _ := e.opts.limit(e.opts.first())
	needs, offload := r.Account.Peak(), e.offloads()
	if e.opts.own > 0 {
		results := int64(0) // a value that is returned twice is there twice
		for _, v := range r.Final.Main.Outputs {
			results += v.Shape.ByteSize()
		}
		if needs = max(needs, results); offload {
			limit /= 64 // what goes to the host need not be on the device together
		}
	}
	return exec.WholeOptions{Memory: e.opts.Config.Cluster.DeviceMemory, NoFeed: noFeed, Profile: schedule.NewLedger(r.Final).Profile(emit.Whole(r.Final), r.Whole()),
		// Variables get their first values in one program. Those of a model that is larger than a device come one by one.
		Piecewise: limit > 0 && needs > limit && len(r.Final.Inputs) == 0, Pinned: offload}
}
