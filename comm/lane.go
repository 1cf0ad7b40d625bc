// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package comm

import (
	"cmp"
	"time"
)

// lane is a queue of calls of one rank that run one after the other: the collectives of a communicator, or its sends to
// one peer with one tag. It has no goroutine while it is empty.
type lane struct {
	exchange exchange
	busy     bool    // somebody runs calls of it
	call     request // memory for the call that its caller runs
	queue    []*Handle
}

// exchange names a lane of sends or receives.
type exchange struct {
	op        Op
	peer, tag int
}

// Handle is a call that was started.
type Handle struct {
	call     request
	recorder *FlightRecorder
	ticket   ticket
	done     chan struct{}
	err      error
	ended    time.Time
}

// Wait returns when the call is over, with its error. It may be called often.
func (h *Handle) Wait() error {
	if !h.Over() {
		h.recorder.awaited(h.ticket)
		<-h.done
	}
	return h.err
}

// Over tells whether the call is over.
func (h *Handle) Over() bool {
	select {
	case <-h.done:
		return true
	default:
		return false
	}
}

// Ended is when the call was over, once it is. The work of a collective may have been done by another rank before this one noticed, which it does when it gets a processor.
func (h *Handle) Ended() time.Time { return h.ended }

// Do makes a call and returns when it is over. It waits for its turn behind those that were started before.
func (c *Communicator) Do(from Call) error { return c.do(&from) }

func (c *Communicator) do(from *Call) error {
	c.mu.Lock()
	l := c.lane(from)
	if l.busy {
		h := c.push(l, from)
		c.mu.Unlock()
		return h.Wait()
	}
	l.busy = true
	k := &l.call
	c.prepare(k, from)
	c.mu.Unlock()
	err := c.run(k)
	k.reset()

	c.mu.Lock()
	more := c.next(l)
	c.mu.Unlock()
	if more {
		c.group.world.goDo(func() { c.drain(l) })
	}
	return err
}

// Start queues a call and returns. Its buffers are lent until the handle's Wait returns.
func (c *Communicator) Start(from Call) *Handle {
	c.mu.Lock()
	l := c.lane(&from)
	h := c.push(l, &from)
	idle := !l.busy
	l.busy = true
	c.mu.Unlock()
	switch {
	case !idle:
	case c.Size() == 1: // nobody to wait for
		c.drain(l)
	default:
		c.group.world.goAfter(func() { c.end.post(&h.call) }, func() { c.drain(l) })
	}
	return h
}

// lane returns where a call belongs. The lock is held.
func (c *Communicator) lane(from *Call) *lane {
	if !from.Op.PointToPoint() {
		return &c.collectives
	}
	key := exchange{from.Op, from.Peer, from.Tag}
	l, ok := c.exchanges[key]
	if !ok {
		if n := len(c.idle); n > 0 {
			l, c.idle = c.idle[n-1], c.idle[:n-1]
		} else {
			l = &lane{}
		}
		l.exchange = key
		c.exchanges[key] = l
	}
	return l
}

// push puts a call at the end of a lane. The lock is held.
func (c *Communicator) push(l *lane, from *Call) *Handle {
	h := &Handle{recorder: &c.local.recorder, done: make(chan struct{})}
	h.call.Async = true
	c.prepare(&h.call, from)
	h.ticket = c.local.recorder.add(&h.call.Header, Queued, c.group.world.base.Now())
	h.call.ticket = h.ticket
	l.queue = append(l.queue, h)
	return h
}

// next tells whether calls are waiting. If not, the lane becomes idle. The lock is held.
func (c *Communicator) next(l *lane) bool {
	if len(l.queue) > 0 {
		return true
	}
	l.busy = false
	const enough = 64 // lanes to keep: programs use the same tags again and again
	if l != &c.collectives && len(c.exchanges) > enough {
		delete(c.exchanges, l.exchange)
		c.idle = append(c.idle, l)
	}
	return false
}

// drain runs the calls of a lane until there are none.
func (c *Communicator) drain(l *lane) {
	for {
		c.mu.Lock()
		if !c.next(l) {
			c.mu.Unlock()
			return
		}
		h := l.queue[0]
		l.queue[0] = nil
		l.queue = l.queue[1:]
		c.mu.Unlock()
		h.err = c.run(&h.call)
		h.ended = c.group.world.base.At(cmp.Or(h.call.Ended, c.group.world.base.Now()))
		h.call.reset()
		close(h.done)
	}
}
