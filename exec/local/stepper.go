package local

import (
	"fmt"
	"slices"
	"sync"

	"github.com/gomlx/compute"
	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/shapes"
	"github.com/gomlx/gomlx/ml/train"
	"github.com/pkg/errors"

	"github.com/easyparallel/epl/comm"
	"github.com/easyparallel/epl/emit"
	"github.com/easyparallel/epl/exec"
	"github.com/easyparallel/epl/exec/lower"
	"github.com/easyparallel/epl/ir"
	"github.com/easyparallel/epl/schedule"
	"github.com/easyparallel/epl/trace"
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
	adders   []compute.Executable // per bucket; nil where nothing is accumulated
	known    map[any]compute.Buffer
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
	dev := &device{backend: b, known: map[any]compute.Buffer{}, segments: make([]compute.Executable, len(x.schedule.Segments)),
		adders: make([]compute.Executable, len(x.schedule.Buckets))}
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
		if x.schedule.Local.MicroBatches > 1 && bucket.How.Adds() && !bucket.Inside && bucket.Place == seat.place {
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

// step is one step of all devices.
type step struct {
	*stepper
	batches []train.Batch // of this worker's stream
	deal    deal
	feed    *Feed
	shards  [][]compute.Buffer        // of variables: by parameter, by device
	donated []bool                    // by parameter: its shards are the step's
	fed     []*Buffer                 // data that the step was given to keep
	plain   map[*ir.Value]*Buffer     // data that are not of env.Dataset: the only batch of a step
	tensor  map[*ir.Value]int         // which tensor of a batch an input is
	pipes   []*comm.Communicator      // by device: what it sends and receives by
	counted []map[string]comm.Counter // by device: the world's counters before the step
	trace   *trace.Step
	drawn   sync.WaitGroup // bars of sends in the timeline
	runs    []*run

	handovers handovers
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
	s := &step{stepper: x, shards: make([][]compute.Buffer, len(inputs)), donated: make([]bool, len(inputs)), tensor: map[*ir.Value]int{}, plain: map[*ir.Value]*Buffer{},
		deal: newDeal(x)}
	x.count++
	outs, err := s.execute(inputs, donate)
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

func (s *step) execute(inputs []compute.Buffer, donate []bool) ([]compute.Buffer, error) {
	if err := s.takeInputs(inputs, donate); err != nil {
		return nil, err
	}
	if trains(s.program) {
		if err := s.feed.training(); err != nil {
			return nil, err
		}
	}
	if err := s.connect(); err != nil {
		return nil, err
	}
	if s.opts.Trace != nil {
		if s.trace = s.opts.Trace(s.program.Name); s.trace != nil {
			p := s.schedule.Pipeline
			s.trace.Pipeline = trace.Pipeline{Strategy: string(p.Strategy), Stages: p.Stages, Groups: p.Groups,
				MicroBatches: p.Micro, Replicas: s.schedule.Local.Replicas}
		}
	}
	outs, err := s.run()
	if err != nil {
		return nil, err
	}
	if s.trace != nil {
		s.drawn.Wait()
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
		if !ok || b.runner != s.runner {
			return errors.Errorf("epl: input %d is a %T that does not belong to this backend", i, in)
		}
		buffers[i] = b
	}
	for _, v := range s.program.Inputs {
		i := s.param[v]
		b := buffers[i]
		switch {
		case b.feed != nil && s.opts.NoFeed != "":
			return errors.New(s.opts.NoFeed)
		case b.feed == nil && s.schedule.Local.Instances() == 1 && (s.job == nil || s.opts.Forward):
			s.plain[v] = b
			continue
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
	homes := map[*ir.Value]schedule.Variable{}
	for _, x := range s.schedule.Variables {
		homes[x.Param] = x
	}
	if err := s.takeBatches(buffers, s.away(buffers, homes)); err != nil {
		return err
	}
	for i, b := range buffers {
		if b.feed != nil || s.plain[s.program.Main.Params[i]] == b {
			continue
		}
		s.shards[i] = make([]compute.Buffer, len(s.devices))
		for d := range s.devices {
			seat, home := s.seat(s.first+d), homes[s.program.Main.Params[i]]
			if !slices.Contains(home.Places, seat.place) {
				continue
			}
			var err error
			part, shared := rowsOf(home.Param, seat.at())
			switch host, pin := home.Host, len(donate) > 0 && donate[i] && s.keeps(home, d); {
			case host && shared:
				s.shards[i][d], err = b.onHost(d, &part, pin)
			case host:
				s.shards[i][d], err = b.onHost(d, nil, pin)
			case shared && s.opts.Forward && (len(donate) == 0 || !donate[i]):
				s.shards[i][d], err = b.view(d, part)
			case shared:
				s.shards[i][d], err = b.part(d, part)
			default:
				s.shards[i][d], err = b.shard(d) // a copy for every device
			}
			if err != nil {
				return errors.WithMessagef(err, "input %d", i)
			}
		}
	}
	for i, d := range donate {
		if !d {
			continue
		}
		if buffers[i].feed != nil || s.shards[i] == nil { // its batches are needed until they are on the devices: let go after the step
			s.fed = append(s.fed, buffers[i])
			continue
		}
		all, err := buffers[i].take()
		if err != nil {
			return errors.WithMessagef(err, "input %d is donated twice", i)
		}
		for _, x := range all { // copies that were made for other programs
			if !slices.Contains(s.shards[i], x) {
				if err := x.Finalize(); err != nil {
					return err
				}
			}
		}
		s.donated[i] = true
	}
	return nil
}

// away are the variables that this worker has to read from others: another program left them divided, or elsewhere.
func (s *step) away(buffers []*Buffer, homes map[*ir.Value]schedule.Variable) (away []*Buffer) {
	for i, b := range buffers {
		for d := range s.devices {
			seat, home := s.seat(s.first+d), homes[s.program.Main.Params[i]]
			if !slices.Contains(home.Places, seat.place) {
				continue
			}
			var want *rows
			if part, shared := rowsOf(home.Param, seat.at()); shared {
				want = &part
			}
			if b.away(d, want) {
				away = append(away, b)
				break
			}
		}
	}
	return away
}

// takeBatches gets the step's batches of this worker, and agrees with the other workers on what the step consists of. Variables
// that are away are read before any worker takes its own.
func (s *step) takeBatches(buffers, away []*Buffer) error {
	if s.feed == nil {
		s.deal.present = []int{1}
		return nil
	}
	if s.opts.Alone {
		s.batches, s.deal.present = []train.Batch{*s.feed.head}, []int{1}
		return nil
	}
	var err error
	if s.batches, err = s.feed.take(s.deal.wanted()); err != nil {
		return err
	}
	job := s.job
	if s.feed.odd != nil {
		s.runner.Notice("odd batch", fmt.Sprintf("epl: a batch differs from those before it (%v), and all batches of a step must be alike: "+
			"it begins a step of its own, and the step before it runs on %d of %d batches. No sample is lost, and this is said once. "+
			"For full steps only, let the dataset drop or pad such a batch", s.feed.odd, len(s.batches), s.deal.wanted()), job == nil || !job.Sliced)
	}
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
	all, err := gather(job.Leaders, s.program.Name, int64(len(s.batches)), loose, int64(len(away)))
	if err != nil {
		return err
	}
	reads := false
	for w, a := range all {
		s.deal.present = append(s.deal.present, int(a[0]))
		loose = max(loose, a[1])
		reads = reads || a[2] > 0
		if !job.Sliced && a[0] != all[0][0] {
			return errors.Errorf("epl: worker 0 has %d batches for this step and worker %d has %d, but all must read the same data: "+
				"give every worker the same dataset, in the same order, or set io.slicing", all[0][0], w, a[0])
		}
	}
	if !job.Sliced {
		s.deal.present = s.deal.present[:1]
	}
	if loose > 0 {
		if err := equalize(job, s.program.Name, variables); err != nil {
			return err
		}
	}
	if !reads {
		return nil
	}
	for _, b := range away {
		if err := b.bring(); err != nil {
			return err
		}
	}
	_, err = gather(job.Leaders, s.program.Name, 0) // all have what they need
	return err
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
	for d := range s.devices {
		pipe, err := s.world.All().Communicator(s.first+d, s.opts.Communicators)
		if err != nil {
			return err
		}
		s.pipes = append(s.pipes, pipe)
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
				s.joint(func(e emit.Joint) { e.Abort(errs[d]) })
			}
		})
	}
	wg.Wait()
	defer s.letGo()
	if err := firstCause(errs); err != nil {
		s.joint(emit.Joint.Reset)
		return nil, err
	}
	for d, r := range s.runs {
		if r.place >= 0 {
			s.runner.stats.ran(d, r.meter.books, s.sent(d))
		}
	}
	return s.outputs()
}

// sent is what a device sent in the step.
func (s *step) sent(d int) map[string]int64 {
	sent := map[string]int64{}
	for name, c := range s.world.Counters(s.first + d) {
		if name != comm.Recv.String() { // it is the other's
			sent[name] = c.Bytes - s.counted[d][name].Bytes
		}
	}
	for _, h := range s.runs[d].handed {
		sent[copied] += h.bytes
	}
	for _, x := range s.runs[d].parted {
		sent[copied] += x.bytes
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

// outputs gathers what the program returns: variables on the devices where they live, results from one that has them.
func (s *step) outputs() ([]compute.Buffer, error) {
	outs := make([]compute.Buffer, len(s.program.Main.Outputs))
	given := map[*ir.Value]*Buffer{}
	homes := map[*ir.Value]schedule.Variable{}
	for _, x := range s.schedule.Variables {
		homes[x.Param] = x
	}
	verdict, err := s.leftByChecks()
	if err != nil {
		return nil, err
	}
	s.stepper.verdict = verdict
	for i, v := range s.program.Main.Outputs {
		if b := given[v]; b != nil { // returned twice: the second is a copy
			c, err := b.CopyToDevice(0)
			if err != nil {
				return nil, err
			}
			outs[i] = c
			continue
		}
		b := &Buffer{runner: s.runner, shape: v.Shape, shards: make([]compute.Buffer, len(s.runs))}
		if x := s.program.Outputs[i].Updates; x != nil {
			home := homes[x.Param]
			if err := s.update(b, home); err != nil {
				return nil, errors.WithMessagef(err, "the new value of variable %q", x.Path)
			}
			s.share(b, i, home)
		} else if err := s.result(b, v); err != nil {
			return nil, errors.WithMessagef(err, "output %d, %s", i, v)
		}
		outs[i], given[v] = b, b
	}
	for i, b := range outs {
		if s.program.Outputs[i].Updates == nil {
			b.(*Buffer).verdict = verdict
		}
	}
	return outs, nil
}

// update takes the new value of a variable from the devices where it lives.
func (s *step) update(b *Buffer, home schedule.Variable) error {
	b.equal = s.program.IsTraining()
	b.shape = home.Param.Shape
	to := b.shards
	if home.Param.IsPlaced() {
		b.shards, b.parts, b.rows = nil, make([]compute.Buffer, len(s.runs)), make([]rows, len(s.runs))
		to = b.parts
	}
	for d, r := range s.runs {
		if slices.Contains(home.Places, r.place) {
			var err error
			take := r.give
			if home.Host {
				take = r.stored
			}
			if to[d], err = take(home.Update); err != nil {
				return err
			}
			if b.parts != nil {
				b.rows[d], _ = rowsOf(home.Param, r.at())
			}
		}
	}
	return nil
}

// result takes a result from the first device that has it.
func (s *step) result(b *Buffer, v *ir.Value) error {
	for d, r := range s.runs {
		if _, ok := r.values[schedule.Slot{Value: v, Micro: schedule.Once}]; !ok {
			continue
		}
		x, err := r.give(v)
		if err != nil {
			return err
		}
		if b.shape, err = x.Shape(); err != nil { // what is concatenated may be shorter in the last step
			return err
		}
		b.shards[d] = x
		return nil
	}
	if s.opts.Forward && s.job != nil {
		return nil // another worker has it
	}
	return errors.New("no device of this worker computed it")
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
