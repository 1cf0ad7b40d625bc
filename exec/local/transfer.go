// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package local

import (
	"fmt"
	"time"

	"github.com/gomlx/compute"
	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/shapes"

	"github.com/easyparallel/epl/comm"
	"github.com/easyparallel/epl/ir"
	"github.com/easyparallel/epl/schedule"
	"github.com/easyparallel/epl/trace"
)

// send gives a value to devices of another place. It does not wait until they take it.
func (r *run) send(in schedule.Instr) error {
	t := r.schedule.Transfers[in.Transfer]
	if t.Input {
		return r.sendInput(in, t)
	}
	for _, x := range r.hops(in.Transfer) {
		var err error
		switch x.by {
		case byHandover:
			err = r.handOver(in, x.other)
		case byDevices:
			err = r.part(in, x.other)
		default:
			err = r.sendHop(in, t, x)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// sendHop sends a value, or rows of it, through the host.
func (r *run) sendHop(in schedule.Instr, t schedule.Transfer, x hop) error {
	h, flat, shared, err := r.view(t.Value, in.Micro)
	if err != nil {
		return err
	}
	s := t.Value.LocalShape(r.at())
	if part := x.within(t.Value, r.at(), s); part != nil {
		piece := newFlat(part.shape(s))
		part.cut(piece, flat, s)
		flat, shared = piece, false
	}
	if call := r.sendFlat(flat, x.other, in.Transfer, t.Value.String(), r.flow(in.Transfer, in.Micro, r.id, x.other)); shared {
		h.sends = append(h.sends, call)
	}
	return nil
}

// sendInput lets the first device of a model replica, which feeds it, send a data input to devices of other workers.
func (r *run) sendInput(in schedule.Instr, t schedule.Transfer) error {
	if r.id != r.schedule.Ranks[r.replica][0] || r.plain[t.Value] != nil {
		return nil
	}
	var flat any
	for position, to := range r.ranks(r.replica, t.To) {
		if r.workerOf(to) == r.feeder(r.replica) {
			continue // it has the batch itself
		}
		if flat == nil {
			flat = newFlat(t.Value.Shape)
			if err := r.given(t.Value, in.Micro, func(from any) error { copyFlat(flat, from); return nil }); err != nil {
				return err
			}
		}
		r.sendFlat(rowsFor(t, flat, position), to, in.Transfer, t.Value.String(), r.flow(in.Transfer, in.Micro, r.id, to))
	}
	return nil
}

// rowsFor is the part of an input that the device at a position reads. The rest of what it gets is anything.
func rowsFor(t schedule.Transfer, flat any, position int) any {
	part, ok := rowsOf(t.Into, ir.Coordinates{0, position})
	if !ok {
		return flat
	}
	row := t.Value.Shape.Size() / t.Value.Shape.Dimensions[0]
	return slice(flat, part.start*row, (part.start+part.size)*row)
}

// sendFlat starts to send data on the host.
func (r *run) sendFlat(flat any, to, tag int, what, flow string) *comm.Handle {
	start := time.Now()
	call := r.startSend(flat, to, tag)
	name := r.label("%s to device %d", what, to)
	r.did(trace.Event{Kind: trace.Launch, Op: comm.Send.String(), Name: name, Start: start, Flow: flow})
	r.communicates(r.sendLane(), comm.Send.String(), name, start, int64(len(dtypes.UnsafeByteSliceFromAny(flat))), call)
	return call
}

func (r *run) startSend(flat any, to, tag int) *comm.Handle {
	call := r.pipes[r.local].Start(comm.Call{Op: comm.Send, Buf: flat, Peer: to, Tag: tag, Program: r.program.Name})
	r.calls = append(r.calls, call)
	return call
}

// received notes that the device waited for a value and took it.
func (r *run) received(v *ir.Value, from int, start time.Time, bytes int64, flow func() string) {
	r.noted(trace.Event{Kind: trace.Receive, Op: comm.Send.String(), Start: start, Bytes: bytes}, func(e *trace.Event) {
		e.Name, e.Flow = fmt.Sprintf("%s from device %d", v, from), flow()
	})
}

// receive takes a value that devices of another place send.
func (r *run) receive(in schedule.Instr) error {
	t := r.schedule.Transfers[in.Transfer]
	take := func(flat any, from int) error {
		start := time.Now()
		err := r.pipes[r.local].Do(comm.Call{Op: comm.Recv, Buf: flat, Peer: from, Tag: in.Transfer, Program: r.program.Name})
		if err == nil {
			r.received(t.Value, from, start, int64(len(dtypes.UnsafeByteSliceFromAny(flat))), r.flowOf(in, from, r.id))
		}
		return err
	}
	if t.Input {
		b, err := r.fill(t.Value.Shape, func(flat any) error {
			return take(rowsFor(t, flat, r.position), r.schedule.Ranks[r.replica][0])
		})
		if err != nil {
			return err
		}
		return r.keep(schedule.Slot{Value: t.Value, Micro: in.Micro}, b)
	}
	hops := r.hops(in.Transfer)
	for _, x := range hops {
		switch x.by { // it is all that the device gets
		case byHandover:
			return r.takeOver(in, x.other)
		case byDevices:
			return r.meet(in, x.other)
		}
	}
	s := t.Into.LocalShape(r.at())
	b, err := r.fill(s, func(flat any) error {
		for _, x := range hops {
			part := x.within(t.Into, r.at(), s)
			if part == nil {
				return take(flat, x.other)
			}
			piece := newFlat(part.shape(s))
			if err := take(piece, x.other); err != nil {
				return err
			}
			part.paste(flat, piece, s)
		}
		return nil
	})
	if err != nil {
		return err
	}
	return r.keep(schedule.Slot{Value: t.Into, Micro: in.Micro}, b)
}

// fill makes a buffer of what is written into its memory.
func (r *run) fill(shape shapes.Shape, write func(flat any) error) (compute.Buffer, error) {
	if !r.device.backend.HasSharedBuffers() {
		flat := newFlat(shape)
		if err := write(flat); err != nil {
			return nil, err
		}
		return r.device.backend.BufferFromFlatData(0, flat, shape)
	}
	b, flat, err := r.device.backend.NewSharedBuffer(0, shape)
	if err != nil {
		return nil, err
	}
	if err := write(flat); err != nil {
		_ = b.Finalize()
		return nil, err
	}
	return b, nil
}

// exchange does a collective with the other devices of the place, or with the same device of the other model replicas.
func (r *run) exchange(in schedule.Instr) error {
	axis, how := in.Op.Change()
	if axis == ir.Replicas {
		return r.across(in, how)
	}
	end, err := r.end(r.ranks(r.replica, r.place), r.opts.Communicators+1) // merges of the same devices are not in its way
	if err != nil {
		return err
	}
	v, out := in.Op.Inputs[0], in.Op.Outputs[0]
	_, flat, _, err := r.view(v, in.Micro)
	if err != nil {
		return err
	}
	start := time.Now()
	b, err := r.fill(out.LocalShape(r.at()), func(to any) error {
		return collective(end, r.program.Name, in.Op, how, r.at(), len(r.schedule.Groups[r.place]), flat, to, r.stage)
	})
	if err != nil {
		return err
	}
	r.did(trace.Event{Kind: trace.Wait, Op: how.String(), Name: in.Op.String(), Start: start})
	r.communicated(r.exchangeLane(), how.String(), in.Op.String(), start, max(v.Bytes(), out.Bytes()))
	if err := r.keep(schedule.Slot{Value: out, Micro: in.Micro}, b); err != nil {
		return err
	}
	return r.meter.during(schedule.ExchangeBuffers(in.Op))
}

// stage is memory of the device for a tensor on the way: see staging.
func (r *run) stage(shape shapes.Shape) (flat any, free func() error, err error) {
	b, flat, err := r.fresh(shape)
	if err != nil || b == nil {
		return flat, func() error { return nil }, err
	}
	return flat, b.Finalize, nil
}

// deliver gives results to workers whose devices do not have them: from the first model replica to their first device.
func (r *run) deliver() error {
	for i, x := range r.schedule.Results {
		from := r.ranks(0, x.Place)[0]
		at := schedule.Slot{Value: x.Value, Micro: schedule.Once}
		tag := len(r.schedule.Transfers) + i
		flow := func(to int) string { return fmt.Sprintf("result %d to %d", i, to) }
		for _, to := range r.without(x) {
			switch r.id {
			case from:
				h, err := r.value(at)
				if err != nil {
					return err
				}
				flat, shared, err := hostView(r.device.backend, h.Buffer, r.resultShape(x.Value))
				if err != nil {
					return err
				}
				if call := r.sendFlat(flat, to, tag, x.Value.String(), flow(to)); shared {
					h.sends = append(h.sends, call)
				}
			case to:
				start := time.Now()
				b, err := r.fill(r.resultShape(x.Value), func(flat any) error {
					return r.pipes[r.local].Do(comm.Call{Op: comm.Recv, Buf: flat, Peer: from, Tag: tag, Program: r.program.Name})
				})
				if err != nil {
					return err
				}
				r.received(x.Value, from, start, bytesOf(b), func() string { return flow(to) })
				if err := r.keep(at, b); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// resultShape is the shape of a result in this step: what instances concatenate is shorter where some are lacking.
func (s *step) resultShape(v *ir.Value) shapes.Shape {
	m, ok := v.Op.Attrs.(*ir.Merge)
	if !ok || m.How != ir.Concat || m.Pad || m.Worker {
		return v.Shape
	}
	shape := v.Op.Inputs[0].Shape.Clone()
	shape.Dimensions[0] *= s.deal.total()
	return shape
}

// without are the first devices of the workers that have no device with a result.
func (s *step) without(x schedule.Result) (ranks []int) {
	if s.job == nil || s.opts.Forward {
		return nil
	}
	for w, first := range s.job.Firsts() {
		has := false
		for replica := range s.schedule.Ranks {
			for _, rank := range s.ranks(replica, x.Place) {
				has = has || s.workerOf(rank) == w
			}
		}
		if !has {
			ranks = append(ranks, first)
		}
	}
	return ranks
}
