// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package cpu

import (
	"github.com/gomlx/compute"
	"github.com/gomlx/compute/shapes"
)

// Part implements exec.Parter.
func (b *Backend) Part(of compute.Buffer, from int, shape shapes.Shape) compute.Buffer {
	whole, ok := of.(*Buffer)
	if !ok || whole.backend != b || whole.final || whole.owner != nil || whole.adopted == nil && whole.Shared() || shape.DType.IsPacked() {
		return nil
	}
	at := from * int(shape.DType.Size())
	end := at + int(shape.ByteSize())
	return &Buffer{backend: b, shape: shape, bytes: whole.bytes[at:end:end], hold: whole.hold, adopted: whole.adopted, part: true}
}
