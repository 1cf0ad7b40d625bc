// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package local

import (
	"fmt"
	"slices"
	"sync"

	"github.com/gomlx/compute"
	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/shapes"
	"github.com/pkg/errors"

	"github.com/easyparallel/epl/comm"
	"github.com/easyparallel/epl/emit"
	"github.com/easyparallel/epl/exec"
	"github.com/easyparallel/epl/exec/lower"
	"github.com/easyparallel/epl/ir"
	"github.com/easyparallel/epl/schedule"
	"github.com/easyparallel/epl/worker"
)

// stepper runs the steps of a program on several devices: those of a training program on all of them. It implements
// compute.Executable.
type stepper struct {
	*exec.Signature
	program  *ir.Program
	schedule *schedule.Program
	runner   *Runner
	job      *worker.Job // nil: it is run by this worker alone
	opts     exec.StepOptions
	devices  []*device
	param    map[*ir.Value]int // index among the inputs
	isInput  map[*ir.Value]bool
	// What the meter needs to know.
	ledger   *schedule.Ledger
	profiles []*schedule.Profile // by segment
	traffic  schedule.Traffic
	budget   []int64 // by place; nil: nothing is copied to elsewhere while devices compute
	offloads bool    // variables are copied to the host meanwhile
	spans    bool    // devices of a place belong to several workers

	together bool    // devices run segments together: instances that a step lacks run, too, and do not count
	why      []error // by place: devices communicate through the host, though they could do otherwise

	verdict *verdict // of the step before; nil: devices check nothing by themselves

	pacing     pacing       // what this worker is busy with
	left       *left        // by the last step; nil: nobody looks
	replicated []replicated // what several devices hold; nil: it was not asked for yet

	mu    sync.Mutex // one step at a time
	world *comm.World
	first int    // rank of the worker's first device
	count uint64 // steps
}

var (
	_ compute.Executable = (*stepper)(nil)
	_ exec.Grouped       = (*stepper)(nil)
	_ exec.Grouped       = (*ahead)(nil)
)

// device is what one device needs to run its list.
type device struct {
	backend  compute.Backend
	segments []compute.Executable
	adders   []compute.Executable // per bucket; nil where nothing is accumulated, or addFew does it
	few      []bool               // per bucket: addFew does it
	known    map[any]compute.Buffer
	hops     [][]hop // by transfer; nil: not asked for yet
	lines    []line  // its list
	commons  commons
	memory   memory
}

// newStepper compiles the segments of the schedule for every device. Devices that can run segments together do.
func newStepper(p *ir.Program, s *schedule.Program, runner *Runner, opts exec.StepOptions) (*stepper, error) {
	joint, why := jointly(s, runner, opts)
	if joint != nil {
		s, opts.Plans = joint, nil // they were made for other segments
	}
	x := &stepper{Signature: &exec.Signature{Program: p}, program: p, schedule: s, runner: runner, opts: opts, param: map[*ir.Value]int{}, isInput: map[*ir.Value]bool{},
		ledger: schedule.NewLedger(p), traffic: schedule.Traffic{Half: opts.FP16Scale > 0}, together: joint != nil, why: why}
	if !opts.Alone {
		x.job = runner.Job
	}
	x.traffic.Packed = x.job != nil
	x.profiles = s.Profiles(x.ledger, opts.Plans)
	for i, v := range p.Main.Params {
		x.param[v] = i
	}
	for _, v := range p.Inputs {
		x.isInput[v] = true
	}
	x.opts.Communicators = max(opts.Communicators, 1)
	if x.job != nil {
		x.world, x.first = x.job.World, x.job.First()
	}
	x.spans = x.spansWorkers()
	x.traffic.Shared = !x.spans && sharing(runner.devices)
	var classes lower.Classes
	for d, backend := range runner.devices {
		dev, err := x.compile(backend, x.seat(x.first+d), &classes)
		if err != nil {
			return nil, errors.WithMessagef(err, "device %d", x.first+d)
		}
		x.devices = append(x.devices, dev)
	}
	if err := x.ready(); err != nil {
		x.Finalize()
		return nil, err
	}
	plans := opts.Plans
	if _, all := x.Measured(); all != nil {
		plans = all
		x.profiles = s.Profiles(x.ledger, all)
	}
	x.budget = x.budgets(plans)
	return x, nil
}

// seat is where a device is: its model replica, its place in it, and its position among the devices of the place.
type seat struct{ replica, place, position int }

// at are the coordinates of the device in the mesh of its place.
func (s seat) at() ir.Coordinates { return ir.Coordinates{s.replica, s.position} }

// seat is that of a rank; its place is -1 if the device has nothing to do.
func (x *stepper) seat(rank int) seat {
	for r, ranks := range x.schedule.Ranks {
		device := slices.Index(ranks, rank)
		for place, group := range x.schedule.Groups {
			if p := slices.Index(group, device); device >= 0 && p >= 0 {
				return seat{r, place, p}
			}
		}
	}
	return seat{-1, -1, -1}
}

// rank is the device at a seat.
func (x *stepper) rank(s seat) int {
	return x.schedule.Ranks[s.replica][x.schedule.Groups[s.place][s.position]]
}

// ranks are the devices of a place, in a model replica.
func (x *stepper) ranks(replica, place int) (ranks []int) {
	for _, device := range x.schedule.Groups[place] {
		ranks = append(ranks, x.schedule.Ranks[replica][device])
	}
	return ranks
}

// workerOf is the worker of a rank.
func (x *stepper) workerOf(rank int) int {
	if x.job == nil {
		return 0
	}
	return x.job.WorkerOf(rank)
}

