// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package tcp

import (
	"io"

	"github.com/pkg/errors"

	"github.com/easyparallel/epl/comm/internal/transport"
	"github.com/easyparallel/epl/internal/checked"
)

// take does what a frame says.
func (l *line) take(team *transport.Team, f Frame, r io.Reader) error {
	switch f.Kind {
	case FrameMessage, FrameOffer:
		return l.takeMessage(team, f, r)
	case FrameData:
		return l.takeData(team, f, r)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	t := l.sends[f.Number]
	if t == nil {
		return errors.Errorf("it speaks of message %d, which was not sent", f.Number)
	}
	delete(l.sends, f.Number)
	if t.eager {
		l.unasked -= int(t.call.Bytes)
	}
	switch f.Kind {
	case FrameReceived:
		t.done <- nil
	case frameAsk:
		if t.eager {
			return errors.Errorf("it asks for message %d, which it has", f.Number)
		}
		l.push(frameOut{frame: Frame{Kind: FrameData, Number: f.Number}, data: t.call.In.BytesOf(0, t.call.In.Len), done: t.done})
	case frameRefuse:
		if err := f.check(team, l.member); err != nil {
			return err
		}
		recv := &transport.Call{Header: f.Call.Header, Pos: f.Call.Pos, PeerPos: f.Call.Root}
		err := transport.CheckPair(team.Ranks, t.call, recv)
		if err == nil {
			err = errors.Errorf("it refuses message %d without a reason", f.Number)
		}
		t.done <- err
	}
	return nil
}

// takeMessage receives a message, or lays it aside.
func (l *line) takeMessage(team *transport.Team, f Frame, r io.Reader) error {
	if err := f.check(team, l.member); err != nil {
		return err
	}
	m := &message{send: &transport.Call{Header: f.Call.Header, Pos: f.Call.Pos, PeerPos: f.Call.Root}, number: f.Number}
	key := transport.StreamOf(m.send)
	if f.Kind == FrameMessage {
		if f.Call.Bytes > EagerBytes {
			return errors.Errorf("it sends %d bytes unasked, more than %d", f.Call.Bytes, EagerBytes)
		}
		if t := l.expected(team, m, key); t != nil {
			return l.takeInto(team, m, t, r)
		}
		m.data = make([]byte, f.Call.Bytes)
		if err := l.fill(team, &transport.Call{Header: f.Call.Header, Pos: f.Call.Root, PeerPos: f.Call.Pos}, r, m.data); err != nil {
			return err
		}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	t, ok := l.posted[key]
	if !ok {
		if l.arrived[key] != nil {
			return errors.Errorf("it sends a second message from rank %d to rank %d with tag %d before the first was received",
				team.Ranks[key.From], team.Ranks[key.To], key.Tag)
		}
		if l.waiting += len(m.data); l.waiting > unaskedBytes {
			return errors.Errorf("it sends more than %d bytes unasked", unaskedBytes)
		}
		l.arrived[key] = m
		return nil
	}
	delete(l.posted, key)
	if !l.matches(team, m, t) {
		return nil
	}
	if f.Kind == FrameOffer {
		l.ask(m, t)
		return nil
	}
	copy(t.call.Out.BytesOf(0, t.call.Out.Len), m.data)
	l.acknowledge(m)
	t.done <- nil
	return nil
}

// expected returns the receive that waits for a message and agrees with it, which it then has; nil if there is none.
func (l *line) expected(team *transport.Team, m *message, key transport.Stream) *transit {
	l.mu.Lock()
	defer l.mu.Unlock()
	t, ok := l.posted[key]
	if !ok || transport.CheckPair(team.Ranks, m.send, t.call) != nil {
		return nil
	}
	delete(l.posted, key)
	return t
}

// takeInto receives a message that was expected: it comes to where it is wanted.
func (l *line) takeInto(team *transport.Team, m *message, t *transit, r io.Reader) error {
	if err := l.fill(team, t.call, r, t.call.Out.BytesOf(0, t.call.Out.Len)); err != nil {
		return err
	}
	l.mu.Lock()
	l.acknowledge(m)
	l.mu.Unlock()
	t.done <- nil
	return nil
}

// takeData receives what was asked for.
func (l *line) takeData(team *transport.Team, f Frame, r io.Reader) error {
	l.mu.Lock()
	t := l.asked[f.Number]
	delete(l.asked, f.Number)
	l.mu.Unlock()
	if t == nil {
		return errors.Errorf("it sends the data of message %d, which nobody asked for", f.Number)
	}
	if err := l.fill(team, t.call, r, t.call.Out.BytesOf(0, t.call.Out.Len)); err != nil {
		return err
	}
	t.done <- nil
	return nil
}

// fill reads the data of a call, whose pos is the receiver's. If they are damaged it is known whose they were.
func (l *line) fill(team *transport.Team, k *transport.Call, r io.Reader, data []byte) error {
	_, err := io.ReadFull(r, data)
	if damage := new(checked.DamageError); errors.As(err, &damage) {
		return team.Corrupted(k, l.member, damage)
	}
	return err
}
