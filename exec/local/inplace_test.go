// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package local_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
	"unsafe"

	"github.com/gomlx/compute"
	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/gobackend"
	"github.com/gomlx/compute/shapes"
	"github.com/gomlx/gomlx/core/tensors"
	"github.com/gomlx/gomlx/ml/train"

	"github.com/easyparallel/epl/cpu"
	"github.com/easyparallel/epl/emit"
	"github.com/easyparallel/epl/exec"
	"github.com/easyparallel/epl/exec/local"
	"github.com/easyparallel/epl/ir"
	"github.com/easyparallel/epl/schedule"
	"github.com/easyparallel/epl/state"
)

// shardedDescent is w ← w - mean of x, of which each of two model replicas computes a part.
const shardedDescent = `program "sharded descent"
instances 2 1
taskgraph 0 "" replicate(1) implicit
variable "/w" %1 trainable update %8 taskgraph 0
input %0
gradient %1 = %4
outputs update %1 result
main {
  %0 = Parameter() {Name: "arg0", Shape: float32[SIZE]} -> float32[SIZE] : forward varying taskgraph 0
  %1 = Parameter() {Name: "/w", Shape: float32[SIZE]} -> float32[SIZE] : forward taskgraph 0
  %2 = ReduceSum(%0) -> float32[] : forward varying taskgraph 0
  %3 = Identity(%0) -> float32[SIZE] : backward varying taskgraph 0
  %4 = Merge(%3) {How: "mean"} -> float32[SIZE] on replica of 2 flat : backward taskgraph 0
  %5 = Position() -> int32[] on replica of 2 each : forward
  %6 = Reshard(%1, %5) -> float32[SIZE] on replica of 2 flat : apply taskgraph 0
  %7 = Sub(%6, %4) -> float32[SIZE] on replica of 2 flat : apply taskgraph 0
  %8 = Reshard(%7) -> float32[SIZE] : apply taskgraph 0
  %9 = Merge(%2) {How: "sum"} -> float32[] : forward taskgraph 0
  return %8, %9
}`

// shardedStep runs shardedDescent on two CPU devices, which were asked what they make of segments if planned.
func shardedStep(t *testing.T, size int, planned bool) (x compute.Executable, runner *local.Runner, s *schedule.Program) {
	t.Helper()
	return stepOf(t, shardedDescent, size, planned)
}

// stepOf is shardedStep of another program.
func stepOf(t *testing.T, text string, size int, planned bool) (x compute.Executable, runner *local.Runner, s *schedule.Program) {
	t.Helper()
	p, err := ir.Parse(strings.ReplaceAll(text, "SIZE", fmt.Sprint(size)))
	if err != nil {
		t.Fatal(err)
	}
	if s, err = schedule.Build(p, schedule.Options{MaxSplits: 5, InPlace: true}); err != nil {
		t.Fatal(err)
	}
	var devices []compute.Backend
	for range 2 {
		op, err := gobackend.New("ops_sequential")
		if err != nil {
			t.Fatal(err)
		}
		devices = append(devices, cpu.New(op, 1))
	}
	opts := exec.StepOptions{Communicators: 1, Timeout: time.Minute}
	for _, g := range s.Segments {
		l, err := devices[0].(emit.Planner).Plan(g.First)
		if err != nil {
			t.Fatal(err)
		}
		if planned {
			opts.Plans = append(opts.Plans, l)
		}
	}
	runner = local.New(nil, devices...)
	runner.Owner, runner.Spare = devices[0], true
	if x, err = runner.Steps(p, s, opts); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(x.Finalize)
	return x, runner, s
}

// ones is the data of a step: two batches, of which the first has ones and the second threes.
func ones(t *testing.T, runner *local.Runner, size int) compute.Buffer {
	t.Helper()
	return fedBy(t, runner, size, func(int, func(train.Batch) bool) ([]train.Batch, error) { return []train.Batch{full(3, size)}, nil })
}

// full is a batch of one number.
func full(v float32, size int) train.Batch {
	return train.Batch{Inputs: []*tensors.Tensor{tensors.FromFlatDataAndDimensions(slices.Repeat([]float32{v}, size), size)}}
}

// fedBy is the data of a step: ones, and what more reads.
func fedBy(t *testing.T, runner *local.Runner, size int, more func(int, func(train.Batch) bool) ([]train.Batch, error)) compute.Buffer {
	t.Helper()
	b, err := local.NewFeed(full(1, size), more, nil).Batch(runner)
	if err != nil {
		t.Fatal(err)
	}
	buf, err := b.Inputs[0].Buffer(runner.Owner, 0)
	if err != nil {
		t.Fatal(err)
	}
	return buf
}

// weight is a variable: its elements, and where they are.
func weight(t *testing.T, runner *local.Runner, w compute.Buffer, size int) (*local.Reading, []float32, *byte) {
	t.Helper()
	r, err := runner.Reader(w, state.Whole([]int{size}))
	if err != nil {
		t.Fatal(err)
	}
	at := r.View(state.Whole([]int{size}))
	flat := unsafe.Slice((*float32)(unsafe.Pointer(unsafe.SliceData(at))), size)
	return r, flat, unsafe.SliceData(at)
}

// A part of a weight is updated where it lies, and the others' are gathered there, whatever the device makes of the segment; a weight of which parts are not equal,
// or which somebody reads, is left alone.
func TestAPartOfAWeightIsUpdatedWhereItLies(t *testing.T) {
	for _, c := range []struct {
		name    string
		size    int
		planned bool
		stays   bool
	}{{"overwritten", 1000, true, true}, {"copied there", 1000, false, true}, {"unequal parts", 1001, true, false}} {
		t.Run(c.name, func(t *testing.T) {
			x, runner, s := shardedStep(t, c.size, c.planned)
			if owns := slices.ContainsFunc(s.Segments, func(g *schedule.Segment) bool { return len(g.Owns) > 0 }); owns != c.stays {
				t.Fatalf("a segment updates a part where it lies: %t", owns)
			}
			start := make([]float32, c.size)
			for i := range start {
				start[i] = float32(i)
			}
			w, err := runner.BufferFromFlatData(0, start, shapes.Make(dtypes.Float32, c.size))
			if err != nil {
				t.Fatal(err)
			}
			step := func() {
				t.Helper()
				outs, err := x.Execute([]compute.Buffer{ones(t, runner, c.size), w}, []bool{true, true}, 0)
				if err != nil {
					t.Fatalf("%+v", err)
				}
				w = outs[0]
			}
			must := func(flat []float32, steps int) {
				t.Helper()
				for i, v := range flat {
					if v != float32(i-2*steps) {
						t.Fatalf("after %d steps element %d is %v, want %d", steps, i, v, i-2*steps)
					}
				}
			}
			step()
			for n := 2; n < 5; n++ {
				r, flat, before := weight(t, runner, w, c.size)
				must(flat, n-1)
				r.Done()
				step()
				r, flat, after := weight(t, runner, w, c.size)
				must(flat, n)
				r.Done()
				if c.stays && before != after {
					t.Errorf("step %d moves the weight", n)
				}
			}
			r, old, before := weight(t, runner, w, c.size)
			step() // while somebody reads
			must(old, 4)
			_, flat, after := weight(t, runner, w, c.size)
			must(flat, 5)
			if before == after {
				t.Error("a weight that somebody reads is overwritten")
			}
			r.Done()
		})
	}
}
