// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package rendezvous

import (
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"syscall"
	"time"

	"github.com/pkg/errors"
)

// Member is a worker's part in the job. Its methods may be called at the same time.
type Member struct {
	job    Options
	server *Server // if this worker serves
	link   *link
	peers  *peers
	group  sync.WaitGroup
	stop   chan struct{} // closed by Leave
	leave  sync.Once
	left   error // what Leave returned

	index   int
	id      string // of the job
	workers []Worker

	joined chan struct{} // closed when the job has begun
	failed chan struct{} // closed when the server knows that the job has failed
	bye    chan struct{} // closed when the server knows that this worker has left
	cut    chan struct{} // closed when there is no connection to the server any more
	pulse  chan struct{} // asks for a beat at once

	mu         sync.Mutex
	leaving    bool
	heard      time.Time // when the server last said anything
	serverBeat time.Duration
	beating    beating
	states     []State
	known      []known // as the server told last
	err        error
	telling    chan struct{} // not nil: Fail is telling the others, until it is closed
	done       chan struct{}
	answer     func(string) string
	agreeing   map[string]*agreement
	queries    map[uint64]chan *message
	lastQuery  uint64
}

// agreement is a subject on which this worker waits for the others.
type agreement struct {
	text    string
	over    chan string // why they do not agree; empty if they do
	missing chan []int
}

// Join returns when all workers have come and agree, or with the reason why the job cannot begin. When the context ends
// before, this worker gives up, and the others are told.
func Join(ctx context.Context, j Options) (*Member, error) {
	if err := j.complete(); err != nil {
		return nil, err
	}
	at, err := j.meet(ctx)
	if err != nil {
		return nil, err
	}
	defer at.forget()
	m := &Member{
		job: j, server: at.server, index: -1, stop: make(chan struct{}),
		joined: make(chan struct{}), failed: make(chan struct{}), bye: make(chan struct{}), cut: make(chan struct{}),
		pulse: make(chan struct{}, 1), done: make(chan struct{}),
		heard: time.Now(), serverBeat: j.Beat, agreeing: map[string]*agreement{}, queries: map[uint64]chan *message{},
	}
	if m.peers, err = newPeers(j, at); err != nil {
		at.conn.Close()
		at.close()
		return nil, err
	}
	m.link = newLink(at.conn)
	m.group.Go(m.link.write)
	m.group.Go(m.read)
	m.group.Go(m.beat)
	m.peers.asked = m.answerDirectly
	m.group.Go(m.peers.accept)
	m.link.send(&message{kind: msgJoin, Join: &joining{
		Worker:  Worker{Index: j.Index, Host: j.Host, HostID: hostID(j.Host), Addr: m.peers.addr, PID: os.Getpid(), Ranks: j.Ranks},
		Workers: j.Workers, Facts: j.Facts, Timeout: j.Timeout.Milliseconds(), Beat: j.Beat.Milliseconds(),
	}})

	overdue := time.NewTimer(j.Timeout + silentTime) // the server knows better who is missing, so it may speak first
	defer overdue.Stop()
	select {
	case <-m.joined:
		return m, nil
	case <-m.done:
		err = m.Err()
	case <-ctx.Done():
		err = errors.Errorf("epl: worker %d gave up while it waited for the others: %v", j.Index, context.Cause(ctx))
		m.Fail(err)
	case <-overdue.C:
		err = errors.Errorf("epl: the rendezvous at %s has not said within %s whether all workers have come", j.URL, j.Timeout)
		m.Fail(err)
	}
	m.Leave()
	return nil, err
}

// complete checks a job and fills in what was left out.
func (j *Options) complete() error {
	if j.Workers < 1 || j.Index < -1 || j.Index >= j.Workers {
		return errors.Errorf("epl: this is worker %d of a job of %d: expected an index from 0 to the number of workers less 1, or -1",
			j.Index, j.Workers)
	}
	j.Version = orVersion(j.Version)
	if j.Timeout <= 0 {
		j.Timeout = defaultTimeout
	}
	if j.Beat <= 0 {
		j.Beat = defaultBeat
	}
	if j.Host == "" {
		j.Host, _ = os.Hostname()
	}
	if j.network == nil {
		j.network = tcp{}
	}
	if j.Logf == nil {
		j.Logf = func(string, ...any) {}
	}
	return nil
}

// Index returns the worker's index, which it may have been handed.
func (m *Member) Index() int { return m.index }

// Workers returns all workers of the job, by index.
func (m *Member) Workers() []Worker { return append([]Worker(nil), m.workers...) }

