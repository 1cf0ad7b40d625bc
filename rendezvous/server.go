// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package rendezvous

import (
	"net"
	"slices"
	"sync"
	"time"

	"github.com/pkg/errors"

	"github.com/easyparallel/epl/internal/version"
	"github.com/easyparallel/epl/wire"
)

const (
	defaultBeat    = time.Second
	defaultTimeout = 5 * time.Minute
	// silentBeats without a sign of life, but at least silentTime, make a worker silent.
	silentBeats = 3
	silentTime  = 3 * time.Second
	// slowly is how many beats are one if the server is silent.
	slowly = 10
	// partingTime is how long to wait until others have been told.
	partingTime = time.Second
)

// ServerOptions describe the job to its server.
type ServerOptions struct {
	Workers  int           // how many must come
	Security wire.Security // the job's secrets
	Version  string        // EPL's; empty: this one's
	Beat     time.Duration // between two messages about all workers; 0: 1 second
	// Grace is how long the server waits, after a worker's connection has closed without a word, for WorkerExited to
	// say why. 0: it fails the job at once, because nobody will.
	Grace time.Duration
	Logf  func(format string, args ...any) // reports who was refused
}

// Server is where the workers of a job meet.
type Server struct {
	options  ServerOptions
	id       string // of the job
	listener *wire.Listener
	group    sync.WaitGroup
	closing  chan struct{}
	closed   sync.Once

	mu       sync.Mutex
	links    map[*link]bool
	seats    []*seat // by index; nil if the worker has not come
	started  bool
	deadline *time.Timer // for all to come
	expires  time.Time   // when the deadline is
	mourned  *seat       // whose connection is gone; WorkerExited may still say why
	rounds   map[string]*round
	asked    map[query]int // whom
	err      error         // of the job
	culprits []int         // the workers that are to blame for it
	exited   []bool        // by index: its process has ended, and well
	failed   chan struct{}
	empty    chan struct{} // closed when all have left
}

// seat is a worker that has come.
type seat struct {
	worker Worker
	link   *link
	facts  []Fact
	beat   time.Duration
	known  beating
	since  time.Time // when known.Busy became so
	seen   time.Time
	first  time.Time // when its first step was known
	silent bool
	ended  bool // it makes no more calls to others
	left   bool
	gone   bool // its connection has ended

	patience time.Duration // how long others wait for a worker that is not heard of
}

// query names a question on its way.
type query struct {
	from int
	id   uint64
}

// NewServer serves at a TCP address, such as "127.0.0.1:0".
func NewServer(addr string, o ServerOptions) (*Server, error) {
	return newServer(o, func(o ServerOptions) (*wire.Listener, error) {
		return wire.Listen("tcp", addr, o.Security, o.Version, o.Logf)
	})
}

func newServer(o ServerOptions, listen func(ServerOptions) (*wire.Listener, error)) (*Server, error) {
	if o.Workers < 1 {
		return nil, errors.Errorf("epl: a job of %d workers was asked for: expected at least 1", o.Workers)
	}
	o.Version = orVersion(o.Version)
	if o.Beat <= 0 {
		o.Beat = defaultBeat
	}
	if o.Logf == nil {
		o.Logf = func(string, ...any) {}
	}
	listener, err := listen(o)
	if err != nil {
		return nil, err
	}
	s := &Server{
		options: o, id: wire.NewToken()[:16], listener: listener, closing: make(chan struct{}),
		links: map[*link]bool{}, seats: make([]*seat, o.Workers), rounds: map[string]*round{}, asked: map[query]int{}, exited: make([]bool, o.Workers),
		failed: make(chan struct{}), empty: make(chan struct{}),
	}
	listener.OnVersion = s.otherVersion
	s.group.Go(s.accept)
	s.group.Go(s.tick)
	return s, nil
}

func orVersion(v string) string {
	if v == "" {
		return version.Version
	}
	return v
}

// Addr returns where it listens.
func (s *Server) Addr() net.Addr { return s.listener.Addr() }

// Status returns what is known of each worker, by index.
func (s *Server) Status() []WorkerStatus {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := make([]WorkerStatus, len(s.seats))
	for i, e := range s.seats {
		all[i].Index = i
		if e != nil {
			all[i] = WorkerStatus{
				Index: i, Joined: true, Host: e.worker.Host, PID: e.worker.PID, Ranks: e.worker.Ranks, Step: e.known.Step, Samples: e.known.Samples,
				Busy: e.known.Busy, Since: e.since, Seen: e.seen, Silent: e.silent, Left: e.left,
				Stepped: e.first, Batches: e.known.Batches, Checkpoints: e.known.Checkpoints,
			}
		}
	}
	for _, i := range s.culprits {
		all[i].Failed = s.err.Error()
	}
	return all
}

// Culprits returns the workers that are to blame for the failure of the job; none if that is not known.
func (s *Server) Culprits() []int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.culprits)
}

// WorkerExited tells the server that the process of a worker has ended abnormally, and how: "killed by signal 9". The job
// fails at once with these words. For one that has ended well see [Server.WorkerEnded].
func (s *Server) WorkerExited(index int, how string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if index < 0 || index >= len(s.seats) {
		return
	}
	if e := s.seats[index]; e != nil {
		s.fail(index, "epl: %s is gone: %s; its own output may tell why", e.worker, how)
	} else {
		s.fail(index, "epl: worker %d is gone before it joined the others: %s; its own output may tell why", index, how)
	}
}

