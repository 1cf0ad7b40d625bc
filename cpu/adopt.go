// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package cpu

import (
	"runtime"
	"sync"
	"sync/atomic"

	"github.com/gomlx/compute"
	"github.com/gomlx/compute/shapes"

	"github.com/easyparallel/epl/emit"
)

// adopted is memory that is not the device's.
type adopted struct {
	memory  emit.CommonMemory
	lost    runtime.Cleanup // releases it if nobody gives it back
	release func()
}

// Adopt implements emit.Adopter.
func (b *Backend) Adopt(m emit.CommonMemory, shape shapes.Shape) compute.Buffer {
	n := int(shape.ByteSize())
	if shape.DType.IsPacked() || n > len(m.Bytes()) {
		return nil
	}
	m.Keep()
	mine := int64(n / m.Ranks())
	b.adopted.Add(mine)
	id := b.adoptions.next.Add(1)
	a := &adopted{memory: m, release: sync.OnceFunc(func() {
		b.adoptions.all.Delete(id)
		b.adopted.Add(-mine)
		m.Release()
	})}
	b.adoptions.all.Store(id, a.release)
	a.lost = runtime.AddCleanup(a, func(release func()) { release() }, a.release)
	return &Buffer{backend: b, shape: shape, bytes: m.Bytes()[:n:n], adopted: a}
}

// Adopted implements emit.AdoptedBuffer.
func (b *Buffer) Adopted() emit.CommonMemory {
	if b.adopted == nil || b.part {
		return nil
	}
	return b.adopted.memory
}

// adoptions are what releases common memory that buffers have, for when the device is gone.
type adoptions struct {
	next atomic.Int64
	all  sync.Map // func(), by number
}

func (x *adoptions) release() {
	x.all.Range(func(_, release any) bool {
		release.(func())()
		return true
	})
}

func (a *adopted) giveBack() {
	a.lost.Stop()
	a.release()
}
