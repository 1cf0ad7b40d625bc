package comm

import "unsafe"

// tcpReduction is an all-reduce or a reduce-scatter. Each member reduces some elements of the vector, its share: it gets
// the share from all others, chunk by chunk. In an all-reduce it then gives the result to them, as far as it is known;
// they have sent theirs by then, so that results can take the place of what was given. A small all-reduce is one in which
// the share of every member is the whole vector.
type tcpReduction struct {
	team  *team
	round *round
	peers []*tcpPeer
	c     *call // of the first rank
	whole bool
	share [][]span // by member, in elements
	count []int    // by member: elements of its share

	chunk  int // elements
	done   int // elements of my share that are reduced
	flows  []reduceFlow
	mine   []byte // a chunk of this worker's ranks, if they are several
	local  []unsafe.Pointer
	remote []unsafe.Pointer // by member
	dst    []unsafe.Pointer

	scratch scratch
}

// reduceFlow is what a member gives and gets.
type reduceFlow struct {
	given  int    // elements of its share
	result int    // elements of my share: the result, given
	asked  int    // elements of my share: a place was given for them
	filled int    // elements of its share: a place was given for the result
	from   []byte // a chunk of my share, as it comes
	stage  []byte // a chunk of its share, combined from several ranks
}

// chunkBytes is how much of its share a member asks of each other at a time: it stays in the caches until it is reduced.
const chunkBytes = 128 << 10

func (t *tcpReduction) begin(e *tcpEngine, r *round) {
	n := len(e.peers)
	t.team, t.round, t.peers, t.c = e.team, r, e.peers, r.first()
	if t.flows == nil {
		t.flows, t.remote, t.count = make([]reduceFlow, n), make([]unsafe.Pointer, n), make([]int, n)
	}
	t.whole = t.c.Op == AllReduce && int(t.c.Bytes)*(n-1) <= wholeBytes
	switch {
	case t.c.Op == ReduceScatter:
		t.share = e.team.spans(t.c.inCounts)
	case t.whole:
		t.share = make([][]span, n)
		for m := range t.share {
			t.share[m] = []span{{0, t.c.in.len}}
		}
	default:
		t.share = make([][]span, n)
		for m := range t.share {
			t.share[m] = []span{{bound(t.c.in.len, m, n), bound(t.c.in.len, m+1, n)}}
		}
	}
	for m, spans := range t.share {
		t.count[m] = 0
		for _, s := range spans {
			t.count[m] += s.len()
		}
	}
	t.chunk = max(1, chunkBytes/t.c.in.size)
	if t.whole {
		t.chunk = max(1, t.c.in.len)
	}
	t.done = 0
	for m := range t.flows {
		f := &t.flows[m]
		*f = reduceFlow{from: f.from, stage: f.stage}
		if m != e.team.me {
			f.from = grow(f.from, min(t.chunk, t.count[e.team.me])*t.c.in.size)
		}
	}
	if t.whole {
		t.combine(0, t.c.in.len, nil)
	}
}

// bound returns where the share of a member begins, if there are n: at a multiple of a cache line's elements.
func bound(elements, m, n int) int {
	if m == n {
		return elements
	}
	const align = 64
	return int(int64(elements)*int64(m)/int64(n)) &^ (align - 1)
}

func (t *tcpReduction) gathers() bool { return t.c.Op == AllReduce && !t.whole }

func (t *tcpReduction) sizes(m int) (give, take int) {
	me := t.team.me
	give, take = t.count[m], t.count[me]
	if t.gathers() {
		give, take = give+t.count[me], take+t.count[m]
	}
	return give * t.c.in.size, take * t.c.in.size
}

// find returns a stretch of the vector: elements of a member's share from an index, at most some.
func (t *tcpReduction) find(member, from, most int) span {
	for _, s := range t.share[member] {
		if from < s.len() {
			return span{s.from + from, min(s.from+from+most, s.to)}
		}
		from -= s.len()
	}
	return span{}
}

