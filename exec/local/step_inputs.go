// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package local

import (
	"cmp"
	"fmt"
	"runtime"
	"slices"
	"time"

	"github.com/gomlx/compute"
	"github.com/gomlx/gomlx/ml/train"
	"github.com/pkg/errors"
	"golang.org/x/sync/errgroup"

	"github.com/easyparallel/epl/ir"
	"github.com/easyparallel/epl/schedule"
)

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
	if err := s.takeVariables(buffers, donate, homes); err != nil {
		return err
	}
	for i, d := range donate {
		if !d {
			continue
		}
		if buffers[i].feed != nil || s.shards[i] == nil { // its batches are needed until they are on the devices: let go after the step
			s.fed = append(s.fed, buffers[i])
			continue
		}
		all, others, err := buffers[i].take()
		if err != nil {
			return errors.WithMessagef(err, "input %d is donated twice", i)
		}
		s.readers[i] = others
		for _, x := range all { // copies that were made for other programs
			if !slices.Contains(s.shards[i], x) {
				if err := s.runner.finalize(x, others); err != nil {
					return err
				}
			}
		}
		s.donated[i] = true
	}
	return nil
}

// takeVariables finds the variables on every device. In the first step most are copied there, so that all cores do it.
func (s *step) takeVariables(buffers []*Buffer, donate []bool, homes map[*ir.Value]schedule.Variable) error {
	errs := make([]error, len(buffers))
	take := func(i int) {
		errs[i] = errors.WithMessagef(s.takeVariable(i, buffers[i], len(donate) > 0 && donate[i], homes), "input %d", i)
	}
	var copies errgroup.Group
	copies.SetLimit(runtime.GOMAXPROCS(0))
	for i, b := range buffers {
		switch {
		case b.feed != nil || s.plain[s.program.Main.Params[i]] == b:
		case s.count == 1:
			copies.Go(func() error {
				take(i)
				return nil
			})
		default:
			take(i)
		}
	}
	_ = copies.Wait()
	return cmp.Or(errs...)
}

// takeVariable finds a variable on every device that has it.
func (s *step) takeVariable(i int, b *Buffer, donated bool, homes map[*ir.Value]schedule.Variable) error {
	s.shards[i] = make([]compute.Buffer, len(s.devices))
	for d := range s.devices {
		seat, home := s.seat(s.first+d), homes[s.program.Main.Params[i]]
		if !slices.Contains(home.Places, seat.place) {
			continue
		}
		var err error
		part, shared := rowsOf(home.Param, seat.at())
		switch host, pin := home.Host, donated && s.keeps(home, d); {
		case host && shared:
			s.shards[i][d], err = b.onHost(d, &part, pin)
		case host:
			s.shards[i][d], err = b.onHost(d, nil, pin)
		case shared && s.opts.Forward && !donated:
			s.shards[i][d], err = b.view(d, part)
		case shared:
			s.shards[i][d], err = b.part(d, part)
		default:
			s.shards[i][d], err = b.shard(d) // a copy for every device
		}
		if err != nil {
			return err
		}
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
	between, computed, rank := s.own()
	all, err := gather(job.Leaders, s.program.Name, int64(len(s.batches)), loose, int64(len(away)), between, computed, rank)
	if err != nil {
		return err
	}
	reads := false
	paces := make([]pace, len(all))
	for w, a := range all {
		paces[w] = pace{time.Duration(a[3]), time.Duration(a[4]), int(a[5])}
		s.deal.present = append(s.deal.present, int(a[0]))
		loose = max(loose, a[1])
		reads = reads || a[2] > 0
		if !job.Sliced && a[0] != all[0][0] {
			return errors.Errorf("epl: worker 0 has %d batches for this step and worker %d has %d, but all must read the same data: "+
				"give every worker the same dataset, in the same order, or set io.slicing", all[0][0], w, a[0])
		}
	}
	s.compare(paces)
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
