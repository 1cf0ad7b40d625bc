// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package local

import (
	"slices"
	"testing"

	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/gobackend"
	"github.com/gomlx/compute/shapes"

	"github.com/easyparallel/epl/cpu"
	"github.com/easyparallel/epl/ir"
	"github.com/easyparallel/epl/schedule"
)

// A loss is added up over micro-batches where it lies: one of them lives on, and the books know no other.
func TestFewElementsAreAddedUpInPlace(t *testing.T) {
	op, err := gobackend.New("ops_sequential")
	if err != nil {
		t.Fatal(err)
	}
	p := ir.NewProgram("test")
	bucketOf := func(d dtypes.DType, n int) schedule.Bucket {
		shape := shapes.Make(d, n)
		v := p.NewOp(&ir.Exp{}, nil, shape).Outputs[0]
		return schedule.Bucket{Merges: []*ir.Op{p.NewOp(&ir.Merge{How: ir.Sum}, []*ir.Value{v}, shape)}, How: ir.Sum}
	}
	b := cpu.New(op, 1)
	for _, x := range []struct {
		bucket schedule.Bucket
		want   bool
	}{{bucketOf(dtypes.Float32, 2), true}, {bucketOf(dtypes.Float64, 2), true}, {bucketOf(dtypes.BFloat16, 2), false}, {bucketOf(dtypes.Float32, 1000), false}} {
		if got := few(b, x.bucket, nil); got != x.want {
			t.Errorf("few(%s) = %v", x.bucket.Merges[0].Outputs[0].Shape, got)
		}
	}
	bucket := bucketOf(dtypes.Float32, 2)
	v := bucket.Merges[0].Inputs[0]
	s := &schedule.Program{Local: ir.Local{Replicas: 1, MicroBatches: 3}, Buckets: []schedule.Bucket{bucket}, Segments: []*schedule.Segment{{}}}
	x := &step{stepper: &stepper{program: p, schedule: s, ledger: schedule.NewLedger(p), runner: &Runner{}}, deal: deal{index: [][]int{{0, 1, 2}}, feeders: []int{0}, present: []int{3}}}
	r := &run{step: x, device: &device{backend: b, few: []bool{true}}, values: map[schedule.Slot]*held{}, meter: &meter{}}
	for micro := range 3 {
		next, err := b.BufferFromFlatData(0, []float32{1, float32(micro)}, v.Shape)
		if err != nil {
			t.Fatal(err)
		}
		if err := r.keep(schedule.Slot{Value: v, Micro: micro}, next); err != nil {
			t.Fatal(err)
		}
		if err := r.accumulate(schedule.Instr{Kind: schedule.Accumulate, Micro: micro}); err != nil {
			t.Fatal(err)
		}
		if n := r.meter.books.Live.Total(); n != 8 {
			t.Errorf("after micro-batch %d the books have %d bytes", micro, n)
		}
	}
	flat, err := r.values[schedule.Slot{Value: v, Micro: schedule.Once}].Data()
	if err != nil || !slices.Equal(flat.([]float32), []float32{3, 3}) {
		t.Errorf("the sums are %v, %v", flat, err)
	}
}

// What is recorded of a value that is gone does not come back with the next one.
func TestRecordsOfValuesAreUsedAgain(t *testing.T) {
	var m memory
	first := m.newHeld()
	first.borrowed, first.bytes, first.sends = true, 4, append(first.sends, &handover{})
	m.recycle(first)
	if h := m.newHeld(); h != first || h.borrowed || h.bytes != 0 || len(h.sends) > 0 {
		t.Errorf("the next record is %+v", h)
	}
	awaited := m.newHeld()
	awaited.handed = []*handover{{}}
	m.recycle(awaited)
	if m.newHeld() == awaited {
		t.Error("a record is used again while somebody waits for copies of its value")
	}
}
