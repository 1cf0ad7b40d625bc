// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package comm

import (
	"sync"

	"github.com/easyparallel/epl/comm/shm"
)

// CommonMemory is memory that all ranks of a group have: what one of them writes there, all of them read. Who writes while others read is up to them: [Communicator.Barrier].
//
// A rank has it until it has called Release as often as it was handed out or Keep was called. The memory is gone with the last rank that has it, also if processes end.
type CommonMemory struct {
	shared *shm.Common
	id     uint64
	ranks  int
	users  int // guarded by commons
}

// commons is the memory of this process, by id: its ranks map it once.
var commons = struct {
	sync.Mutex
	all map[uint64]*CommonMemory
}{all: map[uint64]*CommonMemory{}}

// ID tells memory apart. It is positive, and the same for all ranks that have it.
func (m *CommonMemory) ID() int64 { return int64(m.id) }

// Bytes is the memory. On Linux it begins on a cache line.
func (m *CommonMemory) Bytes() []byte { return m.shared.Bytes() }

// Ranks is how many ranks have it.
func (m *CommonMemory) Ranks() int { return m.ranks }

// Keep is for another user in this process.
func (m *CommonMemory) Keep() {
	commons.Lock()
	defer commons.Unlock()
	m.users++
}

// Release is for a user that does not need it any more.
func (m *CommonMemory) Release() {
	commons.Lock()
	defer commons.Unlock()
	if m.users--; m.users == 0 {
		delete(commons.all, m.id)
		m.shared.Close()
	}
}

// Common makes memory of so many bytes, which all ranks of the group then have. All of them have to call it. It is nil for all of them if one of them cannot have it: there
// is not enough, or they are on several hosts, or do not see each other's processes.
func (c *Communicator) Common(bytes int, program string) (*CommonMemory, error) {
	var mine *CommonMemory
	card := make([]int64, 4)
	if c.pos == 0 && c.group.OnOneHost() {
		if shared, err := shm.NewCommon(bytes); err == nil {
			x := shared.Card()
			mine = &CommonMemory{shared: shared, id: x.ID, ranks: c.Size(), users: 1}
			card = []int64{int64(x.PID), int64(x.FD), int64(x.Size), int64(x.ID)}
			commons.Lock()
			commons.all[x.ID] = mine
			commons.Unlock()
		}
	}
	err := c.Do(Call{Op: Broadcast, Buf: card, Program: program})
	if err == nil && c.pos != 0 && card[3] != 0 {
		mine = openCommon(shm.CommonCard{PID: uint64(card[0]), FD: uint64(card[1]), Size: uint64(card[2]), ID: uint64(card[3])}, c.Size())
	}
	has := []int32{0}
	if mine != nil {
		has[0] = 1
	}
	if err == nil {
		err = c.Do(Call{Op: AllReduce, Buf: has, Reduction: Min, Program: program})
	}
	if mine == nil {
		return nil, err
	}
	if c.pos == 0 {
		mine.shared.Mapped()
	}
	if err != nil || has[0] == 0 {
		mine.Release()
		return nil, err
	}
	return mine, nil
}

// openCommon maps memory that another rank has made; nil: it cannot.
func openCommon(card shm.CommonCard, ranks int) *CommonMemory {
	commons.Lock()
	defer commons.Unlock()
	m := commons.all[card.ID]
	if m == nil {
		shared, err := shm.OpenCommon(card)
		if err != nil {
			return nil
		}
		m = &CommonMemory{shared: shared, id: card.ID, ranks: ranks}
		commons.all[card.ID] = m
	}
	m.users++
	return m
}

// OnOneHost tells whether the workers of all ranks are on one host. Those that communicate by MPI count as hosts of their own: nothing is known of where they are.
func (g *Group) OnOneHost() bool {
	w := g.world
	first := w.base.WorkerOf[g.ranks[0]]
	for _, r := range g.ranks {
		worker := w.base.WorkerOf[r]
		if worker != first && (w.mpi || w.base.Layout.Workers[worker].Host != w.base.Layout.Workers[first].Host) {
			return false
		}
	}
	return true
}
