// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package comm

import (
	"github.com/easyparallel/epl/comm/hybrid"
	"github.com/easyparallel/epl/comm/internal/transport"
	"github.com/easyparallel/epl/comm/mpi"
	"github.com/easyparallel/epl/comm/shm"
	"github.com/easyparallel/epl/comm/tcp"
)

// newEngine chooses how the workers of a team reach each other: by shared memory on one host, by connections between
// hosts, by both where there are several hosts with several workers each.
func (w *World) newEngine(t *transport.Team) transport.Engine {
	hosts := map[string]int{}
	for _, m := range t.Members {
		hosts[m.Host]++
	}
	switch {
	case w.mpi:
		return mpi.New(t)
	case len(hosts) == 1:
		return newShm(t)
	case len(hosts) == len(t.Members):
		return tcp.New(t)
	}
	return hybrid.New(t, newShm, tcp.New, tcp.NewBetween)
}

// newShm lets workers of one host share memory, or use connections where they cannot.
func newShm(t *transport.Team) transport.Engine { return shm.New(t, tcp.New) }
