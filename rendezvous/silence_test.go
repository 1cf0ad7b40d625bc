// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package rendezvous

import (
	"context"
	"fmt"
	"net"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/easyparallel/epl/internal/jobtest"
	"github.com/easyparallel/epl/wire"
)

// pipes is a network within the test, on which time is the test's.
type pipes struct {
	mu        sync.Mutex
	listeners map[string]*pipeListener
}

type pipeListener struct {
	name  string
	conns chan net.Conn
	over  chan struct{}
	once  sync.Once
}

// plug is one end of a pipe, which can be pulled out: what is written then waits.
type plug struct {
	net.Conn
	mu   sync.Mutex
	wait chan struct{} // not nil: until it is closed
}

func (p *plug) pull() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.wait = make(chan struct{})
}

func (p *plug) push() {
	p.mu.Lock()
	defer p.mu.Unlock()
	close(p.wait)
	p.wait = nil
}

func (p *plug) Write(b []byte) (int, error) {
	p.mu.Lock()
	wait := p.wait
	p.mu.Unlock()
	if wait != nil {
		<-wait
	}
	return p.Conn.Write(b)
}

type pipeAddr string

func (a pipeAddr) Network() string { return "pipe" }
func (a pipeAddr) String() string  { return string(a) }

func (l *pipeListener) Addr() net.Addr { return pipeAddr(l.name) }

func (l *pipeListener) Close() error {
	l.once.Do(func() { close(l.over) })
	return nil
}

func (l *pipeListener) Accept() (net.Conn, error) {
	select {
	case c := <-l.conns:
		return c, nil
	case <-l.over:
		return nil, net.ErrClosed
	}
}

func (p *pipes) open() *pipeListener {
	p.mu.Lock()
	defer p.mu.Unlock()
	l := &pipeListener{name: fmt.Sprintf("pipe%d", len(p.listeners)), conns: make(chan net.Conn), over: make(chan struct{})}
	if p.listeners == nil {
		p.listeners = map[string]*pipeListener{}
	}
	p.listeners[l.name] = l
	return l
}

func (p *pipes) listen(_ string, s wire.Security, version string, logf func(string, ...any)) (*wire.Listener, error) {
	return wire.NewListener(p.open(), s, version, logf)
}

func (p *pipes) dial(ctx context.Context, addr, purpose string, s wire.Security, version string) (*wire.Conn, error) {
	p.mu.Lock()
	l := p.listeners["pipe0"] // the server; nobody connects to peers here
	p.mu.Unlock()
	here, there := net.Pipe()
	select {
	case l.conns <- &plug{Conn: there}:
	case <-l.over:
		return nil, net.ErrClosed
	}
	return wire.Client(ctx, &plug{Conn: here}, purpose, s, version)
}

// pipeJobs makes a server whose time is the test's, and describes its workers.
func pipeJobs(t *testing.T, n int) (*Server, []Options, []*jobtest.Journal) {
	p := &pipes{}
	s, err := newServer(ServerOptions{Workers: n, Security: testSecurity}, func(o ServerOptions) (*wire.Listener, error) {
		return wire.NewListener(p.open(), o.Security, o.Version, o.Logf)
	})
	if err != nil {
		t.Fatal(err)
	}
	jobs := make([]Options, n)
	logs := make([]*jobtest.Journal, n)
	for i := range jobs {
		logs[i] = jobtest.NewJournal()
		jobs[i] = Options{
			URL: "tcp://server:1", Security: testSecurity, Workers: n, Index: i, Host: fmt.Sprintf("host%d", i),
			Logf: logs[i].Logf, network: p,
		}
	}
	return s, jobs, logs
}

// onPipes starts a job whose time is the test's.
func onPipes(t *testing.T, n int) (*Server, []*Member, []*jobtest.Journal) {
	s, jobs, logs := pipeJobs(t, n)
	members, errs := joinAll(t.Context(), jobs)
	for _, err := range errs {
		if err != nil {
			t.Fatal(err)
		}
	}
	return s, members, logs
}

func TestAllLearnWhoDidNotCome(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, jobs, _ := pipeJobs(t, 5)
		jobs[2].Timeout = time.Minute // the least patient
		start := time.Now()
		_, errs := joinAll(t.Context(), []Options{jobs[0], jobs[2], jobs[4]})
		for _, err := range errs {
			jobtest.WantError(t, err, "workers 1, 3 did not come within 1m0s, workers 0, 2, 4 waited")
		}
		if took := time.Since(start); took != time.Minute {
			t.Errorf("it took %v", took)
		}
		_, err := Join(t.Context(), jobs[1]) // too late
		jobtest.WantError(t, err, "workers 1, 3 did not come")
		s.Close()
	})
}

