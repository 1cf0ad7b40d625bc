// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package cpu_test

import (
	"runtime"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gomlx/compute"
	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/shapes"

	"github.com/easyparallel/epl/cpu"
)

// commonMemory counts its users.
type commonMemory struct {
	memory []byte
	users  atomic.Int32
}

func (m *commonMemory) Bytes() []byte { return m.memory }
func (*commonMemory) Ranks() int      { return 2 }
func (m *commonMemory) Keep()         { m.users.Add(1) }
func (m *commonMemory) Release()      { m.users.Add(-1) }

func TestADeviceComputesWithCommonMemory(t *testing.T) {
	_, here, exec, ins := descending(t)
	for k := range elementsOf(t, ins[0]) {
		elementsOf(t, ins[0])[k] = float32(k%7) - 2
	}
	shape, err := ins[1].Shape()
	if err != nil {
		t.Fatal(err)
	}
	m := &commonMemory{memory: make([]byte, shape.ByteSize()+64)}
	b := here.Adopt(m, shape)
	if b == nil || m.users.Load() != 1 {
		t.Fatalf("it was not adopted: %d users", m.users.Load())
	}
	if at := b.(*cpu.Buffer).Adopted(); at != m {
		t.Errorf("it is not told what memory it has: %v", at)
	}
	if ins[1].(*cpu.Buffer).Adopted() != nil {
		t.Error("memory of the device is said to be common")
	}
	for k := range elementsOf(t, b) {
		elementsOf(t, b)[k] = float32(k % 5)
	}
	before := slices.Clone(elementsOf(t, b))
	outs, err := exec.Execute([]compute.Buffer{ins[0], b}, []bool{false, true}, 0)
	if err != nil {
		t.Fatal(err)
	}
	if m.users.Load() != 0 {
		t.Errorf("a donated buffer keeps its memory: %d users", m.users.Load())
	}
	again := here.Adopt(m, shape)
	if !slices.Equal(elementsOf(t, again), before) {
		t.Error("an execution wrote to common memory")
	}
	if slices.Equal(elementsOf(t, outs[0]), before) {
		t.Error("the step changed nothing")
	}
	// A part is overwritten.
	part := here.Part(again, 0, shape)
	outs, err = exec.Execute([]compute.Buffer{ins[0], part}, []bool{false, true}, 0)
	if err != nil {
		t.Fatal(err)
	}
	if &elementsOf(t, outs[0])[0] != &elementsOf(t, again)[0] || slices.Equal(elementsOf(t, again), before) {
		t.Error("a part of common memory was not updated where it lies")
	}
	with := here.Allocated()
	if err := again.Finalize(); err != nil {
		t.Fatal(err)
	}
	if here.Allocated(); here.Allocated() != with-shape.ByteSize()/2 {
		t.Errorf("of %d bytes %d are left, want half of the variable's %d less", with, here.Allocated(), shape.ByteSize())
	}
	if m.users.Load() != 0 {
		t.Errorf("a finalized buffer keeps its memory: %d users", m.users.Load())
	}
	if here.Adopt(m, shapes.Make(dtypes.Uint8, len(m.memory)+1)) != nil || here.Adopt(m, shapes.Make(dtypes.Int4, 2)) != nil {
		t.Error("it adopts what does not fit")
	}
}

func TestCommonMemoryThatNobodyFinalizesIsReleased(t *testing.T) {
	here := cpu.New(opByOp(t), 1)
	t.Cleanup(here.Finalize)
	m := &commonMemory{memory: make([]byte, 64)}
	part := here.Part(here.Adopt(m, shapes.Make(dtypes.Float32, 16)), 0, shapes.Make(dtypes.Float32, 8))
	runtime.GC()
	runtime.GC()
	if m.users.Load() != 1 {
		t.Error("memory of which a part is in use was released")
	}
	runtime.KeepAlive(part)
	for until := time.Now().Add(10 * time.Second); m.users.Load() > 0 && time.Now().Before(until); time.Sleep(time.Millisecond) {
		runtime.GC()
	}
	if m.users.Load() != 0 {
		t.Error("the memory is kept")
	}
}

// When a device is closed its memory is given back, also that of tensors that somebody still has.
func TestAClosedDeviceHasNoCommonMemory(t *testing.T) {
	here := cpu.New(opByOp(t), 1)
	m := &commonMemory{memory: make([]byte, 64)}
	b := here.Adopt(m, shapes.Make(dtypes.Float32, 16))
	here.Finalize()
	if m.users.Load() != 0 {
		t.Error("the memory is kept")
	}
	if _ = b.Finalize(); m.users.Load() != 0 {
		t.Errorf("it was released twice: %d users", m.users.Load())
	}
}
