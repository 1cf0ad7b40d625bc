// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package local

import (
	"reflect"
	"testing"

	"github.com/gomlx/compute/gobackend"

	"github.com/easyparallel/epl/cpu"
	"github.com/easyparallel/epl/exec"
	"github.com/easyparallel/epl/ir"
	"github.com/easyparallel/epl/schedule"
)

// gathers has a weight that two model replicas share.
const gathers = `program "gathers"
instances 2 1
taskgraph 0 "" replicate(1) implicit
variable "/w" %1 trainable taskgraph 0
input %0
outputs result
main {
  %0 = Parameter() {Name: "arg0", Shape: float32[6]} -> float32[6] : forward varying taskgraph 0
  %1 = Parameter() {Name: "/w", Shape: float32[6]} -> float32[6] on replica of 2 flat : forward taskgraph 0
  %2 = Reshard(%1) -> float32[6] : forward taskgraph 0
  %3 = Mul(%0, %2) -> float32[6] : forward varying taskgraph 0
  %4 = Merge(%3) {How: "sum"} -> float32[6] : forward taskgraph 0
  return %4
}`

// What devices of a worker gather for a micro-batch lies in one memory, which nobody may write to; what they gather once is a variable of each.
func TestDevicesOfAWorkerGatherIntoOneMemory(t *testing.T) {
	p, err := ir.Parse(gathers)
	if err != nil {
		t.Fatal(err)
	}
	s, err := schedule.Build(p, schedule.Options{MaxSplits: 5})
	if err != nil {
		t.Fatal(err)
	}
	x := &step{stepper: &stepper{program: p, schedule: s}}
	for range 2 {
		op, err := gobackend.New("ops_sequential")
		if err != nil {
			t.Fatal(err)
		}
		x.devices = append(x.devices, &device{backend: cpu.New(op, 1)})
	}
	gather := p.Main.Ops[2]
	for micro, want := range map[int]bool{schedule.Once: false, 0: true, 1: true} {
		var at [2]uintptr
		for rank, d := range x.devices {
			r := &run{step: x, id: rank, local: rank, seat: x.seat(rank), device: d}
			b, flat, err := r.gathersInto(gather, micro, gather.Outputs[0].LocalShape(r.at()))
			if err != nil {
				t.Fatal(err)
			}
			at[rank] = reflect.ValueOf(flat).Pointer()
			if b.Backend() != d.backend || b.(exec.SharedBuffer).Shared() != want {
				t.Errorf("micro-batch %d: device %d has a buffer of another, or one that is shared: %v", micro, rank, !want)
			}
		}
		if same := at[0] == at[1]; same != want {
			t.Errorf("micro-batch %d: devices gather into the same memory: %v", micro, same)
		}
	}
	if len(x.gatherings.all) != 0 {
		t.Errorf("%d gatherings to which all have come are kept", len(x.gatherings.all))
	}
}
