// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package local

import (
	"fmt"
	"slices"
	"time"

	"github.com/gomlx/compute"

	"github.com/easyparallel/epl/comm"
	"github.com/easyparallel/epl/exec"
	"github.com/easyparallel/epl/ir"
	"github.com/easyparallel/epl/schedule"
	"github.com/easyparallel/epl/trace"
)

// Devices of several workers that can send to each other do so without the host. Both ends of such a copy wait for each other on the devices, in the order in
// which they were begun there, so that two devices that each begin to send first may wait for ever. Therefore one begins only when the value is computed and
// the receiver has come to its Receive, where it waits for the copy; and a device takes part in one at a time: workers agree on that by comm, those with the
// lower rank first. What devices were given before ends by itself, as no devices of several workers run segments together in such a plan. So does the copy.

// parting is a value on its way to another worker: it may be freed when the copy is done.
type parting struct {
	bytes int64
	done  chan struct{}
	err   error
}

// Over tells whether the copy is done.
func (p *parting) Over() bool {
	select {
	case <-p.done:
		return true
	default:
		return false
	}
}

// reaches tells whether ranks are devices of different workers that can send to each other.
func (x *stepper) reaches(from, to int) bool {
	if x.job == nil || x.workerOf(from) == x.workerOf(to) || x.spans {
		return false
	}
	mine, other := from, to
	if x.workerOf(to) == x.job.Worker {
		mine, other = to, from
	}
	d, ok := x.devices[mine-x.first].backend.(exec.Distant)
	return ok && d.Reaches(other)
}

// spansWorkers tells whether devices of a place belong to several workers.
func (x *stepper) spansWorkers() bool {
	for place := range x.schedule.Groups {
		var workers []int
		for replica := range x.schedule.Ranks {
			for _, rank := range x.ranks(replica, place) {
				workers = append(workers, x.workerOf(rank))
			}
		}
		if slices.Max(workers) != slices.Min(workers) {
			return true
		}
	}
	return false
}

// What two ranks tell each other about a transfer.
const (
	hasCome = iota // the receiver
	isThere        // the value
	isTaken        // the device of the lower rank
	words
)

// tell sends a word about a transfer to another rank, or hears one from it.
func (r *run) tell(op comm.Op, other int, in schedule.Instr, word int) error {
	tag := len(r.schedule.Transfers) + len(r.schedule.Results) + (in.Transfer*(r.schedule.Local.MicroBatches+1)+in.Micro+1)*words + word
	return r.pipes[r.local].Do(comm.Call{Op: op, Buf: token, Peer: other, Tag: tag, Program: r.program.Name})
}

// pair takes both devices of a copy, that of the lower rank first: no devices wait for each other in a circle. The receiver has come.
func (r *run) pair(sender, receiver int, in schedule.Instr) (release func(), err error) {
	mine := &r.runner.copying[r.local]
	if receiver < sender { // it must not take its own before the value is there
		if r.id == sender {
			err = r.tell(comm.Send, receiver, in, isThere)
		} else {
			err = r.tell(comm.Recv, sender, in, isThere)
		}
		if err != nil {
			return nil, err
		}
	}
	if lower := min(sender, receiver); r.id != lower {
		if err := r.tell(comm.Recv, lower, in, isTaken); err != nil {
			return nil, err
		}
		mine.Lock()
		return mine.Unlock, nil
	}
	mine.Lock()
	if err := r.tell(comm.Send, max(sender, receiver), in, isTaken); err != nil {
		mine.Unlock()
		return nil, err
	}
	return mine.Unlock, nil
}

// part sends a value to a device of another worker. It does not wait for that.
func (r *run) part(in schedule.Instr, to int) error {
	v := r.schedule.Transfers[in.Transfer].Value
	h, err := r.value(r.slot(v, in.Micro))
	if err != nil {
		return err
	}
	d := r.device.backend.(exec.Distant)
	b, computed := h.Buffer, d.Later(h.Buffer)
	x := &parting{bytes: h.bytes, done: make(chan struct{})}
	h.sends, r.parted = append(h.sends, x), append(r.parted, x)
	start := time.Now()
	name := fmt.Sprintf("%s to device %d", v, to)
	r.did(trace.Event{Kind: trace.Launch, Op: comm.Send.String(), Name: name, Start: start, Flow: r.flow(in.Transfer, in.Micro, r.id, to)})
	go func() {
		defer close(x.done)
		if x.err = computed(); x.err == nil {
			x.err = r.tell(comm.Recv, to, in, hasCome)
		}
		if x.err == nil {
			x.err = r.copyFar(r.id, to, in, func() (func() error, error) { return d.SendTo(b, to) })
		}
		if x.err != nil {
			r.world.Abort(x.err)
			return
		}
		r.communicated(r.sendLane(), comm.Send.String(), name, start, x.bytes)
	}()
	return nil
}

// copyFar makes a copy when both devices are free for it, and waits for it.
func (r *run) copyFar(sender, receiver int, in schedule.Instr, begin func() (wait func() error, err error)) error {
	release, err := r.pair(sender, receiver, in)
	if err != nil {
		return err
	}
	defer release()
	wait, err := begin()
	if err != nil {
		return err
	}
	return wait()
}

// meet gets a value from a device of another worker.
func (r *run) meet(in schedule.Instr, from int) error {
	t := r.schedule.Transfers[in.Transfer]
	start := time.Now()
	if err := r.tell(comm.Send, from, in, hasCome); err != nil {
		return err
	}
	var b compute.Buffer
	shape := t.Into.LocalShape(r.at())
	err := r.copyFar(from, r.id, in, func() (wait func() error, err error) {
		if err := r.makeRoom(t.Into); err != nil {
			return nil, err
		}
		b, wait, err = r.device.backend.(exec.Distant).ReceiveFrom(from, shape)
		return wait, err
	})
	if err != nil {
		if b != nil {
			_ = b.Finalize()
		}
		return err
	}
	r.received(t.Value, from, start, shape.ByteSize(), r.flowOf(in, from, r.id))
	return r.keep(schedule.Slot{Value: t.Into, Micro: in.Micro}, b)
}

// makeRoom frees what others have taken, before memory is taken for a value that they give: they took it before, and the account says so.
func (r *run) makeRoom(v *ir.Value) error {
	if err := r.reap(); err != nil || len(r.leaving) == 0 {
		return err
	}
	return r.room(v.LocalShape(r.at()).ByteSize())
}
