// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package local

import (
	"slices"

	"github.com/gomlx/compute"
	"github.com/gomlx/compute/shapes"
	"github.com/pkg/errors"

	"github.com/easyparallel/epl/exec"
)

// whole runs a whole program once, on one device. It implements compute.Executable.
type whole struct {
	name   string
	runner *Runner
	inner  compute.Executable
	opts   exec.WholeOptions
	trains bool // it is a training step
}

var _ compute.Executable = (*whole)(nil)

// Finalize implements compute.Executable.
func (e *whole) Finalize() { e.inner.Finalize() }

// Inputs implements compute.Executable.
func (e *whole) Inputs() ([]string, []shapes.Shape) { return e.inner.Inputs() }

// Outputs implements compute.Executable.
func (e *whole) Outputs() []shapes.Shape { return e.inner.Outputs() }

// Execute implements compute.Executable.
func (e *whole) Execute(inputs []compute.Buffer, donate []bool, device compute.DeviceNum) ([]compute.Buffer, error) {
	if err := e.runner.check(device); err != nil {
		return nil, err
	}
	if len(donate) != 0 && len(donate) != len(inputs) {
		return nil, errors.Errorf("epl: program %q: %d inputs, but donation is given for %d", e.name, len(inputs), len(donate))
	}
	ins := make([]compute.Buffer, len(inputs))
	var fed *Feed // of a training step
	for i, x := range inputs {
		b, err := e.runner.own(e.name, i, x)
		if err != nil {
			return nil, err
		}
		if b.feed != nil && e.opts.NoFeed != "" {
			return nil, errors.New(e.opts.NoFeed)
		}
		if b.feed != nil && e.trains {
			fed = b.feed
		}
		if ins[i], err = b.shard(e.opts.Device); err != nil {
			return nil, errors.WithMessagef(err, "program %q, input %d", e.name, i)
		}
	}
	if err := fed.training(); err != nil {
		return nil, errors.WithMessagef(err, "program %q", e.name)
	}
	m := meter{device: e.opts.Device, limit: e.opts.Memory}
	leaves := func(i int) bool { return e.runner.spares() && inputs[i].(*Buffer).isRead() }
	if err := e.count(&m, ins, func(i int) bool { return len(donate) > 0 && donate[i] && !leaves(i) }); err != nil {
		return nil, errors.WithMessagef(err, "program %q", e.name)
	}
	asked, read := donate, make([]readers, len(ins))
	donate = slices.Clone(donate)
	for i, d := range asked {
		if !d {
			continue
		}
		all, others, err := inputs[i].(*Buffer).take()
		if err != nil {
			return nil, errors.WithMessagef(err, "program %q, input %d is donated twice", e.name, i)
		}
		read[i] = others
		for _, x := range all { // on other devices, if it is there: out of date soon
			if x != ins[i] {
				if err := e.runner.finalize(x, others); err != nil {
					return nil, err
				}
			}
		}
	}
	outs, err := e.runner.execute(e.inner, ins, donate, read)
	if err != nil {
		return nil, errors.WithMessagef(err, "epl: program %q", e.name)
	}
	for i, d := range asked {
		if d && !donate[i] {
			if err := e.runner.finalize(ins[i], read[i]); err != nil {
				return nil, err
			}
		}
	}
	fed.consumed()
	if e.trains && e.runner.Job != nil {
		e.runner.Job.Stepped(fed.samples())
	}
	e.runner.stats.ran(e.opts.Device, m.books, nil)
	for i, o := range outs {
		shards := make([]compute.Buffer, e.opts.Device+1)
		shards[e.opts.Device] = o
		if outs[i], err = e.runner.wrap(shards...); err != nil {
			return nil, err
		}
	}
	return outs, nil
}

// count puts on the books what the program needs.
func (e *whole) count(m *meter, ins []compute.Buffer, donate func(input int) bool) error {
	p := e.opts.Profile
	if p == nil || len(ins) != p.Inputs() {
		return nil // the inner backend says what is wrong
	}
	for i, b := range ins {
		if err := m.add(p.Use(i), bytesOf(b)); err != nil {
			return err
		}
	}
	if err := m.addAll(p.Arena(), 1); err != nil {
		return err
	}
	return m.during(p.Need(donate))
}
