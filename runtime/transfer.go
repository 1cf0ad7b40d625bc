package runtime

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

// send gives a value to another device of the model replica. It does not wait until that takes it.
func (r *run) send(in schedule.Instr) error {
	t := r.schedule.Transfers[in.Transfer]
	to := r.schedule.Ranks[r.replica][t.To]
	flow := r.flow(in.Transfer, in.Micro)
	if t.Input {
		if r.workerOf(to) == r.feeder(r.replica) {
			return nil // it has the batch itself
		}
		_, number := r.deal.batch(r.replica, in.Micro)
		flat, err := r.feed.host(r.batches[number], r.tensor[t.Value])
		if err != nil {
			return err
		}
		r.startSend(rowsOf(t, flat), to, in.Transfer, t.Value.String(), flow)
		return nil
	}
	h, flat, shared, err := r.view(t.Value, in.Micro)
	if err != nil {
		return err
	}
	if call := r.startSend(flat, to, in.Transfer, t.Value.String(), flow); shared {
		h.sends = append(h.sends, call)
	}
	return nil
}

// rowsOf is the part of an input that its receiver reads. The rest of what it gets is anything.
func rowsOf(t schedule.Transfer, flat any) any {
	if t.Rows == 0 {
		return flat
	}
	row := t.Value.Shape.Size() / t.Value.Shape.Dimensions[0]
	return slice(flat, t.Start*row, (t.Start+t.Rows)*row)
}

func (r *run) startSend(flat any, to, tag int, what, flow string) *comm.Handle {
	start := time.Now()
	call := r.pipes[r.local].Start(comm.Call{Op: comm.Send, Buf: flat, Peer: to, Tag: tag, Program: r.program.Name})
	r.calls = append(r.calls, call)
	name := fmt.Sprintf("%s to device %d", what, to)
	r.did(trace.Event{Kind: trace.Launch, Op: comm.Send.String(), Name: name, Start: start, Flow: flow})
	r.communicates(r.sendLane(), comm.Send.String(), name, start, int64(len(dtypes.UnsafeByteSliceFromAny(flat))), call)
	return call
}

// received notes that the device waited for a value and took it.
func (r *run) received(v *ir.Value, from int, start time.Time, bytes int64, flow string) {
	r.did(trace.Event{Kind: trace.Receive, Op: comm.Send.String(), Name: fmt.Sprintf("%s from device %d", v, from), Start: start, Bytes: bytes, Flow: flow})
}

// receive takes a value that another device of the model replica sends.
func (r *run) receive(in schedule.Instr) error {
	t := r.schedule.Transfers[in.Transfer]
	from := r.schedule.Ranks[r.replica][t.From]
	start := time.Now()
	b, err := r.fill(t.Value.Shape, func(flat any) error {
		return r.pipes[r.local].Do(comm.Call{Op: comm.Recv, Buf: rowsOf(t, flat), Peer: from, Tag: in.Transfer, Program: r.program.Name})
	})
	if err != nil {
		return err
	}
	r.received(t.Value, from, start, bytesOf(b), r.flow(in.Transfer, in.Micro))
	return r.keep(schedule.Slot{Value: t.Value, Micro: in.Micro}, b)
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

// exchange does a collective with other devices of the model replica, or with the same device of the others.
func (r *run) exchange(in schedule.Instr) error {
	a := in.Op.Attrs.(*ir.Exchange)
	if a.Replicas {
		return r.across(in, a)
	}
	ranks := make([]int, len(a.Places))
	mine := 0
	for i, place := range a.Places {
		ranks[i] = r.schedule.Ranks[r.replica][place]
		if place == r.place {
			mine = i
		}
	}
	group, err := r.world.Group(ranks)
	if err != nil {
		return err
	}
	end, err := group.Communicator(r.id, r.opts.Communicators+1) // merges of the same devices are not in its way
	if err != nil {
		return err
	}
	v, out := in.Op.Inputs[mine], in.Op.Outputs[mine]
	_, flat, _, err := r.view(v, in.Micro)
	if err != nil {
		return err
	}
	start := time.Now()
	b, err := r.fill(out.Shape, func(to any) error { return collective(end, r.program.Name, in.Op, a, mine, flat, to) })
	if err != nil {
		return err
	}
	r.did(trace.Event{Kind: trace.Wait, Op: a.How.String(), Name: in.Op.String(), Start: start})
	r.communicated(r.exchangeLane(), a.How.String(), in.Op.String(), start, max(v.Bytes(), out.Bytes()))
	if err := r.keep(schedule.Slot{Value: out, Micro: in.Micro}, b); err != nil {
		return err
	}
	return r.meter.during(schedule.ExchangeBuffers(in.Op, r.place))
}

// deliver gives results to workers whose devices do not have them: from the first model replica to their first device.
func (r *run) deliver() error {
	for i, x := range r.schedule.Results {
		from := r.schedule.Ranks[0][x.Place]
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
				if call := r.startSend(flat, to, tag, x.Value.String(), flow(to)); shared {
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
	if s.job == nil {
		return nil
	}
	for w, first := range s.job.Firsts() {
		has := false
		for _, replica := range s.schedule.Ranks {
			has = has || s.workerOf(replica[x.Place]) == w
		}
		if !has {
			ranks = append(ranks, first)
		}
	}
	return ranks
}
