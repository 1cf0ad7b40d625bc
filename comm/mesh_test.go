// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package comm

import (
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/pkg/errors"
)

// testMesh connects worlds that play the workers of a job in one process. Their connections are real ones, over loopback.
type testMesh struct {
	job    *testJob
	worker int
	answer func(string) string
}

// testJob is what the meshes of all workers share.
type testJob struct {
	mu      sync.Mutex
	meshes  []*testMesh
	waiting map[string]chan net.Conn // connections that only one end has asked for
	busy    map[int]time.Time
	stopped map[int]bool // workers that do not answer
	ended   map[int]bool // workers that make no more calls
	need    map[int]int  // the worker that another waits for, outside the world
	err     error
	done    chan struct{}
	unix    string // a directory: connections are unix sockets there; "": TCP
	wrap    func(net.Conn) net.Conn
	// between copies what one end of a connection writes to the other; nil: nobody is in between.
	between func(name string, from, to int, r io.Reader, w io.Writer)
}

// opaque is a connection that hides its file descriptor, as one that encrypts does.
type opaque struct{ net.Conn }

// newOpaqueWorlds makes jobs whose connections are opaque, one rank and one host for each worker.
func newOpaqueWorlds(n int, opts Options) (*World, error) {
	var places []Place
	for i := range n {
		places = append(places, Place{Ranks: 1, Host: fmt.Sprint("host", i)})
	}
	j := newTestJob(n)
	j.wrap = func(c net.Conn) net.Conn { return opaque{c} }
	return newJob(j, places, opts)
}

// inStreams makes jobs whose workers use several connections at once.
func inStreams(streams int, make func(int, Options) (*World, error)) func(int, Options) (*World, error) {
	return func(n int, opts Options) (*World, error) {
		opts.Streams = streams
		return make(n, opts)
	}
}

func newTestJob(workers int) *testJob {
	j := &testJob{waiting: map[string]chan net.Conn{}, busy: map[int]time.Time{}, stopped: map[int]bool{}, ended: map[int]bool{}, need: map[int]int{}, done: make(chan struct{})}
	for i := range workers {
		j.meshes = append(j.meshes, &testMesh{job: j, worker: i})
	}
	return j
}

func (m *testMesh) Connect(ctx context.Context, worker int, name string) (net.Conn, error) {
	key := fmt.Sprint(min(m.worker, worker), max(m.worker, worker), name)
	m.job.mu.Lock()
	c, second := m.job.waiting[key]
	if second {
		delete(m.job.waiting, key)
	} else {
		c = make(chan net.Conn, 1)
		m.job.waiting[key] = c
	}
	m.job.mu.Unlock()
	if second {
		a, b, err := connected(m.job.unix)
		if err != nil {
			return nil, err
		}
		if m.job.between != nil {
			// a is the end of the worker that asked first.
			if a, b, err = m.job.insert(name, worker, m.worker, a, b); err != nil {
				return nil, err
			}
		}
		if m.job.wrap != nil {
			a, b = m.job.wrap(a), m.job.wrap(b)
		}
		c <- a
		return b, nil
	}
	select {
	case a := <-c:
		return a, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-m.job.done:
		return nil, m.job.err
	}
}

// insert puts somebody between the ends of a connection, which belong to two workers.
func (j *testJob) insert(name string, first, second int, a, b net.Conn) (net.Conn, net.Conn, error) {
	c, d, err := connected(j.unix)
	if err != nil {
		return nil, nil, err
	}
	// The first worker has a, whose other end is b; the second has d, whose other end is c.
	pass := func(from, to int, r, w net.Conn) {
		j.between(name, from, to, r, w)
		w.Close()
		r.Close()
	}
	go pass(first, second, b, c)
	go pass(second, first, c, b)
	return a, d, nil
}

