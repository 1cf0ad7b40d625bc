// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package shm

import (
	"slices"
	"time"
	"unsafe"

	"github.com/gomlx/compute/dtypes"

	"github.com/easyparallel/epl/comm/internal/transport"
)

// recv returns when the data are here.
func (p *pair) recv(k *transport.Call) error {
	i := &p.in
	key := transport.Stream{From: k.PeerPos, To: k.Pos, Tag: k.Tag}
	i.mu.Lock()
	a := i.kept.remove(key)
	if a != nil {
		a.call = k
		p.deliver(a, a.data)
	} else {
		a = i.arrival(key, k)
		i.waiting = append(i.waiting, a)
	}
	i.mu.Unlock()
	defer i.forget(a)
	err := p.wait(k, func() bool { p.take(); return a.state.Load() != coming }, p.other)
	if err != nil {
		i.mu.Lock()
		i.waiting.remove(key) // from here on nobody writes the buffer
		i.mu.Unlock()
		return err
	}
	if a.state.Load() == arrived {
		return p.fetch(k, &a.envelope)
	}
	return a.err
}

// arrival returns one for a receive. The lock is held.
func (i *shmInbox) arrival(key transport.Stream, k *transport.Call) *shmArrival {
	n := len(i.idle)
	if n == 0 {
		return &shmArrival{key: key, call: k}
	}
	a := i.idle[n-1]
	i.idle = i.idle[:n-1]
	a.key, a.call = key, k
	return a
}

// forget keeps an arrival for the next receive.
func (i *shmInbox) forget(a *shmArrival) {
	i.mu.Lock()
	defer i.mu.Unlock()
	a.call, a.data, a.err = nil, nil, nil
	a.state.Store(coming)
	i.idle = append(i.idle, a)
}

// take takes out the messages that are there, whosever they are.
func (p *pair) take() {
	i := &p.in
	if i.sent.Load() == i.taken.Load() {
		return
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	at := i.taken.Load()
	for ; at < i.sent.Load(); at++ {
		m := &i.messages[at%uint64(len(i.messages))]
		key := transport.Stream{From: int(m.from), To: int(m.to), Tag: int(m.tag)}
		a := i.waiting.remove(key)
		if a == nil {
			a = &shmArrival{key: key, envelope: m.shmEnvelope}
			if m.bytes <= InlineBytes {
				a.data = slices.Clone(m.data[:m.bytes])
			}
			i.kept = append(i.kept, a)
			continue
		}
		a.envelope = m.shmEnvelope
		p.deliver(a, m.data[:])
	}
	i.taken.Store(at)
	p.ringEveryone()
}

// deliver gives a receive its message, and the data if they are in it. The lock of the inbox is held.
func (p *pair) deliver(a *shmArrival, data []byte) {
	m, k := &a.envelope, a.call
	state := uint32(over)
	switch a.err = p.check(m, k); {
	case a.err != nil:
		p.answer(m.id, mismatch)
	case m.bytes <= InlineBytes:
		transport.Move(k.Out.Ptr, unsafe.Pointer(unsafe.SliceData(data)), int(m.bytes))
		p.answer(m.id, received)
	default:
		state = arrived
	}
	a.state.Store(state)
}

// check compares a message with the receive that it meets.
func (p *pair) check(m *shmEnvelope, k *transport.Call) error {
	ranks, name := p.engine.team.Ranks, k.Program
	agree := m.program == hashOf(name)
	if agree && m.dtype == int64(k.DType) && m.bytes == k.Bytes {
		return nil
	}
	if !agree {
		if name = string(m.name[:m.nameBytes]); int(m.nameBytes) == len(m.name) {
			name += "…"
		}
	}
	return transport.CheckPair(ranks, &transport.Call{Pos: int(m.from), Header: transport.Header{Program: name, Group: k.Group, Seq: m.seq, Op: transport.Send,
		DType: dtypes.DType(m.dtype), Bytes: m.bytes, Peer: ranks[m.to], Tag: int(m.tag)}}, k)
}

// answer writes a receipt. The ring is full only while the sends that wait for receipts have not looked. The lock of the inbox
// is held.
func (p *pair) answer(id, verdict uint64) {
	i := &p.in
	at := i.answered.Load()
	for at-i.noted.Load() == uint64(len(i.receipts)) {
		if p.engine.failed.Load() {
			return
		}
		p.ringAll()
		time.Sleep(time.Millisecond)
	}
	i.receipts[at%uint64(len(i.receipts))] = shmReceipt{id, verdict}
	i.answered.Store(at + 1)
	p.ringAll()
}

// fetch gets the data of a message.
func (p *pair) fetch(k *transport.Call, m *shmEnvelope) error {
	if !p.lends {
		p.reply(m.id, wanted)
		return p.streamIn(k, m)
	}
	i := &p.in
	i.reading.Add(1)
	gone := i.gone.Load() != 0
	var err error
	if !gone {
		err = p.read(k, m)
	}
	i.reading.Add(^uint64(0))
	p.ringAll()
	switch {
	case gone:
		return p.engine.stopped(k, p.member)
	case err != nil:
		return err
	}
	p.reply(m.id, received)
	return nil
}

// reply writes a receipt.
func (p *pair) reply(id, verdict uint64) {
	p.in.mu.Lock()
	defer p.in.mu.Unlock()
	p.answer(id, verdict)
}

// read copies the data of a message from the sender's memory. A sender that waits for it copies some of them itself.
// One that sleeps is not woken: its processor may have other work.
func (p *pair) read(k *transport.Call, m *shmEnvelope) error {
	i, pid, bytes := &p.in, p.peers[1-p.me].pid, int(m.bytes)
	if bytes < 2*minChunk || !i.joining.TryLock() {
		return p.unreachable(k, "read", readMemory(pid, k.Out.Ptr, m.addr, bytes))
	}
	defer i.joining.Unlock()
	j := &i.joint
	j.to = uint64(uintptr(k.Out.Ptr))
	j.message.Store(m.id)
	var err error
	for from, n := j.claims.next(m.id, taker, bytes); n > 0 && err == nil; from, n = j.claims.next(m.id, taker, bytes) {
		err = p.unreachable(k, "read", readMemory(pid, unsafe.Add(k.Out.Ptr, from), m.addr+uint64(from), n))
	}
	j.message.Store(0)
	written := func() bool { return j.writing.Load() == 0 }
	if err == nil {
		err = p.wait(k, written, p.other)
	}
	switch {
	case err != nil:
		p.settle(written)
	case j.broken.Load() != 0:
		err = p.wait(k, func() bool { return false }, p.other) // until the sender has said why
	}
	return err
}

// streamIn takes the data of a message block by block.
func (p *pair) streamIn(k *transport.Call, m *shmEnvelope) error {
	i := &p.in
	if err := p.wait(k, func() bool { return i.streaming.Load() == m.id }, p.other); err != nil {
		return err
	}
	block := i.begin.Load()
	for at := 0; at < int(m.bytes); at += StreamBytes {
		if err := p.wait(k, func() bool { return i.filled.Load() > block }, p.other); err != nil {
			return err
		}
		transport.Move(unsafe.Add(k.Out.Ptr, at), unsafe.Pointer(&i.blocks[block&1]), min(StreamBytes, int(m.bytes)-at))
		block++
		i.emptied.Store(block)
		p.ringAll()
	}
	return nil
}
