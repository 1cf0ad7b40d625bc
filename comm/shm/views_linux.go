// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package shm

import (
	"sync"
	"unsafe"

	"github.com/pkg/errors"
)

// views are the pieces of others' shared heaps that a communicator uses, mapped here, by their random names.
type views map[uint64][]byte

// viewed are the pieces that this process has mapped: its communicators share them, so that the pages of a piece are found once.
var viewed = struct {
	sync.Mutex
	pieces map[uint64]*viewedPiece
}{pieces: map[uint64]*viewedPiece{}}

type viewedPiece struct {
	memory []byte
	users  int
}

func (v *views) open(pid uint64, c *card) ([]byte, error) {
	if memory, ok := (*v)[c.piece]; ok {
		return memory, nil
	}
	viewed.Lock()
	defer viewed.Unlock()
	p := viewed.pieces[c.piece]
	if p == nil {
		memory, err := openMemory(pid, c.fd, int(c.size))
		if err != nil {
			return nil, err
		}
		if *(*uint64)(unsafe.Pointer(&memory[0])) != c.piece {
			unmap(memory)
			return nil, errors.New("it is something else")
		}
		p = &viewedPiece{memory: memory}
		viewed.pieces[c.piece] = p
	}
	p.users++
	if *v == nil {
		*v = views{}
	}
	(*v)[c.piece] = p.memory
	return p.memory, nil
}

func (v views) close() {
	viewed.Lock()
	defer viewed.Unlock()
	for id := range v {
		p := viewed.pieces[id]
		if p.users--; p.users == 0 {
			unmap(p.memory)
			delete(viewed.pieces, id)
		}
	}
	clear(v)
}
