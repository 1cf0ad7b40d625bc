// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

// Package local runs programs on devices that run one thing at a time, and communicate through the host, or run segments together and communicate
// by themselves (emit.Grouper). It owns their buffers.
//
// What goes in is a program, its schedule.Program if it has one, and the devices of this worker, each an inner backend of its own that
// runs one thing at a time. What comes out is a compute.Executable: an [whole] runs a whole program on one device, a [stepper]
// runs the instruction lists, a goroutine per device, and [ahead] deals batches of evaluation to replicas. A [Buffer] is
// what GoMLX holds for a tensor: its logical shape, and its data on the devices.
//
// It may assume that lists are checked ([schedule.Program.Check]), and that all workers run the same plan. It communicates through
// comm, and lowers and compiles segments for its own devices only.
package local

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/gomlx/compute"
	"github.com/gomlx/compute/shapes"
	"github.com/pkg/errors"

	"github.com/easyparallel/epl/emit"
	"github.com/easyparallel/epl/exec"
	"github.com/easyparallel/epl/ir"
	"github.com/easyparallel/epl/schedule"
	"github.com/easyparallel/epl/worker"
)

// Runner runs programs on the devices of a worker. It implements exec.Runner.
type Runner struct {
	// Owner is the backend that GoMLX knows the buffers by.
	Owner compute.Backend
	// Job is nil if this worker is alone.
	Job *worker.Job
	// Advise adds to an error of a device that came late, when something is read, what helps; nil: nobody does.
	Advise func(error) error
	// Slow is how long a device, by its index, is to take for a segment of a step, at least: for drills. Nil: none is slowed down.
	Slow func(device int, s *ir.Segment) time.Duration
	// Waits counts for how long training has waited for batches, in nanoseconds; nil: nobody does.
	Waits *atomic.Int64
	// Spare: devices have memory for variables that somebody reads, besides their new values.
	Spare   bool
	devices []compute.Backend // of this worker
	copying []sync.Mutex      // by device: it takes part in a copy from or to another worker
	stats   *stats
	notices notices
	closed  atomic.Bool
	ahead   sync.WaitGroup // programs that run before their turn
}

// New makes a runner for devices: one inner backend each, which runs one thing at a time. job is nil if this worker is alone.
func New(job *worker.Job, devices ...compute.Backend) *Runner {
	return &Runner{Job: job, devices: devices, copying: make([]sync.Mutex, len(devices)), stats: newStats(len(devices))}
}

var _ exec.Runner = (*Runner)(nil)

// Whole implements exec.Runner.
func (d *Runner) Whole(p *ir.Program, o exec.WholeOptions) (compute.Executable, error) {
	if o.Piecewise {
		return newPiecewise(p, d, o)
	}
	inner, err := emit.Program(d.devices[o.Device], p)
	if err != nil {
		return nil, err
	}
	x := &whole{name: p.Name, runner: d, inner: inner, opts: o, trains: trains(p)}
	if err := x.ready(p); err != nil {
		x.Finalize()
		return nil, err
	}
	if _, all := x.Measured(); all != nil {
		x.opts.Profile = schedule.NewLedger(p).Profile(emit.Whole(p), all[0])
	}
	return x, nil
}

// Steps implements exec.Runner.
func (d *Runner) Steps(p *ir.Program, s *schedule.Program, o exec.StepOptions) (compute.Executable, error) {
	return newStepper(p, s, d, o)
}

// Ahead implements exec.Runner.
func (d *Runner) Ahead(h exec.Halves) (_ exec.Ahead, err error) {
	a := &ahead{Executable: h.Whole, name: h.Name, runner: d, args: h.ForwardArgs, restArgs: h.RestArgs}
	replicas := h.Replicas
	if h.Together {
		if a.span, err = newSpan(h, d); err != nil {
			return nil, err
		}
		replicas = [][]int{{0}} // for the rest
	}
	for _, devices := range replicas {
		x := halves{busy: &sync.Mutex{}}
		switch once := h.Once; {
		case h.Together:
		case h.Schedule == nil:
			once.Device = devices[0]
			x.Forward, err = d.Whole(h.Forward, once)
		default:
			x.Forward, err = newStepper(h.Forward, onReplica(h.Schedule, devices), d, h.Step)
		}
		if rest := h.RestWhole; err == nil && h.Rest != nil {
			rest.Device = devices[0]
			x.Rest, err = d.Whole(h.Rest, rest)
		}
		if err != nil {
			return nil, err
		}
		a.halves = append(a.halves, x)
	}
	return a, nil
}

