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

// across begins an exchange with the same device of the other model replicas. What comes of it is waited for when it is used.
func (r *run) across(in schedule.Instr, how ir.Collective) error {
	h, flat, shared, err := r.view(in.Op.Inputs[0], in.Micro)
	if err != nil {
		return err
	}
	begun := time.Now()
	end, err := r.end(r.peers(), r.opts.Communicators+1)
	if err != nil {
		return err
	}
	out := in.Op.Outputs[0]
	shape := out.LocalShape(r.at())
	b, to, err := r.fresh(shape)
	if err != nil {
		return err
	}
	call := comm.Call{Program: r.program.Name}
	if how == ir.AllReduceOf {
		copyFlat(to, flat)
		call.Op, call.Buf, call.Reduction = comm.AllReduce, to, reductions[in.Op.Inputs[0].On(ir.Replicas).Reduce]
	} else {
		call.OutCounts = r.counts(shape.Size(), in.Op.Inputs[0].LocalShape(r.at()).Size())
		call.Op, call.In, call.Out = comm.AllGather, slice(flat, 0, call.OutCounts[r.replica]), to
	}
	start := time.Now()
	handle := end.Start(call)
	if shared && how != ir.AllReduceOf {
		h.sends = append(h.sends, handle)
	}
	r.did(trace.Event{Kind: trace.Launch, Op: call.Op.String(), Name: in.Op.String(), Start: begun})
	r.communicates(r.exchangeLane(), call.Op.String(), in.Op.String(), start, out.Bytes(), handle)
	at := schedule.Slot{Value: out, Micro: in.Micro}
	r.coming(at, out.Bytes(), call.Op.String(), func() (compute.Buffer, error) {
		if err := handle.Wait(); err != nil {
			if b != nil {
				_ = b.Finalize()
			}
			return nil, err
		}
		if b != nil {
			return b, nil
		}
		return r.device.backend.BufferFromFlatData(0, to, shape)
	})
	return r.meter.add(r.values[at].use, out.Bytes())
}
