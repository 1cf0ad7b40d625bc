// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package rendezvous

import (
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/easyparallel/epl/internal/jobtest"
	"github.com/easyparallel/epl/wire"
)

func TestAFailureReachesAllWithItsName(t *testing.T) {
	jobtest.NoLeak(t)
	s, members := started(t, 3, nil)
	cause := errors.New("epl: loss is not a number")
	members[1].Fail(cause)
	// When Fail returns all have been told, so this needs no time.
	jobtest.WantError(t, s.Err(), "worker 1 stopped: loss is not a number")
	if members[1].Err() != cause {
		t.Errorf("its own error is %v", members[1].Err())
	}
	wantFailed(t, members[0], "worker 1 stopped: loss is not a number")
	wantFailed(t, members[2], "worker 1 stopped: loss is not a number")
	if s.Status()[1].Failed == "" || s.Status()[0].Failed != "" {
		t.Errorf("status %+v", s.Status())
	}
	members[1].Fail(errors.New("again"))
	members[2].Fail(errors.New("me too"))
	jobtest.WantError(t, members[2].Err(), "worker 1 stopped")
	for _, m := range members {
		if err := m.Leave(); err != m.Err() {
			t.Errorf("Leave says %v", err)
		}
	}
	select {
	case <-s.Failed():
	default:
		t.Error("the server does not say that the job failed")
	}
}

func TestTheFirstOfManyFailuresIsEverybodys(t *testing.T) {
	jobtest.NoLeak(t)
	s, members := started(t, 4, nil)
	var group sync.WaitGroup
	for i, m := range members {
		group.Go(func() { m.Fail(fmt.Errorf("reason %d", i)) })
	}
	group.Wait()
	first := s.Err()
	jobtest.WantError(t, first, "stopped: reason")
	for i, m := range members {
		if err := m.Err().Error(); err != fmt.Sprintf("reason %d", i) && err != first.Error() {
			t.Errorf("worker %d: %v", i, err)
		}
		m.Leave()
	}
}

func TestAClosedConnectionWithoutAWordFailsTheJob(t *testing.T) {
	jobtest.NoLeak(t)
	s, members := started(t, 3, nil)
	members[2].link.conn.Close() // as the system does when a process is killed
	for _, m := range members[:2] {
		wantFailed(t, m, "worker 2 (host2, pid", "is gone: its connection closed without a word")
	}
	wantFailed(t, members[2], "the rendezvous at tcp://", "is gone")
	jobtest.WantError(t, s.Err(), "worker 2")
	for _, m := range members {
		m.Leave()
	}
}

func TestAWorkerThatLeftMayGo(t *testing.T) {
	jobtest.NoLeak(t)
	s, members := started(t, 3, nil)
	if err := members[1].Leave(); err != nil {
		t.Fatal(err)
	}
	eventually(t, func() bool { return members[0].State(1).Left && members[2].State(1).Left })
	for _, err := range onAll([]*Member{members[0], members[2]}, func(m *Member) error {
		return talk(jobtest.Within(t), m, 2-m.Index(), "still here")
	}) {
		if err != nil {
			t.Error(err)
		}
	}
	wantWell(t, members)
	jobtest.WantError(t, members[1].Agree(t.Context(), "plan", ""), "has left the job")
	leaveAll(t, members)
	if s.Err() != nil {
		t.Error(s.Err())
	}
}

func TestMembersNoticeThatTheServerIsGone(t *testing.T) {
	jobtest.NoLeak(t)
	s, members := started(t, 2, nil)
	s.Close()
	for _, m := range members {
		wantFailed(t, m, "the rendezvous at tcp://", "is gone: its connection closed without a word", "the launcher")
		m.Leave()
	}
}

func TestTheLauncherSaysHowAWorkerEnded(t *testing.T) {
	jobtest.NoLeak(t)
	t.Run("before the connection closes", func(t *testing.T) {
		s, members := started(t, 2, nil)
		s.WorkerExited(1, "killed by signal 9")
		wantFailed(t, members[0], "worker 1 (host1, pid", "is gone: killed by signal 9")
		members[0].Leave()
		members[1].Leave()
	})
	t.Run("after, and after its neighbour has complained", func(t *testing.T) {
		s, members := started(t, 3, func(o *ServerOptions, _ []Options) { o.Grace = jobtest.Limit })
		members[1].link.conn.Close()
		members[1].Leave()
		eventually(t, func() bool { s.mu.Lock(); defer s.mu.Unlock(); return s.mourned != nil })
		over := make(chan struct{})
		go func() {
			defer close(over)
			members[0].Fail(errors.New("epl: connection to worker 1 was reset"))
		}()
		wantFailed(t, members[0], "connection to worker 1 was reset")
		s.WorkerExited(1, "killed by signal 9")
		<-over
		wantFailed(t, members[2], "worker 1 (host1, pid", "is gone: killed by signal 9")
		members[0].Leave()
		members[2].Leave()
	})
	t.Run("before it has come", func(t *testing.T) {
		s := serve(t, ServerOptions{Workers: 2})
		over := make(chan error)
		go func() {
			_, err := Join(jobtest.Within(t), jobAt(s, 0, 2))
			over <- err
		}()
		waitJoined(t, s, 0)
		s.WorkerExited(1, "exit status 3")
		jobtest.WantError(t, <-over, "worker 1 is gone before it joined the others: exit status 3")
		s.WorkerExited(7, "never mind")
	})
	t.Run("without anybody saying it", func(t *testing.T) {
		_, members := started(t, 2, func(o *ServerOptions, _ []Options) { o.Grace = 10 * time.Millisecond })
		members[1].link.conn.Close()
		wantFailed(t, members[0], "worker 1", "closed without a word")
		members[0].Leave()
		members[1].Leave()
	})
}

