// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package tcp

import (
	"unsafe"

	"github.com/easyparallel/epl/comm/internal/kernel"
	"github.com/easyparallel/epl/comm/internal/transport"
)

// reduction is an all-reduce or a reduce-scatter. Each member reduces some elements of the vector, its share: it gets
// the share from all others, chunk by chunk. In an all-reduce it then gives the result to them, as far as it is known;
// they have sent theirs by then, so that results can take the place of what was given. A small all-reduce is one in which
// the share of every member is the whole vector.
type reduction struct {
	team  *transport.Team
	round *transport.Round
	peers []*peer
	c     *transport.Call // of the first rank
	whole bool
	share [][]transport.Span // by member, in elements
	count []int              // by member: elements of its share

	chunk  int // elements
	done   int // elements of my share that are reduced
	flows  []reduceFlow
	mine   []byte // a chunk of this worker's ranks, if they are several
	local  []unsafe.Pointer
	remote []unsafe.Pointer // by member
	dst    []unsafe.Pointer

	scratch kernel.Scratch
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

func (t *reduction) begin(e *engine, r *transport.Round) {
	n := len(e.peers)
	t.team, t.round, t.peers, t.c = e.team, r, e.peers, r.First()
	if t.flows == nil {
		t.flows, t.remote, t.count = make([]reduceFlow, n), make([]unsafe.Pointer, n), make([]int, n)
	}
	t.whole = t.c.Op == transport.AllReduce && int(t.c.Bytes)*(n-1) <= wholeBytes
	switch {
	case t.c.Op == transport.ReduceScatter:
		t.share = e.team.Spans(t.c.InCounts)
	case t.whole:
		t.share = make([][]transport.Span, n)
		for m := range t.share {
			t.share[m] = []transport.Span{{To: t.c.In.Len}}
		}
	default:
		t.share = make([][]transport.Span, n)
		for m := range t.share {
			t.share[m] = []transport.Span{{From: bound(t.c.In.Len, m, n), To: bound(t.c.In.Len, m+1, n)}}
		}
	}
	for m, spans := range t.share {
		t.count[m] = 0
		for _, s := range spans {
			t.count[m] += s.Len()
		}
	}
	t.chunk = max(1, chunkBytes/t.c.In.Size)
	if t.whole {
		t.chunk = max(1, t.c.In.Len)
	}
	t.done = 0
	for m := range t.flows {
		f := &t.flows[m]
		*f = reduceFlow{from: f.from, stage: f.stage}
		if m != e.team.Me {
			f.from = transport.Grow(f.from, min(t.chunk, t.count[e.team.Me])*t.c.In.Size)
		}
	}
	if t.whole {
		t.combine(0, t.c.In.Len, nil)
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

func (t *reduction) gathers() bool { return t.c.Op == transport.AllReduce && !t.whole }

func (t *reduction) sizes(m int) (give, take int) {
	me := t.team.Me
	give, take = t.count[m], t.count[me]
	if t.gathers() {
		give, take = give+t.count[me], take+t.count[m]
	}
	return give * t.c.In.Size, take * t.c.In.Size
}

// find returns a stretch of the vector: elements of a member's share from an index, at most some.
func (t *reduction) find(member, from, most int) transport.Span {
	for _, s := range t.share[member] {
		if from < s.Len() {
			return transport.Span{From: s.From + from, To: min(s.From+from+most, s.To)}
		}
		from -= s.Len()
	}
	return transport.Span{}
}

func (t *reduction) give(m int) []byte {
	f := &t.flows[m]
	if left := t.count[m] - f.given; left > 0 {
		if t.whole { // combined already
			f.given = t.count[m]
			return t.c.In.BytesOf(0, t.c.In.Len)
		}
		most := left
		if len(t.round.Calls) > 1 {
			most = t.chunk
		}
		s := t.find(m, f.given, most)
		f.given += s.Len()
		if len(t.round.Calls) > 1 && t.c.Op == transport.ReduceScatter {
			f.stage = transport.Grow(f.stage, s.Len()*t.c.In.Size)
			t.combine(s.From, s.To, f.stage)
			return f.stage
		}
		t.combine(s.From, s.To, nil)
		return t.c.In.BytesOf(s.From, s.To)
	}
	if !t.gathers() || f.result == t.done {
		return nil
	}
	s := t.find(t.team.Me, f.result, t.done-f.result)
	f.result += s.Len()
	return t.c.Out.BytesOf(s.From, s.To)
}

// combine reduces elements of this worker's ranks, if they are several: into a place, or into that of the first rank.
func (t *reduction) combine(from, to int, into []byte) {
	if len(t.round.Calls) == 1 || from == to {
		return
	}
	t.local = t.local[:0]
	for _, c := range t.round.Calls {
		t.local = append(t.local, c.In.At(from))
	}
	dst := t.local[:1]
	if into != nil {
		t.dst = append(t.dst[:0], unsafe.Pointer(&into[0]))
		dst = t.dst
	}
	kernel.Reduce(t.c.DType, t.c.Reduction, 1, dst, t.local, to-from, &t.scratch)
}

func (t *reduction) take(m int) []byte {
	f, me := &t.flows[m], t.team.Me
	if f.asked < t.count[me] {
		if f.asked > t.done {
			return nil // the chunk before is not reduced yet
		}
		n := min(t.chunk, t.count[me]-f.asked)
		f.asked += n
		return f.from[:n*t.c.In.Size]
	}
	if !t.gathers() {
		return nil
	}
	s := t.find(m, f.filled, t.count[m]-f.filled)
	f.filled += s.Len()
	return t.c.Out.BytesOf(s.From, s.To)
}

// advance reduces the chunk that has come from all.
func (t *reduction) advance() {
	for !t.whole {
		n := min(t.chunk, t.count[t.team.Me]-t.done)
		if n == 0 {
			return
		}
		for _, p := range t.peers {
			if p != nil && p.received-HeaderSize-len(p.pending) < (t.done+n)*t.c.In.Size {
				return
			}
		}
		t.reduceChunk(n)
	}
}

// reduceChunk reduces elements of my share: n, from those that are done on.
func (t *reduction) reduceChunk(n int) {
	size := t.c.In.Size
	for at := 0; at < n; {
		s := t.find(t.team.Me, t.done+at, n-at)
		for m := range t.flows {
			if m == t.team.Me {
				t.remote[m] = t.own(s)
			} else {
				t.remote[m] = unsafe.Pointer(&t.flows[m].from[at*size])
			}
		}
		at += s.Len()
		if t.c.Op == transport.AllReduce {
			t.dst = append(t.dst[:0], t.c.Out.At(s.From))
			kernel.Reduce(t.c.DType, t.c.Reduction, t.c.Scale, t.dst, t.remote, s.Len(), &t.scratch)
			continue
		}
		for _, c := range t.round.Calls {
			part := transport.Total(c.InCounts[:c.Pos])
			from, to := max(s.From, part), min(s.To, part+c.Out.Len)
			if from >= to {
				continue
			}
			skip := (from - s.From) * size
			t.local = t.local[:0]
			for _, p := range t.remote {
				t.local = append(t.local, unsafe.Add(p, skip))
			}
			t.dst = append(t.dst[:0], c.Out.At(from-part))
			kernel.Reduce(t.c.DType, t.c.Reduction, t.c.Scale, t.dst, t.local, to-from, &t.scratch)
		}
	}
	t.done += n
}

// own returns this worker's elements.
func (t *reduction) own(s transport.Span) unsafe.Pointer {
	if len(t.round.Calls) > 1 && t.c.Op == transport.ReduceScatter {
		t.mine = transport.Grow(t.mine, s.Len()*t.c.In.Size)
		t.combine(s.From, s.To, t.mine)
		return unsafe.Pointer(&t.mine[0])
	}
	if !t.whole {
		t.combine(s.From, s.To, nil)
	}
	return t.c.In.At(s.From)
}

func (t *reduction) finish() {
	t.advance()
	if t.whole && t.c.In.Len > 0 {
		t.reduceChunk(t.c.In.Len)
	}
	if t.c.Op == transport.AllReduce {
		for _, c := range t.round.Calls[1:] {
			transport.Copy(c.Out.BytesOf(0, c.Out.Len), t.c.Out.BytesOf(0, t.c.Out.Len))
		}
	}
}
