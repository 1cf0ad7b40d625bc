// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package local

import (
	"slices"
	"time"

	"github.com/gomlx/compute"

	"github.com/easyparallel/epl/schedule"
	"github.com/easyparallel/epl/trace"
)

// accumulate adds the values of a micro-batch to those of the micro-batches before.
func (r *run) accumulate(in schedule.Instr) error {
	bucket := r.schedule.Buckets[in.Bucket]
	if !bucket.How.Adds() {
		return nil // all are kept, until they are merged
	}
	values, _ := bucket.Values()
	if lacks, err := r.unused(in.Micro, values...); lacks {
		return err
	}
	if _, begun := r.values[schedule.Slot{Value: values[0], Micro: schedule.Once}]; !begun {
		for _, v := range values {
			b, _, err := r.take(schedule.Slot{Value: v, Micro: in.Micro})
			if err != nil {
				return err
			}
			if err := r.keep(schedule.Slot{Value: v, Micro: schedule.Once}, b); err != nil {
				return err
			}
		}
		return nil
	}
	var ins []compute.Buffer
	for _, v := range values {
		sum := r.values[schedule.Slot{Value: v, Micro: schedule.Once}]
		next, _, err := r.take(schedule.Slot{Value: v, Micro: in.Micro})
		if err != nil {
			return err
		}
		ins = append(ins, sum.Buffer, next)
	}
	donate := slices.Repeat([]bool{true}, len(ins))
	start := time.Now()
	outs, err := r.device.adders[in.Bucket].Execute(ins, donate, 0)
	r.ran(trace.Task{Kind: trace.Accumulate, Stage: r.schedule.Segments[bucket.After].Stage, Micro: in.Micro}, func() string { return r.schedule.Text(in) }, start)
	if err != nil {
		return err
	}
	for i, v := range values {
		r.forget(schedule.Slot{Value: v, Micro: schedule.Once})
		if err := r.keep(schedule.Slot{Value: v, Micro: schedule.Once}, outs[i]); err != nil {
			return err
		}
	}
	return nil
}
