package comm

import "unsafe"

// hybridChunk is how much of a vector is reduced on the hosts while the leaders exchange the chunk before.
const hybridChunk = 1 << 20

func (h *hybridEngine) allReduce() error {
	c := h.round.first()
	h.combine(c.in)
	step := max(1, hybridChunk/c.in.size)
	var err error
	if c.in.len <= step {
		err = h.allReduceOne(c.in)
	} else {
		err = h.allReduceChunks(c.in, step)
	}
	if err != nil {
		return err
	}
	for _, other := range h.round.calls[1:] {
		copy(other.out.bytesOf(0, other.out.len), c.out.bytesOf(0, c.out.len))
	}
	return nil
}

func (h *hybridEngine) allReduceOne(b buffer) error {
	if err := h.toLeader(b, b); err != nil {
		return err
	}
	if err := h.between(b); err != nil {
		return err
	}
	return h.fromLeader(b)
}

// allReduceChunks reduces a chunk on the hosts while the one before is between the leaders.
func (h *hybridEngine) allReduceChunks(b buffer, step int) error {
	chunk := func(i int) buffer { return b.part(i*step, min(step, b.len-i*step)) }
	crossing := make(chan error, 1)
	crossing <- nil
	cross := func(i int) {
		if h.leaders == nil {
			crossing <- nil
			return
		}
		go func() { crossing <- h.between(chunk(i)) }()
	}
	chunks := (b.len + step - 1) / step
	for i := range chunks {
		if err := h.toLeader(chunk(i), chunk(i)); err != nil {
			h.fail(err) // the leaders stop too: nobody touches the buffer any more when this returns
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
			h.fail(err)
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
func (h *hybridEngine) toLeader(in, out buffer) error {
	if h.inside == nil {
		return nil
	}
	counts := make([]int, len(h.inside.members))
	counts[0] = in.len
	if h.leaders == nil {
		out = in.part(0, 0)
	}
	return h.inside.do(call{Header: Header{Op: ReduceScatter, Scale: 1}, in: in, out: out, inCounts: counts, peer: -1})
}

// between reduces a vector of all leaders, in place.
func (h *hybridEngine) between(b buffer) error {
	return h.leaders.do(call{Header: Header{Op: AllReduce, Scale: h.round.first().Scale}, in: b, out: b, peer: -1})
}

// fromLeader copies a vector of the leader to this host's members.
func (h *hybridEngine) fromLeader(b buffer) error {
	return h.inside.do(call{Header: Header{Op: Broadcast}, in: b, out: b, peer: 0})
}

// combine reduces the vectors of this worker's ranks into a buffer, which may be one of them.
func (h *hybridEngine) combine(into buffer) {
	if len(h.round.calls) > 1 {
		h.combinePart(into, 0, 0, into.len)
	}
}

// combinePart reduces n elements of this worker's ranks, from an index, into a buffer at another.
func (h *hybridEngine) combinePart(into buffer, at, from, n int) {
	if n == 0 {
		return
	}
	c := h.round.first()
	var src []unsafe.Pointer
	for _, c := range h.round.calls {
		src = append(src, c.in.at(from))
	}
	reduce(c.DType, c.Reduction, 1, []unsafe.Pointer{into.at(at)}, src, n, &h.scratch)
}

// reduceScatter: the leader gets the reduction over its host, the leaders that of their host over all, and the members
// their parts of it.
func (h *hybridEngine) reduceScatter() error {
	c := h.round.first()
	vector := c.in
	if len(h.round.calls) > 1 || !h.inOrder {
		vector = c.in.like(&h.vector, c.in.len)
		at := 0
		for _, pos := range h.sorted {
			n := c.inCounts[pos]
			h.combinePart(vector, at, sum(c.inCounts[:pos]), n)
			at += n
		}
	}
	byMember, byHost := h.counts(c.inCounts)
	reduced := vector
	if h.inside != nil && h.leaders != nil && vector.ptr == c.in.ptr {
		reduced = c.in.like(&h.vector, c.in.len)
	}
	if err := h.toLeader(vector, reduced); err != nil {
		return err
	}
	mine := c.in.like(&h.result, byHost[h.host])
	err := h.leaders.do(call{Header: Header{Op: ReduceScatter, Scale: c.Scale}, in: reduced, out: mine, inCounts: byHost, peer: -1})
	if err != nil {
		return err
	}
	if h.inside != nil {
		// Only the leader gives.
		gives, takes := make([]int, len(h.inside.members)), make([]int, len(h.inside.members))
		takes[0] = byMember[h.inside.team.me]
		if h.leaders != nil {
			gives = byMember
		} else {
			mine = mine.part(0, 0)
		}
		out := c.in.like(&h.part, takes[0])
		err := h.inside.do(call{Header: Header{Op: AllToAll}, in: mine, out: out, inCounts: gives, outCounts: takes, peer: -1})
		if err != nil {
			return err
		}
		mine = out
	}
	at := 0
	for _, c := range h.round.calls {
		copy(c.out.bytesOf(0, c.out.len), mine.bytesOf(at, at+c.out.len))
		at += c.out.len
	}
	return nil
}
