// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package local

import (
	"sync"
	"time"

	"github.com/gomlx/compute"
	"github.com/pkg/errors"

	"github.com/easyparallel/epl/comm"
	"github.com/easyparallel/epl/exec"
	"github.com/easyparallel/epl/schedule"
	"github.com/easyparallel/epl/trace"
)

// Devices of one worker that can copy from each other hand values of stages over without the host; CPU devices share the memory. The receiver copies when it comes to its Receive: so its
// memory is taken when the account says, and the sender keeps the value until then, as the account says, too. That one has come is told by comm, which
// finds out who holds up whom.

// handover is a value of one device that another one copies.
type handover struct {
	from   compute.Buffer
	bytes  int64
	call   *comm.Handle  // over when the other one has come
	taken  chan struct{} // closed when it has begun to copy, or failed to
	copied func() error  // waits for the copy; nil if it failed to begin
}

// Over tells whether the copy has begun: devices keep the order of what they are given, so the value can be freed or overwritten.
func (h *handover) Over() bool {
	select {
	case <-h.taken:
		return true
	default:
		return false
	}
}

// end waits for the copy.
func (h *handover) end() error {
	if err := h.call.Wait(); err != nil {
		return err
	}
	if <-h.taken; h.copied == nil {
		return nil // the other one says why
	}
	return h.copied()
}

// handovers are those of a step that the receiver has not come to.
type handovers struct {
	mu  sync.Mutex
	all map[journey]*handover
}

// journey is a value on its way between two ranks.
type journey struct{ transfer, micro, from, to int }

func (x *handovers) put(j journey, h *handover) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.all == nil {
		x.all = map[journey]*handover{}
	}
	x.all[j] = h
}

func (x *handovers) take(j journey) *handover {
	x.mu.Lock()
	defer x.mu.Unlock()
	h := x.all[j]
	delete(x.all, j)
	return h
}

// whole tells whether what one device has of a value is what the other gets.
func (r *run) whole(t schedule.Transfer, x leg) bool {
	from, to := seat{r.replica, t.From, x.from}, seat{r.replica, t.To, x.to}
	return x.within(t.Value, from.at(), t.Value.LocalShape(from.at())) == nil && x.within(t.Into, to.at(), t.Into.LocalShape(to.at())) == nil
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

// copyFrom makes what another device of the worker has a buffer of this device, by a copy or without one.
func (d *device) copyFrom(b compute.Buffer) (c compute.Buffer, copied func() error, err error) {
	if s, ok := d.backend.(exec.Sharer); ok {
		c, err = s.Share(b)
		return c, func() error { return nil }, err
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
	x := &handover{from: h.Buffer, bytes: h.bytes, taken: make(chan struct{})}
	r.handovers.put(journey{in.Transfer, in.Micro, r.id, to}, x)
	start := time.Now()
	x.call = r.startSend(token, to, in.Transfer)
	h.sends, r.handed = append(h.sends, x), append(r.handed, x)
	if !r.device.shares() {
		h.handed = append(h.handed, x)
	}
	name := r.label("%s to device %d", v, to)
	r.did(trace.Event{Kind: trace.Launch, Op: comm.Send.String(), Name: name, Start: start, Flow: r.flow(in.Transfer, in.Micro, r.id, to)})
	if r.trace != nil {
		r.drawn.Go(func() {
			_ = x.end()
			r.communicated(r.sendLane(), comm.Send.String(), name, start, x.bytes)
		})
	}
	return nil
}

// copied is what is handed over, in the statistics.
const copied = "copy"

// token is what is sent instead of a value that is handed over.
var token = []uint8{}

// takeOver copies a value of another device.
func (r *run) takeOver(in schedule.Instr, from int) error {
	t := r.schedule.Transfers[in.Transfer]
	start := time.Now()
	if err := r.pipes[r.local].Do(comm.Call{Op: comm.Recv, Buf: token, Peer: from, Tag: in.Transfer, Program: r.program.Name}); err != nil {
		return err
	}
	h := r.handovers.take(journey{in.Transfer, in.Micro, from, r.id})
	if h == nil {
		return errors.Errorf("device %d hands another value over", from)
	}
	defer close(h.taken)
	if err := r.makeRoom(t.Into.LocalShape(r.at())); err != nil {
		return err
	}
	b, wait, err := r.device.copyFrom(h.from)
	if err != nil {
		return err
	}
	h.copied = sync.OnceValue(wait)
	r.received(t.Value, from, start, h.bytes, r.flow(in.Transfer, in.Micro, from, r.id))
	return r.keep(schedule.Slot{Value: t.Into, Micro: in.Micro}, b)
}
