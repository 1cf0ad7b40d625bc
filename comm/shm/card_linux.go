// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package shm

import (
	"unsafe"

	"github.com/pkg/errors"

	"github.com/easyparallel/epl/comm/internal/transport"
)

// card tells the others where the buffers of a rank are: its In and Out, or Buf.
type card struct {
	in, out uint64 // in the worker's own memory
	// If In is in the worker's shared heap, the piece of that, and where in it.
	piece, fd, size, offset uint64
	_                       [16]byte
}

// way is how members get at each other's own memory.
type way int

const (
	staged way = iota // not at all: everything goes through slots
	lent              // the kernel lets them read and write it, see lend_linux.go
	mapped            // all buffers are in shared heaps, which everyone maps
)

// direct lets members meet, and then get at each other's own memory if they can: by overMap, or by overLoan where that pays.
// Else it is not done, and what remains goes through slots.
func (a *area) direct(k *transport.Call, r *transport.Round, pays bool, overMap, overLoan func() error) (done bool, err error) {
	way, err := a.show(k, r)
	if err != nil {
		return false, err
	}
	a.step++
	switch {
	case way == mapped:
		return true, a.touch(k, overMap)
	case way == lent && pays:
		return true, a.touch(k, overLoan)
	}
	return false, nil
}

// show lets members meet, show their cards and find a way. They are still in the step.
func (a *area) show(k *transport.Call, r *transport.Round) (way, error) {
	cards := a.cards[a.step&1]
	shared := true
	for _, c := range r.Calls {
		at := cards[c.Pos]
		*at = card{in: uint64(uintptr(c.In.Ptr)), out: uint64(uintptr(c.Out.Ptr))}
		if p, offset := Heap.find(c.In); p != nil {
			at.piece, at.fd, at.size, at.offset = p.id, uint64(p.fd), uint64(len(p.memory)), uint64(offset)
		} else if c.In.Len > 0 {
			shared = false
		}
	}
	if err := a.meet(k, r, shared); err != nil {
		return 0, err
	}
	way := staged
	if a.lends {
		way = lent
	}
	if a.allShare() {
		way = mapped
		for _, c := range r.Calls {
			a.mapped[c.Pos] = c.In.Ptr
		}
		for pos, m := range a.team.MemberOf {
			if m != a.me && cards[pos].piece != 0 {
				memory, err := a.views.open(a.peers[m].pid, cards[pos])
				if err != nil {
					return 0, errors.Errorf("epl: worker %d cannot map the shared heap of worker %d, where a buffer of rank %d is: %s; raise the limits of open files and of address space",
						a.team.Members[a.me].Worker, a.team.Members[m].Worker, a.team.Ranks[pos], err)
				}
				a.mapped[pos] = unsafe.Pointer(&memory[cards[pos].offset])
			}
		}
	}
	return way, nil
}
