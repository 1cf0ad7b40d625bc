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
	"github.com/pkg/errors"

	"github.com/easyparallel/epl/comm"
	"github.com/easyparallel/epl/ir"
	"github.com/easyparallel/epl/schedule"
)

// merging is a bucket on its way. Its parts are queued on a communicator; finish waits for them and keeps the results.
type merging struct {
	parts   []*part
	half    *halved  // those that travel as float16; nil: none
	queued  []func() // calls that are made when all parts are known
	parcels []*parcel
	call    comm.Call // of the values that are reduced where they are
	called  []*part   // these
}

// part is one value of a bucket.
type part struct {
	op      *ir.Op
	in, out *ir.Value      // on this device
	buffer  compute.Buffer // what is merged in place; nil: the result is flat
	flat    any
	shape   shapes.Shape // of flat
	calls   []*comm.Handle
	finish  func() error // after the calls, before the result is kept
}

// circle is the devices between which values are merged: the same device of all model replicas, or of those of this worker; all
// devices of the place, if they have terms.
type circle struct {
	end      *comm.Communicator
	ranks    []int
	replicas []int // by rank
	total    int   // their instances
	root     int   // who has the first instance: an index of ranks
}

// members are the devices of a circle, and their model replicas; each is how many of one there are.
func (r *run) members(b schedule.Bucket) (ranks, replicas []int, each int) {
	for replica := range r.schedule.Ranks {
		some := r.ranks(replica, r.place)
		if each = len(some); !b.Terms {
			some, each = some[r.position:r.position+1], 1
		}
		for _, rank := range some {
			if !b.Worker || r.workerOf(rank) == r.workerOf(r.id) {
				ranks, replicas = append(ranks, rank), append(replicas, replica)
			}
		}
	}
	return ranks, replicas, each
}

// instances is how many instances the step has, or this worker.
func (r *run) instances(worker bool) (n int) {
	if !worker {
		return r.deal.total()
	}
	_, replicas, _ := r.members(schedule.Bucket{Worker: true})
	for _, replica := range replicas {
		for m := range r.schedule.Local.MicroBatches {
			if r.deal.exists(replica, m) {
				n++
			}
		}
	}
	return max(n, 1) // what is divided by it is zero then
}

func (r *run) circle(bucket int) (c circle, err error) {
	var each int
	c.ranks, c.replicas, each = r.members(r.schedule.Buckets[bucket])
	group, err := r.world.Group(c.ranks)
	if err != nil {
		return c, err
	}
	if c.end, err = group.Communicator(r.id, bucket%r.opts.Communicators); err != nil {
		return c, err
	}
	for m := range r.schedule.Local.MicroBatches {
		for i := 0; i < len(c.ranks); i += each {
			if r.deal.exists(c.replicas[i], m) {
				if c.total == 0 {
					c.root = i
				}
				c.total++
			}
		}
	}
	return c, nil
}

// startMerge queues the merges of a bucket.
func (r *run) startMerge(bucket int) error {
	b := r.schedule.Buckets[bucket]
	c, err := r.circle(bucket)
	if err != nil {
		return err
	}
	start := time.Now()
	m := &merging{}
	r.pending[bucket] = m
	ins, outs := b.Values()
	for i, op := range b.Merges {
		p := &part{op: op, in: ins[i], out: outs[i], shape: outs[i].LocalShape(r.at())}
		m.parts = append(m.parts, p)
		switch b.How {
		case ir.Mean, ir.Sum:
			err = r.reduce(c, m, p, b.How)
		case ir.First:
			err = r.first(c, p)
		case ir.Concat:
			err = r.concat(c, p)
		case ir.Agree:
			err = r.agree(c, p)
		case ir.Check:
			err = r.check(p)
		default:
			err = errors.Errorf("%s: unknown way %s", op, b.How)
		}
		if err != nil {
			return err
		}
	}
	if m.half != nil {
		r.start(c, m.parts[0], m.half.agree())
	}
	for _, f := range m.queued {
		f()
	}
	r.sendParcels(c, m)
	if err := r.meter.addAll(r.schedule.Pending(r.ledger, bucket, r.traffic), 1); err != nil {
		return err
	}
	if err := r.meter.add(schedule.ForCommunication, r.schedule.MergeBuffers(bucket, r.traffic)); err != nil {
		return err
	}
	var calls []*comm.Handle
	for _, p := range m.parts {
		calls = append(calls, p.calls...)
	}
	r.communicates(1+bucket%r.opts.Communicators, r.opOf(b), fmt.Sprintf("bucket %d", bucket), start, r.travels(b), calls...)
	return nil
}

