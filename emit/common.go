// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package emit

import (
	"github.com/gomlx/compute"
	"github.com/gomlx/compute/shapes"
)

// CommonMemory is memory that several devices have, of this worker and of others on its host.
type CommonMemory interface {
	Bytes() []byte
	// Ranks is how many devices have it.
	Ranks() int
	// Keep is for another user, Release for one that does not need it any more.
	Keep()
	Release()
}

// Adopter is a device that computes with memory that it is given.
type Adopter interface {
	// Adopt makes a buffer of the device with common memory, which it keeps until it or the device is finalized, or nobody has it any more. No execution writes to it, even if
	// it is donated; one of a part of it does: see exec.Parter. Nil: the device cannot.
	Adopt(m CommonMemory, shape shapes.Shape) compute.Buffer
}

// AdoptedBuffer is a buffer of an Adopter.
type AdoptedBuffer interface {
	// Adopted is the common memory of the buffer; nil: it has other memory.
	Adopted() CommonMemory
}
