// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package local

import (
	"runtime/debug"
	"sync"
	"time"

	"github.com/pkg/errors"

	"github.com/easyparallel/epl/comm"
	"github.com/easyparallel/epl/ir"
	"github.com/easyparallel/epl/schedule"
	"github.com/easyparallel/epl/trace"
)

// run is one device in one step.
type run struct {
	*step
	id    int // its rank
	local int // its index among the worker's devices
	seat
	device  *device
	values  map[schedule.Slot]*held
	outbox  []*held        // what others still read, and nobody here needs
	calls   []*comm.Handle // sends that are not known to be over
	handed  []*handover
	boxes   []box // by transfer and micro-batch, see handover
	parted  []*parting
	pending []*merging // by bucket
	// scattered are the buckets of which model replicas get parts, by bucket.
	scattered []*scattering
	joining   map[*ir.Value]*comm.CommonMemory // of variables that come there with this step
	// host is what is in the memory of the host: variables, and the new values of variables.
	host    map[*ir.Value]*hostBuffer
	loads   map[*ir.Value]int // how often a variable is still loaded
	last    func() error      // waits for the last segment, where variables are copied while the device computes; nil: there is nothing to wait for
	leaving []leaving
	meter   *meter
	busy    time.Duration // it has computed so long
	most    int64         // bytes that have lived, if a timeline is made
	looked  int64         // bytes that lived when it was noted where they come from
	lived   []lived       // by time, if a timeline is made
	// underway is what was communicated, if a timeline is made.
	underway []underway
	notes    []note
}

func newRun(s *step, local int) *run {
	id := s.first + local
	dev := s.devices[local]
	r := &run{step: s, id: id, local: local, seat: s.seat(id), device: dev, values: dev.memory.values, host: map[*ir.Value]*hostBuffer{}, loads: map[*ir.Value]int{},
		joining: map[*ir.Value]*comm.CommonMemory{},
		boxes:   make([]box, len(s.schedule.Transfers)*(s.schedule.Local.MicroBatches+1)),
		pending: make([]*merging, len(s.schedule.Buckets)), scattered: make([]*scattering, len(s.schedule.Buckets)),
		meter: &meter{device: id, limit: s.opts.Memory}}
	return r
}

// list works through the device's instructions.
func (r *run) list() (err error) {
	if r.place < 0 {
		return nil
	}
	at := schedule.Instr{}
	defer func() {
		if p := recover(); p != nil {
			err = errors.Errorf("panic: %v\n%s", p, debug.Stack())
		}
		if err != nil && !isConsequence(err) {
			err = errors.WithMessagef(err, "epl: device %d, %s", r.id, r.schedule.Text(at))
		}
	}()
	if err := r.meter.addAll(r.schedule.Arena(r.profiles, r.place), 1); err != nil {
		return err
	}
	for _, x := range r.schedule.Variables {
		i := r.param[x.Param]
		if shards := r.shards[i]; shards != nil && shards[r.local] != nil {
			slot := schedule.Slot{Value: x.Param, Micro: schedule.Once}
			if x.Host {
				if !r.runner.spares() { // else it is not written to
					r.readers[i].wait()
				}
				r.host[slot.Value] = shards[r.local].(*hostBuffer)
				continue
			}
			if err := r.keep(slot, shards[r.local]); err != nil {
				return err
			}
			r.values[slot].borrowed = !r.donated[i]
			r.values[slot].readers = r.readers[i]
		}
	}
	for i := range r.device.lines {
		if in := &r.device.lines[i]; in.Kind == schedule.Load {
			r.loads[in.Value]++
		}
	}
	lines := r.device.lines
	for i := range lines {
		at = lines[i].Instr
		if err := r.do(&lines[i]); err != nil {
			return err
		}
		r.remember(r.meter.books.Live, nil)
	}
	for _, h := range r.values { // what a step leaves behind is all there
		if err := r.arrive(h); err != nil {
			return err
		}
	}
	if err := r.catchUp(); err != nil {
		return err
	}
	if err := r.waitLeaving(len(r.leaving)); err != nil {
		return err
	}
	if err := r.shorten(); err != nil {
		return err
	}
	if err := r.deliver(); err != nil {
		return err
	}
	if err := r.waitSends(); err != nil {
		return err
	}
	return r.reap()
}

