// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package serve

import (
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"strings"

	"github.com/pkg/errors"

	"github.com/easyparallel/epl/wire"
)

// RefusedError says why the other worker does not give what it was asked for.
type RefusedError struct{ Reason string }

// Error implements error.
func (e *RefusedError) Error() string { return "epl: " + e.Reason }

// Fetch copies the data of a name and version into dst, which must have their size, from the [Server] that handles the
// other end of the connection. If they are not offered there yet it waits until they are.
//
// Fetches on one connection come one after the other. After an error, but for a [RefusedError], the connection is of no
// more use, and dst may be filled in part. When the context ends, the connection is closed.
func Fetch(ctx context.Context, conn net.Conn, name string, version uint64, dst []byte) error {
	if len(name) > maxName {
		return errors.Errorf("epl: internal error: the name %.40q… has %d bytes, the limit is %d", name, len(name), maxName)
	}
	stop := context.AfterFunc(ctx, func() { conn.Close() })
	state := "was not answered"
	err := func() error {
		if err := wire.WriteFrame(conn, request, wanted{name, version, uint64(len(dst))}.encode()); err != nil {
			return err
		}
		for {
			kind, payload, err := wire.ReadFrame(conn, maxReply)
			if err != nil {
				return err
			}
			switch {
			case kind == notYet && len(payload) == 0:
				state = "has not been offered, nor has any other"
			case kind == notYet && len(payload) == 8:
				state = fmt.Sprintf("has not been offered, version %d is the newest", binary.BigEndian.Uint64(payload))
			case kind == refused:
				return &RefusedError{string(payload)}
			case kind == here && len(payload) == 0:
				n, err := io.ReadFull(conn, dst)
				state = fmt.Sprintf("came in part, %d of %d bytes", n, len(dst))
				return err
			default:
				return &wire.ProtocolError{Reason: "a reply is malformed"}
			}
		}
	}()
	if !stop() { // the connection was closed
		err = context.Cause(ctx)
	}
	if _, verdict := err.(*RefusedError); verdict || err == nil {
		return err
	}
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		err = errors.New("the connection ended")
	}
	return &fetchError{fmt.Sprintf("epl: version %d of %q %s: %s", version, name, state, strings.TrimPrefix(err.Error(), "epl: ")), err}
}

// fetchError says what was not got, and why.
type fetchError struct {
	text  string
	cause error
}

func (e *fetchError) Error() string { return e.text }
func (e *fetchError) Unwrap() error { return e.cause }
