// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package local

import (
	"cmp"
	"runtime/debug"
	"slices"
	"sync"
	"time"

	"github.com/gomlx/compute"
	"github.com/gomlx/compute/dtypes"
	"github.com/pkg/errors"

	"github.com/easyparallel/epl/comm"
	"github.com/easyparallel/epl/exec"
	"github.com/easyparallel/epl/ir"
	"github.com/easyparallel/epl/schedule"
	"github.com/easyparallel/epl/trace"
)

// held is a value on a device with what the meter knows of it, which it must not ask of a buffer that someone consumed.
type held struct {
	compute.Buffer
	use      schedule.Use
	bytes    int64
	borrowed bool           // the caller's: not to be overwritten or freed
	whole    compute.Buffer // of a part of a variable that was updated where it lies: what has its memory
	readers  readers        // of a variable
	sends    []sending      // that read it
	handed   []*handover    // those that copy it without the host, also if they have begun
	// arrival, if it is not nil, waits for a value that is on its way; op and what say how it comes, in a timeline.
	arrival  func() (compute.Buffer, error)
	op, what string
}

// arrive waits until the value is there.
func (h *held) arrive() error {
	if h.arrival == nil {
		return nil
	}
	b, err := h.arrival()
	if err != nil {
		h.arrival = func() (compute.Buffer, error) { return nil, err } // it will never be there
		return err
	}
	h.Buffer, h.arrival = b, nil
	return nil
}

// sending is somebody else who reads a value.
type sending interface{ Over() bool }

// sending tells whether somebody else still reads the value.
func (h *held) sending() bool {
	h.sends = slices.DeleteFunc(h.sends, sending.Over)
	return len(h.sends) > 0
}

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

// segment runs a piece of the program.
func (r *run) segment(x *line) error {
	in, s := x.Instr, r.schedule.Segments[x.Segment]
	ins, donate, others := x.ins, x.donate, x.others
	defer x.clear()
	takes, gives := x.takes, x.gives
	for i, v := range s.Inputs {
		var err error
		if ins[i], donate[i], others[i], err = r.input(v, x, i); err != nil {
			return err
		}
	}
	owns, err := r.own(in, ins, donate)
	if err != nil {
		return err
	}
	keeps := func(i int) bool { return donate[i] && !r.runner.leaves(others[i]) }
	need := r.profiles[in.Segment].Need(keeps)
	r.remember(r.meter.books.Live.Plus(need.Peak), func() []schedule.Held { return r.profiles[in.Segment].Beyond(keeps) })
	if err := r.meter.during(need); err != nil {
		return err
	}
	if err := r.room(need.Peak.Total()); err != nil {
		return err
	}
	start := time.Now()
	outs, err := r.execute(in.Segment, ins, donate, others)
	r.ran(trace.Task{Kind: string(s.Kind), Stage: s.Stage, Micro: in.Micro}, func() string { return r.schedule.Text(in) }, start)
	if err != nil {
		return err
	}
	if host := hostMemory(r.device.backend); r.offloads && host != nil && len(outs) > 0 {
		if err := r.catchUp(); err != nil {
			return err
		}
		r.last = host.Later(outs[0])
	}
	for i, at := range takes {
		if donate[i] {
			r.forget(at)
		}
	}
	if err := r.updated(owns, outs, donate, others); err != nil {
		return err
	}
	if err := r.spoil(gives, outs); err != nil {
		return err
	}
	if err := r.keepParts(owns, gives, outs); err != nil {
		return err
	}
	for i, at := range gives {
		if h := r.values[at]; h != nil && h.whole != nil {
			continue
		}
		if err := r.keep(at, outs[i]); err != nil {
			return err
		}
	}
	return r.freeAll(x)
}

