// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package shm

import (
	"unsafe"

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
	mapped            // all buffers are in shared heaps, which everyone maps, see reach
)

// direct lets members meet, and then get at each other's own memory if they can: by overMap, or by overLoan where that pays.
// Else it is not done, and what remains goes through slots.
func (a *area) direct(k *transport.Call, r *transport.Round, pays bool, overMap, overLoan func() error) (done bool, err error) {
	way, err := a.show(k, r)
	if err != nil {
		return false, err
	}
	a.step++
	if way, err = a.reach(k, r, way); err != nil {
		return false, err
	}
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
	if a.allShare() {
		return mapped, nil
	}
	return a.unmapped(), nil
}

// unmapped is the way if heaps are not mapped.
func (a *area) unmapped() way {
	if a.lends {
		return lent
	}
	return staged
}

// reach maps the buffers that members showed in the step before, if that is their way, or finds another way: a member may
// be at its limit of files or addresses. Of pieces that are new, all say in a step of their own whether they have mapped them. They see
// the same cards and the same answers, so that all know the same pieces, and nobody asks twice.
func (a *area) reach(k *transport.Call, r *transport.Round, w way) (way, error) {
	if w != mapped {
		return w, nil
	}
	cards := a.cards[(a.step-1)&1]
	a.fresh = a.fresh[:0]
	for _, c := range cards {
		switch reached, known := a.reached[c.piece]; {
		case known && !reached:
			return a.unmapped(), nil
		case !known && c.piece != 0:
			a.fresh = append(a.fresh, c.piece)
		}
	}
	views := a.view(r, cards)
	if len(a.fresh) == 0 { // it has mapped them before
		return mapped, nil
	}
	return a.answer(k, a.fresh, views)
}

// view maps the buffers of all ranks, and tells whether it could.
func (a *area) view(r *transport.Round, cards []*card) bool {
	for _, c := range r.Calls {
		a.mapped[c.Pos] = c.In.Ptr
	}
	for pos, m := range a.team.MemberOf {
		if m != a.me && cards[pos].piece != 0 {
			memory, err := a.views.open(a.peers[m].pid, cards[pos])
			if err != nil {
				return false
			}
			a.mapped[pos] = unsafe.Pointer(&memory[cards[pos].offset])
		}
	}
	return true
}

// answer says whether this member has mapped new pieces, hears the others, and notes what all can reach. It is a step.
func (a *area) answer(k *transport.Call, pieces []uint64, views bool) (way, error) {
	i := a.step & 1
	a.seats[a.me].views[i] = 0
	if views {
		a.seats[a.me].views[i] = 1
	}
	a.fill(a.step)
	if err := a.awaitAll(k, filled, a.step+1); err != nil {
		return 0, err
	}
	w := mapped
	for _, s := range a.seats {
		if s.views[i] == 0 {
			w = a.unmapped()
		}
	}
	for _, id := range pieces {
		a.reached[id] = w == mapped
	}
	a.step++
	return w, nil
}
