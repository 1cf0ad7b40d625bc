// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package cpu

import (
	"runtime"
	"sync"

	"github.com/gomlx/compute"
	"github.com/gomlx/compute/shapes"

	"github.com/easyparallel/epl/emit"
)

// adopted is memory that is not the device's.
type adopted struct {
	memory  emit.CommonMemory
	from    int
	lost    runtime.Cleanup // releases it if nobody gives it back
	release func()
}

// Adopt implements emit.Adopter.
func (b *Backend) Adopt(m emit.CommonMemory, from int, shape shapes.Shape) compute.Buffer {
	n := int(shape.ByteSize())
	if shape.DType.IsPacked() || from+n > len(m.Bytes()) {
		return nil
	}
	m.Keep()
	mine := int64(n / m.Ranks())
	b.adopted.Add(mine)
	a := &adopted{memory: m, from: from, release: sync.OnceFunc(func() {
		b.adopted.Add(-mine)
		m.Release()
	})}
	a.lost = runtime.AddCleanup(a, func(release func()) { release() }, a.release)
	return &Buffer{backend: b, shape: shape, bytes: m.Bytes()[from : from+n : from+n], adopted: a}
}

// Adopted implements emit.AdoptedBuffer.
func (b *Buffer) Adopted() (m emit.CommonMemory, from int) {
	if b.adopted == nil || b.part {
		return nil, 0
	}
	return b.adopted.memory, b.adopted.from
}

func (a *adopted) giveBack() {
	a.lost.Stop()
	a.release()
}