// input finds an input of a segment; owned tells whether the segment may consume it, others are those who read it, too.
func (r *run) input(v *ir.Value, x *line, i int) (b compute.Buffer, owned bool, others readers, err error) {
	at := x.takes[i]
	switch v.Op.Attrs.(type) {
	case *ir.Instance:
		b, err = scalar(r.device.backend, []uint64{uint64(r.schedule.Local.Number(r.replica, x.Micro))}, dtypes.Uint64)
		return b, true, nil, err
	case *ir.Position:
		position := r.at().At(v.Op.Attrs.(*ir.Position).Axis)
		b, err = scalar(r.device.backend, []int32{int32(position)}, dtypes.Int32)
		return b, true, nil, err
	case *ir.InstanceCount:
		b, err = known(r.device, float32(r.instances(v.Op.Attrs.(*ir.InstanceCount).Worker)), dtypes.Float32)
		return b, false, nil, err
	case *ir.Present:
		b, err = known(r.device, r.deal.exists(r.replica, at.Micro), dtypes.Bool)
		return b, false, nil, err
	}
	h, err := r.value(at)
	if err != nil {
		return nil, false, nil, err
	}
	return h.Buffer, x.frees[i] && !h.borrowed && !h.sending(), h.readers, nil
}

// value finds a value, and waits for it.
func (r *run) value(at schedule.Slot) (*held, error) {
	h := r.values[at]
	if h == nil {
		return nil, errors.Errorf("%s is not there", at.Value)
	}
	return h, r.arrive(h)
}

// view finds a value, and its elements on the host: its own memory, if they are shared.
func (r *run) view(v *ir.Value, micro int) (h *held, flat any, shared bool, err error) {
	if h, err = r.value(r.slot(v, micro)); err != nil {
		return nil, nil, false, err
	}
	flat, shared, err = hostView(r.device.backend, h.Buffer, v.LocalShape(r.at()))
	return h, flat, shared, err
}

// slot is where a value is kept: variables are there once.
func (x *stepper) slot(v *ir.Value, micro int) schedule.Slot {
	if _, isParam := x.param[v]; isParam && !x.isInput[v] {
		micro = schedule.Once
	}
	return schedule.Slot{Value: v, Micro: micro}
}

// feedInput gets an input of the instance: from the batches of this worker, or from the worker that feeds the model replica.
func (r *run) feedInput(in schedule.Instr) error {
	plain := r.plain[in.Value]
	if plain == nil && r.feeder(r.replica) != r.workerOf(r.id) {
		return r.receive(in)
	}
	start := time.Now()
	if plain != nil {
		flat, err := toHost(plain, in.Value.Shape)
		if err != nil {
			return err
		}
		b, err := r.device.backend.BufferFromFlatData(0, flat, in.Value.Shape)
		if err != nil {
			return err
		}
		r.did(trace.Event{Kind: trace.Data, Name: in.Value.String(), Start: start, Bytes: bytesOf(b)})
		return r.keep(schedule.Slot{Value: in.Value, Micro: in.Micro}, b)
	}
	if err := r.room(in.Value.Bytes()); err != nil {
		return err
	}
	var b compute.Buffer
	err := r.given(in.Value, in.Micro, func(flat any) (err error) {
		b, err = r.device.backend.BufferFromFlatData(0, flat, in.Value.Shape)
		return err
	})
	if err != nil {
		return err
	}
	r.did(trace.Event{Kind: trace.Data, Name: r.label("input %d", r.tensor[in.Value]), Start: start, Bytes: bytesOf(b)})
	return r.keep(schedule.Slot{Value: in.Value, Micro: in.Micro}, b)
}

func (r *run) keep(at schedule.Slot, b compute.Buffer) error {
	if err := r.free(at); err != nil { // what does not differ between instances may be computed again
		return err
	}
	h := r.device.memory.newHeld()
	h.Buffer, h.use, h.bytes = b, r.ledger.Use(at.Value), bytesOf(b)
	r.values[at] = h
	return r.meter.add(h.use, h.bytes)
}

// forget takes a value off the books: someone else has it now.
func (r *run) forget(at schedule.Slot) {
	if b, ok := r.values[at]; ok {
		_ = r.meter.add(b.use, -b.bytes)
		delete(r.values, at)
	}
}

// take takes a value off the books to overwrite it. What others still read, or have the memory of, is copied.
func (r *run) take(at schedule.Slot) (compute.Buffer, bool, error) {
	h, ok := r.values[at]
	if !ok {
		return nil, false, nil
	}
	if err := r.arrive(h); err != nil {
		return nil, false, err
	}
	shared, ok := h.Buffer.(exec.SharedBuffer)
	if !h.sending() && !(ok && shared.Shared()) {
		h.readers.wait()
		r.forget(at)
		return h.Buffer, true, nil
	}
	flat, err := toHost(h, at.Value.LocalShape(r.at()))
	if err != nil {
		return nil, false, err
	}
	delete(r.values, at)
	r.outbox = append(r.outbox, h)
	b, err := r.device.backend.BufferFromFlatData(0, flat, at.Value.LocalShape(r.at()))
	return b, true, err
}

