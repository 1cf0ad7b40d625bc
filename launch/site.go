// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package launch

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"sync"
	"time"

	"github.com/pkg/errors"

	"github.com/easyparallel/epl/internal/version"
	"github.com/easyparallel/epl/wire"
)

const (
	// gatherTime is how long an elastic job waits at its beginning for all of its launchers, if there are enough without.
	gatherTime = 30 * time.Second
	// retryTime is when a machine that could not be reached by ssh is tried again.
	retryTime = 10 * time.Second
)

// site is a machine of an elastic job. Its workers are started here, by ssh, or by its own launcher, which calls.
type site struct {
	name  string
	first int // of its seats
	seats int
	here  bool
	calls bool // its launcher does, when it is started
	// reach starts a launcher there; nil: it is here, or calls.
	reach func() (*caller, error)

	mu     sync.Mutex
	caller *caller   // the launcher that has called or was started, and has nothing to do; nil: there is none
	retry  time.Time // when it may be tried again by ssh
}

// caller is the launcher of another machine. It stays when a generation ends, and holds memory for copies of training state.
type caller struct {
	io.Writer
	in      *json.Decoder
	cut     func()       // ends the connection at once
	end     func() error // ends the connection, and returns why it had ended before, if it had
	private bool         // nobody else can read what it is told
}

// newCaller is for a launcher that has called.
func newCaller(conn *wire.Conn) *caller {
	return &caller{Writer: conn, in: json.NewDecoder(conn), cut: func() { _ = conn.Close() }, end: func() error {
		_ = conn.Close()
		return errors.New("its launcher has gone")
	}}
}

// summons is what a launcher that has called is told: to run workers, and orders follow; or that the job is over.
type summons struct {
	Spec *spec `json:",omitempty"`
	Over *int  `json:",omitempty"` // the exit status
}

// orders is the input of an agent that has called.
type orders struct{ *caller }

var _ io.WriteCloser = orders{}

// Close implements io.Closer: there are no more orders, and the connection stays.
func (o orders) Close() error { return tell(o, order{Finish: true}) }

// ready tells whether workers may be started there.
func (s *site) ready(now time.Time) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.here || (!s.calls || s.caller != nil) && !s.retry.After(now)
}

// call takes a launcher that has called. One that has called before is gone.
func (s *site) call(c *caller) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.caller != nil {
		s.caller.cut()
	}
	s.caller, s.retry = c, time.Time{}
}

// take returns the launcher that has called, which has something to do now.
func (s *site) take() *caller {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := s.caller
	s.caller = nil
	return c
}

// join makes the crew of a site by its launcher.
func (s *site) join(ctx context.Context, sp spec, say func(report)) (crew, error) {
	c := s.take()
	if c == nil && s.reach != nil {
		var err error
		if c, err = s.reach(); err != nil {
			s.delay()
			return nil, err
		}
	}
	if c == nil {
		return nil, errors.Errorf("epl: the launcher of %s has gone", s.name)
	}
	r := newRemote(sp, say)
	r.input, r.cut = orders{c}, c.cut
	if !c.private {
		sp.Token = "" // it has its own
	}
	told := tell(c, summons{Spec: &sp})
	if told != nil && s.calls {
		c.cut()
		return nil, errors.Errorf("epl: the launcher of %s has gone: %v", s.name, told)
	}
	go func() {
		r.listen(c.in)
		if r.alive() {
			s.call(c)
			r.lost(nil)
			return
		}
		r.lost(c.end())
	}()
	if _, err := r.await(ctx); err != nil {
		s.delay()
		return nil, err
	}
	return r, nil
}

// delay lets a site be left alone for a while.
func (s *site) delay() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.retry = time.Now().Add(retryTime)
}

// accept takes launchers that call, until the listener is closed. came is told of each.
func accept(l *wire.Listener, sites []*site, came chan<- struct{}) {
	for {
		conn, err := l.Accept()
		if err != nil {
			return
		}
		var rank int
		if n, _ := fmt.Sscanf(conn.Purpose, callPurpose, &rank); n != 1 || rank < 0 || rank >= len(sites) || !sites[rank].calls {
			_ = conn.Close()
			continue
		}
		conn.GiveUpAfter(retryTime)
		sites[rank].call(newCaller(conn))
		select {
		case came <- struct{}{}:
		default:
		}
	}
}

// callPurpose is what a launcher calls for, with its number.
const callPurpose = "launcher %d"

// listen lets the launchers of other machines call.
func (e *elastic) listen(address string) error {
	security, err := e.security()
	if err != nil {
		return err
	}
	e.listener, err = wire.Listen("tcp", address, security, version.Version, func(format string, args ...any) {
		e.display.note(strings.TrimPrefix(format, "epl: "), args...)
	})
	if err != nil {
		return errors.Errorf("%v; is another job running here? Choose another --port", err)
	}
	go accept(e.listener, e.sites, e.came)
	return nil
}

// security is what launchers prove to each other.
func (e *elastic) security() (s wire.Security, err error) {
	s.Token = e.job.Token
	if e.job.TLS.Cert != "" {
		s.TLS, err = wire.LoadTLS(e.job.TLS.Cert, e.job.TLS.Key, e.job.TLS.CA)
	}
	return s, err
}

// dismiss tells the launchers that have called that the job is over.
func (e *elastic) dismiss(status int) {
	if e.listener != nil {
		_ = e.listener.Close()
	}
	for _, s := range e.sites {
		if c := s.take(); c != nil {
			_ = tell(c, summons{Over: &status})
			_ = c.end()
		}
	}
}
