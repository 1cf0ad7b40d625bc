// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package hybrid

import (
	"unsafe"

	"github.com/easyparallel/epl/comm/internal/kernel"
	"github.com/easyparallel/epl/comm/internal/transport"
)

// chunkBytes is how much of a vector is reduced on the hosts while the leaders exchange the chunk before.
const chunkBytes = 1 << 20

func (h *engine) allReduce() error {
	c := h.round.First()
	h.combine(c.In)
	step := max(1, chunkBytes/c.In.Size)
	var err error
	if c.In.Len <= step {
		err = h.allReduceOne(c.In)
	} else {
		err = h.allReduceChunks(c.In, step)
	}
	if err != nil {
		return err
	}
	for _, other := range h.round.Calls[1:] {
		transport.Copy(other.Out.BytesOf(0, other.Out.Len), c.Out.BytesOf(0, c.Out.Len))
	}
	return nil
}

func (h *engine) allReduceOne(b transport.Buffer) error {
	if err := h.toLeader(b, b); err != nil {
		return err
	}
	if err := h.between(b); err != nil {
		return err
	}
	return h.fromLeader(b)
}

// allReduceChunks reduces a chunk on the hosts while the one before is between the leaders.
func (h *engine) allReduceChunks(b transport.Buffer, step int) error {
	chunk := func(i int) transport.Buffer { return b.Part(i*step, min(step, b.Len-i*step)) }
	crossing := make(chan error, 1)
	crossing <- nil
	cross := func(i int) {
		if h.leaders == nil {
			crossing <- nil
			return
		}
		go func() { crossing <- h.between(chunk(i)) }()
	}
	chunks := (b.Len + step - 1) / step
	for i := range chunks {
		if err := h.toLeader(chunk(i), chunk(i)); err != nil {
			h.Fail(err) // the leaders stop too: nobody touches the buffer any more when this returns
			<-crossing
			return err
		}
		if err := <-crossing; err != nil {
			return err
		}
		cross(i)
		if i == 0 {
			continue
		}
		if err := h.fromLeader(chunk(i - 1)); err != nil {
			h.Fail(err)
			<-crossing
			return err
		}
	}
	if err := <-crossing; err != nil {
		return err
	}
	return h.fromLeader(chunk(chunks - 1))
}

// toLeader reduces a vector of this host's members. The leader gets it.
func (h *engine) toLeader(in, out transport.Buffer) error {
	if h.inside == nil {
		return nil
	}
	counts := make([]int, len(h.inside.members))
	counts[0] = in.Len
	if h.leaders == nil {
		out = in.Part(0, 0)
	}
	return h.inside.do(transport.Call{Header: transport.Header{Op: transport.ReduceScatter, Scale: 1}, In: in, Out: out, InCounts: counts, PeerPos: -1})
}

// between reduces a vector of all leaders, in place.
func (h *engine) between(b transport.Buffer) error {
	return h.leaders.do(transport.Call{Header: transport.Header{Op: transport.AllReduce, Scale: h.round.First().Scale}, In: b, Out: b, PeerPos: -1})
}

// fromLeader copies a vector of the leader to this host's members.
func (h *engine) fromLeader(b transport.Buffer) error {
	return h.inside.do(transport.Call{Header: transport.Header{Op: transport.Broadcast}, In: b, Out: b, PeerPos: 0})
}

// combine reduces the vectors of this worker's ranks into a buffer, which may be one of them.
func (h *engine) combine(into transport.Buffer) {
	if len(h.round.Calls) > 1 {
		h.combinePart(into, 0, 0, into.Len)
	}
}

// combinePart reduces n elements of this worker's ranks, from an index, into a buffer at another.
func (h *engine) combinePart(into transport.Buffer, at, from, n int) {
	if n == 0 {
		return
	}
	c := h.round.First()
	var src []unsafe.Pointer
	for _, c := range h.round.Calls {
		src = append(src, c.In.At(from))
	}
	kernel.Reduce(c.DType, c.Reduction, 1, []unsafe.Pointer{into.At(at)}, src, n, &h.scratch)
}

// reduceScatter: the leader gets the reduction over its host, the leaders that of their host over all, and the members
// their parts of it.
func (h *engine) reduceScatter() error {
	c := h.round.First()
	vector := c.In
	if len(h.round.Calls) > 1 || !h.inOrder {
		vector = c.In.Like(&h.vector, c.In.Len)
		at := 0
		for _, pos := range h.sorted {
			n := c.InCounts[pos]
			h.combinePart(vector, at, transport.Total(c.InCounts[:pos]), n)
			at += n
		}
	}
	byMember, byHost := h.counts(c.InCounts)
	reduced := vector
	if h.inside != nil && h.leaders != nil && vector.Ptr == c.In.Ptr {
		reduced = c.In.Like(&h.vector, c.In.Len)
	}
	if err := h.toLeader(vector, reduced); err != nil {
		return err
	}
	mine := c.In.Like(&h.result, byHost[h.host])
	err := h.leaders.do(transport.Call{Header: transport.Header{Op: transport.ReduceScatter, Scale: c.Scale}, In: reduced, Out: mine, InCounts: byHost, PeerPos: -1})
	if err != nil {
		return err
	}
	if h.inside != nil {
		// Only the leader gives.
		gives, takes := make([]int, len(h.inside.members)), make([]int, len(h.inside.members))
		takes[0] = byMember[h.inside.team.Me]
		if h.leaders != nil {
			gives = byMember
		} else {
			mine = mine.Part(0, 0)
		}
		out := c.In.Like(&h.part, takes[0])
		err := h.inside.do(transport.Call{Header: transport.Header{Op: transport.AllToAll}, In: mine, Out: out, InCounts: gives, OutCounts: takes, PeerPos: -1})
		if err != nil {
			return err
		}
		mine = out
	}
	at := 0
	for _, c := range h.round.Calls {
		transport.Copy(c.Out.BytesOf(0, c.Out.Len), mine.BytesOf(at, at+c.Out.Len))
		at += c.Out.Len
	}
	return nil
}
