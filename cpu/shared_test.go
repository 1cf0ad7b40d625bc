// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package cpu_test

import (
	"slices"
	"testing"

	"github.com/gomlx/compute"
	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/shapes"

	"github.com/easyparallel/epl/cpu"
)

// elementsOf are those of a buffer, where they lie.
func elementsOf(t *testing.T, b compute.Buffer) []float32 {
	t.Helper()
	flat, err := b.Data()
	if err != nil {
		t.Fatal(err)
	}
	return flat.([]float32)
}

func TestAnotherDeviceReadsABufferWhereItLies(t *testing.T) {
	_, here, _, ins := descending(t)
	there := cpu.New(opByOp(t), 1)
	t.Cleanup(there.Finalize)
	c, err := there.Share(ins[1])
	if err != nil {
		t.Fatal(err)
	}
	if &elementsOf(t, c)[0] != &elementsOf(t, ins[1])[0] {
		t.Error("it was copied")
	}
	if c.Backend() != compute.Backend(there) || !there.Shares(here) || there.Shares(here.Backend) {
		t.Error("it is not a buffer of the other device")
	}
	memory := &elementsOf(t, c)[0]
	before := here.Allocated()
	if err := ins[1].Finalize(); err != nil {
		t.Fatal(err)
	}
	if here.Allocated(); here.Allocated() != before {
		t.Error("memory that another device has is free")
	}
	if err := c.Finalize(); err != nil {
		t.Fatal(err)
	}
	if got, want := func() int64 { here.Allocated(); return here.Allocated() }(), before-256*256*4; got != want {
		t.Errorf("the device has %d bytes after all let go of a buffer, want %d", got, want)
	}
	again, _, err := here.NewSharedBuffer(0, shapes.Make(dtypes.Float32, 256, 256))
	if err != nil {
		t.Fatal(err)
	}
	if &elementsOf(t, again)[0] != memory {
		t.Error("the memory did not go back to the device that it came from")
	}
}

func TestADonatedBufferIsOverwrittenOnlyIfNobodyElseHasItsMemory(t *testing.T) {
	_, _, exec, ins := descending(t)
	there := cpu.New(opByOp(t), 1)
	t.Cleanup(there.Finalize)
	for k := range elementsOf(t, ins[0]) {
		elementsOf(t, ins[0])[k] = float32(k%7) - 2
	}
	for k := range elementsOf(t, ins[1]) {
		elementsOf(t, ins[1])[k] = float32(k % 5)
	}
	before := slices.Clone(elementsOf(t, ins[1]))
	other, err := there.Share(ins[1])
	if err != nil {
		t.Fatal(err)
	}
	outs, err := exec.Execute(ins, []bool{false, true}, 0)
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(elementsOf(t, other), before) {
		t.Error("a buffer of another device was overwritten")
	}
	if slices.Equal(elementsOf(t, outs[0]), before) {
		t.Error("the step changed nothing")
	}
	// The weights of the next step are the device's own: they are overwritten.
	memory := &elementsOf(t, outs[0])[0]
	next, err := exec.Execute([]compute.Buffer{ins[0], outs[0]}, []bool{false, true}, 0)
	if err != nil {
		t.Fatal(err)
	}
	if &elementsOf(t, next[0])[0] != memory {
		t.Error("a donated buffer that nobody shares was not overwritten")
	}
}