// onReplica is a schedule on one model replica.
func onReplica(s *schedule.Program, devices []int) *schedule.Program {
	one := *s
	one.Ranks = [][]int{devices}
	return &one
}

// Planner implements exec.Runner.
func (d *Runner) Planner() (p emit.Planner) {
	if len(d.devices) > 0 {
		p, _ = d.devices[0].(emit.Planner)
	}
	return p
}

// Memory implements exec.Runner.
func (d *Runner) Memory() (least int64) {
	for _, b := range d.devices {
		if x, ok := b.(interface{ Memory() int64 }); ok {
			if n := x.Memory(); n > 0 && (least == 0 || n < least) {
				least = n
			}
		}
	}
	return least
}

// Stats implements exec.Runner.
func (d *Runner) Stats() []exec.DeviceStats { return d.statsFor(0) }

// Watch returns a function like Stats, with counts of its own.
func (d *Runner) Watch() func() []exec.DeviceStats {
	reader := d.stats.add()
	return func() []exec.DeviceStats { return d.statsFor(reader) }
}

func (d *Runner) statsFor(reader int) []exec.DeviceStats {
	all := d.stats.take(reader)
	for i, b := range d.devices {
		if x, ok := b.(interface{ Allocated() int64 }); ok {
			all[i].Allocated = x.Allocated()
		}
	}
	return all
}

// Finalize implements exec.Runner: what is asked of data, and of programs that use them, is an error from now on. What runs before its turn
// ends first.
func (d *Runner) Finalize() {
	d.closed.Store(true)
	d.ahead.Wait()
	for _, b := range d.devices {
		b.Finalize()
	}
}

// Closed is the error that says so; nil before Close.
func (d *Runner) Closed() error {
	if d.closed.Load() {
		return errors.New("epl: this Env is closed, and its devices are gone: call env.Close when all is done, and copy out what you need before")
	}
	return nil
}

// Waiting notes that training waits for batches, until the returned function is called.
func (d *Runner) Waiting() (over func()) {
	if d.Waits == nil {
		return func() {}
	}
	start := time.Now()
	return func() { d.Waits.Add(int64(time.Since(start))) }
}

func (d *Runner) check(device compute.DeviceNum) error {
	if device != 0 {
		return errors.Errorf("epl: there is no device %d for GoMLX to place data on: EPL shows one, number 0, and distributes by itself", device)
	}
	return d.Closed()
}

// own is an input of a program, if it is a buffer of this runner.
func (d *Runner) own(program string, i int, x compute.Buffer) (*Buffer, error) {
	b, ok := x.(*Buffer)
	if !ok || b.runner != d {
		return nil, errors.Errorf("epl: program %q: input %d is a %T that does not belong to this backend", program, i, x)
	}
	return b, nil
}

// wrap makes a buffer of data on the last of some devices, or on all of them.
func (d *Runner) wrap(shards ...compute.Buffer) (*Buffer, error) {
	shape, err := shards[len(shards)-1].Shape()
	if err != nil {
		return nil, err
	}
	return &Buffer{runner: d, shape: shape, shards: shards}, nil
}

// BufferFromFlatData implements compute.DataInterface.
func (d *Runner) BufferFromFlatData(device compute.DeviceNum, flat any, shape shapes.Shape) (compute.Buffer, error) {
	if err := d.check(device); err != nil {
		return nil, err
	}
	if flat == nil { // GoMLX has nothing to point at where a tensor has no elements
		if shape.Size() > 0 {
			return nil, errors.Errorf("epl: a buffer of shape %s needs data, and there are none", shape)
		}
		flat = newFlat(shape)
	}
	b, err := d.devices[0].BufferFromFlatData(0, flat, shape)
	if err != nil {
		return nil, err
	}
	return &Buffer{runner: d, shape: shape, shards: []compute.Buffer{b}}, nil
}

// HasSharedBuffers implements compute.DataInterface. It is false even where the inner backend shares memory with the
// host: shards on several devices have no single address, and a copy per input batch costs less than can be measured.
func (d *Runner) HasSharedBuffers() bool { return false }

// NewSharedBuffer implements compute.DataInterface, by an error.
func (d *Runner) NewSharedBuffer(compute.DeviceNum, shapes.Shape) (compute.Buffer, any, error) {
	return nil, nil, errors.New("epl: buffers are not shared with the host: use BufferFromFlatData")
}