func TestASilentWorkerIsReportedOnceAndMayComeBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, members, logs := onPipes(t, 3)
		time.Sleep(10 * time.Minute)
		for i := range logs {
			if text := logs[i].Text(); text != "" {
				t.Errorf("worker %d logged %q in quiet times", i, text)
			}
		}
		cable := members[2].link.conn.Conn.(*plug)
		cable.pull()
		time.Sleep(5 * time.Second)
		synctest.Wait()
		for _, i := range []int{0, 1} {
			if n := logs[i].Count("epl: worker 2 (host2, pid"); n != 1 || logs[i].Count("has not been heard of for") != 1 {
				t.Errorf("worker %d logged after 5 s: %q", i, logs[i].Text())
			}
			if seen := time.Since(members[i].State(2).Seen); seen < 3*time.Second || seen > 6*time.Second {
				t.Errorf("worker 2 was seen %v ago", seen)
			}
		}
		if !s.Status()[2].Silent || s.Status()[1].Silent {
			t.Errorf("status %+v", s.Status())
		}
		time.Sleep(10 * time.Minute)
		wantWell(t, members) // nobody has decided that this is too long
		cable.push()
		time.Sleep(3 * time.Second)
		synctest.Wait()
		for _, i := range []int{0, 1} {
			if logs[i].Count("has not been heard of") != 1 || logs[i].Count("worker 2 (host2, pid") != 2 || logs[i].Count("is heard of again, after") != 1 {
				t.Errorf("worker %d logged %q", i, logs[i].Text())
			}
		}
		if s.Status()[2].Silent {
			t.Errorf("status %+v", s.Status())
		}
		wantWell(t, members)
		leaveAll(t, members)
		s.Close()
	})
}

func TestASilentServerIsReported(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, members, logs := onPipes(t, 2)
		time.Sleep(time.Minute)
		for _, e := range s.seats {
			e.link.conn.Conn.(*plug).pull()
		}
		time.Sleep(5 * time.Second)
		for i := range logs {
			if logs[i].Count("epl: the rendezvous at tcp://server:1 has not been heard of for") != 1 {
				t.Errorf("worker %d logged %q", i, logs[i].Text())
			}
		}
		for _, e := range s.seats {
			e.link.conn.Conn.(*plug).push()
		}
		time.Sleep(20 * time.Second)
		for i := range logs {
			if logs[i].Count("server:1 is heard of again") != 1 {
				t.Errorf("worker %d logged %q", i, logs[i].Text())
			}
		}
		leaveAll(t, members)
		s.Close()
	})
}

func TestSetBusyGoesOutAtOnceAndProgressWithTheNextBeat(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, members, _ := onPipes(t, 2)
		time.Sleep(10*time.Second + time.Second/2)
		synctest.Wait()
		begin := time.Now()
		members[1].SetBusy("saving")
		synctest.Wait()
		if state := members[0].State(1); state.Busy != "saving" || !state.Since.Equal(begin) {
			t.Errorf("%+v", state)
		}
		members[1].Progress(3, 30)
		synctest.Wait()
		if step := members[0].State(1).Step; step != 0 {
			t.Errorf("step %d, before a beat", step)
		}
		time.Sleep(2 * time.Second)
		synctest.Wait()
		if state := members[0].State(1); state.Step != 3 || state.Busy != "saving" || !state.Since.Equal(begin) {
			t.Errorf("%+v", state)
		}
		leaveAll(t, members)
		s.Close()
	})
}

func TestTheServingWorkerDoesNotWaitForASilentOneForEver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, members, _ := onPipes(t, 2)
		members[0].server = s // as if it were in its process
		members[1].link.conn.Conn.(*plug).pull()
		start := time.Now()
		if err := members[0].Leave(); err != nil {
			t.Error(err)
		}
		if took := time.Since(start); took < silenceLimit || took > 2*silenceLimit {
			t.Errorf("it waited %v", took)
		}
		members[1].link.conn.Conn.(*plug).push()
		wantFailed(t, members[1], "is gone")
		members[1].Leave()
	})
}
