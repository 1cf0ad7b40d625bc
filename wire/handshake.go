// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package wire

import (
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"encoding/binary"
	"net"
	"strconv"
	"time"

	"github.com/pkg/errors"
)

// Types of the handshake's frames, in order. A refusal takes the place of any of the listener's.
const (
	hello     byte = 1 + iota // dialer: nonce, purpose
	challenge                 // listener: nonce
	proof                     // dialer: HMAC, version
	welcome                   // listener: HMAC, version
	refusal                   // listener: nothing; the dialer's HMAC is wrong
)

const (
	nonceSize = 32
	// maxPurpose leaves room for the rest of a hello.
	maxPurpose = maxHello - nonceSize - 256
	// patience is how long a peer that has connected may take to say its first word, and then each of the next.
	patience = 5 * time.Second
)

// Conn is a connection to a process that knows the job's token.
type Conn struct {
	net.Conn        // as it is, a *net.TCPConn for example; with TLS a *tls.Conn
	Purpose  string // as the dialer gave it
}

// Client makes a connection that was dialed an authenticated one, as the dialer. It closes it if that fails.
// The purpose is at most a few hundred bytes that tell the listener what the connection is for.
func Client(ctx context.Context, conn net.Conn, purpose string, s Security, version string) (*Conn, error) {
	return shake(ctx, conn, s, tls.Client, func(conn net.Conn, binding []byte) (*Conn, error) {
		if len(purpose) > maxPurpose {
			return nil, errors.Errorf("epl: internal error: the purpose of a connection has %d bytes, the limit is %d", len(purpose), maxPurpose)
		}
		t := transcript{security: s, binding: binding, purpose: purpose, dialer: version}
		rand.Read(t.nonces[0][:])
		if err := WriteFrame(conn, hello, append(t.nonces[0][:], purpose...)); err != nil {
			return nil, err
		}
		payload, err := expect(conn, challenge)
		if err != nil {
			return nil, err
		}
		if len(payload) != nonceSize {
			return nil, &ProtocolError{"its challenge is malformed"}
		}
		t.nonces[1] = [nonceSize]byte(payload)
		if err := WriteFrame(conn, proof, append(t.mac("dialer"), version...)); err != nil {
			return nil, err
		}
		if payload, err = expect(conn, welcome); err != nil {
			return nil, err
		}
		if len(payload) < sha256.Size {
			return nil, &ProtocolError{"its welcome is malformed"}
		}
		t.listener = string(payload[sha256.Size:])
		if !hmac.Equal(payload[:sha256.Size], t.mac("listener")) {
			return nil, &TokenError{}
		}
		if t.listener != version {
			return nil, &VersionError{Ours: version, Theirs: t.listener, Purpose: purpose}
		}
		return &Conn{conn, purpose}, nil
	})
}

// server makes a connection that was accepted an authenticated one, as the listener. It closes it if that fails. It tells when
// the other side has said its first word.
func server(ctx context.Context, conn net.Conn, s Security, version string, heard func()) (*Conn, error) {
	return shake(ctx, conn, s, tls.Server, func(conn net.Conn, binding []byte) (*Conn, error) {
		if binding != nil {
			heard() // it has a certificate
		}
		payload, err := expect(conn, hello)
		if err != nil {
			if _, other := err.(*protocolVersionError); other {
				WriteFrame(conn, refusal, nil) // its header tells a worker of another version ours
			}
			return nil, err
		}
		if len(payload) < nonceSize || len(payload) > nonceSize+maxPurpose {
			return nil, &ProtocolError{"its hello is malformed"}
		}
		heard()
		t := transcript{security: s, binding: binding, purpose: string(payload[nonceSize:]), listener: version}
		t.nonces[0] = [nonceSize]byte(payload)
		rand.Read(t.nonces[1][:])
		conn.SetDeadline(time.Now().Add(patience))
		if err := WriteFrame(conn, challenge, t.nonces[1][:]); err != nil {
			return nil, err
		}
		if payload, err = expect(conn, proof); err != nil {
			return nil, err
		}
		if len(payload) < sha256.Size {
			return nil, &ProtocolError{"its proof is malformed"}
		}
		t.dialer = string(payload[sha256.Size:])
		if !hmac.Equal(payload[:sha256.Size], t.mac("dialer")) {
			WriteFrame(conn, refusal, nil) // it may be a worker that was given a wrong token, and wants to know
			return nil, &TokenError{}
		}
		// Also a worker of another version gets this, to learn ours.
		if err := WriteFrame(conn, welcome, append(t.mac("listener"), version...)); err != nil {
			return nil, err
		}
		if t.dialer != version {
			return nil, &VersionError{Ours: version, Theirs: t.dialer, Purpose: t.purpose}
		}
		return &Conn{conn, t.purpose}, nil
	})
}

// shake runs one side's handshake, inside TLS if there is any. It ends when the context does, or when the other side
// takes too long.
func shake(ctx context.Context, conn net.Conn, s Security, secure func(net.Conn, *tls.Config) *tls.Conn,
	side func(conn net.Conn, binding []byte) (*Conn, error)) (*Conn, error) {
	stop := context.AfterFunc(ctx, func() { conn.Close() })
	conn.SetDeadline(time.Now().Add(patience))
	c, err := func() (*Conn, error) {
		if err := s.check(); err != nil {
			return nil, err
		}
		if s.TLS == nil {
			return side(conn, nil)
		}
		inside := secure(conn, s.TLS)
		if err := inside.Handshake(); err != nil {
			return nil, &TLSError{err}
		}
		state := inside.ConnectionState()
		binding, err := state.ExportKeyingMaterial("EXPORTER-epl-wire", nil, 32)
		if err != nil {
			return nil, &TLSError{err}
		}
		return side(inside, binding)
	}()
	if !stop() && !verdict(err) { // it was closed
		err = context.Cause(ctx)
	}
	if err != nil {
		conn.Close()
		return nil, err
	}
	return c, conn.SetDeadline(time.Time{})
}

// verdict tells whether an error is what the other side deserves.
func verdict(err error) bool {
	switch err.(type) {
	case *TokenError, *VersionError, *ProtocolError, *protocolVersionError, *DamageError:
		return true
	}
	return false
}

// expect reads the next frame of the handshake.
func expect(conn net.Conn, kind byte) ([]byte, error) {
	got, payload, err := ReadFrame(conn, maxHello)
	switch {
	case err != nil:
		return nil, err
	case got == refusal && kind != hello && kind != proof:
		return nil, &TokenError{}
	case got != kind:
		return nil, &ProtocolError{"the handshake is out of order"}
	}
	return payload, nil
}

// transcript is what both sides must have seen alike.
type transcript struct {
	security         Security
	binding          []byte // of the TLS session
	purpose          string
	nonces           [2][nonceSize]byte // of the dialer and the listener
	dialer, listener string             // versions; the dialer proves itself before it knows the listener's
}

// mac proves knowledge of the token, for one role in one handshake. Every field has its length before it, so that
// different transcripts are different bytes.
func (t *transcript) mac(role string) []byte {
	h := hmac.New(sha256.New, []byte(t.security.Token))
	fields := []string{"epl wire", strconv.Itoa(protocolVersion), role, t.purpose, string(t.nonces[0][:]), string(t.nonces[1][:]), string(t.binding), t.dialer}
	if role == "listener" {
		fields = append(fields, t.listener)
	}
	for _, f := range fields {
		h.Write(binary.BigEndian.AppendUint32(nil, uint32(len(f))))
		h.Write([]byte(f))
	}
	return h.Sum(nil)
}
