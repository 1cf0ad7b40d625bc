// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package tcp

import (
	"runtime"
	"time"

	"github.com/pkg/errors"

	"github.com/easyparallel/epl/comm/internal/transport"
)

// transfer is what a collective has to do over connections. The pump asks it for bytes, and tells it what has come.
type transfer interface {
	// sizes returns how many bytes a member gets and gives, over all.
	sizes(member int) (give, take int)
	// give returns the next bytes for a member, whole elements; nothing if they are not known yet. It is asked again when
	// they are sent.
	give(member int) []byte
	// take returns where the next bytes of a member go; nothing if there is no place yet. It is asked again when they are
	// filled.
	take(member int) []byte
	// advance does what can be done with what has come.
	advance()
	// finish does the rest, when all has been given and taken.
	finish()
}

// pump moves the data of a collective.
func (e *engine) pump(r *transport.Round, t transfer) error {
	for _, p := range e.order {
		p.begin(t)
	}
	for _, p := range e.order {
		p.head(Header{Digest: r.Digest, pair: pairDigest(e.team, r, p.member), Bytes: uint64(p.sendAll - HeaderSize)}, t)
	}
	k := r.First()
	spin := e.spins(k)
	idle, progress := 0, time.Time{}
	for {
		moved, busy := false, false
		for _, p := range e.order {
			wrote, failed := p.write(t)
			read, err := p.read(t)
			if err != nil {
				return e.lost(k, p.member, err)
			}
			if !p.known && p.received >= HeaderSize {
				if err := e.compare(r, p); err != nil {
					return err
				}
				p.known, p.pending = true, p.stage[HeaderSize:p.received]
			}
			if failed != nil { // but what has come says more
				return e.lost(k, p.member, failed)
			}
			moved = moved || wrote || read
			busy = busy || !p.over()
		}
		if err := e.broken.Load(); err != nil {
			return *err
		}
		if !busy {
			return nil
		}
		if moved {
			t.advance()
			idle = 0
			continue
		}
		switch idle++; {
		case idle <= spin:
			if idle%lookOften == 0 {
				runtime.Gosched()
				e.waiter.poll.yield()
			}
			continue
		case idle == spin+1:
			progress = time.Now()
		}
		e.await(k)
		if err := e.late(k, progress); err != nil {
			return err
		}
	}
}

// lookOften is how often to look before others get the processor, if they want it: goroutines of this process, or the very
// process that this one waits for.
const lookOften = 16

// spins returns how often to look before the thread is given up: about a millisecond, if all ranks can look at once.
func (e *engine) spins(k *transport.Call) int {
	if k.Async || e.team.World.Crowded() {
		return 2
	}
	return 2000
}

// await waits for what the peers lack.
func (e *engine) await(k *transport.Call) {
	e.interests = e.interests[:0]
	for _, p := range e.order {
		var i interest
		if p.wantsRead() {
			i.source = p.link.source()
		}
		if len(p.out) > 0 {
			i.sink = p.link.sink()
		}
		if i.source != nil || i.sink != nil {
			e.interests = append(e.interests, i)
		}
	}
	e.waiter.poll.wait(e.interests, e.patience(k))
}

// late returns an error when somebody does not come, or has come and stopped. While data flows nobody is late.
func (e *engine) late(k *transport.Call, progress time.Time) error {
	var absent, stuck []int
	for _, p := range e.order {
		if !p.known {
			absent = append(absent, p.member)
		} else if !p.over() {
			stuck = append(stuck, p.member)
		}
	}
	if absent != nil {
		return e.team.Overdue(k, absent)
	}
	if stuck != nil && time.Since(progress) >= e.team.World.Timeout {
		return e.team.Overdue(k, stuck)
	}
	return nil
}

// begin forgets the last collective.
func (p *peer) begin(t transfer) {
	give, take := t.sizes(p.member)
	p.sent, p.sendAll = 0, HeaderSize+give
	p.received, p.takeAll = 0, HeaderSize+take
	p.in, p.pending, p.known = nil, nil, false
}

// head prepares the first bytes to be written: the header, and what fits beside it.
func (p *peer) head(h Header, t transfer) {
	first := h.Append(p.first[:0])
	p.rest = nil
	for len(p.rest) == 0 && len(first) < min(p.sendAll, stageSize) {
		if p.rest = t.give(p.member); len(p.rest) == 0 {
			break
		}
		n := min(len(p.rest), stageSize-len(first))
		first, p.rest = append(first, p.rest[:n]...), p.rest[n:]
	}
	p.out = first
}

// over tells whether nothing more goes to the peer or comes from it.
func (p *peer) over() bool {
	return p.sent == p.sendAll && p.received == p.takeAll && len(p.pending) == 0
}

// wantsRead tells whether there is a place for what comes.
func (p *peer) wantsRead() bool {
	return !p.known || p.received < p.takeAll && len(p.in) > 0
}

// write sends what there is room for, and tells whether that was anything.
func (p *peer) write(t transfer) (moved bool, err error) {
	if p.sent == p.sendAll {
		return false, nil
	}
	if len(p.out) == 0 {
		if p.out, p.rest = p.rest, nil; len(p.out) == 0 {
			p.out = t.give(p.member)
		}
	}
	n, moved, err := p.stream.write(p.out[:min(len(p.out), p.turn(p.sent))])
	p.out = p.out[n:]
	p.sent += n
	return moved, err
}

// turn returns how much may be written, or read, before others have their turn, when so much has been already. What is
// checked goes to the end of a chunk: so a record has a place at the other end as a whole, and little is read beyond it.
func (p *peer) turn(done int) int {
	if !p.stream.checks {
		return writeSize
	}
	return chunkBytes - max(0, done-HeaderSize)%chunkBytes
}

// read takes what has come, and tells whether that was anything.
func (p *peer) read(t transfer) (moved bool, err error) {
	if !p.known { // no byte gets further than the stage before the header is compared
		n, moved, err := p.stream.read(p.stage[p.received:min(p.takeAll, stageSize)])
		p.received += n
		return moved, err
	}
	if p.received == p.takeAll && len(p.pending) == 0 {
		return false, nil
	}
	if len(p.in) == 0 {
		if p.in = t.take(p.member); len(p.in) == 0 {
			return false, nil
		}
	}
	if len(p.pending) > 0 {
		n := copy(p.in, p.pending)
		p.in, p.pending = p.in[n:], p.pending[n:]
		return true, nil
	}
	n, moved, err := p.stream.read(p.in[:min(len(p.in), p.turn(p.received))])
	p.in = p.in[n:]
	p.received += n
	return moved, err
}

// compare looks at the header of a peer, which has come.
func (e *engine) compare(r *transport.Round, p *peer) error {
	h, err := parseHeader(p.stage)
	if err != nil {
		return errors.Errorf("epl: the connection to worker %d is not one of this job: %s", e.team.Members[p.member].Worker, err)
	}
	if h.Digest == r.Digest && h.pair == pairDigest(e.team, r, p.member) && h.Bytes == uint64(p.takeAll-HeaderSize) {
		return nil
	}
	if err := e.team.Disagree(r, p.member); err != nil {
		return err
	}
	return errors.Errorf("epl: internal error: worker %d says that it gives %d bytes in %s, and %d are expected",
		e.team.Members[p.member].Worker, h.Bytes, r.First().Header, p.takeAll-HeaderSize)
}
