package runtime

import (
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/gomlx/compute"
	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/shapes"
	"github.com/gomlx/gomlx/ml/train"
	"github.com/pkg/errors"

	"github.com/easyparallel/epl/comm"
	"github.com/easyparallel/epl/emit"
	"github.com/easyparallel/epl/ir"
	"github.com/easyparallel/epl/schedule"
	"github.com/easyparallel/epl/trace"
)

// StepOptions say how a schedule is run.
type StepOptions struct {
	Communicators int           // buckets that are merged at the same time
	Timeout       time.Duration // how long a device may wait for another
	FP16Scale     float64       // gradients travel as float16, scaled by this; 0: they travel as they are
	Memory        int64         // bytes a device has; 0: not limited
	// Trace is asked before every step who collects its events; nil: nobody. Traced gets them after the step.
	Trace  func(program string) *trace.Step
	Traced func(*trace.Step) error
	// Stepped is told how many samples this worker's devices took in a step; nil: nobody cares.
	Stepped func(samples int64)
}

// Stepper runs the steps of a training program on all devices. It implements compute.Executable.
type Stepper struct {
	program  *ir.Program
	schedule *schedule.Program
	data     *Data
	opts     StepOptions
	devices  []*device
	param    map[*ir.Value]int // index among the inputs
	isInput  map[*ir.Value]bool

	mu    sync.Mutex // one step at a time
	world *comm.World
	first int // rank of the worker's first device
	stats *Stats
}

var _ compute.Executable = (*Stepper)(nil)

// device is what one device needs to run its list.
type device struct {
	backend  compute.Backend
	segments []compute.Executable
	adders   []compute.Executable // per bucket; nil where nothing is accumulated
}

// NewStepper compiles the segments of the schedule for every device.
func NewStepper(p *ir.Program, s *schedule.Program, data *Data, stats *Stats, opts StepOptions) (*Stepper, error) {
	x := &Stepper{program: p, schedule: s, data: data, opts: opts, stats: stats, param: map[*ir.Value]int{}, isInput: map[*ir.Value]bool{}}
	for i, v := range p.Main.Params {
		x.param[v] = i
	}
	for _, v := range p.Inputs {
		x.isInput[v] = true
	}
	x.opts.Communicators = max(opts.Communicators, 1)
	if data.Job != nil {
		x.world, x.first = data.Job.World, data.Job.First()
	}
	for d, backend := range data.devices {
		dev, err := x.compile(backend)
		if err != nil {
			return nil, errors.WithMessagef(err, "device %d", x.first+d)
		}
		x.devices = append(x.devices, dev)
	}
	return x, nil
}

func (x *Stepper) compile(b compute.Backend) (*device, error) {
	dev := &device{backend: b}
	for _, s := range x.schedule.Segments {
		if len(s.Outputs) == 0 { // never run
			dev.segments = append(dev.segments, nil)
			continue
		}
		e, err := emit.Segment(b, s)
		if err != nil {
			return nil, err
		}
		dev.segments = append(dev.segments, e)
	}
	for _, bucket := range x.schedule.Buckets {
		var e compute.Executable
		if x.schedule.Local.MicroBatches > 1 && bucket.How.Adds() {
			var err error
			if e, err = adder(b, bucket); err != nil {
				return nil, err
			}
		}
		dev.adders = append(dev.adders, e)
	}
	return dev, nil
}

// adder adds a bucket's values to those before, which it replaces.
func adder(b compute.Backend, bucket schedule.Bucket) (compute.Executable, error) {
	build := b.Builder("accumulate")
	main := build.Main()
	var sums []compute.Value
	for i, m := range bucket.Merges {
		shape := m.Inputs[0].Shape
		acc, err := main.Parameter(fmt.Sprintf("sum%d", i), shape, nil)
		if err != nil {
			return nil, err
		}
		next, err := main.Parameter(fmt.Sprintf("next%d", i), shape, nil)
		if err != nil {
			return nil, err
		}
		sum, err := main.Add(acc, next)
		if err != nil {
			return nil, err
		}
		sums = append(sums, sum)
	}
	if err := main.Return(sums, nil); err != nil {
		return nil, err
	}
	return build.Compile()
}

// Finalize implements compute.Executable.
func (x *Stepper) Finalize() {
	x.mu.Lock()
	defer x.mu.Unlock()
	for _, d := range x.devices {
		for _, e := range slices.Concat(d.segments, d.adders) {
			if e != nil {
				e.Finalize()
			}
		}
	}
	x.disconnect()
}

// disconnect ends a world of the stepper's own: ranks that failed may be apart.
func (x *Stepper) disconnect() {
	if x.data.Job == nil && x.world != nil {
		_ = x.world.Close()
		x.world = nil
	}
}

// Inputs implements compute.Executable.
func (x *Stepper) Inputs() (names []string, s []shapes.Shape) {
	for _, v := range x.program.Main.Params {
		names, s = append(names, v.Op.Attrs.(*ir.Parameter).Name), append(s, v.Shape)
	}
	return names, s
}

