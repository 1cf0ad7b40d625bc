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

// leg is what one device of a place sends to one of another: some rows of a value, all if dim is -1.
type leg struct {
	from, to int // positions
	dim      int
	rows     [2]int // of the value
}

// legs say who sends what to whom: each device of the second place gets what it needs from those of the first that have it.
func (r *run) legs(t schedule.Transfer) (legs []leg) {
	n, m := len(r.schedule.Groups[t.From]), len(r.schedule.Groups[t.To])
	has, needs := t.Value.On(ir.Model), t.Into.On(ir.Model)
	dims := t.Value.Shape.Dimensions
	for to := range m {
		if has.Kind != ir.Sharded && needs.Kind != ir.Sharded {
			legs = append(legs, leg{to % n, to, -1, [2]int{}})
			continue
		}
		x := leg{to % n, to, needs.Dim, [2]int{}}
		if needs.Kind != ir.Sharded {
			x.dim = has.Dim
			x.rows[1] = dims[x.dim]
		} else {
			x.rows[0], x.rows[1] = needs.Rows(dims[x.dim], to, t.Into.Division(ir.Model))
		}
		if has.Kind != ir.Sharded {
			legs = append(legs, x)
			continue
		}
		for from := range n {
			first, last := has.Rows(dims[x.dim], from, t.Value.Division(ir.Model))
			if first, last = max(first, x.rows[0]), min(last, x.rows[1]); first < last {
				legs = append(legs, leg{from, to, x.dim, [2]int{first, last}})
			}
		}
	}
	return legs
}

// within are the rows of a leg in what a device has of a value, which is of the given shape; nil if they are all of it.
func (x leg) within(v *ir.Value, at ir.Coordinates, s shapes.Shape) *rows {
	if x.dim < 0 {
		return nil
	}
	r := &rows{dim: x.dim, start: x.rows[0], size: x.rows[1] - x.rows[0]}
	if mine, ok := rowsOf(v, at); ok && mine.dim == x.dim {
		r.start -= mine.start
	}
	if r.size == s.Dimensions[x.dim] {
		return nil
	}
	return r
}

// send gives a value to devices of another place. It does not wait until they take it.
func (r *run) send(in schedule.Instr) error {
	t := r.schedule.Transfers[in.Transfer]
	if t.Input {
		return r.sendInput(in, t)
	}
	for _, x := range r.legs(t) {
		if x.from != r.position {
			continue
		}
		to := r.rank(seat{r.replica, t.To, x.to})
		var hand func(in schedule.Instr, to int) error
		switch {
		case !r.whole(t, x):
		case r.near(r.id, to):
			hand = r.handOver
		case r.reaches(r.id, to):
			hand = r.part
		}
		if hand != nil {
			if err := hand(in, to); err != nil {
				return err
			}
			continue
		}
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
		if call := r.sendFlat(flat, to, in.Transfer, t.Value.String(), r.flow(in.Transfer, in.Micro, r.id, to)); shared {
			h.sends = append(h.sends, call)
		}
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
func (r *run) received(v *ir.Value, from int, start time.Time, bytes int64, flow string) {
	r.did(trace.Event{Kind: trace.Receive, Op: comm.Send.String(), Name: r.label("%s from device %d", v, from), Start: start, Bytes: bytes, Flow: flow})
}

// receive takes a value that devices of another place send.
func (r *run) receive(in schedule.Instr) error {
	t := r.schedule.Transfers[in.Transfer]
	take := func(flat any, from int) error {
		start := time.Now()
		err := r.pipes[r.local].Do(comm.Call{Op: comm.Recv, Buf: flat, Peer: from, Tag: in.Transfer, Program: r.program.Name})
		if err == nil {
			r.received(t.Value, from, start, int64(len(dtypes.UnsafeByteSliceFromAny(flat))), r.flow(in.Transfer, in.Micro, from, r.id))
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
	for _, x := range r.legs(t) {
		from := r.rank(seat{r.replica, t.From, x.from})
		switch { // it is all that the device gets
		case x.to != r.position || !r.whole(t, x):
		case r.near(from, r.id):
			return r.takeOver(in, from)
		case r.reaches(from, r.id):
			return r.meet(in, from)
		}
	}
	s := t.Into.LocalShape(r.at())
	b, err := r.fill(s, func(flat any) error {
		for _, x := range r.legs(t) {
			if x.to != r.position {
				continue
			}
			from := r.rank(seat{r.replica, t.From, x.from})
			part := x.within(t.Into, r.at(), s)
			if part == nil {
				return take(flat, from)
			}
			piece := newFlat(part.shape(s))
			if err := take(piece, from); err != nil {
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
		return collective(end, r.program.Name, in.Op, how, r.at(), len(r.schedule.Groups[r.place]), flat, to)
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
				r.received(x.Value, from, start, bytesOf(b), flow(to))
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
