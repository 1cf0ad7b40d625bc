// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package comm

import (
	"sync"

	"github.com/pkg/errors"
)

// Communicator is one rank's end of a group's channel.
//
// Every rank of the group must make the same collective calls in the same order. Collectives of a communicator run one
// after the other, whether they were made by Do or by Start, and from whichever goroutine. Sends and receives are
// ordered only among those with the same peer, direction and tag: a rank may receive while a send is pending.
//
// A call that fails breaks the communicator for all its ranks: pending and later calls return the error.
type Communicator struct {
	group   *Group
	channel int
	pos     int
	rank    int
	name    string // of group and channel, in headers
	end     end
	local   *rank

	mu          sync.Mutex
	collectives lane
	exchanges   map[exchange]*lane // with calls in them, and some others
	idle        []*lane            // for reuse
	seq         uint64             // of collectives
	sent        []uint64           // by position
	received    []uint64           // by position
}

// newCommunicator makes a rank's end. The world's lock is held.
func newCommunicator(g *Group, channel, pos int) *Communicator {
	w := g.world
	key := meetingKey{g, channel}
	c := &Communicator{
		group: g, channel: channel, pos: pos, rank: g.ranks[pos], name: key.name(),
		end:       w.connect(key, pos),
		local:     w.ranks[g.ranks[pos]],
		exchanges: map[exchange]*lane{},
		sent:      make([]uint64, g.Size()),
		received:  make([]uint64, g.Size()),
	}
	return c
}

// Group returns the ranks that communicate.
func (c *Communicator) Group() *Group { return c.group }

// Rank returns the rank whose end this is.
func (c *Communicator) Rank() int { return c.rank }

// Position returns the index of the rank in its group.
func (c *Communicator) Position() int { return c.pos }

// Size returns the number of ranks in the group.
func (c *Communicator) Size() int { return c.group.Size() }

// AllReduce replaces buf by the reduction over all ranks.
func (c *Communicator) AllReduce(buf any, r Reduction) error {
	return c.do(&Call{Op: AllReduce, Buf: buf, Reduction: r})
}

// AllReduceScaled replaces buf by the reduction over all ranks times a factor, which must not be 0.
func (c *Communicator) AllReduceScaled(buf any, r Reduction, factor float64) error {
	if factor == 0 {
		err := errors.Errorf("epl: rank %d cannot scale an all-reduce of group %s by 0; use a factor that is not 0", c.rank, c.name)
		c.fail(err)
		return err
	}
	return c.do(&Call{Op: AllReduce, Buf: buf, Reduction: r, Scale: factor})
}

// ReduceScatter reduces in over all ranks and puts this rank's part into out. counts are the elements of the parts by
// position; nil means equal parts.
func (c *Communicator) ReduceScatter(in, out any, counts []int, r Reduction) error {
	return c.do(&Call{Op: ReduceScatter, In: in, Out: out, InCounts: counts, Reduction: r})
}

// AllGather puts the parts of all ranks into out, by position. counts are their elements; nil means equal parts.
func (c *Communicator) AllGather(in, out any, counts []int) error {
	return c.do(&Call{Op: AllGather, In: in, Out: out, OutCounts: counts})
}

// AllToAll gives the i-th part of in to the rank at position i, and puts what it gave to this one into the i-th part of
// out. The counts are the elements of the parts; nil means equal parts.
func (c *Communicator) AllToAll(in, out any, inCounts, outCounts []int) error {
	return c.do(&Call{Op: AllToAll, In: in, Out: out, InCounts: inCounts, OutCounts: outCounts})
}

// Broadcast replaces buf by that of the rank at position root.
func (c *Communicator) Broadcast(buf any, root int) error {
	return c.do(&Call{Op: Broadcast, Buf: buf, Root: root})
}

// Send gives buf to the rank at position to. It returns when that has received it.
func (c *Communicator) Send(buf any, to, tag int) error {
	return c.do(&Call{Op: Send, Buf: buf, Peer: to, Tag: tag})
}

// Recv fills buf with what the rank at position from sends with the same tag. Type and size must be the sender's.
func (c *Communicator) Recv(buf any, from, tag int) error {
	return c.do(&Call{Op: Recv, Buf: buf, Peer: from, Tag: tag})
}

// Barrier returns when all ranks of the group have called it.
func (c *Communicator) Barrier() error { return c.do(&Call{Op: Barrier}) }

// prepare checks a call and gives it a number. What is wrong with it shows when its turn comes. The lock is held.
func (c *Communicator) prepare(to *request, from *Call) {
	err := to.check(from, c.pos, c.group.ranks)
	to.Group, to.of, to.Owner = c.name, c, to
	switch {
	case !to.Op.PointToPoint():
		c.seq++
		to.Seq = c.seq
	case err != nil:
	case to.Op == Send:
		c.sent[to.PeerPos]++
		to.Seq = c.sent[to.PeerPos]
	default:
		c.received[to.PeerPos]++
		to.Seq = c.received[to.PeerPos]
	}
	if err != nil {
		to.bad = errors.Errorf("epl: rank %d cannot make %s: %s", c.rank, to.Header, err)
	}
}

// fail breaks the communicator on all ranks. Between workers, where a call that went wrong leaves nobody in a known state,
// it breaks the world.
func (c *Communicator) fail(err error) {
	c.end.meeting.Fail(err)
	if c.end.meeting.Engine != nil {
		c.group.world.Abort(err)
	}
}

// run makes a call that was prepared.
func (c *Communicator) run(k *request) error {
	err := k.bad
	if !c.end.begins || k.Async || k.before != nil || k.Parts != nil || err != nil {
		k.Begin()
	}
	if err == nil {
		if k.before != nil {
			k.before()
		}
		k.identify()
		err = c.end.run(&k.Call)
		k.Begin()
	}
	if err != nil {
		c.fail(err)
	}
	state := Done
	if err != nil {
		state = Failed
	}
	c.local.recorder.set(k.ticket, state, c.group.world.base.Now())
	if err == nil {
		c.local.counters.add(k, c.Size())
		return nil
	}
	if concerns(err, k) {
		return err
	}
	return &CallError{Rank: c.rank, Header: k.Header, Cause: err}
}
