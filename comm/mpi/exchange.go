// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

//go:build mpi

package mpi

import "github.com/easyparallel/epl/comm/internal/transport"

// mpiExchangeKey names a stream of messages between two ranks. Each has at most one under way.
type mpiExchangeKey struct {
	team     mpiKey
	from, to int32
	tag      int64
}

// mpiExchange is a send or receive that waits for the other end. MPI's tags are too few for ours, and its messages too
// trusting: so a sender first offers what it has; when the receiver has come, and wants the same, it takes a slot, which is
// the tag of the data; then MPI finds both ends ready.
type mpiExchange struct {
	op   *mpiOp
	team *transport.Team
	call *transport.Call
	err  error // the other end does not want the same
}

func (m *mpiMessage) key() mpiExchangeKey { return mpiExchangeKey{m.team, m.from, m.to, m.tag} }

// mpiMessageOf describes a send or receive.
func mpiMessageOf(key mpiKey, k *transport.Call) (m mpiMessage) {
	m = mpiMessage{kind: mpiOffer, team: key, from: int32(k.Pos), to: int32(k.PeerPos), tag: int64(k.Tag), dtype: k.DType, seq: k.Seq, bytes: k.Bytes}
	if k.Op == transport.Recv {
		m.kind, m.from, m.to = mpiTake, m.to, m.from
	}
	m.programLen = int32(copy(m.program[:], k.Program))
	return m
}

// call is the call that a message describes. It is the other end's.
func (m *mpiMessage) call(mine *transport.Call) *transport.Call {
	c := &transport.Call{Header: mine.Header, Pos: mine.PeerPos, PeerPos: mine.Pos}
	c.Op, c.DType, c.Seq, c.Bytes, c.Program = transport.Send, m.dtype, m.seq, m.bytes, string(m.program[:m.programLen])
	if m.kind == mpiTake {
		c.Op = transport.Recv
	}
	return c
}

// agrees compares both ends. What it finds both of them find.
func (x *mpiExchange) agrees(m mpiMessage) bool {
	theirs := m.call(x.call)
	theirs.Peer = x.team.Ranks[x.call.Pos]
	send, recv := theirs, x.call
	if x.call.Op == transport.Send {
		send, recv = x.call, theirs
	}
	x.err = transport.CheckPair(x.team.Ranks, send, recv)
	return x.err == nil
}

// exchange begins a send or receive.
func (t *mpiThread) exchange(key mpiKey, x *mpiExchange) error {
	x.op.parked = true
	m := mpiMessageOf(key, x.call)
	t.exchanges[m.key()] = x
	peer := x.team.Members[x.team.MemberOf[x.call.PeerPos]].Worker
	if x.call.Op == transport.Send {
		return t.mail.send(t, peer, m)
	}
	if offer, ok := t.offers[m.key()]; ok {
		delete(t.offers, m.key())
		return t.take(offer, x)
	}
	return nil
}

// offered handles an offer: it may wait here for who wants it.
func (t *mpiThread) offered(m mpiMessage) error {
	if x, ok := t.exchanges[m.key()]; ok && !x.op.over {
		return t.take(m, x)
	}
	t.offers[m.key()] = m
	return nil
}

// take answers an offer.
func (t *mpiThread) take(offer mpiMessage, x *mpiExchange) error {
	const slots = 1 << 14 // MPI has twice as many tags at least; few are in use
	t.slots = (t.slots + 1) % slots
	answer := mpiMessageOf(offer.team, x.call)
	answer.slot = int32(t.slots)
	if x.agrees(offer) {
		x.op.lent = true
		if err := x.op.post(mpiReceive(x.call.Out, int(offer.sender), t.slots, t.data)); err != nil {
			return err
		}
	}
	t.proceed(x, answer.key())
	return t.mail.send(t, int(offer.sender), answer)
}

// taken sends what the other end has taken.
func (t *mpiThread) taken(m mpiMessage) error {
	x, ok := t.exchanges[m.key()]
	if !ok || x.op.over {
		return nil // it was given up
	}
	if x.agrees(m) {
		x.op.lent = true
		if err := x.op.post(mpiSend(x.call.In, int(m.sender), int(m.slot), t.data)); err != nil {
			return err
		}
	}
	t.proceed(x, m.key())
	return nil
}

// proceed waits for the data, or ends with the disagreement.
func (t *mpiThread) proceed(x *mpiExchange, key mpiExchangeKey) {
	delete(t.exchanges, key)
	x.op.parked = false
	if x.err != nil {
		t.finish(x.op, nil)
		return
	}
	t.watch(x.op)
}
