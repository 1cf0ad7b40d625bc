// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

// Package exec says what runs a plan: a [Runner], for the devices of one worker.
//
// What goes in is a program as passes left it, with its schedule if it has one, and the devices. What comes out are executables for GoMLX,
// and counts of what the devices did. exec/lower makes of an SPMD program what one device runs; exec/local is the runner for devices
// that run segments one at a time and communicate through the host. [Devices] gives the devices of a backend as values.
//
// A runner may assume that schedules are checked, and that all workers run the same plan.
package exec

import (
	"time"

	"github.com/gomlx/compute"
	"github.com/gomlx/compute/shapes"
	"github.com/pkg/errors"

	"github.com/easyparallel/epl/emit"
	"github.com/easyparallel/epl/ir"
	"github.com/easyparallel/epl/schedule"
	"github.com/easyparallel/epl/trace"
)

// Runner runs programs on the devices of one worker, and keeps their data there. Buffers are what GoMLX holds for tensors.
type Runner interface {
	compute.DataInterface

	// Whole makes a program run as a whole, on one device.
	Whole(p *ir.Program, o WholeOptions) (compute.Executable, error)
	// Steps makes a schedule run: the lists of the groups that have devices of this worker.
	Steps(p *ir.Program, s *schedule.Program, o StepOptions) (compute.Executable, error)
	// Ahead makes a program without gradients run on several model replicas, a batch on each.
	Ahead(h Halves) (Ahead, error)

	// Fed tells whether a program is called with a batch of env.Dataset.
	Fed(inputs []compute.Buffer) bool
	// Peek reads what this worker has of a value on one of its devices, without asking others; ok is false if it has none.
	Peek(from compute.Buffer, flat any) (ok bool, err error)
	// BatchesOf is how many batches an input of a training step stands for on this worker, and Given the elements of one of them.
	BatchesOf(input compute.Buffer) int
	Given(input compute.Buffer, batch int) (flat any, err error)
	// Planner tells what devices make of segments; nil if they do not tell.
	Planner() emit.Planner
	// Memory is how many bytes of tensors the device holds that has least memory, by its own count; 0: it does not tell.
	Memory() int64
	// Notice logs a sentence, unless one of its kind was said before. Where all workers have the same to say, the first one does.
	Notice(kind, sentence string, all bool)
	// Stats tells what the devices did since it was last asked.
	Stats() []DeviceStats
	// Finalize ends it, and frees its devices. Closed is an error from then on.
	Finalize()
	Closed() error
}

// Ahead is an executable whose workers may have computed several batches at once.
type Ahead interface {
	compute.Executable
	// Computed tells whether what takes all workers is done for a call.
	Computed(inputs []compute.Buffer) bool
}

// Neighbor is a device that copies from other devices of its worker without the host.
type Neighbor interface {
	// Near tells whether it can copy what another device has.
	Near(other compute.Backend) bool
	// CopyFrom begins to copy what that has. The original may be finalized or donated meanwhile; its memory is free when copied has returned, which is
	// to be called once.
	CopyFrom(b compute.Buffer) (c compute.Buffer, copied func() error, err error)
}

// Sharer is a device that reads what other devices of its worker have where it lies.
type Sharer interface {
	// Shares tells whether it can do so with another device.
	Shares(other compute.Backend) bool
	// Share makes a buffer of the device with the memory of another device's buffer. Each of the two can be finalized or donated; an execution writes to the
	// memory of a donated buffer only when no other buffer has it. Several devices may share a buffer at the same time.
	Share(b compute.Buffer) (compute.Buffer, error)
}

// SharedBuffer is a buffer of a Sharer.
type SharedBuffer interface {
	// Shared tells whether another buffer has the same memory: then nobody may write to it.
	Shared() bool
}

// Parter is a device that sees a part of a tensor where it lies.
type Parter interface {
	// Part makes a buffer of some elements of another, which keeps the memory: it has to live as long as the part, and what an execution makes of the part where that
	// lies. Nil: it cannot, or somebody else has the memory, too.
	Part(whole compute.Buffer, from int, shape shapes.Shape) compute.Buffer
}

