// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package tcp

import "github.com/easyparallel/epl/comm/internal/transport"

// memory is what transfers of an engine use again and again.
type memory struct {
	interests []interest
	reduction reduction
	moves     moves
	relay     relay
}

// Sizes at which another algorithm is better, in bytes of the vector.
const (
	wholeBytes = 64 << 10 // all-reduce: how much each member may get when all give the whole vector to all
	relayBytes = 64 << 10 // broadcast: from here on members pass segments on
)

// transfer chooses how to do a collective.
func (e *engine) transfer(r *transport.Round) transfer {
	switch c := r.First(); {
	case c.Op.Reduces():
		e.reduction.begin(e, r)
		return &e.reduction
	case c.Op == transport.Broadcast && len(e.team.Members) > 2 && c.Bytes >= relayBytes:
		e.relay.begin(e, r)
		return &e.relay
	}
	e.moves.begin(e, r)
	return &e.moves
}

// pieces are the stretches of memory that one member gives or takes, in order.
type pieces struct {
	all   [][]byte
	next  int
	bytes int
}

func (p *pieces) reset() { clear(p.all); p.all, p.next, p.bytes = p.all[:0], 0, 0 }

func (p *pieces) add(b []byte) {
	if len(b) > 0 {
		p.all = append(p.all, b)
		p.bytes += len(b)
	}
}

// take returns the next one, nil after the last.
func (p *pieces) take() []byte {
	if p.next == len(p.all) {
		return nil
	}
	p.next++
	return p.all[p.next-1]
}

// moves gives every member what it should get, from memory to memory.
type moves struct {
	round   *transport.Round
	team    *transport.Team
	out, in []pieces // by member
}

func (t *moves) sizes(m int) (give, take int) { return t.out[m].bytes, t.in[m].bytes }
func (t *moves) give(m int) []byte            { return t.out[m].take() }
func (t *moves) take(m int) []byte            { return t.in[m].take() }
func (t *moves) advance()                     {}

func (t *moves) begin(e *engine, r *transport.Round) {
	t.round, t.team = r, e.team
	if t.out == nil {
		t.out, t.in = make([]pieces, len(e.peers)), make([]pieces, len(e.peers))
	}
	for m, p := range e.peers {
		t.out[m].reset()
		t.in[m].reset()
		if p == nil {
			continue
		}
		switch r.First().Op {
		case transport.AllGather:
			t.gather(m)
		case transport.AllToAll:
			t.toAll(m)
		case transport.Broadcast:
			t.broadcast(m)
		}
	}
}

// gather: the member gets the parts of this worker's ranks, and gives its own.
func (t *moves) gather(m int) {
	c := t.round.First()
	for _, c := range t.round.Calls {
		t.out[m].add(c.In.BytesOf(0, c.In.Len))
	}
	at := 0
	for pos, n := range c.OutCounts {
		if t.team.MemberOf[pos] == m {
			t.in[m].add(c.Out.BytesOf(at, at+n))
		}
		at += n
	}
}

// toAll: every rank of this worker gives a part to every rank of the member. The sender's positions come first in the order.
func (t *moves) toAll(m int) {
	calls, theirs := t.round.Calls, t.team.Members[m].Positions
	for _, c := range calls {
		for _, to := range theirs {
			at := transport.Total(c.InCounts[:to])
			t.out[m].add(c.In.BytesOf(at, at+c.InCounts[to]))
		}
	}
	for _, from := range theirs {
		for _, c := range calls {
			at := transport.Total(c.OutCounts[:from])
			t.in[m].add(c.Out.BytesOf(at, at+c.OutCounts[from]))
		}
	}
}

// broadcast: the root gives to all.
func (t *moves) broadcast(m int) {
	c := t.round.First()
	switch root := t.team.MemberOf[c.PeerPos]; root {
	case t.team.Me:
		c = t.round.CallOf(c.PeerPos)
		t.out[m].add(c.In.BytesOf(0, c.In.Len))
	case m:
		t.in[m].add(c.Out.BytesOf(0, c.Out.Len))
	}
}

