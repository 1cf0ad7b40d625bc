// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package local

import (
	"slices"
	"time"

	"github.com/gomlx/compute"
	"github.com/gomlx/compute/shapes"
	"github.com/pkg/errors"

	"github.com/easyparallel/epl/emit"
	"github.com/easyparallel/epl/exec"
	"github.com/easyparallel/epl/ir"
	"github.com/easyparallel/epl/schedule"
	"github.com/easyparallel/epl/trace"
)

// hostBuffer is a tensor in the memory of the host. It implements compute.Buffer, and is not written to.
type hostBuffer struct {
	backend compute.Backend
	shape   shapes.Shape
	flat    any            // nil: it is pinned
	pinned  compute.Buffer // in memory that the device copies from by itself; nil: it is in flat, which others may have, too
}

var _ compute.Buffer = (*hostBuffer)(nil)

// Backend implements compute.Buffer: that of the device that uses it.
func (h *hostBuffer) Backend() compute.Backend { return h.backend }

// Shape implements compute.Buffer.
func (h *hostBuffer) Shape() (shapes.Shape, error) { return h.shape, nil }

// DeviceNum implements compute.Buffer.
func (h *hostBuffer) DeviceNum() (compute.DeviceNum, error) { return 0, nil }

// ToFlatData implements compute.Buffer.
func (h *hostBuffer) ToFlatData(flat any) error {
	if h.pinned != nil {
		return h.pinned.ToFlatData(flat)
	}
	copyFlat(flat, h.flat)
	return nil
}

// Data implements compute.Buffer, by an error: others may have the same memory.
func (h *hostBuffer) Data() (any, error) {
	return nil, errors.New("epl: a variable on the host is not shared: use ToFlatData")
}

// CopyToDevice implements compute.Buffer.
func (h *hostBuffer) CopyToDevice(compute.DeviceNum) (compute.Buffer, error) { return h.on(h.backend) }

// Finalize implements compute.Buffer. The garbage collector does it for what is not pinned.
func (h *hostBuffer) Finalize() error {
	if h.pinned != nil {
		return h.pinned.Finalize()
	}
	return nil
}

// on is a copy on a device.
func (h *hostBuffer) on(device compute.Backend) (compute.Buffer, error) {
	if h.pinned != nil && device == h.backend {
		return device.(exec.HostMemory).ToDevice(h.pinned)
	}
	flat := h.flat
	if h.pinned != nil {
		var err error
		if flat, err = toHost(h.pinned, h.shape); err != nil {
			return nil, err
		}
	}
	return device.BufferFromFlatData(0, flat, h.shape)
}

// hostMemory is a device with pinned memory of the host; nil: it has none.
func hostMemory(device compute.Backend) exec.HostMemory {
	if m, ok := device.(exec.HostMemory); ok && m.HasHostMemory() {
		return m
	}
	return nil
}

// onHost is what a device has of a variable, in the memory of the host: all of it, or a part. It leaves nothing of it on devices. With pin it is
// the caller's alone and pinned, where the device has such memory; else devices share it.
func (b *Buffer) onHost(device int, part *rows, pin bool) (*hostBuffer, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.gone {
		return nil, errGone
	}
	backend := b.runner.devices[device]
	host := hostMemory(backend)
	pin = pin && host != nil
	if part != nil && device < len(b.parts) && b.parts[device] != nil && b.rows[device] == *part {
		if h, ok := b.parts[device].(*hostBuffer); ok {
			return h, nil
		}
	}
	if part == nil && device < len(b.shards) {
		if h, ok := b.shards[device].(*hostBuffer); ok {
			return h, nil
		}
	}
	if pin && part == nil {
		return b.pin(device, host)
	}
	onDevices := slices.ContainsFunc(b.shards, func(x compute.Buffer) bool { return x != nil })
	if b.flat == nil || b.pieces != nil || onDevices {
		flat, err := b.host()
		if err != nil {
			return nil, err
		}
		if err := b.leave(flat); err != nil {
			return nil, err
		}
	}
	if part == nil {
		return &hostBuffer{backend: backend, flat: b.flat, shape: b.shape}, nil
	}
	h := &hostBuffer{backend: backend, flat: newFlat(part.shape(b.shape)), shape: part.shape(b.shape)}
	part.cut(h.flat, b.flat, b.shape)
	if pin {
		var err error
		if h.pinned, err = host.HostFromFlatData(h.flat, h.shape); err != nil {
			return nil, err
		}
		h.flat = nil
	}
	return h, nil
}

