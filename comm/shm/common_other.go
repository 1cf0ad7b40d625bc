// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

//go:build !linux

package shm

import (
	"math/rand/v2"

	"github.com/pkg/errors"
)

// Common is memory of this process only.
type Common struct {
	id     uint64
	memory []byte
}

// CommonCard tells others how to map the memory.
type CommonCard struct{ PID, FD, Size, ID uint64 }

// NewCommon makes memory of so many bytes.
func NewCommon(bytes int) (*Common, error) {
	return &Common{rand.Uint64()>>1 | 1, make([]byte, bytes)}, nil
}

// OpenCommon says that nobody can map the memory of another process.
func OpenCommon(CommonCard) (*Common, error) {
	return nil, errors.New("epl: memory is shared on Linux only")
}

// Card has the id only.
func (c *Common) Card() CommonCard { return CommonCard{Size: uint64(len(c.memory)), ID: c.id} }

// Bytes is the memory.
func (c *Common) Bytes() []byte { return c.memory }

// Mapped has nothing to do.
func (*Common) Mapped() {}

// Close leaves the memory to the garbage collector.
func (c *Common) Close() { c.memory = nil }
