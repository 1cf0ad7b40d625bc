// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package rendezvous

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"sync"
	"time"

	"github.com/pkg/errors"

	"github.com/easyparallel/epl/wire"
)

const (
	// dialTime and dialAttempts bound what it takes to reach a worker that is known to listen. Between attempts it waits a
	// little longer each time: strangers may crowd it.
	dialTime     = 10 * time.Second
	dialAttempts = 5
	dialPause    = 20 * time.Millisecond
	// maxUnclaimed bounds the connections that nobody asks for.
	maxUnclaimed = 4096
)

// peers holds the connections that other workers made to this one, by purpose, until somebody asks for them.
type peers struct {
	job      Options
	security wire.Security
	listener *wire.Listener
	addr     string           // where others reach it
	server   net.Addr         // where the server is, as this worker sees it
	asked    func(*wire.Conn) // answers the questions on a connection

	mu     sync.Mutex
	slots  map[string]chan *wire.Conn
	closed bool
}

func newPeers(j Options, at *meeting) (*peers, error) {
	p := &peers{job: j, security: at.security, server: at.conn.RemoteAddr(), slots: map[string]chan *wire.Conn{}}
	var err error
	if p.listener, err = j.network.listen(at.listenAt(), at.security, j.Version, j.Logf); err != nil {
		return nil, err
	}
	p.addr = reachedAt(p.listener.Addr(), at.conn.LocalAddr())
	return p, nil
}

// seen returns where this worker finds a peer. Who reaches the server by the loopback interface is on its machine, so it
// is where this worker sees the server.
func (p *peers) seen(addr string) string {
	host, port, err := net.SplitHostPort(addr)
	if err != nil {
		return addr
	}
	server, _, err := net.SplitHostPort(p.server.String())
	if err != nil {
		return addr
	}
	if isLoopback(host) {
		return net.JoinHostPort(server, port)
	}
	// Zones are names that a machine itself has for its networks: on the one of the server this worker knows its own.
	there, err := netip.ParseAddr(host)
	if here, e := netip.ParseAddr(server); err == nil && e == nil && there.Zone() != "" && here.Zone() != "" {
		return net.JoinHostPort(there.WithZone(here.Zone()).String(), port)
	}
	return addr
}

// accept sorts what arrives.
func (p *peers) accept() {
	for {
		conn, err := p.listener.Accept()
		if err != nil {
			return
		}
		p.keep(conn)
	}
}

func (p *peers) keep(conn *wire.Conn) {
	if strings.HasPrefix(conn.Purpose, directly) {
		go p.asked(conn)
		return
	}
	c := p.slot(conn.Purpose)
	if c == nil {
		conn.Close()
		return
	}
	for {
		select {
		case c <- conn:
			return
		case old := <-c: // whoever made that one has given it up and tries again
			old.Close()
		}
	}
}

// slot returns where connections of a purpose are kept, nil if there are too many.
func (p *peers) slot(purpose string) chan *wire.Conn {
	p.mu.Lock()
	defer p.mu.Unlock()
	c := p.slots[purpose]
	if c == nil && !p.closed && len(p.slots) < maxUnclaimed {
		c = make(chan *wire.Conn, 1)
		p.slots[purpose] = c
	}
	return c
}

// close ends it, with all connections that nobody has asked for. Nobody accepts any more when it returns, but for what
// the caller has to wait for.
func (p *peers) close() {
	p.listener.Close()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.closed = true
	for _, c := range p.slots {
		select {
		case conn := <-c:
			conn.Close()
		default:
		}
	}
	p.slots = nil
}

// Connect returns a connection to another worker, for one purpose: both call it with the same name, in any order. It is
// authenticated, and encrypted if the job has TLS; else it is a *net.TCPConn. The caller closes it.
//
// If the context has no deadline, it waits for the other worker as long as for all to come in the beginning.
func (m *Member) Connect(ctx context.Context, worker int, name string) (net.Conn, error) {
	switch {
	case worker < 0 || worker >= len(m.workers) || worker == m.index:
		return nil, errors.Errorf("epl: internal error: worker %d cannot connect to worker %d, the job has %d", m.index, worker, len(m.workers))
	case m.State(worker).Left:
		return nil, errors.Errorf("epl: %s has left the job, so worker %d cannot connect to it", m.workers[worker], m.index)
	}
	if _, bounded := ctx.Deadline(); !bounded {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, m.job.Timeout)
		defer cancel()
	}
	var conn *wire.Conn
	var err error
	if m.index > worker {
		conn, err = m.dial(ctx, worker, fmt.Sprintf("peer %s %d %d %s", m.id, m.index, worker, name))
	} else {
		conn, err = m.await(ctx, fmt.Sprintf("peer %s %d %d %s", m.id, worker, m.index, name))
	}
	switch {
	case err == nil:
		return conn.Conn, nil
	case m.Err() != nil:
		return nil, m.Err()
	}
	return nil, errors.Errorf("epl: worker %d has no connection to %s for %q: %s", m.index, m.workers[worker], name, inner(err.Error()))
}

// dial connects to a peer that is known to listen.
func (m *Member) dial(ctx context.Context, worker int, purpose string) (conn *wire.Conn, err error) {
	addr := m.workers[worker].Addr
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() {
		select {
		case <-m.done:
		case <-m.stop:
		case <-ctx.Done():
		}
		cancel()
	}()
	for i := range dialAttempts {
		attempt, cancel := context.WithTimeout(ctx, dialTime)
		conn, err = m.job.network.dial(attempt, addr, purpose, m.peers.security, m.job.Version)
		cancel()
		if err == nil || final(err) || ctx.Err() != nil {
			break
		}
		waitFor(ctx.Done(), dialPause<<(2*i)) // 1.7 s in all before the last
	}
	if err != nil {
		err = errors.Errorf("%v; the machines must be able to reach each other on all ports", err)
	}
	return conn, err
}

// await waits until a peer has connected.
func (m *Member) await(ctx context.Context, purpose string) (*wire.Conn, error) {
	c := m.peers.slot(purpose)
	if c == nil {
		return nil, m.hasLeft()
	}
	select {
	case conn := <-c:
		m.peers.mu.Lock()
		if len(c) == 0 {
			delete(m.peers.slots, purpose)
		}
		m.peers.mu.Unlock()
		return conn, nil
	case <-m.done:
		return nil, m.Err()
	case <-m.stop:
		return nil, m.hasLeft()
	case <-ctx.Done():
		return nil, errors.Errorf("it did not connect: %v", context.Cause(ctx))
	}
}
