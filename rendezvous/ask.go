// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package rendezvous

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"time"

	"github.com/pkg/errors"
)

// Agree returns when all workers have given their text for the same subject. If the texts differ all get the same error,
// which names the subject, two workers, and what differs: of the lines that begin with a name and a tab, which come first, those
// that do, else the first line.
func (m *Member) Agree(ctx context.Context, subject, text string) error {
	hash := sha256.Sum256([]byte(text))
	a := &agreement{text: text, over: make(chan string, 1), missing: make(chan []int, 1)}
	m.mu.Lock()
	if m.agreeing[subject] != nil {
		m.mu.Unlock()
		return errors.Errorf("epl: internal error: worker %d is asked twice at the same time to agree on %s", m.index, subject)
	}
	m.agreeing[subject] = a
	m.mu.Unlock()
	defer func() {
		m.mu.Lock()
		delete(m.agreeing, subject)
		m.mu.Unlock()
	}()
	m.link.send(&message{kind: msgAgree, Subject: subject, Hash: hex.EncodeToString(hash[:])})
	var why error
	select {
	case wrong := <-a.over:
		return errorOf(wrong)
	case <-m.done:
		return m.Err()
	case <-m.stop:
		return m.hasLeft()
	case <-ctx.Done():
		why = context.Cause(ctx)
	}
	m.link.send(&message{kind: msgWithdraw, Subject: subject})
	missing := ""
	patience := time.NewTimer(partingTime) // for a server that is stopped
	defer patience.Stop()
	select {
	case <-patience.C:
	case wrong := <-a.over: // just in time
		return errorOf(wrong)
	case <-m.done:
		return m.Err()
	case <-m.cut:
	case workers := <-a.missing:
		if len(workers) > 0 {
			missing = ", where " + theWorkers(workers) + " did not arrive"
		}
	}
	return errors.Errorf("epl: worker %d waits no longer to agree on %s%s: %v", m.index, subject, missing, why)
}

func errorOf(text string) error {
	if text == "" {
		return nil
	}
	return errors.New(text)
}

func (m *Member) hasLeft() error {
	return errors.Errorf("epl: worker %d has left the job; make no calls after Leave", m.index)
}

// handleAgreement takes what the server says about a subject.
func (m *Member) handleAgreement(msg *message) {
	m.mu.Lock()
	a := m.agreeing[msg.Subject]
	m.mu.Unlock()
	switch {
	case msg.kind == msgWantText && a == nil: // it has given up, but the others want an answer
		m.link.send(&message{kind: msgText, Subject: msg.Subject})
	case msg.kind == msgWantText:
		m.link.send(&message{kind: msgText, Subject: msg.Subject, body: a.text[:min(len(a.text), maxText)]})
	case a == nil:
	case msg.kind == msgAgreed:
		offer(a.over, msg.body)
	case msg.kind == msgMissing:
		offer(a.missing, msg.Workers)
	}
}

// offer puts a value into a channel with room for one, unless there is one.
func offer[T any](c chan T, v T) {
	select {
	case c <- v:
	default:
	}
}

// Answer sets how this worker answers questions. The function is called on goroutines of its own.
func (m *Member) Answer(f func(question string) string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.answer = f
}

// Query asks a worker, and returns what its Answer function says: by the server or, where that takes long, directly. It
// works also after the job has failed, as long as both workers are there.
func (m *Member) Query(ctx context.Context, worker int, question string) (string, error) {
	if worker < 0 || worker >= len(m.workers) {
		return "", errors.Errorf("epl: internal error: there is no worker %d to ask, the job has %d", worker, len(m.workers))
	}
	if len(question) > maxText {
		return "", errors.Errorf("epl: internal error: a question of %d bytes, the limit is %d", len(question), maxText)
	}
	reply := make(chan *message, 1)
	m.mu.Lock()
	m.lastQuery++
	id := m.lastQuery
	m.queries[id] = reply
	m.mu.Unlock()
	defer func() {
		m.mu.Lock()
		delete(m.queries, id)
		m.mu.Unlock()
	}()
	m.link.send(&message{kind: msgQuery, Worker: worker, ID: id, body: question})
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	type told struct {
		text string
		err  error
	}
	direct := make(chan told, 2)
	later := time.NewTimer(directAfter)
	defer later.Stop()
	cut := m.cut // nil when there is no connection to the server any more
	for {
		select {
		case msg := <-reply:
			if !msg.Bad {
				return msg.body, nil
			}
			return "", errors.Errorf("epl: %s does not answer: %s", m.workers[worker], msg.body)
		case answer := <-direct:
			if answer.err == nil {
				return answer.text, nil
			}
			if cut == nil {
				return "", errors.Errorf("epl: %s does not answer: %s, and there is no connection to the rendezvous any more",
					m.workers[worker], inner(answer.err.Error()))
			}
		case <-later.C:
			go func() {
				text, err := m.askDirectly(ctx, worker, question)
				direct <- told{text, err}
			}()
		case <-cut:
			cut = nil
			later.Reset(0)
		case <-m.stop:
			return "", m.hasLeft()
		case <-ctx.Done():
			return "", errors.Errorf("epl: %s does not answer: %v", m.workers[worker], context.Cause(ctx))
		}
	}
}

// handleQuestion answers without holding up what else the server says.
func (m *Member) handleQuestion(msg *message) {
	m.mu.Lock()
	ready := m.answer != nil
	m.mu.Unlock()
	reply := &message{kind: msgAnswer, Worker: msg.Worker, ID: msg.ID}
	if !ready {
		reply.Bad, reply.body = true, "it is not ready to answer questions yet"
		m.link.send(reply)
		return
	}
	go func() {
		reply.body = m.answerTo(msg.body)
		m.link.send(reply)
	}()
}
