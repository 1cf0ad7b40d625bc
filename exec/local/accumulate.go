// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package local

import (
	"slices"
	"time"

	"github.com/gomlx/compute"
	"github.com/gomlx/compute/dtypes"

	"github.com/easyparallel/epl/ir"
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
	if r.device.few[in.Bucket] {
		return r.addFew(in, values)
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
	r.accumulated(in, start)
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

// accumulated notes the task.
func (r *run) accumulated(in schedule.Instr, start time.Time) {
	stage := r.schedule.Segments[r.schedule.Buckets[in.Bucket].After].Stage
	r.ran(trace.Task{Kind: trace.Accumulate, Stage: stage, Micro: in.Micro}, func() string { return r.schedule.Text(in) }, start)
}

// fewElements is up to how many elements a bucket is added up where it lies: to start an executable takes longer. Losses and metrics have one each.
const fewElements = 64

// few tells whether a bucket is added up by addFew.
func few(b compute.Backend, bucket schedule.Bucket, at ir.Coordinates) bool {
	n := 0
	values, _ := bucket.Values()
	for _, v := range values {
		if v.Shape.DType != dtypes.Float32 && v.Shape.DType != dtypes.Float64 {
			return false
		}
		n += v.LocalShape(at).Size()
	}
	return b.HasSharedBuffers() && !bucket.Parts && n <= fewElements
}

// addFew adds values of a micro-batch to the sums, in the memory of these.
func (r *run) addFew(in schedule.Instr, values []*ir.Value) error {
	start := time.Now()
	for _, v := range values {
		sum, err := r.value(schedule.Slot{Value: v, Micro: schedule.Once})
		if err != nil {
			return err
		}
		next, _, err := r.take(schedule.Slot{Value: v, Micro: in.Micro})
		if err != nil {
			return err
		}
		to, err := sum.Data()
		if err != nil {
			return err
		}
		from, err := next.Data()
		if err != nil {
			return err
		}
		switch to := to.(type) {
		case []float32:
			addTo(to, from.([]float32))
		case []float64:
			addTo(to, from.([]float64))
		}
		if err := next.Finalize(); err != nil {
			return err
		}
	}
	r.accumulated(in, start)
	return nil
}

func addTo[T float32 | float64](to, from []T) {
	for i, x := range from {
		to[i] += x
	}
}
