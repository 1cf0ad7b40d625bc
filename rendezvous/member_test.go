// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package rendezvous

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/easyparallel/epl/internal/jobtest"
)

func TestWorkersConnectForOnePurposeInAnyOrder(t *testing.T) {
	jobtest.NoLeak(t)
	const n = 4
	_, members := started(t, n, nil)
	names := []string{"control", "data w1 [0-3]/0", "données"}
	errs := onAll(members, func(m *Member) error {
		var group sync.WaitGroup
		var mu sync.Mutex
		var all error
		for other := range n {
			if other == m.Index() {
				continue
			}
			for _, name := range names {
				group.Go(func() {
					err := talk(t.Context(), m, other, name)
					mu.Lock()
					all = errors.Join(all, err)
					mu.Unlock()
				})
			}
		}
		group.Wait()
		return all
	})
	for i, err := range errs {
		if err != nil {
			t.Errorf("worker %d: %v", i, err)
		}
	}
	leaveAll(t, members)
}

// talk connects, and checks who is at the other end.
func talk(ctx context.Context, m *Member, other int, name string) error {
	conn, err := m.Connect(ctx, other, name)
	if err != nil {
		return err
	}
	defer conn.Close()
	if _, raw := conn.(*net.TCPConn); !raw {
		return fmt.Errorf("the connection is a %T", conn)
	}
	mine, want := fmt.Sprintf("%d %s.", m.Index(), name), fmt.Sprintf("%d %s.", other, name)
	if _, err := conn.Write([]byte(mine)); err != nil {
		return err
	}
	got := make([]byte, len(want))
	if _, err := io.ReadFull(conn, got); err != nil || string(got) != want {
		return fmt.Errorf("got %q, want %q: %v", got, want, err)
	}
	return nil
}

func TestAConnectionThatNobodyMakesIsNamed(t *testing.T) {
	jobtest.NoLeak(t)
	_, members := started(t, 2, nil)
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	_, err := members[0].Connect(ctx, 1, "data")
	jobtest.WantError(t, err, "worker 0 has no connection to worker 1 (host1, pid", `"data"`, "did not connect")
	for _, other := range []int{0, -1, 2} {
		_, err := members[0].Connect(t.Context(), other, "data")
		jobtest.WantError(t, err, "internal error")
	}
	wantWell(t, members)
	// A connection that was made and never asked for is closed in the end.
	conn, err := members[1].Connect(t.Context(), 0, "unasked")
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	leaveAll(t, members)
	conn.SetReadDeadline(time.Now().Add(jobtest.Limit))
	if _, err := conn.Read(make([]byte, 1)); err == nil || errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("it is open: %v", err)
	}
}

func TestAFailureEndsWhoWaitsForAConnection(t *testing.T) {
	jobtest.NoLeak(t)
	_, members := started(t, 3, nil)
	waiting := make(chan error)
	go func() {
		_, err := members[0].Connect(jobtest.Within(t), 1, "data")
		waiting <- err
	}()
	members[2].Fail(errors.New("out of coffee"))
	jobtest.WantError(t, <-waiting, "worker 2 stopped: out of coffee")
}

func TestEqualTextsAgree(t *testing.T) {
	jobtest.NoLeak(t)
	_, members := started(t, 3, nil)
	for range 3 { // the same subject again is a new one
		for _, err := range onAll(members, func(m *Member) error { return m.Agree(jobtest.Within(t), "plan", strings.Repeat("op\n", 1000)) }) {
			if err != nil {
				t.Error(err)
			}
		}
	}
	leaveAll(t, members)
}

