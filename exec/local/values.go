// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package local

import (
	"cmp"
	"slices"

	"github.com/gomlx/compute"
	"github.com/pkg/errors"

	"github.com/easyparallel/epl/exec"
	"github.com/easyparallel/epl/ir"
	"github.com/easyparallel/epl/schedule"
)

// slot is where a value is kept: variables are there once.
func (x *stepper) slot(v *ir.Value, micro int) schedule.Slot {
	if _, isParam := x.param[v]; isParam && !x.isInput[v] {
		micro = schedule.Once
	}
	return schedule.Slot{Value: v, Micro: micro}
}

// value finds a value, and waits for it.
func (r *run) value(at schedule.Slot) (*held, error) {
	h := r.values[at]
	if h == nil {
		return nil, errors.Errorf("%s is not there", at.Value)
	}
	return h, r.arrive(h)
}

// view finds a value, and its elements on the host: its own memory, if they are shared.
func (r *run) view(v *ir.Value, micro int) (h *held, flat any, shared bool, err error) {
	if h, err = r.value(r.slot(v, micro)); err != nil {
		return nil, nil, false, err
	}
	flat, shared, err = hostView(r.device.backend, h.Buffer, v.LocalShape(r.at()))
	return h, flat, shared, err
}

func (r *run) keep(at schedule.Slot, b compute.Buffer) error {
	if err := r.free(at); err != nil { // what does not differ between instances may be computed again
		return err
	}
	return r.keepFor(r.ledger.Use(at.Value), at, b)
}

// keepFor is keep of what is for something, where nothing is yet.
func (r *run) keepFor(use schedule.Use, at schedule.Slot, b compute.Buffer) error {
	h := r.device.memory.newHeld()
	h.Buffer, h.use, h.bytes = b, use, bytesOf(b)
	r.values[at] = h
	return r.meter.add(h.use, h.bytes)
}

// forget takes a value off the books: someone else has it now.
func (r *run) forget(at schedule.Slot) {
	if b, ok := r.values[at]; ok {
		_ = r.meter.add(b.use, -b.bytes)
		delete(r.values, at)
	}
}

// passOn takes a value off the books that a segment consumed.
func (r *run) passOn(at schedule.Slot) {
	if h, ok := r.values[at]; ok {
		_ = r.meter.add(h.use, -h.bytes)
		delete(r.values, at)
		r.device.memory.recycle(h)
	}
}

// take takes a value off the books to overwrite it. What others still read, or have the memory of, is copied.
func (r *run) take(at schedule.Slot) (compute.Buffer, bool, error) {
	h, ok := r.values[at]
	if !ok {
		return nil, false, nil
	}
	if err := r.arrive(h); err != nil {
		return nil, false, err
	}
	shared, ok := h.Buffer.(exec.SharedBuffer)
	if !h.sending() && !(ok && shared.Shared()) {
		h.readers.wait()
		r.forget(at)
		return h.Buffer, true, nil
	}
	flat, err := toHost(h, at.Value.LocalShape(r.at()))
	if err != nil {
		return nil, false, err
	}
	delete(r.values, at)
	r.outbox = append(r.outbox, h)
	b, err := r.device.backend.BufferFromFlatData(0, flat, at.Value.LocalShape(r.at()))
	return b, true, err
}

// give hands an output over.
func (r *run) give(v *ir.Value) (compute.Buffer, error) {
	at := schedule.Slot{Value: v, Micro: schedule.Once}
	h, ok := r.values[at]
	if !ok {
		return nil, errors.Errorf("device %d did not compute it", r.id)
	}
	if err := r.arrive(h); err != nil {
		return nil, err
	}
	h.readers.wait()
	r.forget(at)
	return h.Buffer, nil
}

// freeAll lets go of what nobody needs after an instruction.
func (r *run) freeAll(x *line) error {
	for _, at := range x.dies {
		if err := r.free(at); err != nil {
			return err
		}
	}
	return nil
}

func (r *run) free(at schedule.Slot) error {
	h, ok := r.values[at]
	if !ok || h.borrowed {
		return nil
	}
	if err := r.arrive(h); err != nil {
		r.forget(at)
		return err
	}
	if h.sending() {
		delete(r.values, at)
		r.outbox = append(r.outbox, h)
		return nil
	}
	r.forget(at)
	err := r.finalize(h)
	r.device.memory.recycle(h)
	return err
}

// finalize frees a value. Memory that others copy from is free only when they have done so.
func (r *run) finalize(h *held) error {
	if len(h.handed) > 0 {
		r.leaving = append(r.leaving, leaving{func() error {
			for _, x := range h.handed {
				if err := x.end(); err != nil {
					return err
				}
			}
			return nil
		}, h.bytes})
	}
	err := r.runner.finalize(h.Buffer, h.readers)
	if h.whole != nil {
		err = cmp.Or(err, h.whole.Finalize())
	}
	return err
}

// reap lets go of what others have read by now.
func (r *run) reap() error {
	for i := 0; i < len(r.outbox); {
		h := r.outbox[i]
		if h.sending() {
			i++
			continue
		}
		r.outbox = slices.Delete(r.outbox, i, i+1)
		_ = r.meter.add(h.use, -h.bytes)
		if err := r.finalize(h); err != nil {
			return err
		}
	}
	return nil
}

func bytesOf(b compute.Buffer) int64 {
	s, err := b.Shape()
	if err != nil {
		return 0
	}
	return s.ByteSize()
}
