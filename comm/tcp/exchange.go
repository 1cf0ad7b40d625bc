// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package tcp

import (
	"bufio"
	"net"
	"sync"
	"time"

	"github.com/easyparallel/epl/comm/internal/transport"
	"github.com/easyparallel/epl/internal/checked"
)

// exchanges are the sends and receives of an engine.
//
// A short message travels at once, and waits at the other end until it is received; the receiver then says so. Of a long
// one, or when many short ones wait there already, only the header does: the receiver asks for the rest when it knows
// where to put it. A send is over when its message was received, or is being received.
type exchanges struct {
	engine *engine

	mu      sync.Mutex
	lines   []*line // by member; nil: not connected
	down    bool
	running sync.WaitGroup
}

const (
	EagerBytes   = 64 << 10 // a longer message does not travel before it is asked for
	unaskedBytes = 1 << 20  // how much may wait unreceived for each peer
	readAhead    = 8 << 10  // how much of a message may be read with its frame, and is copied: what is longer goes where it is wanted
)

// line is the connection to one peer. One goroutine reads it and another writes it, so that neither end ever waits for the
// other to read before it reads itself.
type line struct {
	member int
	ready  chan struct{} // closed when it is connected, or that failed
	conn   net.Conn
	err    error // of connecting

	mu      sync.Mutex
	work    sync.Cond                     // for the writer
	queue   []frameOut                    // to be written
	sends   map[uint64]*transit           // that wait to be received or asked for, by number
	asked   map[uint64]*transit           // receives whose message was asked for, by the sender's number
	posted  map[transport.Stream]*transit // receives that wait for a message
	arrived map[transport.Stream]*message // messages that wait for a receive
	number  uint64
	unasked int   // bytes that were sent and not received
	waiting int   // bytes that have come and were not received
	broken  error // why it ended
	stopped bool
	// finishing: the goroutines end when what is queued is written.
	finishing bool
	ended     chan struct{} // closed when no goroutine touches anybody's memory any more
}

// transit is a send or receive under way.
type transit struct {
	call  *transport.Call
	eager bool
	done  chan error
}

// message is a send of the other end.
type message struct {
	send   *transport.Call
	number uint64
	data   []byte // nil: to be asked for
}

// frameOut is what the writer writes: a frame, and the data of a message.
type frameOut struct {
	frame Frame
	data  []byte
	done  chan error // told when it is written; may be nil
}

func (x *exchanges) init(e *engine) {
	x.engine = e
	x.lines = make([]*line, len(e.team.Members))
}

// line returns the connection to a member, which it makes if there is none.
func (x *exchanges) line(k *transport.Call, member int) (*line, error) {
	x.mu.Lock()
	l := x.lines[member]
	first := l == nil
	if first {
		l = &line{member: member, ready: make(chan struct{}), ended: make(chan struct{}), sends: map[uint64]*transit{}, asked: map[uint64]*transit{},
			posted: map[transport.Stream]*transit{}, arrived: map[transport.Stream]*message{}}
		l.work.L = &l.mu
		x.lines[member] = l
	}
	x.mu.Unlock()
	if first {
		conn, err := x.dial(k, member)
		x.mu.Lock()
		if x.down && err == nil {
			conn.Close()
			err = *x.engine.broken.Load()
		}
		if l.conn, l.err = conn, err; err == nil {
			x.running.Go(func() { l.run(x.engine.team) })
		}
		close(l.ready)
		x.mu.Unlock()
	}
	<-l.ready
	return l, l.err
}

// dial returns the connections to a member as one.
func (x *exchanges) dial(k *transport.Call, member int) (net.Conn, error) {
	conns, err := x.engine.dialAll(k, member, "exchanges")
	if err != nil {
		return nil, err
	}
	conn := bundledConn(conns)
	if x.engine.team.World.Checks {
		conn = checked.NewConn(conn)
	}
	return conn, nil
}

// shut closes all connections. Who waits in them returns.
func (x *exchanges) shut() {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.down = true
	for _, l := range x.lines {
		if l != nil {
			select {
			case <-l.ready:
				if l.err == nil {
					l.finish()
				}
			default: // the engine's failure ends the dialling
			}
		}
	}
}

// wait waits until nothing runs any more.
func (x *exchanges) wait() { x.running.Wait() }

// Exchange implements transport.Engine.
func (e *engine) Exchange(k *transport.Call) error {
	if err := e.broken.Load(); err != nil {
		return *err
	}
	member := e.team.MemberOf[k.PeerPos]
	l, err := e.exchanges.line(k, member)
	if err != nil {
		return err
	}
	t := &transit{call: k, done: make(chan error, 1)}
	if k.Op == transport.Send {
		l.send(t)
	} else {
		l.receive(e.team, t)
	}
	timer := time.NewTimer(e.patience(k))
	defer timer.Stop()
	for {
		select {
		case err := <-t.done:
			return err
		case <-l.ended:
			select {
			case err := <-t.done: // it was over before
				return err
			default:
			}
			return e.lost(k, member, l.broken)
		case <-timer.C:
			if err := e.team.Overdue(k, []int{member}); err != nil {
				l.stop(err)
				<-l.ended
				return err
			}
			timer.Reset(e.patience(k))
		}
	}
}

