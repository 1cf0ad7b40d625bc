// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package rendezvous

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/easyparallel/epl/internal/jobtest"
	"github.com/easyparallel/epl/wire"
)

var testSecurity = wire.Security{Token: "0123456789abcdef0123456789abcdef"}

// serve makes a server on the loopback interface.
func serve(t *testing.T, o ServerOptions) *Server {
	t.Helper()
	o.Security = testSecurity
	s, err := NewServer("127.0.0.1:0", o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

// jobAt describes worker i of n to Join.
func jobAt(s *Server, i, n int) Options {
	return Options{URL: "tcp://" + s.Addr().String(), Security: testSecurity, Workers: n, Index: i, Host: fmt.Sprintf("host%d", i), Timeout: jobtest.Limit}
}

// joinAll joins all jobs at the same time.
func joinAll(ctx context.Context, jobs []Options) ([]*Member, []error) {
	members, errs := make([]*Member, len(jobs)), make([]error, len(jobs))
	var group sync.WaitGroup
	for i, j := range jobs {
		group.Go(func() { members[i], errs[i] = Join(ctx, j) })
	}
	group.Wait()
	return members, errs
}

// started returns a running job of n workers.
func started(t *testing.T, n int, change func(*ServerOptions, []Options)) (*Server, []*Member) {
	t.Helper()
	o := ServerOptions{Workers: n, Logf: t.Logf}
	jobs := make([]Options, n)
	if change != nil {
		change(&o, jobs)
	}
	s := serve(t, o)
	for i := range jobs {
		logf := jobs[i].Logf
		jobs[i] = jobAt(s, i, n)
		jobs[i].Logf = logf
	}
	members, errs := joinAll(t.Context(), jobs)
	for i, err := range errs {
		if err != nil {
			t.Fatalf("worker %d: %v", i, err)
		}
		t.Cleanup(func() { members[i].Leave() })
	}
	return s, members
}

// leaveAll lets all workers leave, and checks that the job went well.
func leaveAll(t *testing.T, members []*Member) {
	t.Helper()
	var group sync.WaitGroup
	for i, m := range members {
		group.Go(func() {
			if err := m.Leave(); err != nil {
				t.Errorf("worker %d: %v", i, err)
			}
		})
	}
	group.Wait()
}

// onAll calls f for all members at the same time.
func onAll(members []*Member, f func(m *Member) error) []error {
	errs := make([]error, len(members))
	var group sync.WaitGroup
	for i, m := range members {
		group.Go(func() { errs[i] = f(m) })
	}
	group.Wait()
	return errs
}

// wantFailed waits until a member's job has failed, with all these words.
func wantFailed(t *testing.T, m *Member, words ...string) {
	t.Helper()
	select {
	case <-m.Done():
		jobtest.WantError(t, m.Err(), words...)
	case <-time.After(jobtest.Limit):
		t.Errorf("worker %d does not know that the job failed", m.Index())
	}
}

func wantWell(t *testing.T, members []*Member) {
	t.Helper()
	for _, m := range members {
		if err := m.Err(); err != nil {
			t.Errorf("worker %d: %v", m.Index(), err)
		}
	}
}

// writer collects bytes.
type writer []byte

func (w *writer) Write(b []byte) (int, error) {
	*w = append(*w, b...)
	return len(b), nil
}
