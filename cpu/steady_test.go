// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package cpu_test

import (
	"testing"

	"github.com/gomlx/compute"

	"github.com/easyparallel/epl/cpu"
	"github.com/easyparallel/epl/emit"
	"github.com/easyparallel/epl/ir"
)

// A step of gradient descent: the weights, 256 KiB, are donated and come back.
const descent = `program "descent"
input %0
outputs result result
main {
  %0 = Parameter() {Name: "x", Shape: float32[32,256]} -> float32[32,256] : forward
  %1 = Parameter() {Name: "w", Shape: float32[256,256]} -> float32[256,256] : forward
  %2 = DotGeneral(%0, %1) {LHSContractingAxes: [1], RHSContractingAxes: [0]} -> float32[32,256] : forward
  %3 = Mul(%2, %2) -> float32[32,256] : forward
  %4 = ReduceSum(%3) {Axes: [0, 1]} -> float32[] : forward
  %5 = DotGeneral(%0, %2) {LHSContractingAxes: [0], RHSContractingAxes: [0]} -> float32[256,256] : forward
  %6 = Sub(%1, %5) -> float32[256,256] : forward
  return %6, %4
}`

// descending is that program on an engine of one thread, with inputs.
func descending(t *testing.T) (*ir.Program, *cpu.Backend, compute.Executable, []compute.Buffer) {
	t.Helper()
	p, err := ir.Parse(descent)
	if err != nil {
		t.Fatal(err)
	}
	b := cpu.New(opByOp(t), 1)
	t.Cleanup(b.Finalize)
	exec, err := emit.Program(b, p)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(exec.Finalize)
	var ins []compute.Buffer
	for _, v := range p.Main.Params {
		in, err := b.BufferFromFlatData(0, make([]float32, v.Shape.Size()), v.Shape)
		if err != nil {
			t.Fatal(err)
		}
		ins = append(ins, in)
	}
	return p, b, exec, ins
}

func TestAStepMakesNoGarbage(t *testing.T) {
	p, b, exec, ins := descending(t)
	donate := []bool{false, true}
	step := func() {
		outs, err := exec.Execute(ins, donate, 0)
		if err != nil {
			t.Fatal(err)
		}
		ins[1] = outs[0]
		if err := outs[1].Finalize(); err != nil {
			t.Fatal(err)
		}
	}
	step()
	b.Allocated()
	step()
	first := b.Allocated()
	// Lists of pointers, and the two buffers as objects; no tensor.
	if n := testing.AllocsPerRun(20, step); n > 16 {
		t.Errorf("a step allocates %v times", n)
	}
	if got := b.Allocated(); got != first {
		t.Errorf("the device has %d bytes after a step, and %d after 20 more", first, got)
	}
	l, err := b.Plan(emit.Whole(p))
	if err != nil {
		t.Fatal(err)
	}
	var inputs int64
	for _, v := range p.Main.Params {
		inputs += v.Bytes()
	}
	if want := inputs + 4 + l.Arena; first != want {
		t.Errorf("the device has %d bytes, not those of the inputs, the loss and the arena: %d", first, want)
	}
}
