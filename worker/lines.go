// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package worker

import (
	"context"
	"fmt"
	"net"
	"sync"
	"sync/atomic"

	"golang.org/x/sync/errgroup"

	"github.com/easyparallel/epl/internal/checked"
)

// line is a connection on which another worker answers. While data come this worker reads a variable.
type line struct {
	net.Conn // checked, if the job does that
	moved    atomic.Pointer[moment]
}

// newLine makes a line of a connection.
func (j *Job) newLine(conn net.Conn) *line {
	l := &line{}
	l.Conn = watched{conn, j, l}
	if j.checks {
		l.Conn = checked.NewConn(l.Conn)
	}
	return l
}

// watched is a connection that notes when something came.
type watched struct {
	net.Conn
	job  *Job
	line *line
}

// Read implements net.Conn.
func (w watched) Read(b []byte) (int, error) {
	n, err := w.Conn.Read(b)
	if n > 0 {
		if moved := w.line.moved.Load(); moved != nil {
			moved.set()
		}
		w.job.activity.reads()
	}
	return n, err
}

// openLines opens a line to each other worker, when the job begins. A save that comes later needs no new connection, and
// finds out nothing about the network that could have been known at the start. What cannot be opened is said, and tried
// again when it is needed: it may never be.
func (j *Job) openLines() {
	var all errgroup.Group
	all.SetLimit(16)
	for w := range j.Devices {
		if w == j.Worker {
			continue
		}
		all.Go(func() error {
			ctx, cancel := j.patiently(context.Background(), []int{w}, fmt.Sprintf("connect to worker %d", w), &moment{})
			defer cancel()
			line, err := j.openLine(ctx, w)
			switch {
			case err == nil:
				j.lines.keep(w, line)
			case j.member.Err() == nil && !j.hasEnded(w): // nobody misses the variables of a worker that has gone home
				j.logf("epl: worker %d cannot read variables of worker %d yet: %s; it is tried again when one is read", j.Worker, w, inner(err))
			}
			return nil
		})
	}
	_ = all.Wait()
}

// lines are the connections to other workers that nobody reads variables on right now.
type lines struct {
	count atomic.Int64 // of connections that were made

	mu     sync.Mutex
	idle   map[int][]*line
	closed bool
}

// take returns a connection to a worker, or nil.
func (l *lines) take(worker int) *line {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := len(l.idle[worker])
	if n == 0 {
		return nil
	}
	line := l.idle[worker][n-1]
	l.idle[worker] = l.idle[worker][:n-1]
	return line
}

func (l *lines) keep(worker int, x *line) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		x.Close()
		return
	}
	if l.idle == nil {
		l.idle = map[int][]*line{}
	}
	l.idle[worker] = append(l.idle[worker], x)
}

func (l *lines) close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, idle := range l.idle {
		for _, line := range idle {
			line.Close()
		}
	}
	l.idle, l.closed = nil, true
}

// hasEnded tells whether a worker has said that it is done.
func (j *Job) hasEnded(worker int) bool {
	s := j.member.State(worker)
	return s.Ended || s.Left
}