// All kinds of strangers come to a running job, at the server and at a worker.
func TestStrangersDoNotDisturbARunningJob(t *testing.T) {
	jobtest.NoLeak(t)
	logged := jobtest.NewJournal()
	s, members := started(t, 2, func(o *ServerOptions, jobs []Options) {
		o.Logf = logged.Logf
		jobs[0].Logf = logged.Logf
	})
	frame := func(kind byte, payload string) string {
		var b writer
		wire.WriteFrame(&b, kind, []byte(payload))
		return string(b)
	}
	for range 3 {
		for _, garbage := range []string{"", "GET / HTTP/1.1\r\n\r\n", "\x00\x00\x00", frame(1, "hello")[:7], frame(1, "x"), frame(99, ""), frame(1, string(make([]byte, 100)))} {
			for _, addr := range []string{s.Addr().String(), members[0].Workers()[0].Addr} {
				c, err := net.Dial("tcp", addr)
				if err != nil {
					t.Fatal(err)
				}
				c.Write([]byte(garbage))
				c.(interface{ CloseWrite() error }).CloseWrite()
				io.Copy(io.Discard, c)
				c.Close()
			}
		}
		for _, addr := range []string{s.Addr().String(), members[0].Workers()[0].Addr} {
			for _, security := range []wire.Security{testSecurity, {Token: "guess-0123456789abcdef"}} {
				if c, err := wire.Dial(t.Context(), "tcp", addr, "control 0", security, "0.0-other"); err == nil {
					t.Error("a stranger got in")
					c.Close()
				}
			}
		}
	}
	for _, reason := range []string{"another token", "0.0-other", "does not speak EPL's protocol", "said nothing", "in the middle"} {
		logged.WaitFor(t, reason)
		if n := logged.Count(reason); n > 2 { // once by the server, once by the worker
			t.Errorf("%q was logged %d times:\n%s", reason, n, logged.Text())
		}
	}
	// Members that break the protocol before they have joined are strangers too.
	for _, send := range []string{"", "garbage garbage garbage", frame(msgJoin, ""), frame(msgJoin, "\x00\x00\x00\x02{}"), frame(msgBeat, "\x00\x00\x00\x02{}")} {
		c, err := wire.Dial(t.Context(), "tcp", s.Addr().String(), "control 1", testSecurity, orVersion(""))
		if err != nil {
			t.Fatal(err)
		}
		c.Write([]byte(send))
		c.Conn.(interface{ CloseWrite() error }).CloseWrite()
		io.Copy(io.Discard, c)
		c.Close()
	}
	for _, err := range onAll(members, func(m *Member) error { return talk(jobtest.Within(t), m, 1-m.Index(), "data") }) {
		if err != nil {
			t.Error(err)
		}
	}
	wantWell(t, members)
	leaveAll(t, members)
}

func FuzzDecode(f *testing.F) {
	f.Add(msgJoin, (&message{Join: &joining{Workers: 2}}).encode())
	f.Add(msgStates, (&message{States: []known{{Since: 5}}}).encode())
	f.Add(msgAgree, []byte("\x00\x00\x00\x02{}text"))
	f.Add(msgFail, []byte("\xff\xff\xff\xff"))
	f.Fuzz(func(t *testing.T, kind byte, payload []byte) {
		m, err := decode(kind, payload)
		if err != nil {
			return
		}
		again, err := decode(kind, m.encode())
		if err != nil || again.body != m.body || again.Subject != m.Subject {
			t.Errorf("%+v, %v", again, err)
		}
	})
}

// Whatever a member that knows the token sends, the server does not fall over.
func FuzzServer(f *testing.F) {
	f.Add(msgAgree, []byte(`{"Subject":"x","Hash":"y"}`))
	f.Add(msgQuery, []byte(`{"Worker":-1,"ID":3}`))
	f.Add(msgAnswer, []byte(`{"Worker":99,"ID":3}`))
	f.Add(msgText, []byte(`{"Subject":"x"}`))
	f.Add(msgWithdraw, []byte(`{"Subject":"x"}`))
	f.Add(msgBeat, []byte(`{}`))
	f.Add(msgLeave, []byte(`{}`))
	f.Add(msgFail, []byte(`{}`))
	s, err := NewServer("127.0.0.1:0", ServerOptions{Workers: 2, Security: testSecurity})
	if err != nil {
		f.Fatal(err)
	}
	f.Cleanup(func() { s.Close() })
	f.Fuzz(func(t *testing.T, kind byte, header []byte) {
		m, err := decode(kind, append([]byte{byte(len(header) >> 24), byte(len(header) >> 16), byte(len(header) >> 8), byte(len(header))}, header...))
		if err != nil {
			return
		}
		for _, begun := range []bool{false, true} {
			h := &Server{
				options: s.options, links: map[*link]bool{}, seats: make([]*seat, 2), rounds: map[string]*round{}, asked: map[query]int{},
				failed: make(chan struct{}), empty: make(chan struct{}), closing: make(chan struct{}), started: begun,
			}
			l := &link{wake: make(chan struct{}, 1), ended: make(chan struct{})}
			h.seats[0] = &seat{link: l}
			if begun {
				h.seats[1] = &seat{link: l, worker: Worker{Index: 1}}
			}
			for range 2 {
				h.handle(h.seats[0], m)
			}
			h.mu.Lock()
			l.fail()
			h.mu.Unlock()
			h.group.Wait()
		}
	})
}
