// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package shm

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/pkg/errors"

	"github.com/easyparallel/epl/comm/internal/transport"
)

// engine moves data between workers of one host through memory that they share. Collectives have a segment of all
// members, see area; sends and receives have one for each pair, see pair. Segments are made when they are first
// used. Where members cannot share memory, as between containers that do not see each other's processes, all of them use
// another engine instead: connections.
type engine struct {
	team    *transport.Team
	create  func(*transport.Team) transport.Engine // see instead
	crowded bool
	// mayLinger is World.MayLinger.
	mayLinger bool

	ctx    context.Context // ends with fail
	stop   context.CancelCauseFunc
	failed atomic.Bool

	mu       sync.Mutex
	segments []*segment             // whose sleepers fail wakes
	pairs    []atomic.Pointer[pair] // by member
	instead  transport.Engine       // where memory cannot be shared

	area *area // of collectives, which come one at a time
}

// New returns an engine over shared memory. Where members cannot share any, they use what instead makes.
func New(t *transport.Team, instead func(*transport.Team) transport.Engine) transport.Engine {
	ctx, stop := context.WithCancelCause(context.Background())
	return &engine{team: t, create: instead, ctx: ctx, stop: stop, pairs: make([]atomic.Pointer[pair], len(t.Members)), crowded: t.World.Crowded(), mayLinger: t.World.MayLinger()}
}

// Collective implements transport.Engine.
func (e *engine) Collective(r *transport.Round) error {
	if err := e.failure(); err != nil {
		return err
	}
	k := earliest(r)
	if e.area == nil {
		k.Begin()
		area, err := e.newArea(k)
		if err != nil {
			return err
		}
		e.area = area
	}
	if e.area.segment == nil {
		k.Begin()
		return e.connections().Collective(r)
	}
	return e.area.do(k, r)
}

// BeginsCalls implements transport.Beginner.
func (e *engine) BeginsCalls() {}

// earliest returns the call of a round that came first: its clock counts.
func earliest(r *transport.Round) *transport.Call {
	k := r.First()
	for _, c := range r.Calls {
		if c.Began < k.Began {
			k = c
		}
	}
	return k
}

// Exchange implements transport.Engine.
func (e *engine) Exchange(k *transport.Call) error {
	if err := e.failure(); err != nil && k.Posted == 0 { // else the other worker may be reading the data
		return err
	}
	p, err := e.pair(k, e.team.MemberOf[k.PeerPos])
	switch {
	case err != nil:
		return err
	case p.segment == nil:
		k.Begin()
		return e.connections().Exchange(k)
	case k.Op == transport.Send:
		return p.send(k)
	}
	return p.recv(k)
}

// Post implements transport.Poster.
func (e *engine) Post(k *transport.Call) {
	p := e.pairs[e.team.MemberOf[k.PeerPos]].Load()
	if e.failed.Load() || p == nil || !p.connected.Load() || p.err != nil || p.segment == nil {
		return
	}
	p.out.mu.Lock()
	defer p.out.mu.Unlock()
	if p.hasRoom() {
		k.Posted = p.put(k).id
	}
}

// connections returns the engine for members that cannot share memory.
func (e *engine) connections() transport.Engine {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.instead == nil {
		e.instead = e.create(e.team)
		if e.failed.Load() {
			e.instead.Fail(context.Cause(e.ctx))
		}
	}
	return e.instead
}

// Fail implements transport.Engine.
func (e *engine) Fail(err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.failed.Load() {
		return
	}
	e.stop(err)
	e.failed.Store(true)
	for _, s := range e.segments {
		s.mine().bell.wakeAll()
	}
	if e.instead != nil {
		e.instead.Fail(err)
	}
}

// failure returns the error that fail was called with.
func (e *engine) failure() error {
	if e.failed.Load() {
		return context.Cause(e.ctx)
	}
	return nil
}

// grace is how long a call that cannot go on waits for what others know: why a worker stopped, or that it no longer
// touches the call's memory.
const grace = time.Second

// because returns why a call had to end: an error of fail if one comes in a moment, since that knows more than err.
func (e *engine) because(err error) error {
	select {
	case <-e.ctx.Done():
		return context.Cause(e.ctx)
	case <-time.After(grace):
		return err
	}
}

// stopped is the error when a member has left a call without saying why.
func (e *engine) stopped(k *transport.Call, member int) error {
	return e.because(errors.Errorf("epl: worker %d stopped in %s and does not say why; see its output",
		e.team.Members[member].Worker, k.Header))
}

// Close implements transport.Engine.
func (e *engine) Close() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.stop(transport.ErrClosed)
	e.failed.Store(true)
	for _, s := range e.segments {
		s.unmap()
	}
	e.segments = nil
	if e.area != nil {
		e.area.views.close()
	}
	if e.instead != nil {
		e.instead.Close()
	}
}