// feeder is the worker that feeds a model replica: that of its first device.
func (x *stepper) feeder(replica int) int { return x.workerOf(x.schedule.Ranks[replica][0]) }

// compile makes the segments of a place run on a device of it.
func (x *stepper) compile(b compute.Backend, seat seat, classes *lower.Classes) (*device, error) {
	dev := &device{backend: b, known: map[any]compute.Buffer{}, hops: make([][]hop, len(x.schedule.Transfers)), segments: make([]compute.Executable, len(x.schedule.Segments)),
		adders: make([]compute.Executable, len(x.schedule.Buckets)), few: make([]bool, len(x.schedule.Buckets))}
	dev.memory.values = map[schedule.Slot]*held{}
	if seat.place >= 0 {
		dev.lines = linesOf(x.schedule, x.ledger, seat.place)
	}
	for i, s := range x.schedule.Segments {
		if s.Place != seat.place {
			continue
		}
		var err error
		if local := classes.Lower(s.Segment, seat.at()); s.Mesh == nil {
			dev.segments[i], err = emit.Segment(b, local)
		} else {
			if dev.segments[i], err = b.(emit.Grouper).Group(local); err == nil {
				dev.segments[i], err = newPadded(b, s.Segment, local, seat.at(), dev.segments[i])
			}
		}
		if err != nil {
			return nil, err
		}
	}
	for i, bucket := range x.schedule.Buckets {
		if x.schedule.Local.MicroBatches > 1 && bucket.How.Adds() && !bucket.Inside && !bucket.Summed && bucket.Place == seat.place {
			if dev.few[i] = few(b, bucket, seat.at()); dev.few[i] {
				continue
			}
			var err error
			if dev.adders[i], err = adder(b, bucket, seat.at()); err != nil {
				return nil, err
			}
		}
	}
	return dev, nil
}

// adder adds a bucket's values to those before, which it replaces.
func adder(b compute.Backend, bucket schedule.Bucket, at ir.Coordinates) (compute.Executable, error) {
	p := ir.NewProgram("accumulate")
	for i, m := range bucket.Merges {
		shape := m.Inputs[0].LocalShape(at)
		if bucket.Parts {
			shape = m.Outputs[0].LocalShape(at)
		}
		var operands []*ir.Value
		for _, name := range []string{"sum", "next"} {
			op := p.NewOp(&ir.Parameter{Name: fmt.Sprintf("%s%d", name, i), Shape: shape}, nil, shape)
			p.Main.Append(op)
			operands = append(operands, op.Outputs[0])
		}
		sum := p.NewOp(&ir.Add{}, operands, shape)
		p.Main.Append(sum)
		p.Main.Outputs = append(p.Main.Outputs, sum.Outputs[0])
	}
	return emit.Program(b, p)
}

// Finalize implements compute.Executable.
func (x *stepper) Finalize() {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.verdict.drop()
	x.each(compute.Executable.Finalize)
	for _, d := range x.devices {
		for _, b := range d.known {
			_ = b.Finalize()
		}
	}
	x.disconnect()
}

// each visits what was compiled.
func (x *stepper) each(visit func(compute.Executable)) {
	for _, d := range x.devices {
		for _, e := range slices.Concat(d.segments, d.adders) {
			if e != nil {
				visit(e)
			}
		}
	}
}

// disconnect ends a world of the stepper's own: ranks that failed may be apart.
func (x *stepper) disconnect() {
	if x.job == nil && x.world != nil {
		_ = x.world.Close()
		x.world = nil
	}
}

// Execute implements compute.Executable: one training step.
func (x *stepper) Execute(inputs []compute.Buffer, donate []bool, dev compute.DeviceNum) ([]compute.Buffer, error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if err := x.runner.check(dev); err != nil {
		return nil, err
	}
	if err := x.Signature.Check(inputs, donate); err != nil {
		return nil, err
	}
	if err := x.judge(); err != nil {
		return nil, err
	}
	s := &step{stepper: x, shards: make([][]compute.Buffer, len(inputs)), donated: make([]bool, len(inputs)), readers: make([]readers, len(inputs)), tensor: map[*ir.Value]int{}, plain: map[*ir.Value]*Buffer{},
		deal: newDeal(x)}
	x.count++
	outs, err := s.execute(inputs, donate)
	if err == nil {
		err = x.after(inputs, outs)
	}
	if err != nil {
		err = errors.WithMessagef(err, "program %q", x.program.Name)
		if x.job != nil {
			x.world.Abort(err) // no worker waits for one that has given up
		}
		x.disconnect()
		return nil, err
	}
	if trains(x.program) {
		s.feed.consumed()
		x.paced(s.runs)
	}
	if x.opts.Stepped != nil {
		instances := 0
		for r := range x.schedule.Ranks {
			for m := range x.schedule.Local.MicroBatches {
				if x.job == nil || x.feeder(r) == x.job.Worker {
					if s.deal.exists(r, m) {
						instances++
					}
				}
			}
		}
		x.opts.Stepped(s.feed.samples() * int64(instances))
	}
	return outs, nil
}

// known is a number that most steps need: it stays on the device.
func known[T comparable](d *device, x T, t dtypes.DType) (compute.Buffer, error) {
	if d.known[x] == nil {
		b, err := scalar(d.backend, []T{x}, t)
		if err != nil {
			return nil, err
		}
		d.known[x] = b
	}
	return d.known[x], nil
}

// scalar puts a number on a device.
func scalar(b compute.Backend, flat any, d dtypes.DType) (compute.Buffer, error) {
	return b.BufferFromFlatData(0, flat, shapes.Make(d))
}
