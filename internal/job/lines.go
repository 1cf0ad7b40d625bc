package job

import (
	"net"
	"sync"
	"sync/atomic"
)

// lines are the connections to other workers that nobody reads variables on right now.
type lines struct {
	count atomic.Int64 // of connections that were made

	mu     sync.Mutex
	idle   map[int][]net.Conn
	closed bool
}

// take returns a connection to a worker, or nil.
func (l *lines) take(worker int) net.Conn {
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

func (l *lines) keep(worker int, line net.Conn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		line.Close()
		return
	}
	if l.idle == nil {
		l.idle = map[int][]net.Conn{}
	}
	l.idle[worker] = append(l.idle[worker], line)
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