func TestDifferentTextsAreAnErrorForAll(t *testing.T) {
	jobtest.NoLeak(t)
	_, members := started(t, 3, nil)
	long := strings.Repeat("x", 500)
	big := strings.Repeat("a line of a program\n", 30_000)
	for _, c := range []struct {
		texts [3]string
		want  []string
	}{
		{[3]string{"a\nb\nc", "a\nb\nc", "a\nX\nc"}, []string{"worker 0 (host0, pid", "worker 2 (host2, pid", "do not agree on plan", `line 2 is "b" and "X"`}},
		{[3]string{"a\nb", "a\nb\nc", "a\nb"}, []string{"worker 1", "one ends after line 2, where the other goes on"}},
		{[3]string{"variable w\t[2]\ninput 0\t[3]\nprogram 1", "variable w\t[5]\ninput 0\t[3]\nprogram 2", "variable w\t[2]\ninput 0\t[3]\nprogram 1"},
			[]string{"do not agree on plan: variable w is \"[2]\" on worker 0 and \"[5]\" on worker 1; all workers"}},
		{[3]string{"variable w\t[2]\n", "variable w\t[2]\n", "variable u\t[1]\nvariable w\t[2]\n"}, []string{`only worker 2 has variable u: "[1]"; all`}},
		{[3]string{"op\ta\nop\tb\nop\tc\nx\t1\ny\t2\n", "op\ta\nop\tB\nx\t2\ny\t3\n", ""},
			[]string{`op (number 2) is "b" on worker 0 and "B" on worker 1; only worker 0 has op (number 3): "c"; x is "1" on worker 0 and "2" on worker 1; and 1 more;`}},
		{[3]string{"a\t1\nb\t2\n", "b\t2\na\t1\n", "a\t1\nb\t2\n"}, []string{"the same, in another order"}},
		{[3]string{"w\t1\nline\nX", "w\t1\nline\nY", "w\t1\nline\nX"}, []string{`the model is the same, but not what is made of it: line 2 is "X" and "Y"`}},
		{[3]string{"", "a", ""}, []string{"worker 1", `line 1 is "" and "a"`}},
		{[3]string{long + "1", long + "2", long + "1"}, []string{`…"` + strings.Repeat("x", 60) + `1"`, `…"` + strings.Repeat("x", 60) + `2"`}},
		{[3]string{big, big + "more", big}, []string{"worker 1", `line 30001 is "" and "more"`}},
	} {
		errs := onAll(members, func(m *Member) error { return m.Agree(jobtest.Within(t), "plan", c.texts[m.Index()]) })
		for _, err := range errs {
			jobtest.WantError(t, err, c.want...)
			if err != nil && err.Error() != errs[0].Error() {
				t.Errorf("%q is not %q", err, errs[0])
			}
		}
	}
	wantWell(t, members)
	leaveAll(t, members)
}

func TestWhoDoesNotComeToAgreeIsNamed(t *testing.T) {
	jobtest.NoLeak(t)
	s, members := started(t, 3, nil)
	errs := onAll(members[:2], func(m *Member) error {
		ctx, cancel := context.WithCancel(t.Context())
		if m.Index() == 1 {
			cancel() // at once
			return m.Agree(ctx, "plan", "x")
		}
		defer cancel()
		go func() {
			for m.State(1).Busy == "" { // until worker 1 has given up
				time.Sleep(time.Millisecond)
			}
			cancel()
		}()
		members[1].SetBusy("giving up")
		return m.Agree(ctx, "plan", "x")
	})
	for _, err := range errs {
		jobtest.WantError(t, err, "waits no longer to agree on plan", "2 did not arrive")
	}
	// And another time it works.
	for _, err := range onAll(members, func(m *Member) error { return m.Agree(jobtest.Within(t), "plan", "y") }) {
		if err != nil {
			t.Error(err)
		}
	}
	// Who has left cannot agree any more, and is to blame if others need it.
	waiting := make(chan error)
	go func() { waiting <- members[0].Agree(jobtest.Within(t), "plan", "z") }()
	members[2].Leave()
	jobtest.WantError(t, <-waiting, "worker 2 (host2, pid", "has ended its part of the job")
	jobtest.WantError(t, members[1].Agree(jobtest.Within(t), "plan", "z"), "worker 2 (host2, pid", "has ended its part of the job")
	if culprits := s.Culprits(); len(culprits) != 1 || culprits[0] != 2 {
		t.Errorf("workers %v are to blame", culprits)
	}
}

