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

// scattering is a bucket of which each model replica gets a part, on its way. Gradients are reduced where they are, in one call. What is small
// between workers, or travels as float16, is laid out by model replica first, and goes in another.
type scattering struct {
	micro  int
	outs   []*ir.Value
	news   []compute.Buffer // by value: this replica's part
	flats  []any            // by value, where news has none: its elements
	wholes []compute.Buffer // what others read
	calls  []*comm.Handle
	laid   *laidOut // nil: nothing
}

// laidOut is values that travel together.
type laidOut struct {
	which  []int   // values
	sizes  []int   // elements of each value's part
	total  int     // elements of all parts
	from   any     // what is added up, by model replica
	to     any     // what this one gets
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
	end, err := r.end(r.peers(), bucket%r.opts.Communicators)
	if err != nil {
		return err
	}
	x := &scattering{outs: outs, micro: micro, news: make([]compute.Buffer, len(outs)), flats: make([]any, len(outs))}
	call := comm.Call{Op: comm.ReduceScatter, Reduction: comm.Sum, Scale: 1, Program: r.program.Name}
	if b.How == ir.Mean {
		call.Scale = 1 / float64(max(c.total, 1))
	}
	if err := r.meter.add(schedule.ForCommunication, r.schedule.MergeBuffers(bucket, r.traffic)); err != nil {
		return err
	}
	lacks, err := r.unused(micro, ins...)
	if err != nil {
		return err
	}
	start := time.Now()
	var laid laidOut
	large := call
	for i, v := range ins {
		if r.traffic.Lays(v) {
			laid.which = append(laid.which, i)
			continue
		}
		b, err := r.scatter(x, i, v, lacks)
		if err != nil {
			return err
		}
		if large.In == nil {
			large.In, large.Out, large.InCounts = b.In, b.Out, b.InCounts
		} else {
			large.More = append(large.More, b)
		}
	}
	if large.In != nil {
		x.calls = append(x.calls, end.Start(large))
	}
	if len(laid.which) > 0 {
		x.laid = &laid
		if err := r.scatterLaid(x, ins, lacks, end, call); err != nil {
			return err
		}
	}
	r.communicates(1+bucket%r.opts.Communicators, r.opOf(b), fmt.Sprintf("bucket %d", bucket), start, r.travels(b), x.calls...)
	r.scattered[bucket] = x
	return r.meter.addAll(r.schedule.Pending(r.ledger, bucket, r.traffic), 1)
}

// scatter is what a value that is added up where it is adds to a call.
func (r *run) scatter(x *scattering, i int, v *ir.Value, lacks bool) (call comm.Buffers, err error) {
	at, shape := schedule.Slot{Value: v, Micro: x.micro}, v.LocalShape(r.at())
	if lacks {
		call.In = newFlat(shape)
	} else {
		b, _, err := r.take(at)
		if err != nil {
			return call, err
		}
		var shared bool
		if call.In, shared, err = hostView(r.device.backend, b, shape); err != nil {
			return call, err
		}
		if shared {
			x.wholes = append(x.wholes, b)
		} else if err := b.Finalize(); err != nil {
			return call, err
		}
	}
	mine := x.outs[i].LocalShape(r.at())
	b, to, err := r.fresh(mine)
	if err != nil {
		return call, err
	}
	x.news[i], x.flats[i] = b, to
	call.InCounts = r.counts(shape.Size(), mine.Size())
	n := call.InCounts[r.replica]
	reflect.ValueOf(slice(to, n, mine.Size())).Clear() // past the end
	call.Out = slice(to, 0, n)
	return call, nil
}

// counts are the elements that each model replica has of a whole, without what lies past its end.
func (r *run) counts(whole, part int) (counts []int) {
	for i := range r.schedule.Local.Replicas {
		counts = append(counts, max(min(whole-i*part, part), 0))
	}
	return counts
}

// fresh is memory for a value: that of a buffer, if the backend shares it; else b is nil.
func (r *run) fresh(shape shapes.Shape) (b compute.Buffer, flat any, err error) {
	if r.device.backend.HasSharedBuffers() {
		return r.device.backend.NewSharedBuffer(0, shape)
	}
	return nil, newFlat(shape), nil
}

