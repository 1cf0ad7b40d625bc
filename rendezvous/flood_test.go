// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package rendezvous

import (
	"context"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/easyparallel/epl/internal/jobtest"
)

// flood connects to an address and says nothing: many at once, and then fifty a second until stop.
func flood(t *testing.T, addr string) (stop func()) {
	t.Helper()
	const atOnce, atMost = 600, 2000
	var conns []net.Conn
	visit := func() {
		if c, err := net.DialTimeout("tcp", addr, jobtest.Limit); err == nil {
			conns = append(conns, c)
		}
	}
	for range atOnce {
		visit()
	}
	ctx, cancel := context.WithCancel(t.Context())
	var group sync.WaitGroup
	group.Go(func() {
		for ctx.Err() == nil && len(conns) < atMost {
			visit()
			time.Sleep(20 * time.Millisecond)
		}
	})
	return func() {
		cancel()
		group.Wait()
		for _, c := range conns {
			c.Close()
		}
	}
}

func TestStrangersWhoStaySilentKeepNoWorkerOut(t *testing.T) {
	jobtest.NoLeak(t)
	const n = 3
	s := serve(t, ServerOptions{Workers: n, Logf: t.Logf})
	defer flood(t, s.Addr().String())()
	var jobs []Options
	for i := range n {
		jobs = append(jobs, jobAt(s, i, n))
	}
	members, errs := joinAll(jobtest.Within(t), jobs)
	for i, err := range errs {
		if err != nil {
			t.Fatalf("worker %d is kept out of the job: %v", i, err)
		}
	}
	for _, w := range members[0].Workers() {
		defer flood(t, w.Addr)()
	}
	// Now that the job runs, its workers need more connections with each other.
	for _, err := range onAll(members, func(m *Member) error {
		for other := range n {
			if other == m.Index() {
				continue
			}
			c, err := m.Connect(jobtest.Within(t), other, "a save")
			if err != nil {
				return err
			}
			c.Close()
		}
		return nil
	}) {
		if err != nil {
			t.Error(err)
		}
	}
	leaveAll(t, members)
}
