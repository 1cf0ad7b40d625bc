// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package shm

import (
	"os"
	"unsafe"

	"github.com/pkg/errors"
	"golang.org/x/sys/unix"
)

// Common is memory that some processes of a host have mapped. It has no name in any file system, and is gone when the last of them has unmapped it, however that ends.
type Common struct {
	card   CommonCard
	memory []byte
	file   int // -1: nobody else can map it any more
}

// CommonCard tells others how to map the memory.
type CommonCard struct{ PID, FD, Size, ID uint64 }

// NewCommon makes memory of so many bytes, all of which are zero.
func NewCommon(bytes int) (*Common, error) {
	size := commonHead + inLines(bytes)
	page := os.Getpagesize()
	size = (size + page - 1) / page * page
	fd, memory, err := createMemory("epl-common", size, page)
	if err != nil {
		return nil, err
	}
	c := &Common{card: CommonCard{PID: uint64(os.Getpid()), FD: uint64(fd), Size: uint64(size), ID: random()>>1 | 1}, memory: memory, file: fd}
	for at := 0; at < size; at += chunkBytes {
		n := min(chunkBytes, size-at)
		if n == chunkBytes && makeHuge(fd, memory, at) {
			continue
		}
		if err := Reserve(fd, 0, int64(at), int64(n)); err != nil {
			c.Close()
			return nil, unreserved(size, err)
		}
	}
	*(*uint64)(unsafe.Pointer(&memory[0])) = c.card.ID
	return c, nil
}

// commonHead is what the id has for itself.
const commonHead = 64

// OpenCommon maps the memory of another process.
func OpenCommon(card CommonCard) (*Common, error) {
	memory, err := openMemory(card.PID, card.FD, int(card.Size))
	if err != nil {
		return nil, err
	}
	c := &Common{card: card, memory: memory, file: -1}
	if *(*uint64)(unsafe.Pointer(&memory[0])) != card.ID {
		c.Close()
		return nil, errors.New("it is something else")
	}
	return c, nil
}

// Card tells others how to map the memory.
func (c *Common) Card() CommonCard { return c.card }

// Bytes is the memory.
func (c *Common) Bytes() []byte { return c.memory[commonHead:] }

// Mapped says that all others have mapped the memory.
func (c *Common) Mapped() {
	if c.file >= 0 {
		unix.Close(c.file)
		c.file = -1
	}
}

// Close unmaps the memory.
func (c *Common) Close() {
	c.Mapped()
	unmap(c.memory)
	c.memory = nil
}
