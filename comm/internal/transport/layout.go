// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package transport

import (
	"context"
	"net"
	"slices"
	"time"

	"github.com/pkg/errors"
)

// Layout says where the ranks of a world live.
type Layout struct {
	Worker  int     // the worker that this process is
	Workers []Place // all of them, in order
}

// Place is a worker: the number of its ranks, which follow those of the workers before it, and its host. Workers of equal
// hosts can share memory.
type Place struct {
	Ranks int
	Host  string
}

// Mesh is how the workers of a job reach each other, besides the data that a world moves. Package rendezvous has one.
type Mesh interface {
	// Connect returns a connection to another worker for one purpose. Both ends ask for it by the same name.
	Connect(ctx context.Context, worker int, name string) (net.Conn, error)
	// Answer sets how this worker answers questions, and Query puts one to another.
	Answer(func(question string) string)
	Query(ctx context.Context, worker int, question string) (string, error)
	// Busy says what a worker does that others have to wait for ("compiling"), or did last, and when it was last known
	// to do so; "" if it never did.
	Busy(worker int) (what string, at time.Time)
	// Health says what is known of a worker. Waiting says what this worker waits for outside the world ("agree on the
	// start"), and which workers that needs; "" if it does not.
	Health(worker int) Health
	Waiting() (what string, workers []int)
	// Fail tells all workers why this one stops; who is to blame is what the error's method Culprits says, if it has one. Done is closed when one of them has done so, or is gone; Err says which.
	Fail(error)
	Done() <-chan struct{}
	Err() error
}

// Health is what a mesh knows of a worker.
type Health struct {
	Name  string    // for people
	Seen  time.Time // its last sign of life
	Hub   time.Time // the last news of any worker, if they come through a third party
	Steps int64     // training steps that it has completed
	Ended bool      // it makes no more calls
}

// Check says what is wrong with a layout.
func (l Layout) Check() error {
	if l.Worker < 0 || l.Worker >= len(l.Workers) {
		return errors.Errorf("epl: worker %d is not in a layout of %d workers; use 0 to %d", l.Worker, len(l.Workers), len(l.Workers)-1)
	}
	for i, p := range l.Workers {
		if p.Ranks < 1 {
			return errors.Errorf("epl: worker %d has %d ranks; give every worker at least 1", i, p.Ranks)
		}
	}
	return nil
}

// Member is a worker that has ranks in a group.
type Member struct {
	Worker    int
	Host      string
	Positions []int // of its ranks, in order
}

// Team is the ranks of a communicator by worker: what an engine knows of them. Reductions go in the order of members,
// and inside a member in that of its positions.
type Team struct {
	World    *World
	Ranks    []int  // of the group, by position
	Name     string // of the communicator: equal in all its workers, and no other's
	Members  []Member
	Me       int   // index of this worker among members
	MemberOf []int // by position
	Whole    Whole // nil, or what this team is a part of
}

// Whole is a larger team, of which a smaller one does some of the work. It answers for the latter's members.
type Whole interface {
	Overdue(missing []int) error
	Disagree(member int) error
	Corrupted(member int, cause error) error
}

// NewTeam returns the team of some ranks, by position, for a communicator of that name.
func NewTeam(w *World, ranks []int, name string) *Team {
	t := &Team{World: w, Ranks: ranks, Name: name, Me: -1}
	for pos, r := range ranks {
		worker := w.WorkerOf[r]
		i := slices.IndexFunc(t.Members, func(m Member) bool { return m.Worker == worker })
		if i < 0 {
			i = len(t.Members)
			t.Members = append(t.Members, Member{Worker: worker, Host: w.Layout.Workers[worker].Host})
		}
		t.Members[i].Positions = append(t.Members[i].Positions, pos)
		t.MemberOf = append(t.MemberOf, i)
		if worker == w.Layout.Worker {
			t.Me = i
		}
	}
	return t
}

// Mine returns the positions of this worker's ranks.
func (t *Team) Mine() []int { return t.Members[t.Me].Positions }

// ranksOf returns the ranks of some members.
func (t *Team) ranksOf(members []int) (ranks []int) {
	for pos, m := range t.MemberOf {
		if slices.Contains(members, m) {
			ranks = append(ranks, t.Ranks[pos])
		}
	}
	return ranks
}

// Hosts returns the members of a team by host, hosts in the order of their first member.
func (t *Team) Hosts() (all [][]int) {
	var names []string
	for m, who := range t.Members {
		i := slices.Index(names, who.Host)
		if i < 0 {
			i = len(names)
			names = append(names, who.Host)
			all = append(all, nil)
		}
		all[i] = append(all[i], m)
	}
	return all
}