// waitMerge waits for a bucket and keeps what came of it.
func (r *run) waitMerge(bucket int) error {
	m := r.pending[bucket]
	_ = r.meter.addAll(r.schedule.Pending(r.ledger, bucket, r.traffic), -1)
	for _, p := range m.parts {
		for _, h := range p.calls {
			if err := h.Wait(); err != nil {
				return err
			}
		}
		if p.finish != nil {
			if err := p.finish(); err != nil {
				return errors.WithMessage(err, p.op.String())
			}
		}
		if p.buffer == nil {
			var err error
			if p.buffer, err = r.device.backend.BufferFromFlatData(0, p.flat, p.shape); err != nil {
				return err
			}
		}
		if err := r.keep(schedule.Slot{Value: p.out, Micro: schedule.Once}, p.buffer); err != nil {
			return err
		}
	}
	_ = r.meter.add(schedule.ForCommunication, -r.schedule.MergeBuffers(bucket, r.traffic))
	r.pending[bucket] = nil
	return nil
}

func (r *run) start(c circle, p *part, call comm.Call) {
	call.Program = r.program.Name
	p.calls = append(p.calls, c.end.Start(call))
}

// contribution takes what the device has to contribute off the books: the sum over its micro-batches, or zeros if the step
// has no instance for it.
func (r *run) contribution(v *ir.Value) (compute.Buffer, error) {
	if _, err := r.unused(0, v); err != nil {
		return nil, err
	}
	for _, micro := range []int{schedule.Once, 0} {
		if b, ok, err := r.take(schedule.Slot{Value: v, Micro: micro}); ok || err != nil {
			return b, err
		}
	}
	s := v.LocalShape(r.at())
	return r.device.backend.BufferFromFlatData(0, newFlat(s), s)
}

// reduce adds up over devices, and divides for the mean.
func (r *run) reduce(c circle, m *merging, p *part, how ir.How) error {
	b, err := r.contribution(p.in)
	if err != nil {
		return err
	}
	scale := 1.0
	if how == ir.Mean {
		scale = 1 / float64(max(c.total, 1))
	}
	if len(c.ranks) == 1 && scale == 1 { // it stays where it is
		p.buffer = b
		return nil
	}
	flat, shared, err := hostView(r.device.backend, b, p.shape)
	if err != nil {
		return err
	}
	x, single := flat.([]float32)
	switch {
	case len(c.ranks) == 1: // others may wait for this device meanwhile: it is divided when it is needed
		p.finish = func() error {
			return c.end.Do(comm.Call{Op: comm.AllReduce, Buf: flat, Reduction: comm.Sum, Scale: scale, Program: r.program.Name})
		}
	case single && r.opts.FP16Scale > 0 && p.op.Phase == ir.Backward:
		r.reduceHalf(c, m, p, x, scale)
	default:
		r.allReduce(c, m, p, flat, scale, nil)
	}
	if shared {
		p.buffer = b
		return nil
	}
	p.flat = flat
	return b.Finalize()
}

// reduceHalf lets float32 values travel as float16. The call is made when all values of the bucket are known.
func (r *run) reduceHalf(c circle, m *merging, p *part, x []float32, scale float64) {
	if m.half == nil {
		m.half = &halved{ranks: len(c.ranks), prefer: r.opts.FP16Scale}
	}
	h := m.half
	half := make([]float16.Float16, len(x))
	i := h.add(travel{from: [][]float32{x}, to: [][]float16.Float16{half}})
	m.queued = append(m.queued, func() { r.allReduce(c, m, p, half, 1, func() { h.narrow(i) }) })
	p.finish = func() error {
		h.widen(i, x, half, scale)
		return nil
	}
}

// first takes the value of the first instance.
func (r *run) first(c circle, p *part) error {
	b, err := r.contribution(p.in)
	if err != nil {
		return err
	}
	if p.flat, err = toHost(b, p.shape); err != nil {
		return err
	}
	r.start(c, p, comm.Call{Op: comm.Broadcast, Buf: p.flat, Root: c.root})
	for m := range r.schedule.Local.MicroBatches { // nobody asks for those of the others
		if err := r.free(schedule.Slot{Value: p.in, Micro: m}); err != nil {
			return err
		}
	}
	return b.Finalize()
}

// gather collects the values of all instances on every device: result is [micro-batch][device], without those that
// the step lacks.
func (r *run) gather(c circle, p *part) (result func() []any, err error) {
	v := p.in
	shape := v.LocalShape(r.at())
	n := reflect.ValueOf(newFlat(shape)).Len()
	var all []any
	for m := range r.schedule.Local.MicroBatches {
		present := 0
		counts := make([]int, len(c.ranks))
		for d, replica := range c.replicas {
			if r.deal.exists(replica, m) {
				counts[d] = n
				present++
			}
		}
		if present == 0 {
			break
		}
		mine := reflect.MakeSlice(reflect.SliceOf(v.Shape.DType.GoType()), 0, 0).Interface()
		if at := (schedule.Slot{Value: v, Micro: m}); r.deal.exists(r.replica, m) {
			b, err := r.value(at)
			if err != nil {
				return nil, err
			}
			if mine, err = toHost(b, shape); err != nil {
				return nil, err
			}
		}
		if err := r.free(schedule.Slot{Value: v, Micro: m}); err != nil {
			return nil, err
		}
		out := reflect.MakeSlice(reflect.SliceOf(v.Shape.DType.GoType()), n*present, n*present).Interface()
		r.start(c, p, comm.Call{Op: comm.AllGather, In: mine, Out: out, OutCounts: counts})
		all = append(all, out)
	}
	return func() []any { return all }, nil
}

