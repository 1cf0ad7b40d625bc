// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package local

import (
	"slices"
	"sync"
	"time"

	"github.com/gomlx/compute"
	"github.com/gomlx/gomlx/ml/train"
	"github.com/pkg/errors"

	"github.com/easyparallel/epl/comm"
	"github.com/easyparallel/epl/emit"
	"github.com/easyparallel/epl/exec"
	"github.com/easyparallel/epl/ir"
	"github.com/easyparallel/epl/schedule"
	"github.com/easyparallel/epl/trace"
)

// step is one step of all devices.
type step struct {
	*stepper
	batches  []train.Batch // of this worker's stream
	deal     deal
	feed     *Feed
	shards   [][]compute.Buffer        // of variables: by parameter, by device
	donated  []bool                    // by parameter: its shards are the step's
	readers  []readers                 // by parameter: others who read them
	fed      []*Buffer                 // data that the step was given to keep
	plain    map[*ir.Value]*Buffer     // data that are not of env.Dataset: the only batch of a step
	tensor   map[*ir.Value]int         // which tensor of a batch an input is
	pipes    []*comm.Communicator      // by device: what it sends and receives by
	counted  []map[string]comm.Counter // by device: the world's counters before the step
	trace    *trace.Step
	profiled exec.Profiled  // tells afterwards what devices ran; nil: nobody does
	drawn    sync.WaitGroup // bars of sends in the timeline
	runs     []*run

	gatherings gatherings
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
	told := s.profile()
	outs, err := s.run()
	told()
	if err != nil {
		return nil, err
	}
	if s.trace != nil {
		s.drawn.Wait()
		start := time.Now()
		for _, r := range s.runs {
			r.draw()
			r.recall()
		}
		s.trace.Late += time.Since(start)
		if err := s.opts.Traced(s.trace); err != nil {
			return nil, err
		}
	}
	return outs, nil
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
	how := copied
	if s.devices[d].shares() {
		how = comm.Send.String()
	}
	for _, h := range s.runs[d].handed {
		sent[how] += h.bytes
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
