package comm

// memory is what transfers of an engine use again and again.
type memory struct {
	interests []interest
	reduction tcpReduction
	moves     tcpMoves
	relay     tcpRelay
}

// Sizes at which another algorithm is better, in bytes of the vector.
const (
	wholeBytes = 64 << 10 // all-reduce: how much each member may get when all give the whole vector to all
	relayBytes = 64 << 10 // broadcast: from here on members pass segments on
)

// transfer chooses how to do a collective.
func (e *tcpEngine) transfer(r *round) transfer {
	switch c := r.first(); {
	case c.Op.reduces():
		e.reduction.begin(e, r)
		return &e.reduction
	case c.Op == Broadcast && len(e.team.members) > 2 && c.Bytes >= relayBytes:
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

// tcpMoves gives every member what it should get, from memory to memory.
type tcpMoves struct {
	round   *round
	team    *team
	out, in []pieces // by member
}

func (t *tcpMoves) sizes(m int) (give, take int) { return t.out[m].bytes, t.in[m].bytes }
func (t *tcpMoves) give(m int) []byte            { return t.out[m].take() }
func (t *tcpMoves) take(m int) []byte            { return t.in[m].take() }
func (t *tcpMoves) advance()                     {}

func (t *tcpMoves) begin(e *tcpEngine, r *round) {
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
		switch r.first().Op {
		case AllGather:
			t.gather(m)
		case AllToAll:
			t.toAll(m)
		case Broadcast:
			t.broadcast(m)
		}
	}
}

// gather: the member gets the parts of this worker's ranks, and gives its own.
func (t *tcpMoves) gather(m int) {
	c := t.round.first()
	for _, c := range t.round.calls {
		t.out[m].add(c.in.bytesOf(0, c.in.len))
	}
	at := 0
	for pos, n := range c.outCounts {
		if t.team.memberOf[pos] == m {
			t.in[m].add(c.out.bytesOf(at, at+n))
		}
		at += n
	}
}

// toAll: every rank of this worker gives a part to every rank of the member. The sender's positions come first in the order.
func (t *tcpMoves) toAll(m int) {
	calls, theirs := t.round.calls, t.team.members[m].positions
	for _, c := range calls {
		for _, to := range theirs {
			at := sum(c.inCounts[:to])
			t.out[m].add(c.in.bytesOf(at, at+c.inCounts[to]))
		}
	}
	for _, from := range theirs {
		for _, c := range calls {
			at := sum(c.outCounts[:from])
			t.in[m].add(c.out.bytesOf(at, at+c.outCounts[from]))
		}
	}
}

// broadcast: the root gives to all.
func (t *tcpMoves) broadcast(m int) {
	c := t.round.first()
	switch root := t.team.memberOf[c.peer]; root {
	case t.team.me:
		c = t.round.callOf(c.peer)
		t.out[m].add(c.in.bytesOf(0, c.in.len))
	case m:
		t.in[m].add(c.out.bytesOf(0, c.out.len))
	}
}

// finish lets the ranks of this worker give each other what they have to.
func (t *tcpMoves) finish() {
	calls := t.round.calls
	switch c := calls[0]; c.Op {
	case AllGather:
		finishGather(calls)
	case AllToAll:
		for _, to := range calls {
			for _, from := range calls {
				n := from.inCounts[to.pos]
				copy(to.out.bytesOf(0, to.out.len)[sum(to.outCounts[:from.pos])*c.out.size:],
					from.in.bytesOf(0, from.in.len)[sum(from.inCounts[:to.pos])*c.in.size:][:n*c.in.size])
			}
		}
	case Broadcast:
		finishBroadcast(t.round)
	}
}

// finishGather puts the parts of this worker's ranks into the first one's Out, which has the others', and copies that.
func finishGather(calls []*call) {
	first := calls[0]
	whole := first.out.bytesOf(0, first.out.len)
	for _, c := range calls {
		copy(whole[sum(c.outCounts[:c.pos])*c.in.size:], c.in.bytesOf(0, c.in.len))
	}
	for _, c := range calls[1:] {
		copy(c.out.bytesOf(0, c.out.len), whole)
	}
}

// tcpRelay is a broadcast in which each member but the root gets one segment of its own, and passes it on to the others as
// it comes. The root gives its own segment to all. So it sends every byte twice at most, however many members there are.
type tcpRelay struct {
	team    *team
	round   *round
	buf     []byte
	root    int
	segment []span // by member, in bytes
	given   []int  // by member: bytes of what it gets
	taken   []int  // by member: bytes of what it gives, asked for
	peers   []*tcpPeer
}

func (t *tcpRelay) begin(e *tcpEngine, r *round) {
	n := len(e.peers)
	c := r.first()
	t.team, t.round, t.peers = e.team, r, e.peers
	t.root = e.team.memberOf[c.peer]
	if t.root == e.team.me {
		c = r.callOf(c.peer)
	}
	t.buf = c.in.bytesOf(0, c.in.len)
	t.segment, t.given, t.taken = make([]span, n), make([]int, n), make([]int, n)
	for m := range n {
		t.segment[m] = span{len(t.buf) * m / n, len(t.buf) * (m + 1) / n}
	}
}

// flow returns what one member gives another: some bytes of its own segment (the root's: of the other's), then of another.
func (t *tcpRelay) flow(from, to int) (first, second span) {
	switch {
	case from == t.root:
		return t.segment[to], t.segment[t.root]
	case to == t.root:
		return span{}, span{}
	}
	return t.segment[from], span{}
}

func (t *tcpRelay) sizes(m int) (give, take int) {
	a, b := t.flow(t.team.me, m)
	c, d := t.flow(m, t.team.me)
	return a.len() + b.len(), c.len() + d.len()
}

// at returns the bytes from an offset in two spans, those of one of them.
func (t *tcpRelay) at(a, b span, offset int) []byte {
	if offset < a.len() {
		return t.buf[a.from+offset : a.to]
	}
	return t.buf[b.from+offset-a.len() : b.to]
}

func (t *tcpRelay) give(m int) []byte {
	a, b := t.flow(t.team.me, m)
	if t.team.me == t.root {
		data := t.at(a, b, t.given[m])
		t.given[m] += len(data)
		return data
	}
	// What has come from the root of my own segment.
	p := t.peers[t.root]
	come := min(p.received-headerSize-len(p.pending), a.len())
	if come <= t.given[m] {
		return nil
	}
	data := t.buf[a.from+t.given[m] : a.from+come]
	t.given[m] = come
	return data
}

func (t *tcpRelay) take(m int) []byte {
	a, b := t.flow(m, t.team.me)
	place := t.at(a, b, t.taken[m])
	t.taken[m] += len(place)
	return place
}

func (t *tcpRelay) advance() {}
func (t *tcpRelay) finish()  { finishBroadcast(t.round) }
