// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package local

import (
	"time"

	"github.com/gomlx/compute"
	"github.com/gomlx/compute/dtypes"

	"github.com/easyparallel/epl/ir"
	"github.com/easyparallel/epl/schedule"
	"github.com/easyparallel/epl/trace"
)

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
	var owns []*owning
	if len(s.Owns) > 0 {
		var err error
		if owns, err = r.own(in, ins, donate, others); err != nil {
			return err
		}
	}
	keeps := func(i int) bool { return donate[i] && !r.runner.leaves(others[i]) }
	need := x.needs(r.profiles[in.Segment], keeps)
	r.remember(r.meter.books.Live.Plus(need.Peak), func() []schedule.Held { return r.profiles[in.Segment].Beyond(keeps) })
	if err := r.meter.during(need); err != nil {
		return err
	}
	if err := r.room(need.Peak.Total()); err != nil {
		return err
	}
	start := time.Now()
	outs, err := r.execute(in.Segment, ins, donate, others)
	r.ranLine(trace.Task{Kind: string(s.Kind), Stage: s.Stage, Micro: in.Micro}, &x.Instr, start)
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
			r.passOn(at)
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
		if err := r.free(at); err != nil { // what does not differ between instances may be computed again
			return err
		}
		if err := r.keepFor(x.uses[i], at, outs[i]); err != nil {
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