// finish lets the ranks of this worker give each other what they have to.
func (t *moves) finish() {
	calls := t.round.Calls
	switch c := calls[0]; c.Op {
	case transport.AllGather:
		finishGather(calls)
	case transport.AllToAll:
		for _, to := range calls {
			for _, from := range calls {
				n := from.InCounts[to.Pos]
				transport.Copy(to.Out.BytesOf(0, to.Out.Len)[transport.Total(to.OutCounts[:from.Pos])*c.Out.Size:],
					from.In.BytesOf(0, from.In.Len)[transport.Total(from.InCounts[:to.Pos])*c.In.Size:][:n*c.In.Size])
			}
		}
	case transport.Broadcast:
		transport.FinishBroadcast(t.round)
	}
}

// finishGather puts the parts of this worker's ranks into the first one's Out, which has the others', and copies that.
func finishGather(calls []*transport.Call) {
	first := calls[0]
	whole := first.Out.BytesOf(0, first.Out.Len)
	for _, c := range calls {
		transport.Copy(whole[transport.Total(c.OutCounts[:c.Pos])*c.In.Size:], c.In.BytesOf(0, c.In.Len))
	}
	for _, c := range calls[1:] {
		transport.Copy(c.Out.BytesOf(0, c.Out.Len), whole)
	}
}

// relay is a broadcast in which each member but the root gets one segment of its own, and passes it on to the others as
// it comes. The root gives its own segment to all. So it sends every byte twice at most, however many members there are.
type relay struct {
	team    *transport.Team
	round   *transport.Round
	buf     []byte
	root    int
	segment []transport.Span // by member, in bytes
	given   []int            // by member: bytes of what it gets
	taken   []int            // by member: bytes of what it gives, asked for
	peers   []*peer
}

func (t *relay) begin(e *engine, r *transport.Round) {
	n := len(e.peers)
	c := r.First()
	t.team, t.round, t.peers = e.team, r, e.peers
	t.root = e.team.MemberOf[c.PeerPos]
	if t.root == e.team.Me {
		c = r.CallOf(c.PeerPos)
	}
	t.buf = c.In.BytesOf(0, c.In.Len)
	t.segment, t.given, t.taken = make([]transport.Span, n), make([]int, n), make([]int, n)
	for m := range n {
		t.segment[m] = transport.Span{From: len(t.buf) * m / n, To: len(t.buf) * (m + 1) / n}
	}
}

// flow returns what one member gives another: some bytes of its own segment (the root's: of the other's), then of another.
func (t *relay) flow(from, to int) (first, second transport.Span) {
	switch {
	case from == t.root:
		return t.segment[to], t.segment[t.root]
	case to == t.root:
		return transport.Span{}, transport.Span{}
	}
	return t.segment[from], transport.Span{}
}

func (t *relay) sizes(m int) (give, take int) {
	a, b := t.flow(t.team.Me, m)
	c, d := t.flow(m, t.team.Me)
	return a.Len() + b.Len(), c.Len() + d.Len()
}

// at returns the bytes from an offset in two spans, those of one of them.
func (t *relay) at(a, b transport.Span, offset int) []byte {
	if offset < a.Len() {
		return t.buf[a.From+offset : a.To]
	}
	return t.buf[b.From+offset-a.Len() : b.To]
}

func (t *relay) give(m int) []byte {
	a, b := t.flow(t.team.Me, m)
	if t.team.Me == t.root {
		data := t.at(a, b, t.given[m])
		t.given[m] += len(data)
		return data
	}
	// What has come from the root of my own segment.
	p := t.peers[t.root]
	come := min(p.received-HeaderSize-len(p.pending), a.Len())
	if come <= t.given[m] {
		return nil
	}
	data := t.buf[a.From+t.given[m] : a.From+come]
	t.given[m] = come
	return data
}

func (t *relay) take(m int) []byte {
	a, b := t.flow(m, t.team.Me)
	place := t.at(a, b, t.taken[m])
	t.taken[m] += len(place)
	return place
}

func (t *relay) advance() {}
func (t *relay) finish()  { transport.FinishBroadcast(t.round) }
