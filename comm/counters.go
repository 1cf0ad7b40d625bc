// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package comm

import (
	"sync/atomic"

	"github.com/easyparallel/epl/comm/internal/transport"
)

// Counter is how often a rank completed an operation, and how many bytes it gave.
type Counter struct {
	Calls, Bytes int64
}

// counters are one rank's, by operation.
type counters [transport.NumOps]struct {
	calls, bytes atomic.Int64
}

// add counts a call that succeeded.
func (c *counters) add(k *request, groupSize int) {
	c[k.Op].calls.Add(1)
	if groupSize > 1 && !(k.Op == Broadcast && k.PeerPos != k.Pos) {
		c[k.Op].bytes.Add(k.Bytes)
	}
}

// read returns the operations that were used.
func (c *counters) read() map[string]Counter {
	m := map[string]Counter{}
	for op := Op(1); op < transport.NumOps; op++ {
		if calls := c[op].calls.Load(); calls > 0 {
			m[op.String()] = Counter{Calls: calls, Bytes: c[op].bytes.Load()}
		}
	}
	return m
}
