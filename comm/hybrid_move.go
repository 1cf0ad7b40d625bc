package comm

import (
	"encoding/binary"
	"unsafe"

	"github.com/gomlx/compute/dtypes"
)

// counts adds up the elements of positions: by member of this host, and by host.
func (h *hybridEngine) counts(each []int) (byMember, byHost []int) {
	byHost = make([]int, len(h.hosts))
	for i, members := range h.hosts {
		for _, m := range members {
			n := 0
			for _, pos := range h.team.members[m].positions {
				n += each[pos]
			}
			byHost[i] += n
			if i == h.host {
				byMember = append(byMember, n)
			}
		}
	}
	return byMember, byHost
}

// allGather: the members of a host get all of it, its leader that of all hosts, and the members all of that.
func (h *hybridEngine) allGather() error {
	c := h.round.first()
	vector := c.out
	if !h.inOrder {
		vector = c.out.like(&h.vector, c.out.len)
	}
	byMember, byHost := h.counts(c.outCounts)
	host := vector.part(sum(byHost[:h.host]), byHost[h.host])
	mine := host
	if h.inside != nil {
		mine = host.part(sum(byMember[:h.inside.team.me]), byMember[h.inside.team.me])
	}
	at := 0
	for _, c := range h.round.calls {
		copy(mine.bytesOf(at, at+c.in.len), c.in.bytesOf(0, c.in.len))
		at += c.in.len
	}
	if err := h.inside.do(call{Header: Header{Op: AllGather}, in: mine, out: host, outCounts: byMember, peer: -1}); err != nil {
		return err
	}
	if err := h.leaders.do(call{Header: Header{Op: AllGather}, in: host, out: vector, outCounts: byHost, peer: -1}); err != nil {
		return err
	}
	if err := h.fromLeader(vector); err != nil {
		return err
	}
	for _, to := range h.round.calls {
		if h.inOrder {
			copy(to.out.bytesOf(0, to.out.len), vector.bytesOf(0, vector.len))
			continue
		}
		at := 0
		for _, pos := range h.sorted {
			n, place := c.outCounts[pos], sum(c.outCounts[:pos])
			copy(to.out.bytesOf(place, place+n), vector.bytesOf(at, at+n))
			at += n
		}
	}
	return nil
}

// broadcast: the root's host has it, all leaders, all hosts.
func (h *hybridEngine) broadcast() error {
	c := h.round.first()
	root := h.team.memberOf[c.peer]
	if root == h.team.me {
		c = h.round.callOf(c.peer)
	}
	here, place := -1, 0 // the root's host, and its place there
	for i, members := range h.hosts {
		for j, m := range members {
			if m == root {
				here, place = i, j
			}
		}
	}
	if here == h.host {
		if err := h.inside.do(call{Header: Header{Op: Broadcast}, in: c.in, out: c.out, peer: place}); err != nil {
			return err
		}
	}
	if err := h.leaders.do(call{Header: Header{Op: Broadcast}, in: c.in, out: c.out, peer: here}); err != nil {
		return err
	}
	if here != h.host {
		if err := h.fromLeader(c.in); err != nil {
			return err
		}
	}
	finishBroadcast(h.round)
	return nil
}

// allToAll: on this host by memory, with others over connections.
func (h *hybridEngine) allToAll() error {
	if err := h.allToAllInside(); err != nil {
		return err
	}
	return h.far.collective(h.round)
}

// allToAllInside gives each other member of this host one message: the numbers of elements that each rank gives each, as the
// sender knows them, then the elements. What ranks of this worker give each other is the far engine's business.
func (h *hybridEngine) allToAllInside() error {
	if h.inside == nil {
		return nil
	}
	calls, n := h.round.calls, len(h.inside.members)
	gives, takes := make([]int, n), make([]int, n)
	h.vector, h.part = h.vector[:0], h.part[:0]
	for i, m := range h.inside.members {
		if m == h.team.me {
			continue
		}
		theirs := h.team.members[m].positions
		before := len(h.vector)
		for _, c := range calls {
			for _, to := range theirs {
				h.vector = binary.LittleEndian.AppendUint64(h.vector, uint64(c.inCounts[to]))
			}
		}
		for _, c := range calls {
			for _, to := range theirs {
				at := sum(c.inCounts[:to])
				h.vector = append(h.vector, c.in.bytesOf(at, at+c.inCounts[to])...)
			}
		}
		gives[i] = len(h.vector) - before
		takes[i] = 8 * len(theirs) * len(calls)
		for _, c := range calls {
			for _, from := range theirs {
				takes[i] += c.outCounts[from] * c.out.size
			}
		}
	}
	bytes := buffer{size: 1, dtype: dtypes.Uint8}
	in := buffer{ptr: unsafe.Pointer(unsafe.SliceData(h.vector)), len: len(h.vector), size: 1, dtype: dtypes.Uint8}
	out := bytes.like(&h.part, sum(takes))
	if err := h.inside.do(call{Header: Header{Op: AllToAll}, in: in, out: out, inCounts: gives, outCounts: takes, peer: -1}); err != nil {
		return err
	}
	rest := h.part
	for i, m := range h.inside.members {
		if m == h.team.me {
			continue
		}
		counts, data := rest, rest[8*len(h.team.members[m].positions)*len(calls):takes[i]]
		for _, from := range h.team.members[m].positions {
			for _, c := range calls {
				if binary.LittleEndian.Uint64(counts) != uint64(c.outCounts[from]) {
					return h.inside.disagree(i)
				}
				counts = counts[8:]
			}
		}
		for _, from := range h.team.members[m].positions {
			for _, c := range calls {
				at, size := sum(c.outCounts[:from]), c.outCounts[from]*c.out.size
				copy(c.out.bytesOf(at, at+c.outCounts[from]), data[:size])
				data = data[size:]
			}
		}
		rest = rest[takes[i]:]
	}
	return nil
}
