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

	mu      sync.Mutex // one step at a time
	world   *comm.World
	counted []map[string]int64 // by device: the world's counters after the last step
	stats   *Stats
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
	for d := range s.Devices {
		dev, err := x.compile(data.devices[d])
		if err != nil {
			return nil, errors.WithMessagef(err, "device %d", d)
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
	if x.world != nil {
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
	batches []train.Batch
	feed    *Feed
	shards  [][]compute.Buffer // of variables: by parameter, by device
	donated []bool             // by parameter: its shards are the step's
	fed     []*Buffer          // data that the step was given to keep
	tensor  map[*ir.Value]int  // which tensor of a batch an input is
	comms   [][]*comm.Communicator
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
	s := &step{Stepper: x, shards: make([][]compute.Buffer, len(inputs)), donated: make([]bool, len(inputs)), tensor: map[*ir.Value]int{}}
	if err := s.takeInputs(inputs, donate); err != nil {
		return nil, errors.WithMessagef(err, "program %q", x.program.Name)
	}
	if err := s.connect(); err != nil {
		return nil, err
	}
	if x.opts.Trace != nil {
		s.trace = x.opts.Trace(x.program.Name)
	}
	outs, err := s.run()
	if err != nil {
		_ = x.world.Close() // a step that failed may have left ranks apart
		x.world = nil
		return nil, errors.WithMessagef(err, "program %q", x.program.Name)
	}
	if s.trace != nil {
		if err := x.opts.Traced(s.trace); err != nil {
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
	var err error
	if s.batches, err = s.feed.take(s.schedule.Local.Instances()); err != nil {
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

// connect makes the communicators, which last until a step fails.
func (s *step) connect() error {
	n := len(s.devices)
	if s.world == nil {
		w, err := comm.NewInProcess(n, comm.Options{Timeout: s.opts.Timeout})
		if err != nil {
			return err
		}
		s.world = w
		s.counted = make([]map[string]int64, n)
		for d := range s.counted {
			s.counted[d] = map[string]int64{}
		}
	}
	for d := range n {
		var lanes []*comm.Communicator
		for l := range s.opts.Communicators {
			c, err := s.world.All().Communicator(d, l)
			if err != nil {
				return err
			}
			lanes = append(lanes, c)
		}
		s.comms = append(s.comms, lanes)
	}
	return nil
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

// sent is what a device sent since the last step.
func (s *step) sent(d int) map[string]int64 {
	sent := map[string]int64{}
	for name, c := range s.world.Counters(d) {
		sent[name] = c.Bytes - s.counted[d][name]
		s.counted[d][name] = c.Bytes
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

// outputs gathers what the program returns: variables on every device, results from device 0.
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

// exists tells whether the step has an instance for the device and the micro-batch: the last step of the data may
// lack some.
func (s *step) exists(device, micro int) bool { return s.instance(device, micro) < len(s.batches) }

func (s *step) instance(device, micro int) int { return device + micro*s.schedule.Local.Replicas }

// scalar puts a number on a device.
func scalar(b compute.Backend, flat any, d dtypes.DType) (compute.Buffer, error) {
	return b.BufferFromFlatData(0, flat, shapes.Make(d))
}