// Distant is a device that copies to and from devices of other workers without the host. Both ends have to begin at the same time.
type Distant interface {
	// Reaches tells whether it does so with a rank of another worker.
	Reaches(rank int) bool
	// Later waits until what is computed is there: see HostMemory.
	Later(b compute.Buffer) (wait func() error)
	// SendTo begins to copy to a rank what the device has, ReceiveFrom what that has; wait is to be called once.
	SendTo(b compute.Buffer, rank int) (wait func() error, err error)
	ReceiveFrom(rank int, shape shapes.Shape) (b compute.Buffer, wait func() error, err error)
}

// HostMemory is a device that copies to and from memory of the host while it computes: pinned memory, which is the device's own.
type HostMemory interface {
	// HasHostMemory tells whether it really does.
	HasHostMemory() bool
	// ToHost and ToDevice begin to copy what the device has, or has on the host. The original may be finalized meanwhile.
	ToHost(b compute.Buffer) (compute.Buffer, error)
	ToDevice(b compute.Buffer) (compute.Buffer, error)
	// HostFromFlatData copies data of the program to it.
	HostFromFlatData(flat any, shape shapes.Shape) (compute.Buffer, error)
	// Await waits until what is copied or computed is there. Later is for a buffer that may be gone then: what it returns waits, and is to be called.
	Await(b compute.Buffer) error
	Later(b compute.Buffer) (wait func() error)
}

// Profiled is a device that tells afterwards what it ran.
type Profiled interface {
	// Profile begins to collect what devices of a worker run, of which this is one: those that are of its kind. stop ends it. did is then called for every
	// kernel, with the number of its device among them.
	Profile(devices []compute.Backend) (stop func(did func(device int, s emit.Step, start, end time.Time)) error, err error)
	// Await waits until what is computed is there.
	Await(b compute.Buffer) error
}

// Measured is an executable of devices that know, once it is compiled, what it needs.
type Measured interface {
	// Measured is what each segment of the lists needs that devices run, or the whole program; nil: devices do not tell. The lists are nil if they
	// are those that the runner was given.
	Measured() (lists *schedule.Program, needs []*emit.Listing)
}

// Grouped is an executable of several devices, which may run segments together.
type Grouped interface {
	// Lists are those that devices run where they run segments together; nil: they do nowhere. host is why they communicate through the host, by group of
	// devices; nil: they do not, or cannot do otherwise.
	Lists() (lists *schedule.Program, host []error)
}

// WholeOptions say how a program is run as a whole.
type WholeOptions struct {
	Device int   // which of the worker's devices
	Memory int64 // bytes the device has; 0: not limited
	// Profile is what the program needs of memory; nil: nobody counts.
	Profile *schedule.Profile
	// NoFeed is why the program cannot take batches of env.Dataset; "": it can, one at a time.
	NoFeed string
	// Piecewise: it is larger than the device. Its results are computed one after the other, and stay on the host.
	Piecewise bool
	// Pinned: they are for programs that keep variables on the host, and stay in pinned memory there, if the device has it.
	Pinned bool
}