func (r *run) do(x *line) error {
	in := x.Instr
	if !r.together && in.Micro != schedule.Once && !r.deal.exists(r.replica, in.Micro) && !(r.schedule.Meets(in) && r.deal.any(in.Micro)) {
		return r.freeAll(x) // what came for the micro-batch all the same: gathered weights, loaded variables
	}
	if err := r.reap(); err != nil {
		return err
	}
	start := time.Now()
	switch in.Kind {
	case schedule.Run:
		return r.segment(x)
	case schedule.Accumulate:
		return r.accumulate(in)
	case schedule.Merge:
		bucket := r.schedule.Buckets[in.Bucket]
		begin := r.startMerge
		if bucket.Parts {
			begin = func(bucket int) error { return r.startParts(bucket, in.Micro) }
		}
		err := begin(in.Bucket)
		r.did(trace.Event{Kind: trace.Launch, Op: r.opOf(bucket), Name: r.label("bucket %d", in.Bucket), Start: start})
		return err
	case schedule.Wait:
		wait := r.waitMerge
		switch parts := r.schedule.Buckets[in.Bucket].Parts; {
		case parts && in.Micro == schedule.Once:
			wait = r.joinParts
		case parts:
			wait = r.finishParts
		}
		err := wait(in.Bucket)
		r.did(trace.Event{Kind: trace.Wait, Op: r.opOf(r.schedule.Buckets[in.Bucket]), Name: r.label("bucket %d", in.Bucket), Start: start})
		if err != nil {
			return err
		}
	case schedule.Feed:
		if err := r.feedInput(in); err != nil {
			return err
		}
	case schedule.Send:
		if err := r.send(in); err != nil {
			return err
		}
	case schedule.Receive:
		if err := r.receive(in); err != nil {
			return err
		}
	case schedule.Exchange:
		if err := r.exchange(in); err != nil {
			return err
		}
	case schedule.Load:
		if err := r.load(in.Value); err != nil {
			return err
		}
	case schedule.Store:
		if err := r.store(in.Value); err != nil {
			return err
		}
	default:
		return errors.Errorf("unknown instruction %s", in.Kind)
	}
	return r.freeAll(x)
}

// waitSends waits until others have taken all that the device sent.
func (r *run) waitSends() error {
	if len(r.calls) == 0 && len(r.parted) == 0 && len(r.handed) == 0 {
		return nil
	}
	start := time.Now()
	for _, h := range r.calls {
		if err := h.Wait(); err != nil {
			return err
		}
	}
	for _, h := range r.handed {
		if err := r.awaitTaken(h); err != nil {
			return err
		}
	}
	for _, x := range r.parted {
		if <-x.done; x.err != nil {
			return x.err
		}
	}
	r.did(trace.Event{Kind: trace.Wait, Op: comm.Send.String(), Name: "all that was sent", Start: start})
	return nil
}

// letGo frees what the step left behind: values, and donated variables that nothing consumed. Sends are over, or failed.
func (r *run) letGo() {
	for _, h := range r.calls {
		_ = h.Wait()
	}
	var copies sync.WaitGroup
	for _, h := range r.handed {
		switch over := h.Over(); {
		case over && h.copied != nil:
			copies.Go(func() { _ = h.end() })
		case !over && h.drawn != nil:
			close(h.drawn) // nobody comes
		}
	}
	copies.Wait()
	for _, x := range r.parted {
		<-x.done
	}
	for _, m := range r.joining { // the step failed
		m.Release()
	}
	_ = r.catchUp()
	_ = r.reap()
	for at := range r.values {
		_ = r.free(at)
	}
	r.letGoHost()
	r.device.memory.reset()
}
