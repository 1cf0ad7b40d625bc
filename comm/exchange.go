package comm

import (
	"sync/atomic"
	"time"
)

// post is a send or receive that waits for the other end.
type post struct {
	call *call
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

// exchange sends or receives. Whoever comes second copies, from memory to memory.
func (m *meeting) exchange(k *call) error {
	key := keyOf(k)
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

	left := func() time.Duration { return m.world.untilLook(k.began) }
	for !p.wait(m.patience(k), p.over.Load, left) {
		m.mu.Lock()
		missing := m.pending[key] == p
		m.mu.Unlock()
		if missing {
			if err := k.owner.overdue([]int{k.Peer}, k.began); err != nil {
				m.fail(err)
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
func (m *meeting) complete(p *post, k *call) error {
	send, recv := p.call, k
	if k.Op == Send {
		send, recv = k, p.call
	}
	err := checkPair(m.team.ranks, send, recv)
	if err == nil {
		move(recv.out.ptr, send.in.ptr, int(send.Bytes))
	} else {
		m.fail(err)
	}
	p.finish(err)
	return err
}

// newPost returns a post for a call. The lock is held.
func (m *meeting) newPost(k *call) *post {
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
