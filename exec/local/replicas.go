// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package local

import (
	"fmt"
	"slices"
	"time"

	"github.com/gomlx/compute"
	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/shapes"

	"github.com/easyparallel/epl/comm"
	"github.com/easyparallel/epl/ir"
	"github.com/easyparallel/epl/schedule"
	"github.com/easyparallel/epl/trace"
)

// peers are the same device of all model replicas.
func (r *run) peers() (ranks []int) {
	for replica := range r.schedule.Ranks {
		ranks = append(ranks, r.rank(seat{replica, r.place, r.position}))
	}
	return ranks
}

// lent returns a slice of zeros for others to read, and what gives it back. Workers of this host read it where it is, if there
// is memory that they share.
func (r *run) lent(dtype dtypes.DType, n int) (flat any, free func()) {
	flat, free, err := r.world.Alloc(dtype, n)
	if err != nil {
		return newFlat(shapes.Make(dtype, n)), func() {}
	}
	return flat, free
}

// end is the device's end of a group.
func (r *run) end(ranks []int, channel int) (*comm.Communicator, error) {
	group, err := r.world.Group(ranks)
	if err != nil {
		return nil, err
	}
	return group.Communicator(r.id, channel)
}

// joinParts adds up the terms that the devices of the model replica have of the bucket's parts.
func (r *run) joinParts(bucket int) error {
	b := r.schedule.Buckets[bucket]
	_, outs := b.Values()
	end, err := r.end(r.ranks(r.replica, r.place), bucket%r.opts.Communicators)
	if err != nil {
		return err
	}
	start, bytes := time.Now(), int64(0)
	for _, v := range outs {
		h, flat, shared, err := r.view(v, schedule.Once)
		if err != nil {
			return err
		}
		bytes += v.Bytes()
		if err := end.Do(comm.Call{Op: comm.AllReduce, Buf: flat, Reduction: comm.Sum, Program: r.program.Name}); err != nil {
			return err
		}
		if shared {
			continue
		}
		if err := h.Finalize(); err != nil {
			return err
		}
		if h.Buffer, err = r.device.backend.BufferFromFlatData(0, flat, v.LocalShape(r.at())); err != nil {
			return err
		}
	}
	r.communicated(1+bucket%r.opts.Communicators, comm.AllReduce.String(), fmt.Sprintf("bucket %d", bucket), start, bytes)
	return nil
}

// across begins an exchange with the same device of the other model replicas: what is gathered together is one call; for variables in common memory all only meet. What comes
// of it is waited for when it is used.
func (r *run) across(in schedule.Instr, how ir.Collective) error {
	begun := time.Now()
	end, err := r.end(r.peers(), r.opts.Communicators+1)
	if err != nil {
		return err
	}
	call := comm.Call{Program: r.program.Name}
	var all []*crossing
	bytes := int64(0)
	for _, op := range in.Ops() {
		x, err := r.crossing(op, in.Micro)
		if err != nil {
			return err
		}
		all = append(all, x)
		if x.common {
			continue
		}
		bytes += x.out.Bytes()
		if how == ir.AllReduceOf {
			copyFlat(x.to, x.from)
			call.Op, call.Buf, call.Reduction = comm.AllReduce, x.to, reductions[op.Inputs[0].On(ir.Replicas).Reduce]
		} else {
			counts := r.counts(x.shape.Size(), op.Inputs[0].LocalShape(r.at()).Size())
			mine := slice(x.from, 0, counts[r.replica])
			if call.In == nil {
				call.Op, call.In, call.Out, call.OutCounts = comm.AllGather, mine, x.to, counts
			} else {
				call.More = append(call.More, comm.Buffers{In: mine, Out: x.to, OutCounts: counts})
			}
		}
	}
	start := time.Now()
	if common := func(x *crossing) bool { return x.common }; slices.ContainsFunc(all, common) {
		if call.In == nil { // nothing travels
			call.Op = comm.Barrier
		} else if slices.Contains(call.OutCounts, 0) { // nobody waits for who gives nothing
			end.Start(comm.Call{Op: comm.Barrier, Program: r.program.Name})
		}
	}
	handle := end.Start(call)
	r.did(trace.Event{Kind: trace.Launch, Op: call.Op.String(), Name: in.Exchanged(), Start: begun})
	r.communicates(r.exchangeLane(), call.Op.String(), in.Exchanged(), start, bytes, handle)
	for _, x := range all {
		if x.shared && !x.common && how != ir.AllReduceOf {
			x.held.sends = append(x.held.sends, handle)
		}
		at, counts := schedule.Slot{Value: x.out, Micro: in.Micro}, r.schedule.Counts(x.out, x.out.Bytes(), r.traffic)
		r.coming(at, counts, call.Op.String(), func() (compute.Buffer, error) { return x.arrival(handle) })
		if err := r.meter.add(r.values[at].use, counts); err != nil {
			return err
		}
	}
	return nil
}

// crossing is a value that is exchanged with other model replicas.
type crossing struct {
	backend  compute.Backend
	held     *held
	shared   bool // from is its memory
	from, to any
	out      *ir.Value
	shape    shapes.Shape   // of what comes
	b        compute.Buffer // that has it; nil: to has
	common   bool           // all model replicas have it there: nothing travels
}

// crossing finds what an op gives, and memory for what it gets.
func (r *run) crossing(op *ir.Op, micro int) (*crossing, error) {
	h, flat, shared, err := r.view(op.Inputs[0], micro)
	if err != nil {
		return nil, err
	}
	x := &crossing{backend: r.device.backend, held: h, shared: shared, from: flat, out: op.Outputs[0], shape: op.Outputs[0].LocalShape(r.at())}
	j, joins := r.joining[x.out]
	switch {
	case joins:
		if err = r.joins(x, j); err == nil && h.whole != nil {
			r.forget(r.slot(op.Inputs[0], micro))
			err = r.finalize(h)
		}
		return x, err
	case h.whole == nil:
		x.b, x.to, err = r.gathersInto(op, micro, x.shape)
		return x, err
	}
	r.forget(r.slot(op.Inputs[0], micro)) // what comes has its memory
	x.b, x.common = h.whole, commonOf(h.whole) != nil
	x.to, _, err = hostView(x.backend, x.b, x.shape)
	return x, err
}

// arrival waits for what comes.
func (x *crossing) arrival(handle *comm.Handle) (compute.Buffer, error) {
	if err := handle.Wait(); err != nil {
		if x.b != nil {
			_ = x.b.Finalize()
		}
		return nil, err
	}
	if x.b != nil {
		return x.b, nil
	}
	return x.backend.BufferFromFlatData(0, x.to, x.shape)
}
