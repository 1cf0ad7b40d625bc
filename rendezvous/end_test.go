// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package rendezvous

import (
	"context"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pkg/errors"

	"github.com/easyparallel/epl/internal/jobtest"
	"github.com/easyparallel/epl/wire"
)

// blaming is an error that names culprits.
type blaming struct{ workers []int }

func (b blaming) Error() string   { return "epl: it took too long" }
func (b blaming) Culprits() []int { return b.workers }

func TestWhoNoticesAFailureIsNotToBlame(t *testing.T) {
	for _, c := range []struct {
		err  error
		want []int
	}{
		{errors.WithMessage(blaming{[]int{2}}, "in step 3"), []int{2}},
		{blaming{[]int{2, 0}}, []int{2, 0}},
		{blaming{nil}, []int{1}},
		{blaming{[]int{-1, 7}}, []int{1}}, // nonsense
		{errors.New("out of memory"), []int{1}},
	} {
		s, members := started(t, 3, nil)
		members[1].Fail(c.err)
		if got := s.Culprits(); !slices.Equal(got, c.want) {
			t.Errorf("%v: %v are to blame, want %v", c.err, got, c.want)
		}
		for i, status := range s.Status() {
			if failed := status.Failed != ""; failed != slices.Contains(c.want, i) {
				t.Errorf("%v: status of worker %d: %+v", c.err, i, status)
			}
		}
		wantFailed(t, members[0], "epl: ")
		wantFailed(t, members[2], "epl: ")
		for _, m := range members {
			m.Leave()
		}
	}
}

func TestAWorkerThatEndsIsKnownToAllAtOnce(t *testing.T) {
	jobtest.NoLeak(t)
	_, members := started(t, 2, nil)
	members[1].Progress(37, 0)
	members[1].End()
	for deadline := time.Now().Add(jobtest.Limit); !members[0].State(1).Ended; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("nobody told worker 0")
		}
	}
	if s := members[0].State(1); s.Step != 37 || s.Left {
		t.Errorf("its state is %+v", s)
	}
	// Those who have ended can still agree on something.
	members[0].End()
	for _, err := range onAll(members, func(m *Member) error { return m.Agree(jobtest.Within(t), "the end", "") }) {
		if err != nil {
			t.Error(err)
		}
	}
	leaveAll(t, members)
}

func TestWhoAgreesWithAWorkerThatHasEndedFailsAtOnce(t *testing.T) {
	for _, first := range []string{"it ends first", "it ends later"} {
		s, members := started(t, 3, nil)
		errs := make(chan error, 1)
		if first == "it ends first" {
			members[2].End()
		}
		go func() { errs <- members[0].Agree(jobtest.Within(t), "the plan", "") }()
		if first == "it ends later" {
			for len(s.roundsNow()) == 0 {
				time.Sleep(time.Millisecond)
			}
			members[2].End()
		}
		jobtest.WantError(t, <-errs, "worker 2 (host2, pid", "has ended its part of the job", "cannot agree on the plan")
		if got := s.Culprits(); !slices.Equal(got, []int{2}) {
			t.Errorf("%s: %v are to blame", first, got)
		}
		for _, m := range members {
			m.Leave()
		}
	}
}

func (s *Server) roundsNow() (subjects []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for subject := range s.rounds {
		subjects = append(subjects, subject)
	}
	return subjects
}

func TestAWorkerThatEndsWellBeforeItJoinsFailsTheOthers(t *testing.T) {
	for _, first := range []string{"it ends first", "it ends later"} {
		s := serve(t, ServerOptions{Workers: 3})
		if first == "it ends first" {
			s.WorkerEnded(1)
			if s.Err() != nil {
				t.Errorf("nobody has come, but the job failed: %v", s.Err())
			}
		}
		errs := make(chan error, 1)
		go func() {
			_, err := Join(jobtest.Within(t), jobAt(s, 0, 3))
			errs <- err
		}()
		if first == "it ends later" {
			for !s.Status()[0].Joined {
				time.Sleep(time.Millisecond)
			}
			s.WorkerEnded(1)
		}
		jobtest.WantError(t, <-errs, "worker 1 ended with status 0 before it joined the others", "call epl.Init")
		if got := s.Culprits(); !slices.Equal(got, []int{1}) {
			t.Errorf("%s: %v are to blame", first, got)
		}
		s.Close()
	}
}

