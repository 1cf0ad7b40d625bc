// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package local_test

import (
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gomlx/compute"
	"github.com/gomlx/compute/gobackend"
	"github.com/gomlx/gomlx/core/tensors"
	"github.com/gomlx/gomlx/ml/train"
	"github.com/pkg/errors"

	"github.com/easyparallel/epl/exec"
	"github.com/easyparallel/epl/exec/local"
	"github.com/easyparallel/epl/ir"
	"github.com/easyparallel/epl/schedule"
)

// descent is a training step by hand: w ← w - mean of x.
const descent = `program "descent"
instances 3 2
taskgraph 0 "" replicate(1) implicit
variable "/w" %1 trainable update %5 taskgraph 0
input %0
gradient %1 = %4
outputs update %1 result
main {
  %0 = Parameter() {Name: "arg0", Shape: float32[3]} -> float32[3] : forward varying taskgraph 0
  %1 = Parameter() {Name: "/w", Shape: float32[3]} -> float32[3] : forward taskgraph 0
  %2 = ReduceSum(%0) -> float32[] : forward varying taskgraph 0
  %3 = Identity(%0) -> float32[3] : backward varying taskgraph 0
  %4 = Merge(%3) {How: "mean"} -> float32[3] : backward taskgraph 0
  %5 = Sub(%1, %4) -> float32[3] : apply taskgraph 0
  %6 = Merge(%2) {How: "sum"} -> float32[] : forward taskgraph 0
  return %5, %6
}`

// faulty is a backend whose programs fail, or panic, when told to.
type faulty struct {
	compute.Backend
	fault *atomic.Pointer[fault]
}

// fault is what goes wrong: an error, or something to panic with.
type fault struct {
	err   error
	panic string
}

type faultyBuilder struct {
	compute.Builder
	fault *atomic.Pointer[fault]
}

type faultyExecutable struct {
	compute.Executable
	fault *atomic.Pointer[fault]
}

func (f faulty) Builder(name string) compute.Builder {
	return faultyBuilder{f.Backend.Builder(name), f.fault}
}

func (f faultyBuilder) Compile() (compute.Executable, error) {
	e, err := f.Builder.Compile()
	return faultyExecutable{e, f.fault}, err
}

func (f faultyExecutable) Execute(in []compute.Buffer, donate []bool, d compute.DeviceNum) ([]compute.Buffer, error) {
	if x := f.fault.Load(); x != nil {
		if x.panic != "" {
			panic(x.panic)
		}
		return nil, x.err
	}
	return f.Executable.Execute(in, donate, d)
}

// newStepper runs descent on three devices; the fault is that of device 1.
func newStepper(t *testing.T, opts exec.StepOptions) (compute.Executable, *local.Runner, *atomic.Pointer[fault]) {
	t.Helper()
	p, err := ir.Parse(descent)
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Verify(); err != nil {
		t.Fatal(err)
	}
	s, err := schedule.Build(p, schedule.Options{MaxSplits: 5})
	if err != nil {
		t.Fatal(err)
	}
	wrong := &atomic.Pointer[fault]{}
	var devices []compute.Backend
	for d := range 3 {
		b, err := gobackend.New("ops_sequential")
		if err != nil {
			t.Fatal(err)
		}
		if d == 1 {
			b = faulty{b, wrong}
		}
		devices = append(devices, b)
	}
	data := local.New(nil, devices...)
	data.Owner = devices[0]
	x, err := data.Steps(p, s, opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(x.Finalize)
	return x, data, wrong
}

// feed makes the input of a step: batch i is {i, i, i}, of which n are there.
func feed(t *testing.T, data *local.Runner, n int) compute.Buffer {
	t.Helper()
	next := 0
	batch := func() train.Batch {
		v := float32(next)
		next++
		return train.Batch{Inputs: []*tensors.Tensor{tensors.FromFlatDataAndDimensions([]float32{v, v, v}, 3)}}
	}
	f := local.NewFeed(batch(), func(k int, _ func(train.Batch) bool) (more []train.Batch, _ error) {
		for range min(k, n-1) {
			more = append(more, batch())
		}
		return more, nil
	}, nil)
	b, err := f.Batch(data)
	if err != nil {
		t.Fatal(err)
	}
	buf, err := b.Inputs[0].Buffer(data.Owner, 0)
	if err != nil {
		t.Fatal(err)
	}
	return buf
}

func TestAStepMergesWhatItsInstancesComputed(t *testing.T) {
	x, data, _ := newStepper(t, exec.StepOptions{Communicators: 2, Timeout: time.Minute})
	w := upload(t, data, 10, 20, 30)
	for n := 1; n <= 6; n++ { // batches 0 … n-1 of at most 6
		out, err := x.Execute([]compute.Buffer{feed(t, data, n), w}, []bool{true, false}, 0)
		if err != nil {
			t.Fatalf("%d batches: %+v", n, err)
		}
		mean := float32(n-1) / 2
		if got := download(t, out[0]); got != [3]float32{10 - mean, 20 - mean, 30 - mean} {
			t.Errorf("%d batches: the weights are %v", n, got)
		}
		var sum [1]float32
		if err := out[1].ToFlatData(sum[:]); err != nil {
			t.Fatal(err)
		}
		if want := float32(3 * n * (n - 1) / 2); sum[0] != want {
			t.Errorf("%d batches: the sum is %v, want %v", n, sum[0], want)
		}
	}
}

func TestVariablesStayOnTheDevicesFromStepToStep(t *testing.T) {
	x, data, _ := newStepper(t, exec.StepOptions{Communicators: 1, Timeout: time.Minute})
	w := upload(t, data, 10, 20, 30)
	for range 4 {
		out, err := x.Execute([]compute.Buffer{feed(t, data, 6), w}, []bool{true, true}, 0)
		if err != nil {
			t.Fatalf("%+v", err)
		}
		mustFail(t, w.ToFlatData(make([]float32, 3)), "finalized or donated")
		w = out[0]
	}
	if got := download(t, w); got != [3]float32{0, 10, 20} {
		t.Errorf("got %v", got)
	}
}

func TestAnErrorOnOneDeviceStopsTheOthersAndIsReportedOnceWithTheDevice(t *testing.T) {
	x, data, wrong := newStepper(t, exec.StepOptions{Communicators: 2, Timeout: time.Hour}) // nobody waits that long
	w := upload(t, data, 10, 20, 30)
	for _, f := range []*fault{{err: errors.New("out of order")}, {panic: "out of its mind"}} {
		wrong.Store(f)
		_, err := x.Execute([]compute.Buffer{feed(t, data, 6), w}, []bool{true, false}, 0)
		mustFail(t, err, "out of")
		mustFail(t, err, "device 1, run instance.0 micro-batch 0")
		if n := strings.Count(err.Error(), "out of"); n != 1 {
			t.Errorf("it is reported %d times: %v", n, err)
		}
	}
	// The next step works again.
	wrong.Store(nil)
	out, err := x.Execute([]compute.Buffer{feed(t, data, 6), w}, []bool{true, false}, 0)
	if err != nil {
		t.Fatalf("%+v", err)
	}
	if got := download(t, out[0]); got != [3]float32{7.5, 17.5, 27.5} {
		t.Errorf("got %v", got)
	}
}