// Failed is closed when the job has failed.
func (s *Server) Failed() <-chan struct{} { return s.failed }

// Err returns why the job failed, or nil.
func (s *Server) Err() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.err
}

// Close ends the rendezvous. Workers that have not left lose it, and fail.
func (s *Server) Close() error {
	err := net.ErrClosed
	s.closed.Do(func() {
		s.mu.Lock()
		if s.deadline != nil {
			s.deadline.Stop()
		}
		var told []<-chan struct{}
		for l := range s.links {
			told = append(told, l.flushed())
		}
		s.mu.Unlock()
		waitForAll(told, partingTime)
		close(s.closing)
		err = s.listener.Close()
		s.mu.Lock()
		for l := range s.links {
			l.close()
		}
		s.links = nil
		s.mu.Unlock()
		s.group.Wait()
	})
	return err
}

// waitForAll waits for channels, but not for ever.
func waitForAll(all []<-chan struct{}, limit time.Duration) {
	until := time.Now().Add(limit)
	for _, c := range all {
		waitFor(c, time.Until(until))
	}
}

// accept attends to each connection on its own.
func (s *Server) accept() {
	for {
		conn, err := s.listener.Accept()
		if err != nil {
			s.mu.Lock()
			if !errors.Is(err, net.ErrClosed) {
				s.fail(-1, "%s", err.Error())
			}
			s.mu.Unlock()
			return
		}
		s.group.Go(func() { s.attend(conn) })
	}
}

// attend serves one connection until it ends.
func (s *Server) attend(conn *wire.Conn) {
	if _, ok := controlIndex(conn.Purpose); !ok {
		conn.Close() // somebody wants to know whether this server is alive
		return
	}
	l := newLink(conn)
	if !s.add(l) {
		conn.Close()
		return
	}
	defer s.remove(l)
	s.group.Go(l.write)
	conn.SetReadDeadline(time.Now().Add(joinTime))
	m, err := receive(conn)
	if err != nil || m.kind != msgJoin || m.Join == nil {
		s.options.Logf("epl: a worker at %s connected, but did not join", conn.RemoteAddr())
		return
	}
	conn.SetReadDeadline(time.Time{})
	e, refused := s.seat(m.Join, l)
	if e == nil {
		s.options.Logf("epl: refused a worker at %s (%s, pid %d): %s", conn.RemoteAddr(), m.Join.Worker.Host, m.Join.Worker.PID, inner(refused))
		l.send(&message{kind: msgRefused, body: refused})
		waitFor(l.flushed(), partingTime)
		return
	}
	for {
		m, err := receive(conn)
		if err != nil {
			s.lost(e, err)
			return
		}
		s.handle(e, m)
	}
}

func (s *Server) add(l *link) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.links == nil {
		return false
	}
	s.links[l] = true
	return true
}

func (s *Server) remove(l *link) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.links[l] {
		delete(s.links, l)
		l.close()
	}
}

// fail ends the job, unless it has failed already. The lock is held.
func (s *Server) fail(worker int, format string, args ...any) {
	if worker < 0 {
		s.blame(nil, format, args...)
	} else {
		s.blame([]int{worker}, format, args...)
	}
}

// blame ends the job because of some workers, unless it has failed already. The lock is held.
func (s *Server) blame(culprits []int, format string, args ...any) {
	if s.err != nil {
		return
	}
	s.err, s.culprits = errors.Errorf(format, args...), culprits
	close(s.failed)
	for i, e := range s.seats {
		if e != nil && !slices.Contains(culprits, i) && !e.gone {
			e.link.send(&message{kind: msgFailed, body: s.err.Error()})
		}
	}
	// Those whose fault it is learn it last: then they may go, because all others know.
	for _, i := range culprits {
		if e := s.seats[i]; e != nil && !e.gone && s.links != nil {
			s.group.Go(func() { s.tellLast(e) })
		}
	}
}

func (s *Server) tellLast(e *seat) {
	s.mu.Lock()
	var told []<-chan struct{}
	for _, other := range s.seats {
		if other != nil && !slices.Contains(s.culprits, other.worker.Index) && !other.gone {
			told = append(told, other.link.flushed())
		}
	}
	text := s.err.Error()
	s.mu.Unlock()
	waitForAll(told, partingTime)
	e.link.send(&message{kind: msgFailed, body: text})
}

// all returns the workers for which f holds.
func (s *Server) all(f func(*seat) bool) (indices []int) {
	for i, e := range s.seats {
		if f(e) {
			indices = append(indices, i)
		}
	}
	return indices
}

// waitForOthers returns when all workers have left, or the job has failed, or those who are left have been silent for
// longer than anybody would wait.
func (s *Server) waitForOthers() {
	ticker := time.NewTicker(s.options.Beat)
	defer ticker.Stop()
	for {
		select {
		case <-s.empty:
			return
		case <-s.failed:
			return
		case <-s.closing:
			return
		case <-ticker.C:
		}
		s.mu.Lock()
		forgotten := !slices.ContainsFunc(s.seats, func(e *seat) bool {
			return e != nil && !e.left && time.Since(e.seen) < silenceLimit
		})
		s.mu.Unlock()
		if forgotten {
			return
		}
	}
}