func (t *tcpReduction) give(m int) []byte {
	f := &t.flows[m]
	if left := t.count[m] - f.given; left > 0 {
		if t.whole { // combined already
			f.given = t.count[m]
			return t.c.in.bytesOf(0, t.c.in.len)
		}
		most := left
		if len(t.round.calls) > 1 {
			most = t.chunk
		}
		s := t.find(m, f.given, most)
		f.given += s.len()
		if len(t.round.calls) > 1 && t.c.Op == ReduceScatter {
			f.stage = grow(f.stage, s.len()*t.c.in.size)
			t.combine(s.from, s.to, f.stage)
			return f.stage
		}
		t.combine(s.from, s.to, nil)
		return t.c.in.bytesOf(s.from, s.to)
	}
	if !t.gathers() || f.result == t.done {
		return nil
	}
	s := t.find(t.team.me, f.result, t.done-f.result)
	f.result += s.len()
	return t.c.out.bytesOf(s.from, s.to)
}

// combine reduces elements of this worker's ranks, if they are several: into a place, or into that of the first rank.
func (t *tcpReduction) combine(from, to int, into []byte) {
	if len(t.round.calls) == 1 || from == to {
		return
	}
	t.local = t.local[:0]
	for _, c := range t.round.calls {
		t.local = append(t.local, c.in.at(from))
	}
	dst := t.local[:1]
	if into != nil {
		t.dst = append(t.dst[:0], unsafe.Pointer(&into[0]))
		dst = t.dst
	}
	reduce(t.c.DType, t.c.Reduction, 1, dst, t.local, to-from, &t.scratch)
}

func (t *tcpReduction) take(m int) []byte {
	f, me := &t.flows[m], t.team.me
	if f.asked < t.count[me] {
		if f.asked > t.done {
			return nil // the chunk before is not reduced yet
		}
		n := min(t.chunk, t.count[me]-f.asked)
		f.asked += n
		return f.from[:n*t.c.in.size]
	}
	if !t.gathers() {
		return nil
	}
	s := t.find(m, f.filled, t.count[m]-f.filled)
	f.filled += s.len()
	return t.c.out.bytesOf(s.from, s.to)
}

// advance reduces the chunk that has come from all.
func (t *tcpReduction) advance() {
	for !t.whole {
		n := min(t.chunk, t.count[t.team.me]-t.done)
		if n == 0 {
			return
		}
		for _, p := range t.peers {
			if p != nil && p.received-headerSize-len(p.pending) < (t.done+n)*t.c.in.size {
				return
			}
		}
		t.reduceChunk(n)
	}
}

// reduceChunk reduces elements of my share: n, from those that are done on.
func (t *tcpReduction) reduceChunk(n int) {
	size := t.c.in.size
	for at := 0; at < n; {
		s := t.find(t.team.me, t.done+at, n-at)
		for m := range t.flows {
			if m == t.team.me {
				t.remote[m] = t.own(s)
			} else {
				t.remote[m] = unsafe.Pointer(&t.flows[m].from[at*size])
			}
		}
		at += s.len()
		if t.c.Op == AllReduce {
			t.dst = append(t.dst[:0], t.c.out.at(s.from))
			reduce(t.c.DType, t.c.Reduction, t.c.Scale, t.dst, t.remote, s.len(), &t.scratch)
			continue
		}
		for _, c := range t.round.calls {
			part := sum(c.inCounts[:c.pos])
			from, to := max(s.from, part), min(s.to, part+c.out.len)
			if from >= to {
				continue
			}
			skip := (from - s.from) * size
			t.local = t.local[:0]
			for _, p := range t.remote {
				t.local = append(t.local, unsafe.Add(p, skip))
			}
			t.dst = append(t.dst[:0], c.out.at(from-part))
			reduce(t.c.DType, t.c.Reduction, t.c.Scale, t.dst, t.local, to-from, &t.scratch)
		}
	}
	t.done += n
}

// own returns this worker's elements.
func (t *tcpReduction) own(s span) unsafe.Pointer {
	if len(t.round.calls) > 1 && t.c.Op == ReduceScatter {
		t.mine = grow(t.mine, s.len()*t.c.in.size)
		t.combine(s.from, s.to, t.mine)
		return unsafe.Pointer(&t.mine[0])
	}
	if !t.whole {
		t.combine(s.from, s.to, nil)
	}
	return t.c.in.at(s.from)
}

func (t *tcpReduction) finish() {
	t.advance()
	if t.whole && t.c.in.len > 0 {
		t.reduceChunk(t.c.in.len)
	}
	if t.c.Op == AllReduce {
		for _, c := range t.round.calls[1:] {
			copy(c.out.bytesOf(0, c.out.len), t.c.out.bytesOf(0, t.c.out.len))
		}
	}
}
