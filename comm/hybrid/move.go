// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package hybrid

import (
	"encoding/binary"
	"unsafe"

	"github.com/gomlx/compute/dtypes"

	"github.com/easyparallel/epl/comm/internal/transport"
)

// counts adds up the elements of positions: by member of this host, and by host.
func (h *engine) counts(each []int) (byMember, byHost []int) {
	byHost = make([]int, len(h.hosts))
	for i, members := range h.hosts {
		for _, m := range members {
			n := 0
			for _, pos := range h.team.Members[m].Positions {
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
func (h *engine) allGather() error {
	c := h.round.First()
	vector := c.Out
	if !h.inOrder {
		vector = c.Out.Like(&h.vector, c.Out.Len)
	}
	byMember, byHost := h.counts(c.OutCounts)
	host := vector.Part(transport.Total(byHost[:h.host]), byHost[h.host])
	mine := host
	if h.inside != nil {
		mine = host.Part(transport.Total(byMember[:h.inside.team.Me]), byMember[h.inside.team.Me])
	}
	at := 0
	for _, c := range h.round.Calls {
		transport.Copy(mine.BytesOf(at, at+c.In.Len), c.In.BytesOf(0, c.In.Len))
		at += c.In.Len
	}
	if err := h.inside.do(transport.Call{Header: transport.Header{Op: transport.AllGather}, In: mine, Out: host, OutCounts: byMember, PeerPos: -1}); err != nil {
		return err
	}
	if err := h.leaders.do(transport.Call{Header: transport.Header{Op: transport.AllGather}, In: host, Out: vector, OutCounts: byHost, PeerPos: -1}); err != nil {
		return err
	}
	if err := h.fromLeader(vector); err != nil {
		return err
	}
	for _, to := range h.round.Calls {
		if h.inOrder {
			transport.Copy(to.Out.BytesOf(0, to.Out.Len), vector.BytesOf(0, vector.Len))
			continue
		}
		at := 0
		for _, pos := range h.sorted {
			n, place := c.OutCounts[pos], transport.Total(c.OutCounts[:pos])
			transport.Copy(to.Out.BytesOf(place, place+n), vector.BytesOf(at, at+n))
			at += n
		}
	}
	return nil
}

// broadcast: the root's host has it, all leaders, all hosts.
func (h *engine) broadcast() error {
	c := h.round.First()
	root := h.team.MemberOf[c.PeerPos]
	if root == h.team.Me {
		c = h.round.CallOf(c.PeerPos)
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
		if err := h.inside.do(transport.Call{Header: transport.Header{Op: transport.Broadcast}, In: c.In, Out: c.Out, PeerPos: place}); err != nil {
			return err
		}
	}
	if err := h.leaders.do(transport.Call{Header: transport.Header{Op: transport.Broadcast}, In: c.In, Out: c.Out, PeerPos: here}); err != nil {
		return err
	}
	if here != h.host {
		if err := h.fromLeader(c.In); err != nil {
			return err
		}
	}
	transport.FinishBroadcast(h.round)
	return nil
}

// allToAll: on this host by memory, with others over connections.
func (h *engine) allToAll() error {
	if err := h.allToAllInside(); err != nil {
		return err
	}
	return h.far.Collective(h.round)
}

// allToAllInside gives each other member of this host one message: the numbers of elements that each rank gives each, as the
// sender knows them, then the elements. What ranks of this worker give each other is the far engine's business.
func (h *engine) allToAllInside() error {
	if h.inside == nil {
		return nil
	}
	calls, n := h.round.Calls, len(h.inside.members)
	gives, takes := make([]int, n), make([]int, n)
	h.vector, h.part = h.vector[:0], h.part[:0]
	for i, m := range h.inside.members {
		if m == h.team.Me {
			continue
		}
		theirs := h.team.Members[m].Positions
		before := len(h.vector)
		for _, c := range calls {
			for _, to := range theirs {
				h.vector = binary.LittleEndian.AppendUint64(h.vector, uint64(c.InCounts[to]))
			}
		}
		for _, c := range calls {
			for _, to := range theirs {
				at := transport.Total(c.InCounts[:to])
				h.vector = append(h.vector, c.In.BytesOf(at, at+c.InCounts[to])...)
			}
		}
		gives[i] = len(h.vector) - before
		takes[i] = 8 * len(theirs) * len(calls)
		for _, c := range calls {
			for _, from := range theirs {
				takes[i] += c.OutCounts[from] * c.Out.Size
			}
		}
	}
	bytes := transport.Buffer{Size: 1, DType: dtypes.Uint8}
	in := transport.Buffer{Ptr: unsafe.Pointer(unsafe.SliceData(h.vector)), Len: len(h.vector), Size: 1, DType: dtypes.Uint8}
	out := bytes.Like(&h.part, transport.Total(takes))
	if err := h.inside.do(transport.Call{Header: transport.Header{Op: transport.AllToAll}, In: in, Out: out, InCounts: gives, OutCounts: takes, PeerPos: -1}); err != nil {
		return err
	}
	rest := h.part
	for i, m := range h.inside.members {
		if m == h.team.Me {
			continue
		}
		counts, data := rest, rest[8*len(h.team.Members[m].Positions)*len(calls):takes[i]]
		for _, from := range h.team.Members[m].Positions {
			for _, c := range calls {
				if binary.LittleEndian.Uint64(counts) != uint64(c.OutCounts[from]) {
					return h.inside.Disagree(i)
				}
				counts = counts[8:]
			}
		}
		for _, from := range h.team.Members[m].Positions {
			for _, c := range calls {
				at, size := transport.Total(c.OutCounts[:from]), c.OutCounts[from]*c.Out.Size
				transport.Copy(c.Out.BytesOf(at, at+c.OutCounts[from]), data[:size])
				data = data[size:]
			}
		}
		rest = rest[takes[i]:]
	}
	return nil
}
