// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package rendezvous

import (
	"context"
	"errors"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/easyparallel/epl/internal/jobtest"
	"github.com/easyparallel/epl/internal/version"
	"github.com/easyparallel/epl/wire"
)

func TestWorkersFindEachOther(t *testing.T) {
	jobtest.NoLeak(t)
	for _, n := range []int{1, 2, 5} {
		s, members := started(t, n, nil)
		for i, m := range members {
			if m.Index() != i {
				t.Errorf("worker %d has index %d", i, m.Index())
			}
			all := m.Workers()
			if len(all) != n {
				t.Fatalf("worker %d sees %d workers", i, len(all))
			}
			for k, w := range all {
				if w.Index != k || w.PID != os.Getpid() || !strings.HasPrefix(w.Host, "host") || w.Addr == "" || w.HostID == "" {
					t.Errorf("worker %d sees %+v", i, w)
				}
			}
		}
		for i, w := range s.Status() {
			if !w.Joined || w.Index != i || w.PID != os.Getpid() || w.Left {
				t.Errorf("status %+v", w)
			}
		}
		leaveAll(t, members)
		for _, w := range s.Status() {
			if !w.Left {
				t.Errorf("status after all left: %+v", w)
			}
		}
		if s.Err() != nil {
			t.Error(s.Err())
		}
		s.Close()
	}
}

func TestWorkersWithoutIndexAreHandedTheLowestFree(t *testing.T) {
	jobtest.NoLeak(t)
	s := serve(t, ServerOptions{Workers: 3})
	jobs := []Options{jobAt(s, -1, 3), jobAt(s, -1, 3), jobAt(s, -1, 3)}
	members, errs := joinAll(t.Context(), jobs)
	seen := map[int]bool{}
	for i, m := range members {
		if errs[i] != nil {
			t.Fatal(errs[i])
		}
		seen[m.Index()] = true
	}
	if len(seen) != 3 || !seen[0] || !seen[1] || !seen[2] {
		t.Errorf("indices %v", seen)
	}
	_, err := Join(t.Context(), jobAt(s, -1, 3))
	jobtest.WantError(t, err, "all 3 workers of the job are here already")
	leaveAll(t, members)
}

func TestHostIDsAreEqualIfMemoryCanBeShared(t *testing.T) {
	a, again, b := hostID("a"), hostID("a"), hostID("b")
	if a == "" || a != again || a == b {
		t.Errorf("%q, %q, %q", a, again, b)
	}
}

// Each of these comes to a job that waits for its last worker, and to one that runs.
func TestWhoDoesNotBelongIsRefusedAndTheJobGoesOn(t *testing.T) {
	jobtest.NoLeak(t)
	for _, c := range []struct {
		name   string
		change func(*Options)
		want   []string
	}{
		{"the same index twice", func(j *Options) {}, []string{"there is a worker 0 already", "host0", "other", "pid"}},
		{"an index out of range", func(j *Options) { j.Index, j.Workers = 7, 8 }, []string{"this is worker 7, but the job has 2"}},
		{"another number of workers", func(j *Options) { j.Index, j.Workers = 1, 3 }, []string{}},
		{"another token", func(j *Options) { j.Security.Token = "another-0123456789" }, []string{"another token"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			logged := jobtest.NewJournal()
			s := serve(t, ServerOptions{Workers: 2, Logf: logged.Logf})
			intruder := jobAt(s, 0, 2)
			intruder.Host = "other"
			c.change(&intruder)
			first := make(chan *Member)
			go func() {
				m, err := Join(jobtest.Within(t), jobAt(s, 0, 2))
				if err != nil {
					t.Error(err)
				}
				first <- m
			}()
			waitJoined(t, s, 0)
			_, err := Join(jobtest.Within(t), intruder)
			jobtest.WantError(t, err, c.want...)
			second, err := Join(jobtest.Within(t), jobAt(s, 1, 2))
			if err != nil {
				t.Fatal(err)
			}
			members := []*Member{<-first, second}
			_, err = Join(jobtest.Within(t), intruder)
			jobtest.WantError(t, err, c.want...)
			wantWell(t, members)
			if logged.Text() == "" {
				t.Error("nothing was logged")
			}
			leaveAll(t, members)
		})
	}
}

// waitJoined waits until a worker has come.
func waitJoined(t *testing.T, s *Server, worker int) {
	t.Helper()
	for deadline := time.Now().Add(jobtest.Limit); !s.Status()[worker].Joined; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("worker %d has not come", worker)
		}
	}
}

func TestAJobWithoutServerSaysSo(t *testing.T) {
	jobtest.NoLeak(t)
	s := serve(t, ServerOptions{Workers: 2})
	j := jobAt(s, 1, 2)
	s.Close()
	j.Timeout = 2 * time.Second
	_, err := Join(t.Context(), j)
	jobtest.WantError(t, err, "worker 1 found no rendezvous at tcp://", "within 2s", "refused", "the launcher")
}

