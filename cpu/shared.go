// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package cpu

import (
	"sync/atomic"

	"github.com/gomlx/compute"
	"github.com/pkg/errors"
)

// sharing is memory that buffers of several devices have. It goes back to the device that it came from when the last of them is finalized; nobody writes to it before.
type sharing struct {
	home    *Backend
	buffers atomic.Int32
}

// Shares implements exec.Sharer: devices of a process have the same memory.
func (b *Backend) Shares(other compute.Backend) bool {
	_, ok := other.(*Backend)
	return ok
}

// Share implements exec.Sharer.
func (b *Backend) Share(x compute.Buffer) (compute.Buffer, error) {
	from, ok := x.(*Buffer)
	if !ok || from.final {
		return nil, errors.Errorf("epl: cpu: a %T that is no tensor of a CPU device, or was finalized, cannot be shared", x)
	}
	if from.owner != nil || from.adopted != nil { // others count theirs
		return b.BufferFromFlatData(0, flatOf(from.bytes, from.shape), from.shape)
	}
	s := from.sharing.Load()
	if s == nil {
		s = &sharing{home: from.backend}
		s.buffers.Store(1)
		if !from.sharing.CompareAndSwap(nil, s) { // another device was faster
			s = from.sharing.Load()
		}
	}
	s.buffers.Add(1)
	c := &Buffer{backend: b, shape: from.shape, bytes: from.bytes, hold: from.hold}
	c.sharing.Store(s)
	return c, nil
}

// Shared implements exec.SharedBuffer.
func (b *Buffer) Shared() bool {
	s := b.sharing.Load()
	return b.adopted != nil && !b.part || s != nil && s.buffers.Load() > 1
}

// giveBack lets go of the memory of a buffer.
func (b *Buffer) giveBack() {
	defer func() { b.bytes, b.hold = nil, nil }()
	if b.part {
		return
	}
	if b.adopted != nil {
		b.adopted.giveBack()
		return
	}
	home := b.backend
	if s := b.sharing.Load(); s != nil {
		if s.buffers.Add(-1) > 0 {
			return
		}
		home = s.home
	}
	if b.hold != nil {
		b.hold.lost.Stop()
	}
	home.free.give(b.bytes)
}
