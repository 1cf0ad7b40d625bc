// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

//go:build !linux

package shm

import (
	"unsafe"

	"github.com/pkg/errors"

	"github.com/easyparallel/epl/comm/internal/transport"
)

// Memory is shared on Linux only. Elsewhere workers of one host use what stands in for it.

// New returns what instead makes.
func New(t *transport.Team, instead func(*transport.Team) transport.Engine) transport.Engine {
	return instead(t)
}

// Heap is the memory of this process that other workers can map: there is none.
var Heap sharedHeap

type sharedHeap struct{}

// Alloc says that there is no such memory.
func (sharedHeap) Alloc(int) (unsafe.Pointer, error) {
	return nil, errors.New("epl: memory is shared on Linux only")
}

// Take says the same.
func (h sharedHeap) Take(bytes int) (unsafe.Pointer, error) { return h.Alloc(bytes) }

// InUse is 0.
func (sharedHeap) InUse() int { return 0 }

// Release has nothing to take back.
func (sharedHeap) Release(unsafe.Pointer, int) {}
