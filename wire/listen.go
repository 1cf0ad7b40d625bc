// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package wire

import (
	"context"
	"net"
	"sync"
	"time"

	"github.com/pkg/errors"
)

// Listener accepts authenticated connections.
type Listener struct {
	listener net.Listener
	security Security
	version  string
	refused  refusals
	lobby    lobby

	// OnVersion, if not nil, is told of peers that know the token but have another version. They are refused anyway.
	// It must be set before the first Accept.
	OnVersion func(remote string, err *VersionError)

	ctx    context.Context // ends with Close, or when nobody can be accepted any more; its cause says why
	cancel context.CancelCauseFunc
	ready  chan *Conn
	start  sync.Once
	group  sync.WaitGroup
}

// Listen waits for connections at an address. The network is "tcp" or "unix", the version is EPL's. Those who are refused
// are reported by logf, once for each host and reason; the rest is counted.
func Listen(network, addr string, s Security, version string, logf func(format string, args ...any)) (*Listener, error) {
	config := net.ListenConfig{KeepAliveConfig: keepAlive}
	listener, err := config.Listen(context.Background(), family(network), addr)
	if err != nil {
		return nil, errors.Errorf("epl: cannot listen at %s: %v", addr, err)
	}
	l, err := NewListener(listener, s, version, logf)
	if err != nil {
		listener.Close()
	}
	return l, err
}

// NewListener is [Listen] on a listener that is there already. Close closes it.
func NewListener(listener net.Listener, s Security, version string, logf func(format string, args ...any)) (*Listener, error) {
	if err := s.check(); err != nil {
		return nil, err
	}
	l := &Listener{listener: listener, security: s, version: version, ready: make(chan *Conn)}
	l.refused.logf = logf
	l.ctx, l.cancel = context.WithCancelCause(context.Background())
	return l, nil
}

// Addr returns where it listens.
func (l *Listener) Addr() net.Addr { return l.listener.Addr() }

// Accept returns the next peer that has proved to know the token. It returns net.ErrClosed after Close.
func (l *Listener) Accept() (*Conn, error) {
	l.start.Do(func() { l.group.Go(l.serve) })
	select {
	case c := <-l.ready:
		return c, nil
	case <-l.ctx.Done():
		return nil, context.Cause(l.ctx)
	}
}

// Close ends all handshakes, and reports how many strangers were not.
func (l *Listener) Close() error {
	l.start.Do(func() {}) // nobody serves any more
	l.cancel(net.ErrClosed)
	err := l.listener.Close()
	l.group.Wait()
	l.refused.summarize()
	return err
}

// serve accepts connections and shakes hands with each on its own, so that nobody waits for another.
func (l *Listener) serve() {
	for {
		conn, err := l.accept()
		if err != nil {
			l.cancel(err)
			return
		}
		guest := l.lobby.enter(conn)
		l.group.Go(func() {
			remote := hostOf(conn.RemoteAddr())
			c, err := server(l.ctx, conn, l.security, l.version, func() { l.lobby.heard(guest) })
			if l.lobby.leave(guest) {
				if err == nil {
					c.Close() // it was just too late
				}
				err = errEvicted
			}
			if err != nil {
				if !errors.Is(err, net.ErrClosed) { // by Close
					l.refuse(remote, err)
				}
				return
			}
			select {
			case l.ready <- c:
			case <-l.ctx.Done():
				c.Close()
			}
		})
	}
}

// accept waits for a connection. Errors that pass, such as too many open files, are waited out.
func (l *Listener) accept() (net.Conn, error) {
	for pause := firstPause; ; pause = min(2*pause, lastPause) {
		conn, err := l.listener.Accept()
		if err == nil {
			return conn, nil
		}
		if errors.Is(err, net.ErrClosed) {
			return nil, net.ErrClosed
		}
		if temporary, ok := err.(interface{ Temporary() bool }); !ok || !temporary.Temporary() {
			return nil, errors.Errorf("epl: cannot accept connections at %s any more: %v", l.Addr(), err)
		}
		select {
		case <-l.ctx.Done():
			return nil, net.ErrClosed
		case <-time.After(pause):
		}
	}
}

func (l *Listener) refuse(remote string, err error) {
	var version *VersionError
	if errors.As(err, &version) && l.OnVersion != nil {
		l.OnVersion(remote, version)
	}
	l.refused.add(remote, reason(err))
}

// hostOf returns the host of an address, for people.
func hostOf(addr net.Addr) string {
	if host, _, err := net.SplitHostPort(addr.String()); err == nil {
		return host
	}
	return "this machine"
}
