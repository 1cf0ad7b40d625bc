// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package comm

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/pkg/errors"
)

// hubMessage is what the workers of a test tell each other, through the test's own process.
type hubMessage struct {
	Room     string // the world
	From, To int    // workers
	Kind     string // "hello", "question", "answer", "fail", "bye"
	ID       int    // of a question; how many say bye
	Text     string
}

// serveHub passes messages on between workers. It returns its address.
func serveHub(t *testing.T) string {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
	rooms := map[string]map[int]*json.Encoder{}
	waiting := map[string][]hubMessage{} // for workers that are not there yet
	byes := map[string]int{}
	var conns sync.WaitGroup
	serve := func(conn net.Conn) {
		defer conn.Close()
		for in := json.NewDecoder(conn); ; {
			var m hubMessage
			if in.Decode(&m) != nil {
				return
			}
			mu.Lock()
			room := rooms[m.Room]
			if room == nil {
				room = map[int]*json.Encoder{}
				rooms[m.Room] = room
			}
			switch m.Kind {
			case "hello":
				room[m.From] = json.NewEncoder(conn)
				for _, w := range waiting[m.Room] {
					_ = room[m.From].Encode(w)
				}
			case "bye":
				if byes[m.Room]++; byes[m.Room] < m.ID {
					break
				}
				for _, out := range room {
					_ = out.Encode(m)
				}
			case "fail":
				waiting[m.Room] = append(waiting[m.Room], m)
				for _, out := range room {
					_ = out.Encode(m)
				}
			default:
				if out := room[m.To]; out != nil {
					_ = out.Encode(m)
				}
			}
			mu.Unlock()
		}
	}
	conns.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			conns.Go(func() { serve(conn) })
		}
	})
	t.Cleanup(func() {
		l.Close()
		conns.Wait() // the workers have ended
	})
	return l.Addr().String()
}

// hubMesh is a Mesh through a hub.
type hubMesh struct {
	room   string
	worker int
	conn   net.Conn

	mu      sync.Mutex
	out     *json.Encoder
	answer  func(string) string
	answers map[int]chan string
	err     error
	done    chan struct{}
	bye     chan struct{}
}

func newHubMesh(address, room string, worker int) (*hubMesh, error) {
	conn, err := net.Dial("tcp", address)
	if err != nil {
		return nil, err
	}
	m := &hubMesh{room: room, worker: worker, conn: conn, out: json.NewEncoder(conn), answers: map[int]chan string{}, done: make(chan struct{}), bye: make(chan struct{})}
	m.send(hubMessage{Kind: "hello"})
	go m.read()
	return m, nil
}

func (m *hubMesh) send(h hubMessage) {
	h.Room, h.From = m.room, m.worker
	m.mu.Lock()
	defer m.mu.Unlock()
	_ = m.out.Encode(h)
}

func (m *hubMesh) read() {
	for in := json.NewDecoder(m.conn); ; {
		var h hubMessage
		if in.Decode(&h) != nil {
			return
		}
		m.mu.Lock()
		answer, waits := m.answer, m.answers[h.ID]
		if h.Kind == "fail" && m.err == nil {
			m.err = errors.Errorf("epl: worker %d stopped: %s", h.From, h.Text)
			close(m.done)
		}
		m.mu.Unlock()
		switch h.Kind {
		case "question":
			go func() { m.send(hubMessage{To: h.From, Kind: "answer", ID: h.ID, Text: answer(h.Text)}) }()
		case "answer":
			waits <- h.Text
		case "bye":
			close(m.bye)
		}
	}
}

// leave returns when n workers have called it.
func (m *hubMesh) leave(n int) {
	m.send(hubMessage{Kind: "bye", ID: n})
	<-m.bye
}

func (m *hubMesh) Connect(context.Context, int, string) (net.Conn, error) {
	return nil, errors.New("epl: MPI needs no connections")
}

func (m *hubMesh) Answer(f func(string) string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.answer = f
}

func (m *hubMesh) Query(ctx context.Context, worker int, question string) (string, error) {
	m.mu.Lock()
	id := len(m.answers) + 1
	answer := make(chan string, 1)
	m.answers[id] = answer
	m.mu.Unlock()
	m.send(hubMessage{To: worker, Kind: "question", ID: id, Text: question})
	select {
	case text := <-answer:
		return text, nil
	case <-ctx.Done():
		return "", ctx.Err()
	}
}

func (m *hubMesh) Health(worker int) Health {
	return Health{Name: fmt.Sprintf("worker %d", worker), Seen: time.Now(), Hub: time.Now()}
}

func (m *hubMesh) Waiting() (string, []int) { return "", nil }

func (m *hubMesh) Busy(int) (string, time.Time) { return "", time.Time{} }

func (m *hubMesh) Fail(err error) { m.send(hubMessage{Kind: "fail", Text: err.Error()}) }

func (m *hubMesh) Done() <-chan struct{} { return m.done }

func (m *hubMesh) Err() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.err
}
