// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package hybrid

import (
	"slices"

	"github.com/pkg/errors"

	"github.com/easyparallel/epl/comm/internal/kernel"
	"github.com/easyparallel/epl/comm/internal/transport"
)

// engine moves data between workers of several hosts, some of which have several. Those of one host share memory; the
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
type engine struct {
	team    *transport.Team
	hosts   [][]int // members, by host
	host    int     // this one
	sorted  []int   // positions by host and member
	inOrder bool    // sorted is 0, 1, 2, …

	inside  *level           // the members of this host; nil if there is one
	leaders *level           // of all hosts; nil if this worker does not lead
	near    transport.Engine // for sends and receives on this host; nil if there is one member
	nearPos []int            // the positions of its team, by position of the whole
	far     transport.Engine // for all-to-all, sends and receives to other hosts

	round   *transport.Round // under way
	scratch kernel.Scratch
	vector  []byte // for a whole vector, in sorted order
	part    []byte // for some of one
	result  []byte // for some of another
}

// level is an engine over some members, each of which has one position.
type level struct {
	hybrid  *engine
	engine  transport.Engine
	team    *transport.Team
	members []int // of the whole team
	seq     uint64
	call    transport.Call
	round   transport.Round
	calls   [1]*transport.Call
}

// New combines a way between the workers of a host, one between those of all hosts, and one between those of
// different hosts only.
func New(t *transport.Team, inside, all, between func(*transport.Team) transport.Engine) transport.Engine {
	h := &engine{team: t, hosts: t.Hosts()}
	h.host = slices.IndexFunc(h.hosts, func(members []int) bool { return slices.Contains(members, t.Me) })
	var leaders []int
	for _, members := range h.hosts {
		leaders = append(leaders, members[0])
		for _, m := range members {
			h.sorted = append(h.sorted, t.Members[m].Positions...)
		}
	}
	h.inOrder = slices.IsSorted(h.sorted)
	mine := h.hosts[h.host]
	if len(mine) > 1 {
		h.inside = h.newLevel(mine, " of host "+t.Members[t.Me].Host, inside)
		h.nearPos = make([]int, len(t.MemberOf))
		var ranks []int
		for pos, m := range t.MemberOf {
			if slices.Contains(mine, m) {
				h.nearPos[pos] = len(ranks)
				ranks = append(ranks, t.Ranks[pos])
			}
		}
		h.near = inside(transport.NewTeam(t.World, ranks, t.Name+" on host "+t.Members[t.Me].Host))
	}
	if mine[0] == t.Me {
		h.leaders = h.newLevel(leaders, " of leaders", all)
	}
	h.far = between(t)
	return h
}

// newLevel makes an engine over some members.
func (h *engine) newLevel(members []int, name string, create func(*transport.Team) transport.Engine) *level {
	var ranks []int
	for _, m := range members {
		ranks = append(ranks, h.team.Ranks[h.team.Members[m].Positions[0]])
	}
	l := &level{hybrid: h, members: members, team: transport.NewTeam(h.team.World, ranks, h.team.Name+name)}
	l.team.Whole = l
	l.engine = create(l.team)
	return l
}

// Overdue answers for the whole team: the call is the team's.
func (l *level) Overdue(missing []int) error {
	var members []int
	for _, m := range missing {
		members = append(members, l.members[m])
	}
	return l.hybrid.team.Overdue(l.hybrid.round.First(), members)
}

// Disagree implements transport.Whole.
func (l *level) Disagree(member int) error {
	m := l.members[member]
	if err := l.hybrid.team.Disagree(l.hybrid.round, m); err != nil {
		return err
	}
	return errors.Errorf("epl: internal error: worker %d is not where it should be in %s", l.hybrid.team.Members[m].Worker, l.hybrid.round.First().Header)
}

// Corrupted implements transport.Whole.
func (l *level) Corrupted(member int, cause error) error {
	return l.hybrid.team.Corrupted(l.hybrid.round.First(), l.members[member], cause)
}

// do makes a collective of a level, as a step of the collective under way. Of the call it takes the operation, buffers,
// counts, root and scale. There is nothing to do for a level of one member.
func (l *level) do(c transport.Call) error {
	if l == nil {
		return nil
	}
	first := l.hybrid.round.First()
	l.seq++
	c.Header = transport.Header{Program: first.Program, Group: first.Group, Seq: l.seq, Op: c.Op, Reduction: first.Reduction, Scale: c.Scale,
		DType: c.In.DType, Bytes: c.In.Bytes(), Peer: -1}
	c.Pos, c.Async, c.Began = l.team.Me, first.Async, first.Began
	l.call, l.calls[0] = c, &l.call
	l.round = transport.Round{Calls: l.calls[:], Digest: l.hybrid.round.Digest*31 + uint64(c.Op)}
	return l.engine.Collective(&l.round)
}

// Fail implements transport.Engine.
func (h *engine) Fail(err error) {
	for _, e := range h.engines() {
		e.Fail(err)
	}
}

// Close implements transport.Engine.
func (h *engine) Close() {
	for _, e := range h.engines() {
		e.Close()
	}
}

// engines returns those that this worker has.
func (h *engine) engines() []transport.Engine {
	all := []transport.Engine{h.far}
	if h.near != nil {
		all = append(all, h.near, h.inside.engine)
	}
	if h.leaders != nil {
		all = append(all, h.leaders.engine)
	}
	return all
}

// Exchange implements transport.Engine.
func (h *engine) Exchange(k *transport.Call) error {
	if h.team.Members[h.team.MemberOf[k.PeerPos]].Host != h.team.Members[h.team.Me].Host {
		return h.far.Exchange(k)
	}
	c := *k
	c.Pos, c.PeerPos = h.nearPos[k.Pos], h.nearPos[k.PeerPos]
	return h.near.Exchange(&c)
}

// Collective implements transport.Engine.
func (h *engine) Collective(r *transport.Round) error {
	h.round = r
	switch r.First().Op {
	case transport.AllReduce:
		return h.allReduce()
	case transport.ReduceScatter:
		return h.reduceScatter()
	case transport.AllGather:
		return h.allGather()
	case transport.AllToAll:
		return h.allToAll()
	case transport.Broadcast:
		return h.broadcast()
	}
	return h.barrier()
}

// barrier: all have come to their leader, all leaders have met, all know it.
func (h *engine) barrier() error {
	for _, l := range []*level{h.inside, h.leaders, h.inside} {
		if err := l.do(transport.Call{Header: transport.Header{Op: transport.Barrier}}); err != nil {
			return err
		}
	}
	return nil
}