// pin moves the data to pinned memory of a device, and leaves them nowhere else: a model that is as large as the memory of the host is there
// once. The lock is held.
func (b *Buffer) pin(device int, host exec.HostMemory) (*hostBuffer, error) {
	h := &hostBuffer{backend: b.runner.devices[device], shape: b.shape}
	var err error
	if device < len(b.shards) && b.shards[device] != nil {
		if h.pinned, err = host.ToHost(b.shards[device]); err == nil {
			err = host.Await(h.pinned)
		}
	} else {
		var flat any
		if flat, err = b.host(); err == nil {
			h.pinned, err = host.HostFromFlatData(flat, b.shape)
		}
	}
	if err != nil {
		return nil, err
	}
	if err := b.leave(nil); err != nil {
		return nil, err
	}
	b.shards = make([]compute.Buffer, device+1)
	b.shards[device] = h
	return h, nil
}

// load brings a variable to the device, while the device goes on.
func (r *run) load(v *ir.Value) error {
	h := r.host[v]
	if h == nil {
		return errors.Errorf("%s is not on the host", v)
	}
	r.loads[v]--
	at := schedule.Slot{Value: v, Micro: schedule.Once}
	if h.pinned != nil { // the copy is in the order of what the device does: what computes with it waits there
		if err := r.catchUp(); err != nil {
			return err
		}
		if err := r.room(v.Bytes()); err != nil {
			return err
		}
		start := time.Now()
		b, err := h.on(r.device.backend)
		if err != nil {
			return err
		}
		r.copies(b, loadOp, v, start)
		return r.keep(at, b)
	}
	type arrived struct {
		b   compute.Buffer
		err error
	}
	come := make(chan arrived, 1)
	r.drawn.Go(func() {
		start := time.Now()
		b, err := r.device.backend.BufferFromFlatData(0, h.flat, h.shape)
		r.communicated(r.hostLane(), loadOp, v.String(), start, v.Bytes())
		come <- arrived{b, err}
	})
	r.coming(at, v.Bytes(), loadOp, func() (compute.Buffer, error) {
		x := <-come
		return x.b, x.err
	})
	return r.meter.add(r.ledger.Use(v), v.Bytes())
}

// copies notes a copy by the device itself in the timeline, if there is one: from its start until all is there.
func (r *run) copies(b compute.Buffer, op string, v *ir.Value, start time.Time) {
	if r.trace != nil {
		r.drawn.Go(func() {
			_ = hostMemory(r.device.backend).Await(b)
			r.communicated(r.hostLane(), op, v.String(), start, v.Bytes())
		})
	}
}

// catchUp waits for the last segment. Memory is taken when something is enqueued, and what copies still use is free only when they are
// done: so the list is never more than a segment ahead of the device.
func (r *run) catchUp() error {
	wait := r.last
	if wait == nil {
		return nil
	}
	r.last = nil
	return wait()
}

// leaving is a value that is copied to the host, or to another device. Its memory on the device is free only when that is done.
type leaving struct {
	wait  func() error
	bytes int64
}

// room waits for values on their way to elsewhere, the oldest first, as long as something that takes bytes would need more memory with them
// than is predicted: copies go on beside all else, and the prediction holds.
func (r *run) room(bytes int64) error {
	for len(r.leaving) > 0 {
		live := r.meter.books.Live.Total() + bytes
		for _, x := range r.leaving {
			live += x.bytes
		}
		if live <= r.budget[r.place] {
			return nil
		}
		if err := r.waitLeaving(1); err != nil {
			return err
		}
	}
	return nil
}

// waitLeaving waits until the first n of them are there.
func (r *run) waitLeaving(n int) error {
	for _, x := range r.leaving[:n] {
		if err := x.wait(); err != nil {
			return err
		}
	}
	r.leaving = r.leaving[n:]
	return nil
}

// budgets are what devices are predicted to need, by place, if they copy values to elsewhere while they compute; nil: they do not.
func (x *stepper) budgets(plans []*emit.Listing) []int64 {
	host := slices.ContainsFunc(x.schedule.Variables, func(v schedule.Variable) bool { return v.Host })
	x.offloads = host && slices.ContainsFunc(x.devices, func(d *device) bool { return hostMemory(d.backend) != nil })
	near := slices.ContainsFunc(x.devices, func(d *device) bool { _, ok := d.backend.(exec.Neighbor); return ok })
	if !x.offloads && !(near && len(x.schedule.Transfers) > 0) {
		return nil
	}
	all := make([]int64, len(x.schedule.Places))
	for place, p := range x.schedule.Account(x.program, x.traffic, plans).Places {
		all[place] = p.Peak.Total()
	}
	return all
}