// Outputs implements compute.Executable.
func (x *Stepper) Outputs() (s []shapes.Shape) {
	for _, v := range x.program.Main.Outputs {
		s = append(s, v.Shape)
	}
	return s
}

// step is one step of all devices.
type step struct {
	*Stepper
	batches []train.Batch // of this worker's stream
	deal    deal
	feed    *Feed
	shards  [][]compute.Buffer        // of variables: by parameter, by device
	donated []bool                    // by parameter: its shards are the step's
	fed     []*Buffer                 // data that the step was given to keep
	tensor  map[*ir.Value]int         // which tensor of a batch an input is
	comms   [][]*comm.Communicator    // by device: with all
	within  [][]*comm.Communicator    // by device: with those of this worker; nil if it is the only one
	counted []map[string]comm.Counter // by device: the world's counters before the step
	trace   *trace.Step
	runs    []*run
}

// Execute implements compute.Executable: one training step.
func (x *Stepper) Execute(inputs []compute.Buffer, donate []bool, dev compute.DeviceNum) ([]compute.Buffer, error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if err := x.data.check(dev); err != nil {
		return nil, err
	}
	if len(inputs) != len(x.program.Main.Params) || len(donate) != 0 && len(donate) != len(inputs) {
		return nil, errors.Errorf("epl: program %q takes %d inputs, not %d (donation given for %d)", x.program.Name, len(x.program.Main.Params), len(inputs), len(donate))
	}
	s := &step{Stepper: x, shards: make([][]compute.Buffer, len(inputs)), donated: make([]bool, len(inputs)), tensor: map[*ir.Value]int{},
		deal: deal{job: x.data.Job, replicas: x.schedule.Local.Replicas, micro: x.schedule.Local.MicroBatches}}
	outs, err := s.execute(inputs, donate)
	if err != nil {
		err = errors.WithMessagef(err, "program %q", x.program.Name)
		if x.data.Job != nil {
			x.world.Abort(err) // no worker waits for one that has given up
		}
		x.disconnect()
		return nil, err
	}
	if x.opts.Stepped != nil {
		instances := 0
		for d := range x.devices {
			for m := range x.schedule.Local.MicroBatches {
				if s.deal.exists(x.first+d, m) {
					instances++
				}
			}
		}
		x.opts.Stepped(s.feed.samples() * int64(instances))
	}
	return outs, nil
}

func (s *step) execute(inputs []compute.Buffer, donate []bool) ([]compute.Buffer, error) {
	if err := s.takeInputs(inputs, donate); err != nil {
		return nil, err
	}
	if err := s.connect(); err != nil {
		return nil, err
	}
	if s.opts.Trace != nil {
		s.trace = s.opts.Trace(s.program.Name)
	}
	outs, err := s.run()
	if err != nil {
		return nil, err
	}
	if s.trace != nil {
		if err := s.opts.Traced(s.trace); err != nil {
			return nil, err
		}
	}
	return outs, nil
}

// takeInputs finds the batches of the step and the variables on every device.
func (s *step) takeInputs(inputs []compute.Buffer, donate []bool) error {
	buffers := make([]*Buffer, len(inputs))
	for i, in := range inputs {
		b, ok := in.(*Buffer)
		if !ok || b.data != s.data {
			return errors.Errorf("epl: input %d is a %T that does not belong to this backend", i, in)
		}
		buffers[i] = b
	}
	for _, v := range s.program.Inputs {
		i := s.param[v]
		b := buffers[i]
		switch {
		case b.feed == nil:
			return errors.Errorf("epl: input %d of a training step with %d instances is one batch: "+
				"hand the dataset to the loop through env.Dataset, which deals batches to model replicas and micro-batches",
				i, s.schedule.Local.Instances())
		case s.feed == nil:
			s.feed = b.feed
		case s.feed != b.feed:
			return errors.Errorf("epl: input %d comes from another batch of env.Dataset than input 0", i)
		}
		s.tensor[v] = b.index
	}
	if err := s.takeBatches(buffers); err != nil {
		return err
	}
	for i, b := range buffers {
		if b.feed == nil {
			for d := range s.devices {
				if _, err := b.shard(d); err != nil { // a copy for every device
					return errors.WithMessagef(err, "input %d", i)
				}
			}
			b.mu.Lock()
			s.shards[i] = append([]compute.Buffer(nil), b.shards...)
			b.mu.Unlock()
		}
	}
	for i, d := range donate {
		if !d {
			continue
		}
		if buffers[i].feed != nil { // its batches are needed until they are on the devices: let go after the step
			s.fed = append(s.fed, buffers[i])
			continue
		}
		if _, err := buffers[i].take(); err != nil {
			return errors.WithMessagef(err, "input %d is donated twice", i)
		}
		s.donated[i] = true
	}
	return nil
}

