// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package cpu_test

import (
	"runtime"
	"sync"
	"testing"
	"time"
	"unsafe"

	"github.com/gomlx/compute"
	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/shapes"

	"github.com/easyparallel/epl/cpu"
)

// counted is memory of which so many tensors can be taken.
type counted struct {
	mu    sync.Mutex
	room  int
	taken map[*byte]int
}

func (c *counted) Take(bytes int) []byte {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.room == 0 {
		return nil
	}
	c.room--
	b := make([]byte, bytes)
	c.taken[unsafe.SliceData(b)] = bytes
	return b
}

func (c *counted) Give(b []byte) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.room++
	delete(c.taken, unsafe.SliceData(b))
}

func TestLargeTensorsLieInTheMemoryThatADeviceWasGivenAndGoBackThere(t *testing.T) {
	memory := &counted{room: 2, taken: map[*byte]int{}}
	b := cpu.New(opByOp(t), 1, cpu.In(memory))
	large, small := shapes.Make(dtypes.Float32, 1<<16), shapes.Make(dtypes.Float32, 1<<16-1)
	var all []*cpu.Buffer
	for i, want := range []struct {
		shape shapes.Shape
		taken int
	}{{large, 1}, {small, 1}, {large, 2}, {large, 2}} { // there is no room for the last
		x, flat, err := b.NewSharedBuffer(0, want.shape)
		if err != nil {
			t.Fatal(err)
		}
		if n := len(flat.([]float32)); n != want.shape.Size() {
			t.Errorf("tensor %d has %d elements", i, n)
		}
		if len(memory.taken) != want.taken {
			t.Errorf("after tensor %d, %d are in the memory, not %d", i, len(memory.taken), want.taken)
		}
		all = append(all, x.(*cpu.Buffer))
	}
	for _, x := range []*cpu.Buffer{all[1], all[3], all[2]} {
		if err := x.Finalize(); err != nil {
			t.Fatal(err)
		}
	}
	if _, _, err := b.NewSharedBuffer(0, large); err != nil || memory.room != 0 { // what was finalized last serves the next one
		t.Errorf("there is room for %d, %v", memory.room, err)
	}
	b.Finalize()
	if len(memory.taken) != 0 {
		t.Errorf("a device that is finalized keeps %d tensors", len(memory.taken))
	}
	if err := all[0].Finalize(); err != nil || memory.room != 2 { // it has no memory any more
		t.Errorf("there is room for %d, %v", memory.room, err)
	}
}

// holds is how many tensors are in the memory.
func (c *counted) holds() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.taken)
}

// comesTo waits until so many tensors are in the memory.
func (c *counted) comesTo(t *testing.T, n int) {
	t.Helper()
	for range 500 {
		runtime.GC()
		if c.holds() == n {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	t.Fatalf("%d tensors are in the memory, not %d", c.holds(), n)
}

// Programs need not finalize tensors: what nobody has any more goes back, but not what a part or another device has.
func TestMemoryOfTensorsThatNobodyHasGoesBack(t *testing.T) {
	memory := &counted{room: 10, taken: map[*byte]int{}}
	b, other := cpu.New(opByOp(t), 1, cpu.In(memory)), cpu.New(opByOp(t), 1)
	shape := shapes.Make(dtypes.Float32, 1<<16)
	take := func() compute.Buffer {
		x, _, err := b.NewSharedBuffer(0, shape)
		if err != nil {
			t.Fatal(err)
		}
		return x
	}
	part := b.Part(take(), 0, shapes.Make(dtypes.Float32, 8))
	shared, err := other.Share(take())
	if err != nil {
		t.Fatal(err)
	}
	finalized := take()
	if err := finalized.Finalize(); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		take() // the first gets the memory of the one that was finalized
	}
	memory.comesTo(t, 2)
	runtime.KeepAlive(part)
	runtime.KeepAlive(shared)
	memory.comesTo(t, 0)
	b.Finalize()
	other.Finalize()
}
