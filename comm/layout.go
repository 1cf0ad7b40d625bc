package comm

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

// check says what is wrong with a layout.
func (l Layout) check() error {
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

// member is a worker that has ranks in a group.
type member struct {
	worker    int
	host      string
	positions []int // of its ranks, in order
}

// team is the ranks of a communicator by worker: what an engine knows of them. Reductions go in the order of members,
// and inside a member in that of its positions.
type team struct {
	world    *world
	ranks    []int  // of the group, by position
	name     string // of the communicator: equal in all its workers, and no other's
	members  []member
	me       int   // index of this worker among members
	memberOf []int // by position
	whole    whole // nil, or what this team is a part of
}

// whole is a larger team, of which a smaller one does some of the work. It answers for the latter's members.
type whole interface {
	overdue(missing []int) error
	disagree(member int) error
	corrupted(member int, cause error) error
}

func newTeam(w *world, ranks []int, name string) *team {
	t := &team{world: w, ranks: ranks, name: name, me: -1}
	for pos, r := range ranks {
		worker := w.workerOf[r]
		i := slices.IndexFunc(t.members, func(m member) bool { return m.worker == worker })
		if i < 0 {
			i = len(t.members)
			t.members = append(t.members, member{worker: worker, host: w.layout.Workers[worker].Host})
		}
		t.members[i].positions = append(t.members[i].positions, pos)
		t.memberOf = append(t.memberOf, i)
		if worker == w.layout.Worker {
			t.me = i
		}
	}
	return t
}

// local returns the positions of this worker's ranks.
func (t *team) local() []int { return t.members[t.me].positions }

// ranksOf returns the ranks of some members.
func (t *team) ranksOf(members []int) (ranks []int) {
	for pos, m := range t.memberOf {
		if slices.Contains(members, m) {
			ranks = append(ranks, t.ranks[pos])
		}
	}
	return ranks
}

// hosts returns the members of a team by host, hosts in the order of their first member.
func (t *team) hosts() (all [][]int) {
	var names []string
	for m, who := range t.members {
		i := slices.Index(names, who.host)
		if i < 0 {
			i = len(names)
			names = append(names, who.host)
			all = append(all, nil)
		}
		all[i] = append(all[i], m)
	}
	return all
}