// concat puts the values of all instances one after the other.
func (r *run) concat(c circle, p *part) error {
	if one := p.in.LocalShape(r.at()); r.schedule.Local.MicroBatches == 1 && c.total == len(c.ranks) && p.shape.Size() == c.total*one.Size() && r.device.backend.HasSharedBuffers() {
		return r.concatWhole(c, p, one)
	}
	gathered, err := r.gather(c, p)
	if err != nil {
		return err
	}
	one := p.in.LocalShape(r.at())
	pad := p.op.Attrs.(*ir.Merge).Pad
	if !pad {
		p.shape = one.Clone()
		p.shape.Dimensions[0] *= c.total
	}
	p.finish = func() error {
		out := reflect.MakeSlice(reflect.SliceOf(one.DType.GoType()), 0, 0)
		for _, x := range gathered() {
			out = reflect.AppendSlice(out, reflect.ValueOf(x))
		}
		if missing := r.schedule.Local.Instances() - c.total; pad && missing > 0 {
			zeros := reflect.ValueOf(newFlat(one))
			for range missing {
				out = reflect.AppendSlice(out, zeros)
			}
		}
		p.flat = out.Interface()
		return nil
	}
	return nil
}

// concatWhole gathers one value of each device, from memory to memory.
func (r *run) concatWhole(c circle, p *part, one shapes.Shape) error {
	b, err := r.contribution(p.in)
	if err != nil {
		return err
	}
	mine, err := b.Data()
	if err != nil {
		return err
	}
	var all any
	if p.buffer, all, err = r.fresh(p.shape); err != nil {
		return err
	}
	r.start(c, p, comm.Call{Op: comm.AllGather, In: mine, Out: all, OutCounts: slices.Repeat([]int{one.Size()}, len(c.ranks))})
	p.finish = b.Finalize
	return nil
}

// agree checks that all instances have the same value.
func (r *run) agree(c circle, p *part) error {
	gathered, err := r.gather(c, p)
	if err != nil {
		return err
	}
	v := p.in
	shape := v.LocalShape(r.at())
	size := int(shape.ByteSize())
	p.finish = func() error {
		var first []byte
		instance := 0
		for _, x := range gathered() {
			raw := dtypes.UnsafeByteSliceFromAny(x)
			for ; len(raw) > 0; raw = raw[size:] {
				if first == nil {
					first = raw[:size]
				} else if string(first) != string(raw[:size]) {
					return r.differs(p.op, instance)
				}
				instance++
			}
		}
		flat := newFlat(shape)
		copy(dtypes.UnsafeByteSliceFromAny(flat), first)
		p.flat = flat
		return nil
	}
	return nil
}

// differs is the error if an instance has another value than the first.
func (x *stepper) differs(op *ir.Op, instance int) error {
	return errors.Errorf("%s, %s, differs between instances 0 and %d, and integers have no mean: "+
		"say what to do by epl.AddToCollection, with GlobalSum or GlobalConcat", x.whose(op), op.Inputs[0].Op, instance)
}

// tooLarge is the error if a value that is checked is too large.
func tooLarge(m *ir.Merge, x float32, micro int) error {
	return errors.Errorf("%s differs from what it is without: by %.2g of its largest element, in micro-batch %d; "+
		"an op that is computed again gives something else the second time (gradient_checkpoint.check_gradients)", m.Of, x, micro)
}

// check checks that the values of this device's instances are small.
func (r *run) check(p *part) error {
	m := p.op.Attrs.(*ir.Merge)
	p.flat = newFlat(p.shape)
	for micro := range r.schedule.Local.MicroBatches {
		if _, err := r.unused(micro, p.in); err != nil {
			return err
		}
		b, ok, err := r.take(schedule.Slot{Value: p.in, Micro: micro})
		if err != nil {
			return err
		}
		if !ok {
			continue
		}
		if err := b.ToFlatData(p.flat); err != nil {
			return err
		}
		if x := p.flat.([]float32)[0]; !(float64(x) <= m.Limit) {
			return tooLarge(m, x, micro)
		}
		if err := b.Finalize(); err != nil {
			return err
		}
	}
	return nil
}

// whose says what a merged value is for.
func (x *stepper) whose(op *ir.Op) string {
	for i, o := range x.program.Main.Outputs {
		if slices.Contains(op.Outputs, o) {
			if x := x.program.Outputs[i].Updates; x != nil {
				return fmt.Sprintf("the new value of variable %q", x.Path)
			}
			return fmt.Sprintf("output %d", i)
		}
	}
	return "a value that the optimizer reads"
}

// hostView is the memory of a buffer where the inner backend shares it, else a copy.
func hostView(backend compute.Backend, b compute.Buffer, shape shapes.Shape) (flat any, shared bool, err error) {
	if backend.HasSharedBuffers() {
		flat, err = b.Data()
		return flat, true, err
	}
	flat, err = toHost(b, shape)
	return flat, false, err
}
