// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package inproc

import (
	"sync/atomic"
	"time"

	"github.com/easyparallel/epl/comm/internal/transport"
)

// post is a send or receive that waits for the other end.
type post struct {
	call *transport.Call
	over atomic.Bool
	err  error // valid when over
	*waiter
}

// finish lets the one who waits go. After that the post is not touched.
func (p *post) finish(err error) {
	p.err = err
	p.over.Store(true)
	p.wake()
}

// Exchange sends or receives. Whoever comes second copies, from memory to memory.
func (m *Meeting) Exchange(k *transport.Call) error {
	key := transport.StreamOf(k)
	m.mu.Lock()
	if m.err != nil {
		m.mu.Unlock()
		return m.err
	}
	if other, ok := m.pending[key]; ok {
		delete(m.pending, key) // from here on it cannot be interrupted
		m.mu.Unlock()
		return m.complete(other, k)
	}
	p := m.newPost(k)
	m.pending[key] = p
	m.mu.Unlock()

	left := func() time.Duration { return m.world.UntilLook(k.Began) }
	transport.Linger(k, m.mayLinger, p.over.Load)
	for !p.wait(m.patience(k), p.over.Load, left) {
		m.mu.Lock()
		missing := m.pending[key] == p
		m.mu.Unlock()
		if missing {
			if err := k.Owner.Overdue([]int{k.Peer}, k.Began); err != nil {
				m.Fail(err)
			}
		}
	}
	err := p.err
	m.mu.Lock()
	m.idle = append(m.idle, p)
	m.mu.Unlock()
	return err
}

// complete copies between a call and the post that it met.
func (m *Meeting) complete(p *post, k *transport.Call) error {
	send, recv := p.call, k
	if k.Op == transport.Send {
		send, recv = k, p.call
	}
	err := transport.CheckPair(m.Team.Ranks, send, recv)
	if err == nil {
		transport.Move(recv.Out.Ptr, send.In.Ptr, int(send.Bytes))
	} else {
		m.Fail(err)
	}
	p.finish(err)
	return err
}

// newPost returns a post for a call. The lock is held.
func (m *Meeting) newPost(k *transport.Call) *post {
	var p *post
	if n := len(m.idle); n > 0 {
		p, m.idle = m.idle[n-1], m.idle[:n-1]
	} else {
		p = &post{waiter: newWaiter()}
	}
	p.call, p.err = k, nil
	p.over.Store(false)
	return p
}
