// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package tcp

import (
	"context"
	"fmt"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/pkg/errors"
	"golang.org/x/sync/errgroup"

	"github.com/easyparallel/epl/comm/internal/transport"
	"github.com/easyparallel/epl/internal/checked"
)

// engine moves data over connections with each other member, some for collectives and some for sends and receives: one, or as many as the
// world has streams.
//
// A collective talks to all members at once. What goes to a member is a header, which both compare, and bytes whose number
// both know; nothing else marks where they end. Who is done with one collective cannot take anything of the next.
//
// The calling goroutine drives all connections itself, without blocking in any, see pump: whoever has room is given
// something, whoever has sent is read. So members may be slow in any order, and no two can wait for each other.
//
// Every byte goes directly to who needs it, so that reductions can be done in the order of the members, in one pass:
//   - reduce-scatter, all-gather, all-to-all: each member gives each other its part;
//   - all-reduce, small: each gives all the whole vector, and all reduce it;
//   - all-reduce, large: each member reduces one segment: it gets that of the others, and gives them the result, chunk by
//     chunk. These are the bytes of a ring, without its many steps;
//   - broadcast, small or between two: the root gives to all; large: each other member gets one segment, and passes it on.
type engine struct {
	team      *transport.Team
	elsewhere bool // members of this host are reached by another engine

	broken  atomic.Pointer[error] // why nothing works any more
	failure chan struct{}         // closed then
	waiter  linkWaiter

	mu    sync.Mutex // held by a collective
	peers []*peer    // by member; nil: this one. None before the first collective.
	order []*peer    // the others, beginning with the next: not all members turn to the first one first
	memory

	exchanges exchanges
}

// peer is another member, and what flows between it and this one in the collective under way.
type peer struct {
	member int
	link   link
	stream stream // over the link

	first   []byte // the header and what follows it, as it is written
	out     []byte // to be written now
	rest    []byte // to be written then
	sent    int    // bytes, header included
	sendAll int

	stage    []byte // the header and what follows it, as it was read
	known    bool   // the header was compared
	pending  []byte // of the stage: it has no place yet
	in       []byte // to be filled now
	received int    // bytes, header included
	takeAll  int
}

// stageSize is how much of a message shares a system call with its header.
const stageSize = 16 << 10

// New returns an engine between all members of a team.
func New(t *transport.Team) transport.Engine { return newEngine(t, false) }

// NewBetween returns an engine between members of different hosts. Those of one host reach each other in another way.
func NewBetween(t *transport.Team) transport.Engine { return newEngine(t, true) }

func newEngine(t *transport.Team, elsewhere bool) *engine {
	e := &engine{team: t, elsewhere: elsewhere, failure: make(chan struct{})}
	e.exchanges.init(e)
	return e
}

// skips tells whether a member takes no part: this one does not, nor does one that another engine reaches.
func (e *engine) skips(m int) bool {
	return m == e.team.Me || e.elsewhere && e.team.Members[m].Host == e.team.Members[e.team.Me].Host
}

// connect makes the connections for collectives.
func (e *engine) connect(k *transport.Call) error {
	if e.peers != nil {
		return nil
	}
	conns := make([][]net.Conn, len(e.team.Members))
	var all errgroup.Group
	for m := range conns {
		if !e.skips(m) {
			all.Go(func() (err error) {
				conns[m], err = e.dialAll(k, m, "collectives")
				return err
			})
		}
	}
	if err := all.Wait(); err != nil {
		hangUp(slices.Concat(conns...))
		return err
	}
	links, waiter, err := newLinks(conns)
	if err != nil {
		return errors.Wrapf(err, "epl: the connections of group %s cannot be used", e.team.Name)
	}
	e.waiter.set(waiter)
	e.peers = make([]*peer, len(conns))
	for i := range conns {
		if m := (e.team.Me + i) % len(conns); !e.skips(m) {
			p := &peer{member: m, link: links[m], stream: stream{link: links[m], checks: e.team.World.Checks}, first: make([]byte, 0, stageSize), stage: make([]byte, stageSize)}
			e.peers[m] = p
			e.order = append(e.order, p)
		}
	}
	return nil
}

