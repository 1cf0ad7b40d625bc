// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package tcp

import (
	"io"
	"net"
	"slices"
	"sync"
	"time"
)

// link is a connection that never blocks who reads or writes it.
type link interface {
	// read fills some of a, then of b, or nothing if nothing has come.
	read(a, b []byte) (int, error)
	// write takes some of a, then of b, or nothing if there is no room.
	write(a, b []byte) (int, error)
	// source and sink are the connections that are read and written next.
	source() link
	sink() link
	close()
}

// interest is what somebody waits for: that something comes from one connection, or that there is room in one. Either may be nil.
type interest struct{ source, sink link }

// linkPoll waits for links of its kind.
type linkPoll interface {
	// wait returns when something of what was asked for may be possible, after wake, or when the time has passed.
	wait(all []interest, d time.Duration)
	// yield lets others run who have nowhere else to.
	yield()
	wake()
	close()
}

// linkWaiter holds the poll of an engine, which is made when it connects.
type linkWaiter struct {
	mu   sync.Mutex
	poll linkPoll
}

func (w *linkWaiter) set(p linkPoll) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.poll = p
}

func (w *linkWaiter) wake() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.poll != nil {
		w.poll.wake()
	}
}

func (w *linkWaiter) close() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.poll != nil {
		w.poll.close()
	}
	w.poll = nil
}

// newLinks takes over the connections to each member: as bare file descriptors if the system gives them away, which is two
// to four times as fast for small messages. A connection that encrypts does not. Without connections to a member it has no link.
func newLinks(conns [][]net.Conn) (links []link, poll linkPoll, err error) {
	flat := slices.Concat(conns...)
	single, poll, err := rawLinks(flat)
	if err != nil {
		return nil, nil, err
	}
	if single == nil {
		p := &bufferedPoll{token: make(chan struct{}, 1)}
		poll = p
		for _, c := range flat {
			single = append(single, newBufferedLink(c, p.wake))
		}
	}
	for _, to := range conns {
		links = append(links, bundled(single[:len(to)]))
		single = single[len(to):]
	}
	return links, poll, nil
}

// bufferedLink is a connection of any kind. Two goroutines read and write it, from and into memory of their own: those
// whose buffers they carry never have to wait for them.
type bufferedLink struct {
	conn     net.Conn
	wake     func()
	running  sync.WaitGroup
	incoming pipe
	outgoing pipe
}

// pipeSize is how much a buffered link holds in each direction.
const pipeSize = 256 << 10

// pipe is a buffer between two goroutines.
type pipe struct {
	mu      sync.Mutex
	changed sync.Cond // room, or something to read, for the connection's goroutine
	ring    []byte
	from, n int // what it holds
	err     error
}

func newBufferedLink(c net.Conn, wake func()) *bufferedLink {
	l := &bufferedLink{conn: c, wake: wake}
	for _, p := range []*pipe{&l.incoming, &l.outgoing} {
		p.ring = make([]byte, pipeSize)
		p.changed.L = &p.mu
	}
	l.running.Go(func() { l.incoming.fill(c, wake) })
	l.running.Go(func() { l.outgoing.drain(c, wake) })
	return l
}

func (l *bufferedLink) source() link                   { return l }
func (l *bufferedLink) sink() link                     { return l }
func (l *bufferedLink) read(a, b []byte) (int, error)  { return both(l.incoming.get, a, b) }
func (l *bufferedLink) write(a, b []byte) (int, error) { return both(l.outgoing.put, a, b) }

// both moves a and then, if that was all of it, b.
func both(move func([]byte) (int, error), a, b []byte) (n int, err error) {
	if len(a) > 0 {
		if n, err = move(a); n < len(a) || err != nil {
			return n, err
		}
	}
	if len(b) > 0 {
		var more int
		more, err = move(b)
		n += more
		if n > 0 {
			err = nil // it comes again
		}
	}
	return n, err
}

func (l *bufferedLink) close() {
	l.outgoing.flush()
	l.incoming.stop(net.ErrClosed)
	l.outgoing.stop(net.ErrClosed)
	l.conn.Close()
	l.running.Wait()
}

// filled and free are the longest stretches of the ring that can be read and written. The lock is held.
func (p *pipe) filled() []byte { return p.ring[p.from:min(p.from+p.n, len(p.ring))] }
func (p *pipe) free() []byte {
	at := (p.from + p.n) % len(p.ring)
	return p.ring[at:min(at+len(p.ring)-p.n, len(p.ring))]
}

// drop forgets the oldest bytes. The lock is held.
func (p *pipe) drop(n int) {
	p.from = (p.from + n) % len(p.ring)
	p.n -= n
}

// fill reads from a connection.
func (p *pipe) fill(c net.Conn, wake func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for p.err == nil {
		room := p.free()
		if len(room) == 0 {
			p.changed.Wait()
			continue
		}
		p.mu.Unlock()
		n, err := c.Read(room)
		p.mu.Lock()
		p.n += n
		if p.err == nil {
			p.err = err
		}
		wake()
	}
}

// drain writes to a connection.
func (p *pipe) drain(c net.Conn, wake func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for p.err == nil {
		data := p.filled()
		if len(data) == 0 {
			p.changed.Wait()
			continue
		}
		p.mu.Unlock()
		n, err := c.Write(data)
		p.mu.Lock()
		p.drop(n)
		if p.err == nil {
			p.err = err
		}
		p.changed.Broadcast()
		wake()
	}
}

// get takes what has come.
func (p *pipe) get(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	total := 0
	for len(b) > total && p.n > 0 {
		n := copy(b[total:], p.filled())
		p.drop(n)
		total += n
	}
	if total > 0 {
		p.changed.Broadcast()
		return total, nil
	}
	return 0, p.err
}

// put leaves something to be written.
func (p *pipe) put(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.err != nil {
		return 0, p.err
	}
	total := 0
	for len(b) > total && p.n < len(p.ring) {
		n := copy(p.free(), b[total:])
		p.n += n
		total += n
	}
	if total > 0 {
		p.changed.Broadcast()
	}
	return total, nil
}

// flush gives the goroutine that writes a moment to do so: what was put is as good as sent for whoever put it.
func (p *pipe) flush() {
	late := time.AfterFunc(time.Second, func() { p.stop(io.ErrClosedPipe) })
	defer late.Stop()
	p.mu.Lock()
	defer p.mu.Unlock()
	for p.n > 0 && p.err == nil {
		p.changed.Wait()
	}
}

func (p *pipe) stop(err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.err == nil {
		p.err = err
	}
	p.changed.Broadcast()
}

// bufferedPoll waits for buffered links, whose goroutines wake it.
type bufferedPoll struct{ token chan struct{} }

func (p *bufferedPoll) wait(_ []interest, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-p.token:
	case <-timer.C:
	}
}

func (p *bufferedPoll) yield() {} // its goroutines are the runtime's business

func (p *bufferedPoll) wake() {
	select {
	case p.token <- struct{}{}:
	default:
	}
}

func (p *bufferedPoll) close() {}
