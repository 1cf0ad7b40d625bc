// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package local

import (
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gomlx/compute"
	"github.com/pkg/errors"

	"github.com/easyparallel/epl/comm"
	"github.com/easyparallel/epl/exec"
	"github.com/easyparallel/epl/ir"
	"github.com/easyparallel/epl/schedule"
	"github.com/easyparallel/epl/trace"
)

// Devices of one worker that can copy from each other hand values of stages over without the host; CPU devices share the memory. The receiver copies when it comes to its Receive: so its
// memory is taken when the account says, and the sender keeps the value until then, as the account says, too. A value lies in a box of the receiver. Who finds it there takes it and goes on;
// only who has to wait for the other one does so by comm, which finds out who holds up whom.

// handover is a value of one device that another one copies.
type handover struct {
	from   compute.Buffer
	bytes  int64
	to     int // the rank of the other one
	tag    int
	state  atomic.Int32
	copied func() error  // waits for the copy; nil if there is none: the memory is shared, or it failed to begin
	over   time.Time     // when it was taken, if a timeline is made
	drawn  chan struct{} // closed then, if there is a copy
}

// What state a handover is in.
const (
	lies    = iota // until the receiver comes
	awaited        // by the sender, too
	taken          // the receiver has begun to copy, or failed to
)

// box is where a receiver finds a value of a transfer and micro-batch.
type box = atomic.Pointer[handover]

// wanted is in a box that the receiver found empty: it waits for a token.
var wanted = &handover{}

// box is that of a device for what an instruction brings.
func (r *run) box(in schedule.Instr) *box {
	return &r.boxes[in.Transfer*(r.schedule.Local.MicroBatches+1)+in.Micro+1]
}

// Over tells whether the copy has begun: devices keep the order of what they are given, so the value can be freed or overwritten.
func (h *handover) Over() bool { return h.state.Load() == taken }

// end waits for the copy of a value that was taken.
func (h *handover) end() error {
	if h.copied == nil {
		return nil // if it failed, the other one says why
	}
	return h.copied()
}

// awaitTaken waits until the other device has taken a value, and for its copy.
func (r *run) awaitTaken(h *handover) error {
	if h.state.CompareAndSwap(lies, awaited) {
		if err := r.tokenTo(h.to, h.tag); err != nil {
			return err
		}
	}
	return h.end()
}

// took tells the sender that its value is taken.
func (r *run) took(h *handover, from int) error {
	if h.drawn != nil {
		defer close(h.drawn)
	}
	if r.trace != nil {
		h.over = time.Now()
	}
	if h.state.CompareAndSwap(lies, taken) {
		return nil
	}
	h.state.Store(taken)
	return r.tokenFrom(from, h.tag)
}

// token is what is sent instead of a value that is handed over.
var token = []uint8{}

func (r *run) tokenTo(to, tag int) error {
	return r.pipes[r.local].Do(comm.Call{Op: comm.Send, Buf: token, Peer: to, Tag: tag, Program: r.program.Name})
}

func (r *run) tokenFrom(from, tag int) error {
	return r.pipes[r.local].Do(comm.Call{Op: comm.Recv, Buf: token, Peer: from, Tag: tag, Program: r.program.Name})
}

// near tells whether ranks are devices of this worker of which the second can copy from the first, or read its memory.
func (x *stepper) near(from, to int) bool {
	from, to = from-x.first, to-x.first
	if min(from, to) < 0 || max(from, to) >= len(x.devices) {
		return false
	}
	switch d := x.devices[to].backend.(type) {
	case exec.Sharer:
		return d.Shares(x.devices[from].backend)
	case exec.Neighbor:
		return d.Near(x.devices[from].backend)
	}
	return false
}

// shares tells whether devices of the worker have the same memory: what was handed over is free without waiting for a copy.
func (d *device) shares() bool {
	_, ok := d.backend.(exec.Sharer)
	return ok
}

// copyFrom makes what another device of the worker has a buffer of this device, by a copy, or without one: copied is nil then.
func (d *device) copyFrom(b compute.Buffer) (c compute.Buffer, copied func() error, err error) {
	if s, ok := d.backend.(exec.Sharer); ok {
		c, err = s.Share(b)
		return c, nil, err
	}
	return d.backend.(exec.Neighbor).CopyFrom(b)
}

// handOver lets another device copy a value. It does not wait for that.
func (r *run) handOver(in schedule.Instr, to int) error {
	v := r.schedule.Transfers[in.Transfer].Value
	h, err := r.value(r.slot(v, in.Micro))
	if err != nil {
		return err
	}
	x := &handover{from: h.Buffer, bytes: h.bytes, to: to, tag: in.Transfer}
	h.sends, r.handed = append(h.sends, x), append(r.handed, x)
	if !r.device.shares() {
		h.handed = append(h.handed, x)
	}
	if r.trace != nil {
		r.drawHandover(x, in, func() string { return fmt.Sprintf("%s to device %d", v, to) })
	}
	at := r.runs[to-r.stepper.first].box(in)
	if at.CompareAndSwap(nil, x) {
		return nil
	}
	at.Store(x)
	return r.tokenTo(to, in.Transfer)
}

// drawHandover shows in the timeline how long a value is on its way.
func (r *run) drawHandover(x *handover, in schedule.Instr, name func() string) {
	start := time.Now()
	flow := r.flowOf(in, r.id, x.to)
	r.noted(trace.Event{Kind: trace.Launch, Op: comm.Send.String(), Start: start}, func(e *trace.Event) { e.Name, e.Flow = name(), flow() })
	if r.device.shares() {
		r.noted(trace.Event{Lane: r.sendLane(), Kind: trace.Communicate, Op: comm.Send.String(), Start: start, Bytes: x.bytes}, func(e *trace.Event) { e.Name, e.End = name(), x.over })
		return
	}
	x.drawn = make(chan struct{})
	r.drawn.Go(func() {
		<-x.drawn
		_ = x.end()
		r.communicated(r.sendLane(), comm.Send.String(), name(), start, x.bytes)
	})
}

// copied is what is handed over, in the statistics.
const copied = "copy"

// takeOver copies a value of another device.
func (r *run) takeOver(in schedule.Instr, from int) error {
	t := r.schedule.Transfers[in.Transfer]
	start := time.Now()
	at := r.box(in)
	if at.CompareAndSwap(nil, wanted) {
		if err := r.tokenFrom(from, in.Transfer); err != nil {
			return err
		}
	}
	h := at.Load()
	if h == wanted {
		return errors.Errorf("device %d hands another value over", from)
	}
	b, err := r.copyOver(h, t.Into)
	if told := r.took(h, from); err == nil {
		err = told
	}
	if err != nil {
		return err
	}
	r.received(t.Value, from, start, h.bytes, r.flowOf(in, from, r.id))
	return r.keep(schedule.Slot{Value: t.Into, Micro: in.Micro}, b)
}

// copyOver begins to copy a value of another device.
func (r *run) copyOver(h *handover, into *ir.Value) (compute.Buffer, error) {
	if err := r.makeRoom(into); err != nil {
		return nil, err
	}
	b, wait, err := r.device.copyFrom(h.from)
	if err == nil && wait != nil {
		h.copied = sync.OnceValue(wait)
	}
	return b, err
}