// SetBusy says that this worker does something that may take long, and so why the others may have to wait: "compiling",
// "evaluating", "saving". Empty: it does not any more.
func (m *Member) SetBusy(what string) {
	m.mu.Lock()
	if m.beating.Busy == what {
		m.mu.Unlock()
		return
	}
	m.beating.Busy = what
	m.beating.Changes++
	m.mu.Unlock()
	m.beatNow()
}

// beatNow lets the next sign of life be given at once.
func (m *Member) beatNow() {
	select {
	case m.pulse <- struct{}{}:
	default:
	}
}

// Progress says how far this worker is. It goes out with the next sign of life; the first step at once.
func (m *Member) Progress(step, samples int64) {
	m.mu.Lock()
	first := m.beating.Step == 0 && step > 0
	m.beating.Step, m.beating.Samples = step, samples
	m.mu.Unlock()
	if first {
		m.beatNow()
	}
}

// Consumed says how many batches of the data complete steps have consumed. It goes out with the next sign of life.
func (m *Member) Consumed(batches int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.beating.Batches = batches
}

// SetCheckpoints says which checkpoints there are.
func (m *Member) SetCheckpoints(c Checkpoints) {
	m.KeepCheckpoints(c)
	m.beatNow()
}

// KeepCheckpoints is SetCheckpoints for what goes out with the next sign of life.
func (m *Member) KeepCheckpoints(c Checkpoints) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.beating.Checkpoints = c
}

// State returns what a worker was doing, a beat ago at most if it gives signs of life.
func (m *Member) State(worker int) State {
	m.mu.Lock()
	defer m.mu.Unlock()
	if worker < 0 || worker >= len(m.states) {
		return State{}
	}
	return m.states[worker]
}

// Fail tells everybody why this worker stops, and returns when they know, or when that takes too long. The job is over:
// the first error of the job is everybody's. This worker is to blame for it, unless the error has a method Culprits that
// names others.
func (m *Member) Fail(err error) {
	if err == nil {
		err = errors.New("epl: it gave no reason")
	}
	told := make(chan struct{})
	if !m.fail(err, told) {
		return
	}
	defer close(told)
	text := err.Error()
	m.lastBeat()
	m.link.send(&message{kind: msgFail, Workers: culprits(err), body: text[:min(len(text), maxText)]})
	timer := time.NewTimer(2 * partingTime)
	defer timer.Stop()
	select {
	case <-m.failed:
	case <-m.cut:
	case <-timer.C:
	}
}

// fail ends the job here, unless it has ended. told, if not nil, is closed when the others have been told.
func (m *Member) fail(err error, told chan struct{}) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.err != nil || m.leaving {
		return false
	}
	m.err, m.telling = err, told
	close(m.done)
	return true
}

// Done is closed when the job has failed: a worker called Fail, or is gone, or the server is.
func (m *Member) Done() <-chan struct{} { return m.done }

// Err returns why the job failed, or nil.
func (m *Member) Err() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.err
}

// Leave ends this worker's part: it has finished and is well, and the others go on. On the worker that serves the
// rendezvous it returns when all others have left too. After a failure it only tidies up. It returns why the job failed,
// or nil.
func (m *Member) Leave() error {
	m.leave.Do(func() {
		m.mu.Lock()
		m.leaving = true
		m.left = m.err
		telling := m.telling
		m.mu.Unlock()
		if telling != nil {
			<-telling
		}
		if m.left == nil {
			m.link.send(&message{kind: msgLeave})
			timer := time.NewTimer(2 * partingTime)
			select {
			case <-m.bye:
			case <-m.cut:
			case <-timer.C:
			}
			timer.Stop()
			if m.server != nil {
				m.server.waitForOthers()
			}
		}
		close(m.stop)
		m.link.close()
		m.peers.close()
		m.group.Wait()
		if m.server != nil {
			m.server.Close()
		}
	})
	return m.left
}

// read handles what the server says, until the connection ends.
func (m *Member) read() {
	defer close(m.cut)
	for {
		msg, err := receive(m.link.conn)
		if err != nil {
			m.fail(errors.Errorf("epl: the rendezvous at %s is gone: %s; the process that serves it (%s) has ended, or cannot be reached",
				m.job.URL, howLost(err), m.servedBy()), nil)
			return
		}
		m.mu.Lock()
		m.heard = time.Now()
		m.mu.Unlock()
		m.handle(msg)
	}
}

func (m *Member) servedBy() string {
	where, _ := parseURL(m.job.URL)
	return where.servedBy()
}

// howLost says how a connection ended.
func howLost(err error) string {
	if errors.Is(err, io.EOF) || errors.Is(err, syscall.ECONNRESET) || errors.Is(err, net.ErrClosed) || errors.Is(err, io.ErrClosedPipe) {
		return "its connection closed without a word"
	}
	return fmt.Sprintf("its connection broke (%s)", inner(err.Error()))
}