// takeBatches gets the step's batches of this worker, and agrees with the other workers on what the step consists of.
func (s *step) takeBatches(buffers []*Buffer) error {
	var err error
	if s.batches, err = s.feed.take(s.deal.wanted()); err != nil {
		return err
	}
	job := s.data.Job
	if job == nil {
		s.deal.present = []int{len(s.batches)}
		return nil
	}
	loose := int64(0) // variables whose values no step has made
	variables := make([]*Buffer, len(buffers))
	for i, b := range buffers {
		if b.feed == nil {
			variables[i] = b
			if !b.isEqual() {
				loose++
			}
		}
	}
	all, err := job.gather(s.program.Name, int64(len(s.batches)), loose)
	if err != nil {
		return err
	}
	for w, a := range all {
		s.deal.present = append(s.deal.present, int(a[0]))
		loose = max(loose, a[1])
		if !job.Sliced && a[0] != all[0][0] {
			return errors.Errorf("epl: worker 0 has %d batches for this step and worker %d has %d, but all must read the same data: "+
				"give every worker the same dataset, in the same order, or set io.slicing", all[0][0], w, a[0])
		}
	}
	if !job.Sliced {
		s.deal.present = s.deal.present[:1]
	}
	if loose > 0 {
		return job.equalize(s.program.Name, variables)
	}
	return nil
}

// connect makes the communicators, which last until a step fails.
func (s *step) connect() error {
	if s.world == nil {
		w, err := comm.NewInProcess(len(s.devices), comm.Options{Timeout: s.opts.Timeout})
		if err != nil {
			return err
		}
		s.world = w
	}
	for d := range s.devices {
		s.counted = append(s.counted, s.world.Counters(s.first+d))
	}
	var err error
	if s.comms, err = s.ends(s.world.All()); err != nil || s.data.Job == nil {
		return err
	}
	local, err := s.world.Group(s.world.LocalRanks())
	if err != nil {
		return err
	}
	s.within, err = s.ends(local)
	return err
}

// ends are the devices' ends of a group's communicators.
func (s *step) ends(g *comm.Group) (all [][]*comm.Communicator, err error) {
	for d := range s.devices {
		lanes := make([]*comm.Communicator, s.opts.Communicators)
		for l := range lanes {
			if lanes[l], err = g.Communicator(s.first+d, l); err != nil {
				return nil, err
			}
		}
		all = append(all, lanes)
	}
	return all, nil
}

// run lets every device work through its list.
func (s *step) run() ([]compute.Buffer, error) {
	for d := range s.devices {
		s.runs = append(s.runs, newRun(s, d))
	}
	errs := make([]error, len(s.runs))
	var wg sync.WaitGroup
	for d, r := range s.runs {
		wg.Go(func() {
			if errs[d] = r.list(); errs[d] != nil {
				s.world.Abort(errs[d])
			}
		})
	}
	wg.Wait()
	defer s.letGo()
	if err := firstCause(errs); err != nil {
		return nil, err
	}
	for d, r := range s.runs {
		s.stats.ran(d, r.meter.peak, s.sent(d))
	}
	return s.outputs()
}

// sent is what a device sent in the step.
func (s *step) sent(d int) map[string]int64 {
	sent := map[string]int64{}
	for name, c := range s.world.Counters(s.first + d) {
		sent[name] = c.Bytes - s.counted[d][name].Bytes
	}
	return sent
}

// firstCause picks the error that made the others: those of devices that were merely told to stop say so.
func firstCause(errs []error) error {
	var first error
	for _, err := range errs {
		if err == nil {
			continue
		}
		if first == nil || isConsequence(first) && !isConsequence(err) {
			first = err
		}
	}
	return first
}

// isConsequence tells whether the error is that of a call between devices: another device may have the cause.
func isConsequence(err error) bool {
	var c *comm.CallError
	return errors.As(err, &c)
}

// outputs gathers what the program returns: variables on every device, results from the first.
func (s *step) outputs() ([]compute.Buffer, error) {
	outs := make([]compute.Buffer, len(s.program.Main.Outputs))
	given := map[*ir.Value]*Buffer{}
	for i, v := range s.program.Main.Outputs {
		n := 1
		if s.program.Outputs[i].Updates != nil {
			n = len(s.runs)
		}
		if b := given[v]; b != nil { // returned twice: the second is a copy, on as many devices as it is asked for
			c, err := b.CopyToDevice(0)
			if err != nil {
				return nil, err
			}
			outs[i] = c
			continue
		}
		var shards []compute.Buffer
		for _, r := range s.runs[:n] {
			b, err := r.give(v)
			if err != nil {
				return nil, errors.WithMessagef(err, "output %d, %s", i, v)
			}
			shards = append(shards, b)
		}
		b, err := s.data.wrap(shards...)
		if err != nil {
			return nil, err
		}
		b.equal = s.program.Outputs[i].Updates != nil
		outs[i], given[v] = b, b
	}
	return outs, nil
}

// letGo frees what is left on the devices, and the batches.
func (s *step) letGo() {
	for _, r := range s.runs {
		r.letGo()
	}
	for _, b := range s.fed {
		_ = b.Finalize()
	}
}

// instance is the number of an instance: what its random numbers depend on.
func (s *step) instance(rank, micro int) int { return rank + micro*s.schedule.Local.Replicas }

// scalar puts a number on a device.
func scalar(b compute.Backend, flat any, d dtypes.DType) (compute.Buffer, error) {
	return b.BufferFromFlatData(0, flat, shapes.Make(d))
}