// send puts a message on its way.
func (l *line) send(t *transit) {
	data := t.call.In.BytesOf(0, t.call.In.Len)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.number++
	l.sends[l.number] = t
	f := Frame{Kind: FrameOffer, Number: l.number, Call: transport.Told{Header: t.call.Header, Pos: t.call.Pos, Root: t.call.PeerPos}}
	if len(data) <= EagerBytes && l.unasked+len(data) <= unaskedBytes {
		f.Kind = FrameMessage
		t.eager = true
		l.unasked += len(data)
		l.push(frameOut{frame: f, data: data})
		return
	}
	l.push(frameOut{frame: f})
}

// push queues a frame. The lock is held.
func (l *line) push(f frameOut) {
	l.queue = append(l.queue, f)
	l.work.Signal()
}

// receive takes the message that has come, or waits for it.
func (l *line) receive(team *transport.Team, t *transit) {
	key := transport.StreamOf(t.call)
	l.mu.Lock()
	defer l.mu.Unlock()
	m, ok := l.arrived[key]
	if !ok {
		l.posted[key] = t
		return
	}
	delete(l.arrived, key)
	l.waiting -= len(m.data)
	if !l.matches(team, m, t) {
		return
	}
	if m.data == nil && t.call.Bytes > 0 {
		l.ask(m, t)
		return
	}
	copy(t.call.Out.BytesOf(0, t.call.Out.Len), m.data)
	l.acknowledge(m)
	t.done <- nil
}

// matches compares a message with the receive that it meets. If they do not agree, both ends get the error. The lock is held.
func (l *line) matches(team *transport.Team, m *message, t *transit) bool {
	err := transport.CheckPair(team.Ranks, m.send, t.call)
	if err != nil {
		l.push(frameOut{frame: Frame{Kind: frameRefuse, Number: m.number, Call: transport.Told{Header: t.call.Header, Pos: t.call.Pos, Root: t.call.PeerPos}}})
		t.done <- err
	}
	return err == nil
}

// ask wants the data of a message. The lock is held.
func (l *line) ask(m *message, t *transit) {
	l.asked[m.number] = t
	l.push(frameOut{frame: Frame{Kind: frameAsk, Number: m.number}})
}

// acknowledge says that a message was received. The lock is held.
func (l *line) acknowledge(m *message) {
	l.push(frameOut{frame: Frame{Kind: FrameReceived, Number: m.number}})
}

// run reads and writes the connection until it ends.
func (l *line) run(team *transport.Team) {
	var both sync.WaitGroup
	both.Go(func() { l.stop(l.write()) })
	both.Go(func() {
		err := l.read(team)
		l.mu.Lock()
		finishing := l.finishing
		l.mu.Unlock()
		if !finishing {
			l.stop(err)
		}
	})
	both.Wait()
	close(l.ended)
}

// finish ends the goroutines when what is queued is written: the other end may wait for an acknowledgement.
func (l *line) finish() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.finishing = true
	l.work.Signal()
	_ = l.conn.SetReadDeadline(time.Now())
	_ = l.conn.SetWriteDeadline(time.Now().Add(time.Second))
}

// stop ends the goroutines. The first error stays.
func (l *line) stop(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.broken == nil {
		l.broken = err
	}
	l.stopped = true
	l.work.Signal()
	l.conn.Close()
}

// write writes what is queued.
func (l *line) write() error {
	w := bufio.NewWriterSize(l.conn, 8<<10)
	var head []byte
	for {
		l.mu.Lock()
		for len(l.queue) == 0 && !l.stopped {
			finishing := l.finishing
			l.mu.Unlock()
			if err := w.Flush(); err != nil {
				return err
			}
			if finishing {
				return net.ErrClosed
			}
			l.mu.Lock()
			if len(l.queue) == 0 && !l.stopped && !l.finishing {
				l.work.Wait()
			}
		}
		if l.stopped {
			l.mu.Unlock()
			return net.ErrClosed
		}
		f := l.queue[0]
		l.queue[0] = frameOut{}
		l.queue = l.queue[1:]
		l.mu.Unlock()

		head = f.frame.Append(head[:0])
		_, err := w.Write(head)
		if err == nil {
			_, err = w.Write(f.data)
		}
		if err == nil && f.done != nil {
			if err = w.Flush(); err == nil { // the data may still have been in the buffer
				f.done <- nil
			}
		}
		if err != nil {
			return err
		}
	}
}

// read takes what comes.
func (l *line) read(team *transport.Team) error {
	r := bufio.NewReaderSize(l.conn, readAhead)
	for {
		f, err := readFrame(r)
		if err != nil {
			return err
		}
		if err := l.take(team, f, r); err != nil {
			return err
		}
	}
}
