// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package local

import (
	"fmt"
	"reflect"
	"slices"
	"time"

	"github.com/gomlx/compute"
	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/dtypes/float16"
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

// scattering is a bucket of which each model replica gets a part, on its way.
type scattering struct {
	micro  int
	outs   []*ir.Value
	from   any   // what is added up, by model replica
	to     any   // what this one gets
	sizes  []int // elements of each value's part
	call   *comm.Handle
	half   *halved // what travels as float16; nil: nothing
	factor float64 // of what traveled as float16
	free   func()  // gives back what others read
}

// startParts begins to add up the values of a micro-batch over the model replicas, each of which gets a part of the sum.
func (r *run) startParts(bucket, micro int) error {
	b := r.schedule.Buckets[bucket]
	c, err := r.circle(bucket)
	if err != nil {
		return err
	}
	ins, outs := b.Values()
	x := &scattering{outs: outs, micro: micro}
	total := 0
	for _, v := range outs {
		n := v.LocalShape(r.at()).Size()
		x.sizes = append(x.sizes, n)
		total += n
	}
	n := r.schedule.Local.Replicas
	dtype := ins[0].Shape.DType
	half := r.opts.FP16Scale > 0 && dtype == dtypes.Float32
	if half {
		x.from = make([]float32, n*total)
	} else {
		x.from, x.free = r.lent(dtype, n*total)
	}
	x.to = newFlat(shapes.Make(dtype, total))
	if err := r.meter.add(schedule.ForCommunication, r.schedule.MergeBuffers(bucket, r.traffic)); err != nil {
		return err
	}
	lacks, err := r.unused(micro, ins...)
	if err != nil {
		return err
	}
	for i, at := 0, 0; i < len(ins) && !lacks; i++ {
		if err := r.lay(x.from, schedule.Slot{Value: ins[i], Micro: micro}, at, total, x.sizes[i]); err != nil {
			return err
		}
		at += x.sizes[i]
	}
	scale := 1.0
	if b.How == ir.Mean {
		scale = 1 / float64(max(c.total, 1))
	}
	peers := r.peers()
	end, err := r.end(peers, bucket%r.opts.Communicators)
	if err != nil {
		return err
	}
	call := comm.Call{Op: comm.ReduceScatter, In: x.from, Out: x.to, Reduction: comm.Sum, Scale: scale, Program: r.program.Name}
	start := time.Now()
	if half {
		x.half, x.factor = &halved{ranks: len(peers), prefer: r.opts.FP16Scale}, scale
		var in any
		in, x.free = r.lent(dtypes.Float16, n*total)
		flat, half := x.from.([]float32), in.([]float16.Float16)
		at := 0
		for _, size := range x.sizes {
			var t travel
			for i := range n {
				lo := i*total + at
				t.from, t.to = append(t.from, flat[lo:lo+size]), append(t.to, half[lo:lo+size])
			}
			x.half.add(t)
			at += size
		}
		x.to = make([]float16.Float16, total)
		agree := x.half.agree()
		agree.Program = r.program.Name
		end.Start(agree) // if it fails, so does what comes after it
		call.In, call.Out, call.Scale = half, x.to, 1
		call.Before = func() {
			for i := range x.half.values {
				x.half.narrow(i)
			}
		}
	}
	x.call = end.Start(call)
	r.communicates(1+bucket%r.opts.Communicators, r.opOf(b), fmt.Sprintf("bucket %d", bucket), start, r.travels(b), x.call)
	r.scattered[bucket] = x
	return nil
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

// lay puts the parts of a value where those of each model replica lie.
func (r *run) lay(all any, at schedule.Slot, offset, total, part int) error {
	b, ok, err := r.take(at)
	if err != nil || !ok {
		return err
	}
	flat, _, err := hostView(r.device.backend, b, at.Value.LocalShape(r.at()))
	if err != nil {
		return err
	}
	from, to := reflect.ValueOf(flat), reflect.ValueOf(all)
	for i := range r.schedule.Local.Replicas {
		lo, hi := min(i*part, from.Len()), min((i+1)*part, from.Len())
		reflect.Copy(to.Slice(i*total+offset, i*total+offset+hi-lo), from.Slice(lo, hi))
	}
	return b.Finalize()
}

// finishParts keeps what came of a bucket's micro-batch, if one is on its way, added to what came of those before.
func (r *run) finishParts(bucket int) error {
	x := r.scattered[bucket]
	if x == nil {
		return nil
	}
	r.scattered[bucket] = nil
	if err := x.call.Wait(); err != nil {
		return err
	}
	x.free()
	if x.half != nil {
		half := x.to.([]float16.Float16)
		flat := make([]float32, len(half))
		at := 0
		for i, size := range x.sizes {
			x.half.widen(i, flat[at:at+size], half[at:at+size], x.factor)
			at += size
		}
		x.to = flat
	}
	at := 0
	var news []compute.Buffer
	for i, v := range x.outs {
		b, err := r.device.backend.BufferFromFlatData(0, slice(x.to, at, at+x.sizes[i]), v.LocalShape(r.at()))
		if err != nil {
			return err
		}
		news = append(news, b)
		at += x.sizes[i]
	}
	if _, begun := r.values[schedule.Slot{Value: x.outs[0], Micro: schedule.Once}]; begun {
		var ins []compute.Buffer
		for i, v := range x.outs {
			ins = append(ins, r.values[schedule.Slot{Value: v, Micro: schedule.Once}].Buffer, news[i])
		}
		start := time.Now()
		sums, err := r.device.adders[bucket].Execute(ins, slices.Repeat([]bool{true}, len(ins)), 0)
		r.ran(trace.Task{Kind: trace.Accumulate, Stage: r.schedule.Segments[r.schedule.Buckets[bucket].After].Stage, Micro: x.micro}, fmt.Sprintf("add bucket %d", bucket), start)
		if err != nil {
			return err
		}
		for _, v := range x.outs {
			r.forget(schedule.Slot{Value: v, Micro: schedule.Once})
		}
		news = sums
	}
	for i, v := range x.outs {
		if err := r.keep(schedule.Slot{Value: v, Micro: schedule.Once}, news[i]); err != nil {
			return err
		}
	}
	return r.meter.add(schedule.ForCommunication, -r.schedule.MergeBuffers(bucket, r.traffic))
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
	var b compute.Buffer
	var to any
	if r.device.backend.HasSharedBuffers() {
		if b, to, err = r.device.backend.NewSharedBuffer(0, shape); err != nil {
			return err
		}
	} else {
		to = newFlat(shape)
	}
	call := comm.Call{Program: r.program.Name}
	if how == ir.AllReduceOf {
		copyFlat(to, flat)
		call.Op, call.Buf, call.Reduction = comm.AllReduce, to, reductions[in.Op.Inputs[0].On(ir.Replicas).Reduce]
	} else {
		part, whole := in.Op.Inputs[0].LocalShape(r.at()).Size(), shape.Size()
		for i := range r.schedule.Local.Replicas { // without what lies past the end
			call.OutCounts = append(call.OutCounts, max(min(whole-i*part, part), 0))
		}
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
