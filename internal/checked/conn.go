// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package checked

import (
	"bufio"
	"errors"
	"io"
	"net"
)

const (
	// together is how much data is copied behind its head, to be written at once; more is written from where it is.
	together = 8 << 10
	// ahead is how much is read with a head: enough for what is small, little of what is large.
	ahead = 4 << 10
)

// Conn is a connection whose two ends check what they read. One goroutine may read it while another writes it.
type Conn struct {
	net.Conn
	in     *bufio.Reader
	opener Opener
	record []byte // what was checked of a record that had no place where it was asked for
	rest   []byte // of it, to be read
	failed error  // nothing after damage can be believed

	sealer Sealer
	small  []byte
}

// NewConn makes a connection checked. The other end has to do so too, before anything was written.
func NewConn(c net.Conn) *Conn { return &Conn{Conn: c, in: bufio.NewReaderSize(c, ahead)} }

// Write implements net.Conn.
func (c *Conn) Write(b []byte) (n int, err error) {
	for n < len(b) {
		data := b[n:min(len(b), n+MaxRecord)]
		head := c.sealer.Seal(data)
		if len(data) <= together {
			c.small = append(append(c.small[:0], head[:]...), data...)
			_, err = c.Conn.Write(c.small)
		} else {
			_, err = (&net.Buffers{head[:], data}).WriteTo(c.Conn)
		}
		if err != nil {
			return n, err
		}
		n += len(data)
	}
	return n, nil
}

// Read implements net.Conn. It returns data of one record, which is all there.
func (c *Conn) Read(b []byte) (n int, err error) {
	if c.failed != nil {
		return 0, c.failed
	}
	defer func() {
		if damage := (*DamageError)(nil); errors.As(err, &damage) {
			c.failed = err
		}
	}()
	for len(c.rest) == 0 {
		if len(b) == 0 {
			return 0, nil
		}
		var head [HeadSize]byte
		if _, err := io.ReadFull(c.in, head[:]); err != nil {
			return 0, err
		}
		r, err := c.opener.Open(&head)
		if err != nil {
			return 0, err
		}
		into := b
		if r.Size > len(b) {
			if cap(c.record) < r.Size {
				c.record = make([]byte, r.Size)
			}
			into = c.record
		}
		into = into[:r.Size]
		if _, err := io.ReadFull(c.in, into); err != nil {
			if errors.Is(err, io.EOF) {
				err = io.ErrUnexpectedEOF
			}
			return 0, err
		}
		r.Add(into)
		if err := r.Check(); err != nil {
			return 0, err
		}
		if r.Size > len(b) {
			c.rest = into
		} else if r.Size > 0 {
			return r.Size, nil
		}
	}
	n = copy(b, c.rest)
	c.rest = c.rest[n:]
	return n, nil
}