func TestAWorkerThatEndsWellWithoutLeavingIsToBlame(t *testing.T) {
	s, members := started(t, 2, func(o *ServerOptions, _ []Options) { o.Grace = jobtest.Limit })
	members[1].link.conn.Close() // its process has ended
	s.WorkerEnded(1)
	wantFailed(t, members[0], "worker 1 (host1, pid", "ended with status 0 before it left the job", "Close")
	if got := s.Culprits(); !slices.Equal(got, []int{1}) {
		t.Errorf("%v are to blame", got)
	}
	s, members = started(t, 2, nil)
	leaveAll(t, members)
	s.WorkerEnded(0)
	s.WorkerEnded(1)
	if s.Err() != nil {
		t.Error(s.Err())
	}
}

func TestAWorkerThatIsSilentWhenAllOthersHaveLeftEndsTheJobAfterTheTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, jobs, _ := pipeJobs(t, 3)
		for i := range jobs {
			jobs[i].Timeout = 20 * time.Second
		}
		members, errs := joinAll(t.Context(), jobs)
		if err := errors.Wrap(errs[0], "joining"); err != nil {
			t.Fatal(err)
		}
		start := time.Now()
		members[1].link.conn.Conn.(*plug).pull()
		members[0].Leave()
		time.Sleep(30 * time.Second)
		if s.Err() != nil {
			t.Fatalf("worker 2 is still there, but: %v", s.Err())
		}
		members[2].Leave()
		<-s.Failed()
		if d := time.Since(start); d > 32*time.Second {
			t.Errorf("it took %s", d)
		}
		jobtest.WantError(t, s.Err(), "worker 1 (host1, pid", "has not been heard of for", "when all others had finished")
		if got := s.Culprits(); !slices.Equal(got, []int{1}) {
			t.Errorf("%v are to blame", got)
		}
		members[1].link.conn.Conn.(*plug).push()
		members[1].Leave()
		s.Close()
	})
}

// plugged is TCP with connections to the server that can be pulled out.
type plugged struct{ tcp }

func (p plugged) dial(ctx context.Context, addr, purpose string, s wire.Security, version string) (*wire.Conn, error) {
	conn, err := p.tcp.dial(ctx, addr, purpose, s, version)
	if err == nil && strings.HasPrefix(purpose, control) {
		conn.Conn = &plug{Conn: conn.Conn}
	}
	return conn, err
}

func TestAWorkerThatIsCutOffFromTheServerAsksOthersDirectly(t *testing.T) {
	jobtest.NoLeak(t)
	s := serve(t, ServerOptions{Workers: 3})
	jobs := make([]Options, 3)
	for i := range jobs {
		jobs[i] = jobAt(s, i, 3)
		jobs[i].network = plugged{}
	}
	members, errs := joinAll(t.Context(), jobs)
	for _, err := range errs {
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, m := range members {
		m.Answer(func(question string) string { return question + "!" })
	}
	cable := members[0].link.conn.Conn.(*plug)
	cable.pull()
	for _, worker := range []int{1, 2} {
		if answer, err := members[0].Query(jobtest.Within(t), worker, "hello"); answer != "hello!" || err != nil {
			t.Errorf("worker %d answers %q, %v", worker, answer, err)
		}
		if answer, err := members[worker].Query(jobtest.Within(t), 0, "hello"); answer != "hello!" || err != nil {
			t.Errorf("worker %d is answered %q, %v", worker, answer, err)
		}
	}
	cable.push()
	leaveAll(t, members)
}
