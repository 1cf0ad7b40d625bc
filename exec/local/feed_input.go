// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package local

import (
	"time"

	"github.com/gomlx/compute"

	"github.com/easyparallel/epl/schedule"
	"github.com/easyparallel/epl/trace"
)

// feedInput gets an input of the instance: from the batches of this worker, or from the worker that feeds the model replica.
func (r *run) feedInput(in schedule.Instr) error {
	plain := r.plain[in.Value]
	if plain == nil && r.feeder(r.replica) != r.workerOf(r.id) {
		return r.receive(in)
	}
	start := time.Now()
	if plain != nil {
		flat, err := toHost(plain, in.Value.Shape)
		if err != nil {
			return err
		}
		b, err := r.device.backend.BufferFromFlatData(0, flat, in.Value.Shape)
		if err != nil {
			return err
		}
		r.did(trace.Event{Kind: trace.Data, Name: in.Value.String(), Start: start, Bytes: bytesOf(b)})
		return r.keep(schedule.Slot{Value: in.Value, Micro: in.Micro}, b)
	}
	if err := r.room(in.Value.Bytes()); err != nil {
		return err
	}
	var b compute.Buffer
	err := r.given(in.Value, in.Micro, func(flat any) (err error) {
		b, err = r.device.backend.BufferFromFlatData(0, flat, in.Value.Shape)
		return err
	})
	if err != nil {
		return err
	}
	r.did(trace.Event{Kind: trace.Data, Name: r.label("input %d", r.tensor[in.Value]), Start: start, Bytes: bytesOf(b)})
	return r.keep(schedule.Slot{Value: in.Value, Micro: in.Micro}, b)
}