func (m *Member) handle(msg *message) {
	switch msg.kind {
	case msgStart:
		m.begin(msg.Start)
	case msgRefused:
		m.fail(errors.New(msg.body), nil)
	case msgFailed:
		m.lastBeat()
		m.fail(errors.New(msg.body), nil)
		closeOnce(m.failed)
	case msgStates:
		m.update(msg.States)
	case msgAgreed, msgMissing, msgWantText:
		m.handleAgreement(msg)
	case msgQuestion:
		m.handleQuestion(msg)
	case msgReply:
		m.mu.Lock()
		reply := m.queries[msg.ID]
		delete(m.queries, msg.ID)
		m.mu.Unlock()
		if reply != nil {
			reply <- msg
		}
	case msgBye:
		closeOnce(m.bye)
	}
}

// lastBeat tells the server how far this worker came, as long as it is there.
func (m *Member) lastBeat() {
	m.mu.Lock()
	beating := m.beating
	m.mu.Unlock()
	m.link.send(&message{kind: msgBeat, Beat: &beating})
}

// closeOnce closes a channel that only the reading goroutine closes.
func closeOnce(c chan struct{}) {
	select {
	case <-c:
	default:
		close(c)
	}
}

// begin takes note of the others.
func (m *Member) begin(s *starting) {
	if s == nil || m.index >= 0 || s.Index < 0 || s.Index >= len(s.Workers) {
		return
	}
	m.index, m.id, m.workers = s.Index, s.ID, s.Workers
	for i := range m.workers {
		m.workers[i].Addr = m.peers.seen(m.workers[i].Addr)
	}
	now := time.Now()
	m.mu.Lock()
	m.serverBeat = time.Duration(s.Beat) * time.Millisecond
	m.states, m.known = make([]State, len(m.workers)), make([]known, len(m.workers))
	for i := range m.states {
		m.states[i] = State{Since: now, Seen: now}
	}
	m.mu.Unlock()
	close(m.joined)
}

// update takes note of what the others do, and reports who has fallen silent or come back.
func (m *Member) update(all []known) {
	m.mu.Lock()
	if len(all) != len(m.states) {
		m.mu.Unlock()
		return
	}
	now := time.Now()
	var reports []string
	for i, k := range all {
		seen := time.Duration(k.Seen) * time.Millisecond
		old, was := m.known[i], m.states[i]
		state := State{Busy: k.Busy, Since: was.Since, Seen: now.Add(-seen), Step: k.Step, Samples: k.Samples, Ended: k.Ended, Left: k.Left}
		if k.Changes != old.Changes {
			state.Since = now.Add(-time.Duration(k.Since) * time.Millisecond)
		}
		switch {
		case i == m.index:
		case k.Silent && !old.Silent:
			reports = append(reports, fmt.Sprintf("epl: %s has not been heard of for %s; it may be stopped, or cut off; it was %s",
				m.workers[i], seconds(seen), Doing(k.Busy, k.Loaded+k.Step)))
		case !k.Silent && old.Silent:
			reports = append(reports, fmt.Sprintf("epl: %s is heard of again, after %s", m.workers[i], seconds(state.Seen.Sub(was.Seen))))
		}
		m.known[i], m.states[i] = k, state
	}
	m.mu.Unlock()
	for _, r := range reports {
		m.job.Logf("%s", r)
	}
}

// beat gives signs of life, and watches those of the server.
func (m *Member) beat() {
	ticker := time.NewTicker(m.job.Beat)
	defer ticker.Stop()
	last := time.Now()
	silent, unheard := false, 0
	for {
		select {
		case <-m.stop:
			return
		case <-m.cut:
			return
		case <-m.pulse:
		case <-ticker.C:
		}
		m.mu.Lock()
		now := time.Now()
		if now.Sub(last) > m.job.Beat+silentTime/2 { // this process itself was stopped, and has not listened either
			m.heard = now
		}
		last = now
		beating, quiet := m.beating, now.Sub(m.heard)
		overdue := m.known != nil && quiet >= max(silentBeats*m.serverBeat, silentTime)
		m.mu.Unlock()
		// For a server that is stopped beats would pile up, until the system gives it up.
		if unheard++; !overdue || unheard%slowly == 0 {
			m.link.sendLatest(msgBeat, (&message{Beat: &beating}).encode())
		}
		if overdue != silent {
			silent = overdue
			if silent {
				m.job.Logf("epl: the rendezvous at %s has not been heard of for %s; it may be stopped, or cut off", m.job.URL, seconds(quiet))
			} else {
				m.job.Logf("epl: the rendezvous at %s is heard of again", m.job.URL)
			}
		}
	}
}
