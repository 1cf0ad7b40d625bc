// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"net"
	"syscall"

	"golang.org/x/sys/unix"
)

// A network that gives each connection 0.5 Gbit/s, as clouds limit a flow: two workers use one connection, or four.
const (
	limitedPath = "limited"
	streamsPath = "limited-streams"

	limitedBytes = 62_500_000 // per second and connection

	maxPacingRate = 0x2f // SO_MAX_PACING_RATE, which only Linux has
)

// limitedMesh makes connections of limited speed: the system spaces their packets.
type limitedMesh struct{ mesh }

func (m limitedMesh) Connect(ctx context.Context, worker int, name string) (net.Conn, error) {
	c, err := m.mesh.Connect(ctx, worker, name)
	if err != nil {
		return nil, err
	}
	raw, err := c.(syscall.Conn).SyscallConn()
	if err != nil {
		return nil, err
	}
	var failed error
	if err := raw.Control(func(fd uintptr) {
		failed = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, maxPacingRate, limitedBytes)
	}); err != nil {
		return nil, err
	}
	return c, failed
}

// streamRows compare four connections of two workers with one.
func streamRows() (rows []Row) {
	for _, size := range commSizes[:3] {
		for _, op := range []string{"all-reduce", "all-gather", "send-recv"} {
			by := func(path string) func() (side, error) {
				start := func(workers int) (*fleet, error) { return ourFleet(workers, path) }
				return func() (side, error) { return commSide(op, size.bytes, min(size.repeats, 20), 2, start) }
			}
			rows = append(rows, Row{Name: fmt.Sprintf("comm/2-workers/%s/%s/%s", size.name, op, streamsPath), Peer: "EPL, one connection", Pairs: 15, Warm: 1,
				Ours: by(streamsPath), Theirs: by(limitedPath)})
		}
	}
	return rows
}