// freeAll lets go of what nobody needs after an instruction.
func (r *run) freeAll(x *line) error {
	for _, at := range x.dies {
		if err := r.free(at); err != nil {
			return err
		}
	}
	return nil
}

func (r *run) free(at schedule.Slot) error {
	h, ok := r.values[at]
	if !ok || h.borrowed {
		return nil
	}
	if err := r.arrive(h); err != nil {
		r.forget(at)
		return err
	}
	if h.sending() {
		delete(r.values, at)
		r.outbox = append(r.outbox, h)
		return nil
	}
	r.forget(at)
	return r.finalize(h)
}

// finalize frees a value. Memory that others copy from is free only when they have done so.
func (r *run) finalize(h *held) error {
	if len(h.handed) > 0 {
		r.leaving = append(r.leaving, leaving{func() error {
			for _, x := range h.handed {
				if err := x.end(); err != nil {
					return err
				}
			}
			return nil
		}, h.bytes})
	}
	err := r.runner.finalize(h.Buffer, h.readers)
	if h.whole != nil {
		err = cmp.Or(err, h.whole.Finalize())
	}
	return err
}

// reap lets go of what others have read by now.
func (r *run) reap() error {
	for i := 0; i < len(r.outbox); {
		h := r.outbox[i]
		if h.sending() {
			i++
			continue
		}
		r.outbox = slices.Delete(r.outbox, i, i+1)
		_ = r.meter.add(h.use, -h.bytes)
		if err := r.finalize(h); err != nil {
			return err
		}
	}
	return nil
}

// accumulate adds the values of a micro-batch to those of the micro-batches before.
func (r *run) accumulate(in schedule.Instr) error {
	bucket := r.schedule.Buckets[in.Bucket]
	if !bucket.How.Adds() {
		return nil // all are kept, until they are merged
	}
	values, _ := bucket.Values()
	if lacks, err := r.unused(in.Micro, values...); lacks {
		return err
	}
	if _, begun := r.values[schedule.Slot{Value: values[0], Micro: schedule.Once}]; !begun {
		for _, v := range values {
			b, _, err := r.take(schedule.Slot{Value: v, Micro: in.Micro})
			if err != nil {
				return err
			}
			if err := r.keep(schedule.Slot{Value: v, Micro: schedule.Once}, b); err != nil {
				return err
			}
		}
		return nil
	}
	var ins []compute.Buffer
	for _, v := range values {
		sum := r.values[schedule.Slot{Value: v, Micro: schedule.Once}]
		next, _, err := r.take(schedule.Slot{Value: v, Micro: in.Micro})
		if err != nil {
			return err
		}
		ins = append(ins, sum.Buffer, next)
	}
	donate := slices.Repeat([]bool{true}, len(ins))
	start := time.Now()
	outs, err := r.device.adders[in.Bucket].Execute(ins, donate, 0)
	r.ran(trace.Task{Kind: trace.Accumulate, Stage: r.schedule.Segments[bucket.After].Stage, Micro: in.Micro}, func() string { return r.schedule.Text(in) }, start)
	if err != nil {
		return err
	}
	for i, v := range values {
		r.forget(schedule.Slot{Value: v, Micro: schedule.Once})
		if err := r.keep(schedule.Slot{Value: v, Micro: schedule.Once}, outs[i]); err != nil {
			return err
		}
	}
	return nil
}

// give hands an output over.
func (r *run) give(v *ir.Value) (compute.Buffer, error) {
	at := schedule.Slot{Value: v, Micro: schedule.Once}
	h, ok := r.values[at]
	if !ok {
		return nil, errors.Errorf("device %d did not compute it", r.id)
	}
	if err := r.arrive(h); err != nil {
		return nil, err
	}
	h.readers.wait()
	r.forget(at)
	return h.Buffer, nil
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
	_ = r.catchUp()
	_ = r.reap()
	for at := range r.values {
		_ = r.free(at)
	}
	r.letGoHost()
	r.device.memory.reset()
}

func bytesOf(b compute.Buffer) int64 {
	s, err := b.Shape()
	if err != nil {
		return 0
	}
	return s.ByteSize()
}
