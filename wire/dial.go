// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package wire

import (
	"context"
	"net"
	"time"
)

// keepAlive finds out about a machine that vanished while nothing was to be sent.
var keepAlive = net.KeepAliveConfig{Enable: true, Idle: 15 * time.Second, Interval: 5 * time.Second, Count: 6}

// Dial makes an authenticated connection, or returns a [DialError]. The network is "tcp" or "unix", the version is EPL's,
// and the purpose is as in [Client].
func Dial(ctx context.Context, network, addr, purpose string, s Security, version string) (*Conn, error) {
	dialer := net.Dialer{KeepAliveConfig: keepAlive}
	conn, err := dialer.DialContext(ctx, network, addr)
	if err != nil {
		return nil, &DialError{addr, err}
	}
	c, err := Client(ctx, conn, purpose, s, version)
	if err != nil {
		return nil, &DialError{addr, err}
	}
	return c, nil
}

// GiveUpAfter makes the connection fail when what was sent has not been taken by the other machine for so long, where
// the system can do that. It suits connections that are always read: a full receiver counts as one that is gone.
func (c *Conn) GiveUpAfter(d time.Duration) { setUserTimeout(c.Conn, d) }
