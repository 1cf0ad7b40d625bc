// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package tcp

import (
	"net"
	"sync"
	"time"
)

// bundle is several connections to one member that are used as one: bytes go over them in turn, stripe by stripe. Both ends
// write and read the stripes in order, so that a bundle says what one connection says, and every byte is read to where it is
// wanted. What makes it faster is that its connections carry their stripes at once: the system keeps what comes early. One
// that breaks is noticed when it is its turn.
type bundle struct {
	links   []link
	in, out turns
}

// stripeBytes is how much goes over a connection before it is the next one's turn. A small message goes over one.
const stripeBytes = 128 << 10

// turns says whose turn it is.
type turns struct{ index, done int }

// left returns how much of the stripe is left.
func (t *turns) left() int { return stripeBytes - t.done }

// moved counts bytes of the stripe, of which there were enough left.
func (t *turns) moved(n, links int) {
	if t.done += n; t.done == stripeBytes {
		t.index, t.done = (t.index+1)%links, 0
	}
}

// bundled returns connections as one link; nil if there are none.
func bundled(links []link) link {
	switch len(links) {
	case 0:
		return nil
	case 1:
		return links[0]
	}
	return &bundle{links: links}
}

func (b *bundle) source() link { return b.links[b.in.index] }
func (b *bundle) sink() link   { return b.links[b.out.index] }

func (b *bundle) read(x, y []byte) (int, error)  { return b.move(&b.in, link.read, x, y) }
func (b *bundle) write(x, y []byte) (int, error) { return b.move(&b.out, link.write, x, y) }

// move moves x and then y, stripe by stripe, until a connection does not take or have all of one.
func (b *bundle) move(t *turns, do func(link, []byte, []byte) (int, error), x, y []byte) (total int, err error) {
	for len(x)+len(y) > 0 {
		first := x[:min(len(x), t.left())]
		second := y[:min(len(y), t.left()-len(first))]
		n, err := do(b.links[t.index], first, second)
		t.moved(n, len(b.links))
		total += n
		if err != nil || n < len(first)+len(second) {
			if total > 0 {
				err = nil // it comes again
			}
			return total, err
		}
		x, y = x[len(first):], y[len(second):]
	}
	return total, nil
}

func (b *bundle) close() {
	var all sync.WaitGroup
	for _, l := range b.links {
		all.Go(l.close) // some have to wait a moment
	}
	all.Wait()
}

// connBundle is a bundle for who may block. One goroutine reads it and another writes it.
type connBundle struct {
	net.Conn // the first
	conns    []net.Conn
	in, out  turns
}

// bundledConn returns connections as one.
func bundledConn(conns []net.Conn) net.Conn {
	if len(conns) == 1 {
		return conns[0]
	}
	return &connBundle{Conn: conns[0], conns: conns}
}

func (b *connBundle) Read(p []byte) (int, error) {
	n, err := b.conns[b.in.index].Read(p[:min(len(p), b.in.left())])
	b.in.moved(n, len(b.conns))
	return n, err
}

func (b *connBundle) Write(p []byte) (total int, err error) {
	for err == nil && len(p) > 0 {
		var n int
		n, err = b.conns[b.out.index].Write(p[:min(len(p), b.out.left())])
		b.out.moved(n, len(b.conns))
		p, total = p[n:], total+n
	}
	return total, err
}

func (b *connBundle) Close() error                       { return b.each(net.Conn.Close) }
func (b *connBundle) SetDeadline(t time.Time) error      { return b.at(net.Conn.SetDeadline, t) }
func (b *connBundle) SetReadDeadline(t time.Time) error  { return b.at(net.Conn.SetReadDeadline, t) }
func (b *connBundle) SetWriteDeadline(t time.Time) error { return b.at(net.Conn.SetWriteDeadline, t) }

func (b *connBundle) at(set func(net.Conn, time.Time) error, t time.Time) error {
	return b.each(func(c net.Conn) error { return set(c, t) })
}

// each does something to all connections, and returns the first error.
func (b *connBundle) each(do func(net.Conn) error) (first error) {
	for _, c := range b.conns {
		if err := do(c); err != nil && first == nil {
			first = err
		}
	}
	return first
}
