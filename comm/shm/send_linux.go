// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package shm

import (
	"slices"
	"unsafe"

	"github.com/pkg/errors"

	"github.com/easyparallel/epl/comm/internal/transport"
)

// hashOf condenses a program's name, by FNV-1a. It is done for every message: hash/fnv would allocate.
func hashOf(program string) uint64 {
	h := uint64(14695981039346656037)
	for i := range len(program) {
		h = (h ^ uint64(program[i])) * 1099511628211
	}
	return h
}

// send returns when the other worker has received, or does not agree.
func (p *pair) send(k *transport.Call) error {
	o := &p.out
	var err error
	send := o.posted(k)
	if send == nil {
		send, err = p.post(k)
	}
	if err != nil {
		return p.unsent(err)
	}
	id, verdict := send.id, &send.verdict
	for helped := false; err == nil && verdict.Load() == 0; {
		asked := func() bool { return !helped && o.joint.message.Load() == id }
		if err = p.wait(k, func() bool { p.note(); return verdict.Load() != 0 || asked() }, p.other); err == nil && asked() {
			err, helped = p.help(k, id), true
		}
	}
	if err == nil && verdict.Load() == wanted {
		err = p.streamOut(k, id)
	}
	became := o.forget(send)
	switch {
	case err != nil:
		return p.unsent(err)
	case became == mismatch:
		return p.engine.because(errors.Errorf("epl: %s and the receive of worker %d do not agree; see that worker's error",
			k.Header, p.engine.team.Members[p.member].Worker))
	}
	return nil
}

// unsent is the end of a send that failed: from here on nobody may read the data.
func (p *pair) unsent(err error) error {
	o := &p.out
	o.gone.Store(1)
	p.settle(func() bool { return o.reading.Load() == 0 })
	return err
}

// forget keeps a send for the next one, and returns its verdict.
func (o *shmOutbox) forget(s *shmSend) (verdict uint64) {
	o.mu.Lock()
	defer o.mu.Unlock()
	at, last := slices.Index(o.waiting, s), len(o.waiting)-1
	o.waiting[at] = o.waiting[last]
	o.waiting = o.waiting[:last]
	o.idle = append(o.idle, s)
	return s.verdict.Load()
}

// waits returns a send that waits for the receipt of the next message. The lock is held.
func (o *shmOutbox) waits() *shmSend {
	var s *shmSend
	if n := len(o.idle); n > 0 {
		s, o.idle = o.idle[n-1], o.idle[:n-1]
	} else {
		s = new(shmSend)
	}
	o.sends++
	s.id = o.sends
	s.verdict.Store(0)
	o.waiting = append(o.waiting, s)
	return s
}

// posted returns the send of a call that was posted; nil if it was not.
func (o *shmOutbox) posted(k *transport.Call) *shmSend {
	if k.Posted == 0 {
		return nil
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.waiting[slices.IndexFunc(o.waiting, func(s *shmSend) bool { return s.id == k.Posted })]
}

// post puts a message into the ring as soon as there is room.
func (p *pair) post(k *transport.Call) (*shmSend, error) {
	o := &p.out
	for o.mu.Lock(); !p.hasRoom(); o.mu.Lock() {
		o.mu.Unlock()
		if err := p.wait(k, p.hasRoom, p.other); err != nil {
			return nil, err
		}
	}
	defer o.mu.Unlock()
	return p.put(k), nil
}

// hasRoom tells whether the ring has room for a message.
func (p *pair) hasRoom() bool {
	o := &p.out
	return o.sent.Load()-o.taken.Load() < uint64(len(o.messages))
}

// put puts a message into the ring, which has room. The lock is held.
func (p *pair) put(k *transport.Call) *shmSend {
	o := &p.out
	s := o.waits()
	at := o.sent.Load()
	m := &o.messages[at%uint64(len(o.messages))]
	m.id, m.from, m.to, m.tag, m.seq = s.id, int64(k.Pos), int64(k.PeerPos), int64(k.Tag), k.Seq
	m.dtype, m.bytes, m.addr = int64(k.DType), k.Bytes, uint64(uintptr(k.In.Ptr))
	m.program, m.nameBytes = hashOf(k.Program), int64(copy(m.name[:], k.Program))
	if k.Bytes <= InlineBytes {
		transport.Move(unsafe.Pointer(&m.data), k.In.Ptr, int(k.Bytes))
	}
	o.sent.Store(at + 1)
	p.ringAll()
	return s
}

// note takes out the receipts that are there, whosever they are.
func (p *pair) note() {
	o := &p.out
	if o.answered.Load() == o.noted.Load() {
		return
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	at := o.noted.Load()
	for ; at < o.answered.Load(); at++ {
		r := o.receipts[at%uint64(len(o.receipts))]
		if s := slices.IndexFunc(o.waiting, func(s *shmSend) bool { return s.id == r.id }); s >= 0 {
			o.waiting[s].verdict.Store(r.verdict)
		}
	}
	o.noted.Store(at)
	p.ringEveryone()
}

// ringEveryone wakes all who wait in either worker.
func (p *pair) ringEveryone() {
	p.mine().bell.ring()
	p.ringAll()
}

// help writes data of a message into the receiver's memory, while the receiver reads them.
func (p *pair) help(k *transport.Call, id uint64) (err error) {
	j := &p.out.joint
	j.writing.Add(1)
	if to := j.to; j.message.Load() == id { // else it is over
		for from, n := j.claims.next(id, giver, int(k.Bytes)); n > 0 && err == nil; from, n = j.claims.next(id, giver, int(k.Bytes)) {
			err = writeMemory(p.peers[1-p.me].pid, unsafe.Add(k.In.Ptr, from), to+uint64(from), n)
		}
	}
	if err != nil {
		j.broken.Store(1)
	}
	j.writing.Add(^uint64(0))
	p.ringAll()
	return p.unreachable(k, "written", err)
}

// unreachable is the error when the kernel no longer lets this worker touch the other's memory.
func (p *pair) unreachable(k *transport.Call, what string, err error) error {
	if err == nil {
		return nil
	}
	return p.engine.because(errors.Errorf("epl: the memory of worker %d can no longer be %s in %s: %s; see its output",
		p.engine.team.Members[p.member].Worker, what, k.Header, err))
}

// streamOut gives the data of a message block by block.
func (p *pair) streamOut(k *transport.Call, id uint64) error {
	o := &p.out
	o.stream.Lock()
	defer o.stream.Unlock()
	block := o.filled.Load()
	o.begin.Store(block)
	o.streaming.Store(id)
	for at := 0; at < int(k.Bytes); at += StreamBytes {
		if err := p.wait(k, func() bool { return block < o.emptied.Load()+2 }, p.other); err != nil {
			return err
		}
		transport.Move(unsafe.Pointer(&o.blocks[block&1]), unsafe.Add(k.In.Ptr, at), min(StreamBytes, int(k.Bytes)-at))
		block++
		o.filled.Store(block)
		p.ringAll()
	}
	return p.wait(k, func() bool { return o.emptied.Load() == block }, p.other)
}