// connected returns both ends of a connection.
func connected(dir string) (a, b net.Conn, err error) {
	network, address := "tcp", "127.0.0.1:0"
	if dir != "" {
		network, address = "unix", filepath.Join(dir, fmt.Sprint(time.Now().UnixNano()))
		defer os.Remove(address)
	}
	l, err := net.Listen(network, address)
	if err != nil {
		return nil, nil, err
	}
	defer l.Close()
	if a, err = net.Dial(network, l.Addr().String()); err != nil {
		return nil, nil, err
	}
	b, err = l.Accept()
	return a, b, err
}

func (m *testMesh) Answer(f func(string) string) { m.answer = f }

func (m *testMesh) Query(ctx context.Context, worker int, question string) (string, error) {
	m.job.mu.Lock()
	stopped := m.job.stopped[worker]
	m.job.mu.Unlock()
	if stopped {
		<-ctx.Done()
		return "", ctx.Err()
	}
	return m.job.meshes[worker].answer(question), nil
}

func (m *testMesh) Health(worker int) Health {
	m.job.mu.Lock()
	defer m.job.mu.Unlock()
	h := Health{Name: fmt.Sprintf("worker %d", worker), Seen: time.Now(), Hub: time.Now(), Ended: m.job.ended[worker], Steps: 37}
	if m.job.stopped[worker] {
		h.Seen = time.Now().Add(-time.Minute)
	}
	return h
}

func (m *testMesh) Waiting() (string, []int) {
	m.job.mu.Lock()
	defer m.job.mu.Unlock()
	if worker, ok := m.job.need[m.worker]; ok {
		return "read a variable", []int{worker}
	}
	return "", nil
}

func (m *testMesh) Busy(worker int) (string, time.Time) {
	m.job.mu.Lock()
	defer m.job.mu.Unlock()
	if at, ok := m.job.busy[worker]; ok {
		return "compiling", at
	}
	return "", time.Time{}
}

func (m *testMesh) Fail(err error) {
	m.job.mu.Lock()
	defer m.job.mu.Unlock()
	if m.job.err == nil {
		m.job.err = errors.WithMessagef(err, "epl: worker %d stopped", m.worker)
		close(m.job.done)
	}
}

func (m *testMesh) Done() <-chan struct{} { return m.job.done }

func (m *testMesh) Err() error {
	m.job.mu.Lock()
	defer m.job.mu.Unlock()
	return m.job.err
}

// siblings are the worlds of one job, by any of them.
var siblings sync.Map // *World → []*World

// one and two are how many ranks the workers get, as long as there are so many.
func one(int) int { return 1 }
func two(int) int { return 2 }

// newWorlds returns a constructor of jobs of n ranks; it returns the world of the first worker.
func newWorlds(host func(worker int) string, ranks func(worker int) int) func(n int, opts Options) (*World, error) {
	return func(n int, opts Options) (*World, error) {
		var places []Place
		for left := n; left > 0; {
			k := min(left, ranks(len(places)))
			places = append(places, Place{Ranks: k, Host: host(len(places))})
			left -= k
		}
		return newJob(newTestJob(len(places)), places, opts)
	}
}

// newJob makes the worlds of all workers.
func newJob(j *testJob, places []Place, opts Options) (*World, error) {
	var worlds []*World
	for i := range places {
		w, err := New(Layout{Worker: i, Workers: places}, j.meshes[i], opts)
		if err != nil {
			return nil, err
		}
		worlds = append(worlds, w)
	}
	for _, w := range worlds {
		siblings.Store(w, worlds)
	}
	return worlds[0], nil
}

// worldOf returns the world in which a rank is local.
func worldOf(w *World, rank int) *World {
	if all, ok := siblings.Load(w); ok {
		return all.([]*World)[w.base.WorkerOf[rank]]
	}
	return w
}

// closeAll closes the worlds of a job.
func closeAll(t testing.TB, w *World) {
	worlds := []*World{w}
	if all, ok := siblings.Load(w); ok {
		worlds = all.([]*World)
	}
	var wg sync.WaitGroup
	for _, w := range worlds {
		wg.Go(func() {
			if err := w.Close(); err != nil {
				t.Error(err)
			}
		})
		siblings.Delete(w)
	}
	wg.Wait()
}
