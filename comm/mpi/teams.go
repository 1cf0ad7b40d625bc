// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

//go:build mpi

package mpi

import "slices"

// mpiTeam is a team that needs a communicator of MPI, or has one. It is the thread's.
//
// Making a communicator blocks until all its members do the same, and teams may be needed in different orders by different
// workers, and at the same time: two workers must never wait in MPI for each other's other team. So before a team's
// communicator is made, each of its members is locked for it: it promises to make that one next. The leader, which is the
// team's first worker, asks for the locks when all members are ready, one by one in the order of the workers, and then says
// go. A worker is locked for one team at a time. Since all teams lock in the same order, no circle of teams can wait for
// each other's locks; and who is in MPI waits only for workers that are locked for the same team, which wait for nothing but
// the go that is on its way. Asking for locks is done by messages and blocks nobody.
type mpiTeam struct {
	members []int // workers, by team order; nil until this worker is ready
	ordered []int // by number
	comm    mpiComm
	made    bool
	waiting *mpiOp

	// The leader's.
	ready, locked int // members
}

func (t *mpiThread) team(key mpiKey) *mpiTeam {
	if t.teams[key] == nil {
		t.teams[key] = &mpiTeam{}
	}
	return t.teams[key]
}

// connect lets an operation wait until the team has a communicator.
func (t *mpiThread) connect(key mpiKey, members []int, op *mpiOp) error {
	team := t.team(key)
	if team.made {
		return nil
	}
	team.members, team.ordered = members, slices.Sorted(slices.Values(members))
	team.waiting, op.parked = op, true
	return t.mail.send(t, team.ordered[0], mpiMessage{kind: mpiReady, team: key})
}

// arrange handles messages about a team.
func (t *mpiThread) arrange(m mpiMessage) error {
	team := t.team(m.team)
	switch m.kind {
	case mpiReady:
		team.ready++
		if team.ready < len(team.ordered) || team.members == nil {
			return nil
		}
		return t.askNext(m.team, team)
	case mpiLock:
		t.locks = append(t.locks, m.team)
		if len(t.locks) > 1 {
			return nil // its turn comes
		}
		return t.lock()
	case mpiLocked:
		team.locked++
		return t.askNext(m.team, team)
	default:
		return t.make(team)
	}
}

// askNext asks the next member for its lock, or tells all that they are locked.
func (t *mpiThread) askNext(key mpiKey, team *mpiTeam) error {
	if team.locked < len(team.ordered) {
		return t.mail.send(t, team.ordered[team.locked], mpiMessage{kind: mpiLock, team: key})
	}
	for _, worker := range slices.Backward(team.ordered) { // this one is the first, and does not come back so soon
		if err := t.mail.send(t, worker, mpiMessage{kind: mpiGo, team: key}); err != nil {
			return err
		}
	}
	return nil
}

// lock tells the leader of the first team that waits that it has the lock.
func (t *mpiThread) lock() error {
	key := t.locks[0]
	return t.mail.send(t, t.teams[key].ordered[0], mpiMessage{kind: mpiLocked, team: key})
}

// make makes the communicator of a team, for which all its members are locked, and unlocks this one.
func (t *mpiThread) make(team *mpiTeam) (err error) {
	ranks := make([]mpiInt, len(team.members))
	for i, w := range team.members {
		ranks[i] = mpiInt(w)
	}
	if team.comm, err = mpiCreate(t.all, ranks); err != nil {
		return err
	}
	team.made = true
	t.unpark(team.waiting)
	t.locks = t.locks[1:]
	if len(t.locks) > 0 {
		return t.lock()
	}
	return nil
}
