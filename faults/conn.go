// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package faults

import (
	"net"
	"sync"
	"time"
)

// conn is a connection with faults.
type conn struct {
	net.Conn
	i  *Injector
	on []*pending

	mu sync.Mutex // held by who writes: delayed bytes stay in order
}

// Read implements net.Conn.
func (c *conn) Read(b []byte) (int, error) {
	c.cut()
	return c.Conn.Read(b)
}

// Write implements net.Conn.
func (c *conn) Write(b []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.cut()
	var late time.Duration
	for _, p := range c.on {
		if !c.i.begun(p) || len(b) == 0 {
			continue
		}
		switch p.Kind {
		case Delay:
			c.i.fire(p, "what it sends is delayed")
			late = max(late, p.Time)
		case Corrupt:
			if p.fired.CompareAndSwap(false, true) {
				c.i.fire(p, "a bit of what it sends is changed")
				b = append([]byte(nil), b...)
				b[len(b)/2] ^= 4
			}
		}
	}
	time.Sleep(late)
	return c.Conn.Write(b)
}

// cut breaks the connection, if it is to break by now. All connections to the other worker do.
func (c *conn) cut() {
	for _, p := range c.on {
		if p.Kind == Cut && c.i.begun(p) {
			c.i.fire(p, "the connection is cut")
			c.Conn.Close()
		}
	}
}