func TestTheServerMayComeLater(t *testing.T) {
	jobtest.NoLeak(t)
	s := serve(t, ServerOptions{Workers: 1})
	addr, j := s.Addr().String(), jobAt(s, 0, 1)
	s.Close()
	joined := make(chan error)
	go func() {
		m, err := Join(jobtest.Within(t), j)
		if err == nil {
			err = m.Leave()
		}
		joined <- err
	}()
	time.Sleep(50 * time.Millisecond) // so that it has tried; the outcome does not depend on it
	s, err := NewServer(addr, ServerOptions{Workers: 1, Security: testSecurity})
	if err != nil {
		t.Skipf("the port was taken meanwhile: %v", err)
	}
	defer s.Close()
	if err := <-joined; err != nil {
		t.Error(err)
	}
}

func TestGivingUpWhileWaitingTellsTheOthers(t *testing.T) {
	jobtest.NoLeak(t)
	s := serve(t, ServerOptions{Workers: 3})
	ctx, cancel := context.WithCancelCause(t.Context())
	var group sync.WaitGroup
	group.Go(func() {
		_, err := Join(jobtest.Within(t), jobAt(s, 0, 3))
		jobtest.WantError(t, err, "worker 1 stopped", "gave up", "no more coffee")
	})
	group.Go(func() {
		_, err := Join(ctx, jobAt(s, 1, 3))
		jobtest.WantError(t, err, "gave up", "no more coffee")
	})
	waitJoined(t, s, 0)
	waitJoined(t, s, 1)
	cancel(errors.New("no more coffee"))
	group.Wait()
}

func TestDifferentFactsStopEveryWorker(t *testing.T) {
	jobtest.NoLeak(t)
	for _, c := range []struct {
		name  string
		facts [][]Fact
		want  string
	}{
		{"a value", [][]Fact{{{"cluster", "2x4"}, {"config a", "1"}}, {{"cluster", "2x4"}, {"config a", "2"}}, {{"cluster", "2x4"}, {"config a", "1"}}},
			`do not agree on config a: it is "1" on workers 0, 2, "2" on worker 1;`},
		{"the first that differs", [][]Fact{{{"a", "1"}, {"b", "1"}}, {{"a", "2"}, {"b", "2"}}, {{"a", "3"}, {"b", "3"}}},
			`do not agree on a: it is "1" on worker 0, "2" on worker 1, "3" on worker 2;`},
		{"one that is missing", [][]Fact{{{"a", "1"}}, {}, {{"a", "1"}}}, `do not agree on a: it is "1" on workers 0, 2, nothing on worker 1;`},
		{"one that is too many", [][]Fact{{{"a", "1"}}, {{"a", "1"}, {"b", ""}}, {{"a", "1"}}}, `do not agree on b: it is nothing on workers 0, 2, "" on worker 1;`},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := serve(t, ServerOptions{Workers: 3})
			jobs := make([]Options, 3)
			for i := range jobs {
				jobs[i] = jobAt(s, i, 3)
				jobs[i].Facts = c.facts[i]
			}
			_, errs := joinAll(t.Context(), jobs)
			for _, err := range errs {
				jobtest.WantError(t, err, c.want)
			}
			jobtest.WantError(t, s.Err(), c.want)
		})
	}
}

func TestAnotherVersionStopsEveryWorkerBeforeTheJobBegins(t *testing.T) {
	jobtest.NoLeak(t)
	s := serve(t, ServerOptions{Workers: 2})
	jobs := []Options{jobAt(s, 0, 2), jobAt(s, 1, 2)}
	jobs[1].Version = "9.9"
	_, errs := joinAll(t.Context(), jobs)
	jobtest.WantError(t, errs[0], "worker 1 at 127.0.0.1 is EPL 9.9, the others are EPL "+version.Version)
	jobtest.WantError(t, errs[1], "is EPL "+version.Version+", this is EPL 9.9")
}

func TestAJobThatCannotBeIsRefused(t *testing.T) {
	s := serve(t, ServerOptions{Workers: 2})
	for _, c := range []struct {
		change func(*Options)
		want   string
	}{
		{func(j *Options) { j.Workers = 0 }, "worker 0 of a job of 0"},
		{func(j *Options) { j.Index = 2 }, "worker 2 of a job of 2"},
		{func(j *Options) { j.Index = -2 }, "worker -2 of a job of 2"},
		{func(j *Options) { j.URL = "http://a:1" }, "expected tcp://host:port"},
		{func(j *Options) { j.URL, j.Index = "first://localhost:1", -1 }, "EPL_WORKER_INDEX"},
	} {
		j := jobAt(s, 0, 2)
		c.change(&j)
		_, err := Join(t.Context(), j)
		jobtest.WantError(t, err, c.want)
	}
	if _, err := NewServer("127.0.0.1:0", ServerOptions{Security: testSecurity}); err == nil {
		t.Error("a server for nobody")
	}
	if _, err := NewServer("127.0.0.1:0", ServerOptions{Workers: 1, Security: wire.Security{}}); err == nil {
		t.Error("a server without a token")
	}
}
