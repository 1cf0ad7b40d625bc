package comm

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/pkg/errors"
)

// shmEngine moves data between workers of one host through memory that they share. Collectives have a segment of all
// members, see shmArea; sends and receives have one for each pair, see shmPair. Segments are made when they are first
// used. Where members cannot share memory, as between containers that do not see each other's processes, all of them use
// another engine instead: connections.
type shmEngine struct {
	team    *team
	create  func(*team) engine // see instead
	crowded bool

	ctx    context.Context // ends with fail
	stop   context.CancelCauseFunc
	failed atomic.Bool

	mu       sync.Mutex
	segments []*segment // whose sleepers fail wakes
	pairs    []*shmPair // by member
	instead  engine     // where memory cannot be shared

	area *shmArea // of collectives, which come one at a time
}

// newShmEngine returns an engine over shared memory. Where members cannot share any, they use what instead makes.
func newShmEngine(t *team, instead func(*team) engine) engine {
	ctx, stop := context.WithCancelCause(context.Background())
	return &shmEngine{team: t, create: instead, ctx: ctx, stop: stop, pairs: make([]*shmPair, len(t.members)), crowded: t.world.crowded()}
}

func (e *shmEngine) collective(r *round) error {
	if err := e.failure(); err != nil {
		return err
	}
	k := earliest(r)
	if e.area == nil {
		area, err := e.newArea(k)
		if err != nil {
			return err
		}
		e.area = area
	}
	if e.area.segment == nil {
		return e.connections().collective(r)
	}
	return e.area.do(k, r)
}

// earliest returns the call of a round that came first: its clock counts.
func earliest(r *round) *call {
	k := r.first()
	for _, c := range r.calls {
		if c.began < k.began {
			k = c
		}
	}
	return k
}

func (e *shmEngine) exchange(k *call) error {
	if err := e.failure(); err != nil {
		return err
	}
	p, err := e.pair(k, e.team.memberOf[k.peer])
	switch {
	case err != nil:
		return err
	case p.segment == nil:
		return e.connections().exchange(k)
	case k.Op == Send:
		return p.send(k)
	}
	return p.recv(k)
}

// connections returns the engine for members that cannot share memory.
func (e *shmEngine) connections() engine {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.instead == nil {
		e.instead = e.create(e.team)
		if e.failed.Load() {
			e.instead.fail(context.Cause(e.ctx))
		}
	}
	return e.instead
}

func (e *shmEngine) fail(err error) {
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
		e.instead.fail(err)
	}
}

// failure returns the error that fail was called with.
func (e *shmEngine) failure() error {
	if e.failed.Load() {
		return context.Cause(e.ctx)
	}
	return nil
}

// grace is how long a call that cannot go on waits for what others know: why a worker stopped, or that it no longer
// touches the call's memory.
const grace = time.Second

// because returns why a call had to end: an error of fail if one comes in a moment, since that knows more than err.
func (e *shmEngine) because(err error) error {
	select {
	case <-e.ctx.Done():
		return context.Cause(e.ctx)
	case <-time.After(grace):
		return err
	}
}

// stopped is the error when a member has left a call without saying why.
func (e *shmEngine) stopped(k *call, member int) error {
	return e.because(errors.Errorf("epl: worker %d stopped in %s and does not say why; see its output",
		e.team.members[member].worker, k.Header))
}

func (e *shmEngine) close() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.stop(ErrClosed)
	e.failed.Store(true)
	for _, s := range e.segments {
		s.unmap()
	}
	e.segments = nil
	if e.area != nil {
		e.area.views.close()
	}
	if e.instead != nil {
		e.instead.close()
	}
}