// scatterLaid begins to add up the values that travel together.
func (r *run) scatterLaid(x *scattering, ins []*ir.Value, lacks bool, end *comm.Communicator, call comm.Call) error {
	l := x.laid
	for _, i := range l.which {
		n := x.outs[i].LocalShape(r.at()).Size()
		l.sizes = append(l.sizes, n)
		l.total += n
	}
	n, dtype := r.schedule.Local.Replicas, ins[0].Shape.DType
	half := r.traffic.Half && dtype == dtypes.Float32
	if half {
		l.from = make([]float32, n*l.total)
	} else {
		l.from, l.free = r.lent(dtype, n*l.total)
	}
	for k, at := 0, 0; k < len(l.which) && !lacks; k++ {
		if err := r.lay(l.from, schedule.Slot{Value: ins[l.which[k]], Micro: x.micro}, at, l.total, l.sizes[k]); err != nil {
			return err
		}
		at += l.sizes[k]
	}
	if half {
		r.narrow(l, n, end, &call)
	} else {
		l.to = newFlat(shapes.Make(dtype, l.total))
		call.In, call.Out = l.from, l.to
	}
	x.calls = append(x.calls, end.Start(call))
	return nil
}

// narrow lets values travel as float16: all agree on a scale, and then on the sum.
func (r *run) narrow(l *laidOut, n int, end *comm.Communicator, call *comm.Call) {
	l.half, l.factor = &halved{ranks: n, prefer: r.opts.FP16Scale}, call.Scale
	var in any
	in, l.free = r.lent(dtypes.Float16, n*l.total)
	flat, half := l.from.([]float32), in.([]float16.Float16)
	at := 0
	for _, size := range l.sizes {
		var t travel
		for i := range n {
			lo := i*l.total + at
			t.from, t.to = append(t.from, flat[lo:lo+size]), append(t.to, half[lo:lo+size])
		}
		l.half.add(t)
		at += size
	}
	l.to = make([]float16.Float16, l.total)
	agree := l.half.agree()
	agree.Program = r.program.Name
	end.Start(agree) // if it fails, so does what comes after it
	call.In, call.Out, call.Scale = half, l.to, 1
	call.Before = func() {
		for i := range l.half.values {
			l.half.narrow(i)
		}
	}
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

// came waits for the parts, and gives back what others read.
func (r *run) came(x *scattering) error {
	for _, h := range x.calls {
		if err := h.Wait(); err != nil {
			return err
		}
	}
	for _, b := range x.wholes {
		if err := b.Finalize(); err != nil {
			return err
		}
	}
	if l := x.laid; l != nil {
		l.free()
		at := 0
		for k, size := range l.sizes {
			x.flats[l.which[k]] = slice(l.to, at, at+size)
			if l.half != nil {
				flat := make([]float32, size)
				l.half.widen(k, flat, l.to.([]float16.Float16)[at:at+size], l.factor)
				x.flats[l.which[k]] = flat
			}
			at += size
		}
	}
	for i, v := range x.outs {
		if x.news[i] != nil {
			continue
		}
		var err error
		if x.news[i], err = r.device.backend.BufferFromFlatData(0, x.flats[i], v.LocalShape(r.at())); err != nil {
			return err
		}
	}
	return nil
}

// finishParts keeps what came of a bucket's micro-batch, if one is on its way, added to what came of those before.
func (r *run) finishParts(bucket int) error {
	x := r.scattered[bucket]
	if x == nil {
		return nil
	}
	r.scattered[bucket] = nil
	if err := r.came(x); err != nil {
		return err
	}
	_ = r.meter.addAll(r.schedule.Pending(r.ledger, bucket, r.traffic), -1)
	news := x.news
	if _, begun := r.values[schedule.Slot{Value: x.outs[0], Micro: schedule.Once}]; begun {
		var ins []compute.Buffer
		for i, v := range x.outs {
			ins = append(ins, r.values[schedule.Slot{Value: v, Micro: schedule.Once}].Buffer, news[i])
		}
		start := time.Now()
		sums, err := r.device.adders[bucket].Execute(ins, slices.Repeat([]bool{true}, len(ins)), 0)
		r.ran(trace.Task{Kind: trace.Accumulate, Stage: r.schedule.Segments[r.schedule.Buckets[bucket].After].Stage, Micro: x.micro}, func() string { return fmt.Sprintf("add bucket %d", bucket) }, start)
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