// dialAll makes all connections to a member for a purpose.
func (e *engine) dialAll(k *transport.Call, member int, purpose string) ([]net.Conn, error) {
	conns := make([]net.Conn, e.team.World.Streams)
	var all errgroup.Group
	for i := range conns {
		name := purpose
		if i > 0 {
			name = fmt.Sprint(purpose, " ", i)
		}
		all.Go(func() (err error) {
			conns[i], err = e.dial(k, member, name)
			return err
		})
	}
	if err := all.Wait(); err != nil {
		hangUp(conns)
		return nil, err
	}
	return conns, nil
}

func hangUp(conns []net.Conn) {
	for _, c := range conns {
		if c != nil {
			c.Close()
		}
	}
}

// dial makes a connection to a member, by its name. It waits for the other end to ask for it too, as long as a call may.
func (e *engine) dial(k *transport.Call, member int, purpose string) (net.Conn, error) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	type result struct {
		conn net.Conn
		err  error
	}
	done := make(chan result, 1)
	go func() {
		c, err := e.team.World.Mesh.Connect(ctx, e.team.Members[member].Worker, e.team.Name+" "+purpose)
		done <- result{c, err}
	}()
	giveUp := func(err error) (net.Conn, error) {
		cancel()
		if r := <-done; r.conn != nil {
			r.conn.Close()
		}
		return nil, err
	}
	timer := time.NewTimer(e.patience(k))
	defer timer.Stop()
	for {
		select {
		case r := <-done:
			if r.err != nil {
				return nil, e.lost(k, member, r.err)
			}
			return r.conn, nil
		case <-e.failure:
			return giveUp(*e.broken.Load())
		case <-timer.C:
			if err := e.team.Overdue(k, []int{member}); err != nil {
				return giveUp(err)
			}
			timer.Reset(e.patience(k))
		}
	}
}

// patience is how long to wait before asking who is late.
func (e *engine) patience(k *transport.Call) time.Duration {
	w := e.team.World
	if left := k.Began + w.Timeout - w.Now(); left > 0 {
		return min(left, transport.LookEvery)
	}
	return transport.LookEvery
}

// lost is the error of a connection that broke during a call. Why it did, the mesh may know better: it gets a moment to
// say so. That what came was damaged nobody else knows.
func (e *engine) lost(k *transport.Call, member int, err error) error {
	if corruption := new(transport.CorruptionError); errors.As(err, &corruption) {
		return corruption
	}
	if damage := new(checked.DamageError); errors.As(err, &damage) {
		return e.team.Corrupted(k, member, damage)
	}
	w, worker := e.team.World, e.team.Members[member].Worker
	look := time.NewTicker(transport.LookEvery / 4)
	defer look.Stop()
	for end := time.Now().Add(time.Second); time.Now().Before(end); {
		if w.Mesh.Health(worker).Ended {
			return w.Ended(k, e.team.Ranks[k.Pos], worker)
		}
		select {
		case <-e.failure:
			return *e.broken.Load()
		case <-look.C:
		}
	}
	return e.team.Lost(k, member, err)
}

// Fail implements transport.Engine.
func (e *engine) Fail(err error) {
	if e.broken.CompareAndSwap(nil, &err) {
		close(e.failure)
		e.waiter.wake()
		e.exchanges.shut()
	}
}

// Close implements transport.Engine.
func (e *engine) Close() {
	e.Fail(transport.ErrClosed)
	e.mu.Lock() // a collective that still runs has been told to stop
	defer e.mu.Unlock()
	var all sync.WaitGroup
	for _, p := range e.order {
		all.Go(p.link.close) // some have to wait a moment
	}
	all.Wait()
	e.peers, e.order = nil, nil
	e.waiter.close()
	e.exchanges.wait()
}

// Collective implements transport.Engine.
func (e *engine) Collective(r *transport.Round) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if err := e.broken.Load(); err != nil {
		return *err
	}
	if err := e.connect(r.First()); err != nil {
		return err
	}
	t := e.transfer(r)
	if err := e.pump(r, t); err != nil {
		return err
	}
	t.finish()
	return nil
}