// StepOptions say how a schedule is run.
type StepOptions struct {
	Communicators int             // buckets that are merged at the same time
	Timeout       time.Duration   // how long a device may wait for another
	FP16Scale     float64         // gradients travel as float16, scaled by this; 0: they travel as they are
	Memory        int64           // bytes a device has; 0: not limited
	Plans         []*emit.Listing // what devices plan of memory for each segment; nil: nothing
	// Trace is asked before every step who collects its events; nil: nobody. Traced gets them after the step.
	Trace  func(program string) *trace.Step
	Traced func(*trace.Step) error
	// Stepped is told how many samples this worker's devices took in a step; nil: nobody cares.
	Stepped func(samples int64)
	// CheckEvery is after how many steps Check is told what several devices hold, on all workers at the same point; 0: never, unless they are asked: see [Checked].
	CheckEvery int
	Check      func(step uint64, all []Copies) error
	// Flip says after a step which variable of a rank is to change by a bit, for drills: "" stands for any. It is to be told what has changed. Nil: none does.
	Flip func(rank int) (variable string, changed func(what string), flips bool)
	// Spoil says in a step whether a gradient that a rank computes is not to be a number, for drills. It is to be told when that is so. Nil: none is.
	Spoil func(rank int) (spoiled func(), spoils bool)
	// Number is that of the training program, the same on all workers.
	Number int
	// Forward: the program has no gradients, and reads variables that others have. A step is one batch, and who asks for a result looks
	// for it on the worker that has it.
	Forward bool
	// Alone: this worker runs the program by itself, on some of its devices. Ranks of the schedule are their indices.
	Alone bool
	// NoFeed is why the program cannot take batches of env.Dataset; "": it can.
	NoFeed string
}

// Copies are what several devices hold of a variable: the same bits.
type Copies struct {
	Variable string
	Region   string         // of the variable; "": all of it
	Ranks    []int          // that hold it, of all workers
	Hashes   map[int]uint32 // by rank: of those devices of this worker that hold it
}

// Checked is an executable whose variables can be compared.
type Checked interface {
	// CheckNow has what the last step left compared, if it was not: all workers have to call it at the same point.
	CheckNow() error
}

// Halves are a program without gradients in two: Forward depends on no variable that it updates, Rest first takes the results of
// Forward. It is nil if these are all.
type Halves struct {
	Name          string
	Whole         compute.Executable // of the program, for what is no batch of env.Dataset
	Forward, Rest *ir.Program
	Schedule      *schedule.Program // of Forward on one model replica; nil: it runs as a whole
	Replicas      [][]int           // devices of model replicas: their ranks, if workers run it Together
	Together      bool
	// ForwardArgs and RestArgs are the parameters of the halves, by their index in the program, without those that one half gives the other.
	ForwardArgs, RestArgs []int
	// How they are run: Once is for one that runs as a whole.
	Step      StepOptions
	Once      WholeOptions
	RestWhole WholeOptions
}

// DeviceStats is what one device did.
type DeviceStats struct {
	Runs      int              // programs, or steps of one
	PeakBytes int64            // most bytes that lived on it at once
	Peak      map[string]int64 // the same by what they were for: "weights", "activations", …
	Most      map[string]int64 // the most bytes of each, whenever that was
	Sent      map[string]int64 // bytes by "all-reduce", "all-gather", …, through the host; "copy": from device to device
	// Allocated is the most bytes that the device had for tensors, by its own count; 0: it does not tell.
	Allocated int64
}

// Signature is what a program takes and gives. It implements compute.Executable, but does not run.
type Signature struct{ Program *ir.Program }

// Finalize implements compute.Executable.
func (x *Signature) Finalize() {}

// Execute implements compute.Executable.
func (x *Signature) Execute([]compute.Buffer, []bool, compute.DeviceNum) ([]compute.Buffer, error) {
	return nil, errors.Errorf("epl: internal error: program %q is not compiled", x.Program.Name)
}

// Inputs implements compute.Executable.
func (x *Signature) Inputs() (names []string, s []shapes.Shape) {
	for _, v := range x.Program.Main.Params {
		names, s = append(names, v.Op.Attrs.(*ir.Parameter).Name), append(s, v.Shape)
	}
	return names, s
}

// Outputs implements compute.Executable.
func (x *Signature) Outputs() (s []shapes.Shape) {
	for _, v := range x.Program.Main.Outputs {
		s = append(s, v.Shape)
	}
	return s
}

// Check refuses a call with another number of inputs than the program has.
func (x *Signature) Check(inputs []compute.Buffer, donate []bool) error {
	if n := len(x.Program.Main.Params); len(inputs) != n || len(donate) != 0 && len(donate) != n {
		return errors.Errorf("epl: program %q takes %d inputs, not %d (donation given for %d)", x.Program.Name, n, len(inputs), len(donate))
	}
	return nil
}
