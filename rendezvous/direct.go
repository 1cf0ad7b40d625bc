// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package rendezvous

import (
	"context"
	"fmt"
	"time"

	"github.com/easyparallel/epl/wire"
)

// directly is how the purpose of a connection begins on which a worker asks another without the server. The job follows,
// and who asks.
const directly = "ask "

// directAfter is how long the server may take to get an answer before a worker asks directly, too: the way to the server
// may be cut, or its own way to the other worker.
const directAfter = 300 * time.Millisecond

// askDirectly puts a question to a worker on a connection of its own.
func (m *Member) askDirectly(ctx context.Context, worker int, question string) (string, error) {
	if worker == m.index {
		return m.answerTo(question), nil
	}
	conn, err := m.job.network.dial(ctx, m.workers[worker].Addr, fmt.Sprintf("%s%s %d", directly, m.id, m.index), m.peers.security, m.job.Version)
	if err != nil {
		return "", err
	}
	defer conn.Close()
	stop := context.AfterFunc(ctx, func() { conn.Close() })
	defer stop()
	if err := wire.WriteFrame(conn, msgQuestion, (&message{body: question}).encode()); err != nil {
		return "", err
	}
	reply, err := receive(conn)
	if err != nil {
		return "", err
	}
	return reply.body, nil
}

// answerDirectly answers one question of another worker.
func (m *Member) answerDirectly(conn *wire.Conn) {
	defer conn.Close()
	conn.SetDeadline(time.Now().Add(joinTime))
	done := make(chan struct{})
	defer close(done)
	go func() {
		select {
		case <-m.stop:
			conn.Close()
		case <-done:
		}
	}()
	if question, err := receive(conn); err == nil {
		_ = wire.WriteFrame(conn, msgAnswer, (&message{body: m.answerTo(question.body)}).encode())
	}
}

// answerTo answers a question.
func (m *Member) answerTo(question string) string {
	m.mu.Lock()
	answer := m.answer
	m.mu.Unlock()
	if answer == nil {
		return "nothing: it is not ready to answer questions yet"
	}
	text := answer(question)
	return text[:min(len(text), maxText)]
}
