// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package rendezvous

import (
	"sync"
	"time"

	"github.com/easyparallel/epl/wire"
)

// maxQueue is how much may wait for a peer that does not read, before it is given up.
const maxQueue = 4 * wire.MaxFrame

// link is one end of a control connection. Sending never waits: a goroutine writes, in order.
type link struct {
	conn  *wire.Conn
	mu    sync.Mutex
	queue []outgoing
	size  int       // bytes in the queue
	late  *outgoing // the newest of a kind of which only the newest matters; it goes when the queue is empty
	down  bool
	wake  chan struct{}
	ended chan struct{} // closed by close
}

// outgoing is a frame to write, or a mark in the queue.
type outgoing struct {
	kind    byte
	payload []byte
	passed  chan struct{} // of a mark: closed when all before it is written
}

// silenceLimit is how long a machine may take none of the bytes that were sent to it, before the system gives it up. A
// worker that is merely stopped takes them.
const silenceLimit = time.Minute

func newLink(conn *wire.Conn) *link {
	conn.GiveUpAfter(silenceLimit)
	return &link{conn: conn, wake: make(chan struct{}, 1), ended: make(chan struct{})}
}

// send queues a message.
func (l *link) send(m *message) { l.push(outgoing{kind: m.kind, payload: m.encode()}) }

// sendLatest sends a payload when nothing else is to be sent, unless there is a newer one by then.
func (l *link) sendLatest(kind byte, payload []byte) {
	l.mu.Lock()
	l.late = &outgoing{kind: kind, payload: payload}
	l.mu.Unlock()
	l.signal()
}

// flushed returns a channel that is closed when all that was queued is written, or never will be.
func (l *link) flushed() <-chan struct{} {
	passed := make(chan struct{})
	l.push(outgoing{passed: passed})
	return passed
}

func (l *link) push(o outgoing) {
	l.mu.Lock()
	if l.size += len(o.payload); l.size > maxQueue {
		l.conn.Close() // its reader notices
		l.down = true
	}
	if l.down {
		if o.passed != nil {
			close(o.passed)
		}
	} else {
		l.queue = append(l.queue, o)
	}
	l.mu.Unlock()
	l.signal()
}

func (l *link) signal() {
	select {
	case l.wake <- struct{}{}:
	default:
	}
}

// write runs until the link is closed.
func (l *link) write() {
	for {
		o, ok := l.next()
		if !ok {
			select {
			case <-l.wake:
				continue
			case <-l.ended:
				l.fail()
				return
			}
		}
		if o.passed != nil {
			close(o.passed)
			continue
		}
		if err := wire.WriteFrame(l.conn, o.kind, o.payload); err != nil {
			l.conn.Close() // its reader notices
			l.fail()
			<-l.ended
			return
		}
	}
}

func (l *link) next() (outgoing, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.queue) > 0 {
		o := l.queue[0]
		l.queue[0] = outgoing{}
		l.queue = l.queue[1:]
		l.size -= len(o.payload)
		return o, true
	}
	if o := l.late; o != nil {
		l.late = nil
		return *o, true
	}
	return outgoing{}, false
}

// fail drops the queue, and all that will be sent.
func (l *link) fail() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.down = true
	for _, o := range l.queue {
		if o.passed != nil {
			close(o.passed)
		}
	}
	l.queue, l.late = nil, nil
}

// close ends the link at once. It is called once.
func (l *link) close() {
	close(l.ended)
	l.conn.Close()
}

// waitFor waits for a channel, but not for ever.
func waitFor(c <-chan struct{}, limit time.Duration) {
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case <-c:
	case <-timer.C:
	}
}