func TestQuestionsAreAnswered(t *testing.T) {
	jobtest.NoLeak(t)
	_, members := started(t, 3, nil)
	_, err := members[0].Query(jobtest.Within(t), 1, "?")
	jobtest.WantError(t, err, "worker 1 (host1, pid", "does not answer", "not ready")
	for _, m := range members {
		m.Answer(func(q string) string { return fmt.Sprintf("%d: %s", m.Index(), strings.ToUpper(q)) })
	}
	for _, err := range onAll(members, func(m *Member) error {
		for to := range 3 {
			answer, err := m.Query(jobtest.Within(t), to, "how?")
			if want := fmt.Sprintf("%d: HOW?", to); err != nil || answer != want {
				return fmt.Errorf("%q, %v, want %q", answer, err, want)
			}
		}
		return nil
	}) {
		if err != nil {
			t.Error(err)
		}
	}
	_, err = members[0].Query(t.Context(), 3, "?")
	jobtest.WantError(t, err, "there is no worker 3")

	// Who does not answer is named, and who goes meanwhile too.
	asked, stuck := make(chan struct{}, 2), make(chan struct{})
	members[2].Answer(func(string) string { asked <- struct{}{}; <-stuck; return "" })
	defer close(stuck)
	ctx, cancel := context.WithCancel(t.Context())
	go func() { <-asked; cancel() }()
	_, err = members[0].Query(ctx, 2, "?")
	jobtest.WantError(t, err, "worker 2", "does not answer: context canceled")
	go func() { <-asked; members[2].Leave() }()
	_, err = members[0].Query(jobtest.Within(t), 2, "?")
	jobtest.WantError(t, err, "worker 2", "is gone")
	_, err = members[0].Query(jobtest.Within(t), 2, "?")
	jobtest.WantError(t, err, "worker 2", "is gone")

	// Also after a failure, to find out more.
	members[1].Fail(errors.New("broken"))
	wantFailed(t, members[0], "broken")
	if answer, err := members[0].Query(jobtest.Within(t), 1, "why?"); err != nil || answer != "1: WHY?" {
		t.Errorf("%q, %v", answer, err)
	}
}

func TestAllKnowWhatEachWorkerDoes(t *testing.T) {
	jobtest.NoLeak(t)
	s, members := started(t, 2, nil)
	before := time.Now()
	members[1].Progress(7, 700)
	members[1].SetBusy("compiling")
	eventually(t, func() bool { return members[0].State(1).Busy == "compiling" })
	state := members[0].State(1)
	if state.Step != 7 || state.Samples != 700 || state.Since.Before(before.Add(-time.Second)) || time.Since(state.Seen) > jobtest.Limit {
		t.Errorf("%+v", state)
	}
	if w := s.Status()[1]; w.Busy != "compiling" || w.Step != 7 || w.Samples != 700 || w.Silent {
		t.Errorf("%+v", w)
	}
	since := state.Since
	members[1].Progress(8, 800)
	eventually(t, func() bool { return members[0].State(1).Step == 8 })
	if state := members[0].State(1); !state.Since.Equal(since) || state.Busy != "compiling" {
		t.Errorf("%+v, was busy since %v", state, since)
	}
	members[1].SetBusy("")
	eventually(t, func() bool { return members[0].State(1).Busy == "" })
	if !members[0].State(1).Since.After(since) || members[0].State(9) != (State{}) {
		t.Error("since when?")
	}
	members[1].Leave()
	eventually(t, func() bool { return members[0].State(1).Left })
	_, err := members[0].Connect(t.Context(), 1, "x")
	jobtest.WantError(t, err, "worker 1 (host1, pid", "has left")
	leaveAll(t, members)
}

// eventually waits for something that happens within a beat or two.
func eventually(t *testing.T, f func() bool) {
	t.Helper()
	for deadline := time.Now().Add(jobtest.Limit); !f(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("it did not happen")
		}
	}
}