// coming keeps a value that is on its way, by some op.
func (r *run) coming(at schedule.Slot, bytes int64, op string, arrival func() (compute.Buffer, error)) {
	r.values[at] = &held{use: r.ledger.Use(at.Value), bytes: bytes, arrival: arrival, op: op, what: at.Value.String()}
}

// What moves variables between host and device, in a timeline.
const (
	loadOp  = "load"
	storeOp = "store"
)

// store takes the new value of a variable to the host. Devices of this worker that have the same value share what the first
// of them stores.
func (r *run) store(v *ir.Value) error {
	if r.storer(v) != r {
		return nil
	}
	h, err := r.value(schedule.Slot{Value: v, Micro: schedule.Once})
	if err != nil {
		return err
	}
	start := time.Now()
	shape := v.LocalShape(r.at())
	if err := r.catchUp(); err != nil {
		return err
	}
	if err := r.outdated(v); err != nil {
		return err
	}
	if host := hostMemory(r.device.backend); host != nil && r.alone(v) {
		b, err := host.ToHost(h.Buffer)
		if err != nil {
			return err
		}
		r.copies(b, storeOp, v, start)
		r.leaving = append(r.leaving, leaving{func() error { return host.Await(b) }, v.Bytes()})
		r.host[v] = &hostBuffer{backend: r.device.backend, pinned: b, shape: shape}
		return nil
	}
	flat, err := toHost(h, shape)
	if err != nil {
		return err
	}
	r.did(trace.Event{Kind: trace.Wait, Op: storeOp, Name: v.String(), Start: start})
	r.communicated(r.hostLane(), storeOp, v.String(), start, v.Bytes())
	r.host[v] = &hostBuffer{backend: r.device.backend, flat: flat, shape: shape}
	return nil
}

// outdated lets go of the old value of a variable, if nothing loads it any more: the new one takes its memory.
func (r *run) outdated(update *ir.Value) error {
	v := r.home(update).Param
	if h := r.host[v]; h != nil && r.donated[r.param[v]] && r.loads[v] == 0 {
		delete(r.host, v)
		return h.Finalize()
	}
	return nil
}

// home is the variable of a new value.
func (x *stepper) home(update *ir.Value) schedule.Variable {
	return x.schedule.Variables[slices.IndexFunc(x.schedule.Variables, func(x schedule.Variable) bool { return x.Update == update })]
}

// storer is the device of this worker that stores a new value: the first that has it, unless each has a part of its own.
func (r *run) storer(v *ir.Value) *run {
	if r.home(v).Param.On(ir.Replicas).Kind == ir.Flat {
		return r
	}
	return r.runs[slices.IndexFunc(r.runs, func(o *run) bool { return o.place == r.place && o.position == r.position })]
}

// alone tells whether no other device of this worker has the same value.
func (r *run) alone(v *ir.Value) bool { return r.keeps(r.home(v), r.local) }

// keeps tells whether a device has a value of a variable that no other device of this worker has.
func (x *stepper) keeps(home schedule.Variable, device int) bool {
	if home.Param.On(ir.Replicas).Kind == ir.Flat {
		return true
	}
	mine := x.seat(x.first + device)
	for d := range x.devices {
		if other := x.seat(x.first + d); d != device && other.place == mine.place && other.position == mine.position {
			return false
		}
	}
	return true
}

// stored is a new value on the host, of a device of this worker.
func (r *run) stored(v *ir.Value) (compute.Buffer, error) {
	by := r.storer(v)
	h := by.host[v]
	if h == nil {
		return nil, errors.Errorf("device %d did not store it", r.id)
	}
	if h.pinned != nil { // nobody else has it
		delete(by.host, v)
	}
	return h, nil
}

// letGoHost lets go of what is left on the host: variables that were donated, and new values of a step that failed.
func (r *run) letGoHost() {
	for v, h := range r.host {
		if i, isParam := r.param[v]; !isParam || r.donated[i] {
			_ = h.Finalize()
		}
	}
	clear(r.host)
}
