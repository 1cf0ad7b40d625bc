package comm

import (
	"slices"

	"github.com/pkg/errors"
)

// hybridEngine moves data between workers of several hosts, some of which have several. Those of one host share memory; the
// first of each, its leader, talks to the other leaders over connections. So little of what a collective moves crosses the
// network more often than it must.
//
//   - all-reduce: to the leader, between leaders, from the leader; large vectors chunk by chunk, so that the next chunk is
//     reduced on the hosts while the leaders exchange one;
//   - reduce-scatter, all-gather, broadcast, barrier: likewise, in one piece;
//   - all-to-all, sends and receives: directly between any two workers, since no byte is needed twice.
//
// A reduction combines the ranks of a worker, then the workers of a host, then the hosts; the result of each is rounded to
// the element type.
type hybridEngine struct {
	team    *team
	hosts   [][]int // members, by host
	host    int     // this one
	sorted  []int   // positions by host and member
	inOrder bool    // sorted is 0, 1, 2, …

	inside  *level // the members of this host; nil if there is one
	leaders *level // of all hosts; nil if this worker does not lead
	near    engine // for sends and receives on this host; nil if there is one member
	nearPos []int  // the positions of its team, by position of the whole
	far     engine // for all-to-all, sends and receives to other hosts

	round   *round // under way
	scratch scratch
	vector  []byte // for a whole vector, in sorted order
	part    []byte // for some of one
	result  []byte // for some of another
}

// level is an engine over some members, each of which has one position.
type level struct {
	hybrid  *hybridEngine
	engine  engine
	team    *team
	members []int // of the whole team
	seq     uint64
	call    call
	round   round
	calls   [1]*call
}

// newHybridEngine combines a way between the workers of a host, one between those of all hosts, and one between those of
// different hosts only.
func newHybridEngine(t *team, inside, all, between func(*team) engine) engine {
	h := &hybridEngine{team: t, hosts: t.hosts()}
	h.host = slices.IndexFunc(h.hosts, func(members []int) bool { return slices.Contains(members, t.me) })
	var leaders []int
	for _, members := range h.hosts {
		leaders = append(leaders, members[0])
		for _, m := range members {
			h.sorted = append(h.sorted, t.members[m].positions...)
		}
	}
	h.inOrder = slices.IsSorted(h.sorted)
	mine := h.hosts[h.host]
	if len(mine) > 1 {
		h.inside = h.newLevel(mine, " of host "+t.members[t.me].host, inside)
		h.nearPos = make([]int, len(t.memberOf))
		var ranks []int
		for pos, m := range t.memberOf {
			if slices.Contains(mine, m) {
				h.nearPos[pos] = len(ranks)
				ranks = append(ranks, t.ranks[pos])
			}
		}
		h.near = inside(newTeam(t.world, ranks, t.name+" on host "+t.members[t.me].host))
	}
	if mine[0] == t.me {
		h.leaders = h.newLevel(leaders, " of leaders", all)
	}
	h.far = between(t)
	return h
}

// newLevel makes an engine over some members.
func (h *hybridEngine) newLevel(members []int, name string, create func(*team) engine) *level {
	var ranks []int
	for _, m := range members {
		ranks = append(ranks, h.team.ranks[h.team.members[m].positions[0]])
	}
	l := &level{hybrid: h, members: members, team: newTeam(h.team.world, ranks, h.team.name+name)}
	l.team.whole = l
	l.engine = create(l.team)
	return l
}

// overdue answers for the whole team: the call is the team's.
func (l *level) overdue(missing []int) error {
	var members []int
	for _, m := range missing {
		members = append(members, l.members[m])
	}
	return l.hybrid.team.overdue(l.hybrid.round.first(), members)
}

func (l *level) disagree(member int) error {
	m := l.members[member]
	if err := l.hybrid.team.disagree(l.hybrid.round, m); err != nil {
		return err
	}
	return errors.Errorf("epl: internal error: worker %d is not where it should be in %s", l.hybrid.team.members[m].worker, l.hybrid.round.first().Header)
}

func (l *level) corrupted(member int, cause error) error {
	return l.hybrid.team.corrupted(l.hybrid.round.first(), l.members[member], cause)
}

// do makes a collective of a level, as a step of the collective under way. Of the call it takes the operation, buffers,
// counts, root and scale. There is nothing to do for a level of one member.
func (l *level) do(c call) error {
	if l == nil {
		return nil
	}
	first := l.hybrid.round.first()
	l.seq++
	c.Header = Header{Program: first.Program, Group: first.Group, Seq: l.seq, Op: c.Op, Reduction: first.Reduction, Scale: c.Scale,
		DType: c.in.dtype, Bytes: c.in.bytes(), Peer: -1}
	c.pos, c.async, c.began = l.team.me, first.async, first.began
	l.call, l.calls[0] = c, &l.call
	l.round = round{calls: l.calls[:], digest: l.hybrid.round.digest*31 + uint64(c.Op)}
	return l.engine.collective(&l.round)
}

func (h *hybridEngine) fail(err error) {
	for _, e := range h.engines() {
		e.fail(err)
	}
}

func (h *hybridEngine) close() {
	for _, e := range h.engines() {
		e.close()
	}
}

// engines returns those that this worker has.
func (h *hybridEngine) engines() []engine {
	all := []engine{h.far}
	if h.near != nil {
		all = append(all, h.near, h.inside.engine)
	}
	if h.leaders != nil {
		all = append(all, h.leaders.engine)
	}
	return all
}

func (h *hybridEngine) exchange(k *call) error {
	if h.team.members[h.team.memberOf[k.peer]].host != h.team.members[h.team.me].host {
		return h.far.exchange(k)
	}
	c := *k
	c.pos, c.peer = h.nearPos[k.pos], h.nearPos[k.peer]
	return h.near.exchange(&c)
}

func (h *hybridEngine) collective(r *round) error {
	h.round = r
	switch r.first().Op {
	case AllReduce:
		return h.allReduce()
	case ReduceScatter:
		return h.reduceScatter()
	case AllGather:
		return h.allGather()
	case AllToAll:
		return h.allToAll()
	case Broadcast:
		return h.broadcast()
	}
	return h.barrier()
}

// barrier: all have come to their leader, all leaders have met, all know it.
func (h *hybridEngine) barrier() error {
	for _, l := range []*level{h.inside, h.leaders, h.inside} {
		if err := l.do(call{Header: Header{Op: Barrier}}); err != nil {
			return err
		}
	}
	return nil
}
