// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package comm

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/pkg/errors"

	"github.com/easyparallel/epl/comm/internal/transport"
)

// inquiry finds out who holds up the job: it asks those who have not come what they wait for, then those they wait for,
// and so on. It runs beside the call that wants to know.
type inquiry struct {
	ranks []int // who has not come
	done  chan struct{}

	// Valid when done is closed.
	findings findings
}

// findings are what an inquiry found.
type findings struct {
	causes []int             // the ranks that hold up the others; none if they wait for each other
	why    map[int]string    // by worker of the causes, what is known of it
	chain  []toldWait        // who waits for whom, from those who have not come to the causes
	states map[int]toldState // by worker, of those who answered
	alive  bool              // all causes have answered
	unsure bool              // a worker that is alive has not answered in time

	elsewhere map[int]toldElsewhere // by worker, of those who wait outside the world
}

// inquire starts an inquiry about ranks that have not come to a call. What others say is also wanted of the witnesses.
func (w *World) inquire(rank int, missing, witnesses []int) *inquiry {
	q := &inquiry{ranks: slices.Clone(missing), done: make(chan struct{})}
	run := func() {
		defer close(q.done)
		ctx, cancel := context.WithTimeout(w.life, max(transport.InquiryTime(w.base.Timeout)/2, 50*time.Millisecond))
		defer cancel()
		q.findings = w.investigate(ctx, rank, missing, witnesses)
	}
	if w.base.Mesh == nil {
		run()
	} else {
		w.goDo(run)
	}
	return q
}

// over tells whether the findings can be read.
func (q *inquiry) over() bool {
	select {
	case <-q.done:
		return true
	default:
		return false
	}
}

// Inquire returns an error that names who holds up some workers. what is what this worker waits for: "agree on the start".
func (w *World) Inquire(ctx context.Context, workers []int, what string) *StallError {
	var missing []int
	for r, of := range w.base.WorkerOf {
		if slices.Contains(workers, of) {
			missing = append(missing, r)
		}
	}
	f := w.investigate(ctx, -1, missing, nil)
	return &StallError{Timeout: w.base.Timeout, What: what, Causes: f.causes, Workers: w.workersOf(f.causes), Details: w.details(f, nil), Alive: f.alive, Unsure: f.unsure, Patience: w.busyUntil(f.causes)}
}

// investigate follows the waits from the ranks that are missing. The rank that asks is not what it looks for.
func (w *World) investigate(ctx context.Context, rank int, missing, witnesses []int) (f findings) {
	f.states, f.why, f.elsewhere = map[int]toldState{}, map[int]string{}, map[int]toldElsewhere{}
	type answer struct {
		worker int
		state  toldState
		err    error
	}
	answers := make(chan answer)
	asked, failed, visited := map[int]bool{}, map[int]error{}, map[int]bool{}
	pending := 0
	ask := func(worker int) {
		if asked[worker] {
			return
		}
		asked[worker] = true
		if worker == w.base.Layout.Worker {
			f.states[worker] = w.state()
			return
		}
		pending++
		go func() {
			state, err := w.ask(ctx, worker)
			answers <- answer{worker, state, err}
		}()
	}
	waiting := map[int][]int{} // ranks that are to be looked at when their worker has answered
	var sinks []int
	var look func(r int)
	look = func(r int) {
		worker := w.base.WorkerOf[r]
		ask(worker)
		state, known := f.states[worker]
		switch {
		case visited[r]:
		case !known && failed[worker] == nil:
			waiting[worker] = append(waiting[worker], r)
			return
		case !known:
			visited[r] = true
			sinks = append(sinks, r)
		default:
			visited[r] = true
			stuck := false
			for _, wait := range state.Waits {
				if wait.Rank != r || !wait.Held {
					continue
				}
				stuck = true
				f.chain = append(f.chain, wait)
				for _, next := range wait.For {
					look(next)
				}
			}
			if e := state.Elsewhere; !stuck && e != nil {
				stuck = true
				f.elsewhere[worker] = *e
				for next, of := range w.base.WorkerOf {
					if slices.Contains(e.Workers, of) && of != worker {
						look(next)
					}
				}
			}
			if !stuck && r != rank {
				sinks = append(sinks, r)
			}
		}
	}
	for _, r := range missing {
		look(r)
	}
	for _, r := range witnesses {
		ask(w.base.WorkerOf[r])
	}
	for pending > 0 {
		a := <-answers
		pending--
		if a.err == nil {
			f.states[a.worker] = a.state
		} else {
			failed[a.worker] = a.err
		}
		for _, r := range waiting[a.worker] {
			look(r)
		}
	}
	for _, r := range witnesses { // a network that is cut has several on its other side
		if worker := w.base.WorkerOf[r]; failed[worker] != nil && !visited[r] && w.silent(worker) {
			sinks = append(sinks, r)
		}
	}
	w.judge(&f, sinks, failed)
	return f
}

// judge tells who of those that wait for nobody is to blame: who does not answer, rather than who is alive.
func (w *World) judge(f *findings, sinks []int, failed map[int]error) {
	silent := slices.DeleteFunc(slices.Clone(sinks), func(r int) bool { return failed[w.base.WorkerOf[r]] == nil })
	if f.causes = silent; len(silent) == 0 {
		f.causes, f.alive = sinks, true
	}
	slices.Sort(f.causes)
	for _, r := range f.causes {
		worker := w.base.WorkerOf[r]
		f.why[worker] = w.condition(worker, failed[worker])
		if failed[worker] != nil {
			f.unsure = f.unsure || !w.silent(worker) && !w.base.Mesh.Health(worker).Ended
		}
	}
}

// silent tells whether a worker has not been heard of for a while, though others may have been.
func (w *World) silent(worker int) bool {
	h := w.base.Mesh.Health(worker)
	return !h.Ended && time.Since(h.Seen) >= aliveTime
}

// aliveTime is how long ago a worker that is alive was heard of, at most.
const aliveTime = 3 * time.Second

// condition says what is known of a worker that others wait for.
func (w *World) condition(worker int, err error) string {
	if w.base.Mesh == nil {
		return "is in no call"
	}
	h := w.base.Mesh.Health(worker)
	what, at := w.base.Mesh.Busy(worker)
	switch {
	case h.Ended:
		return fmt.Sprintf("has ended its part after step %d", h.Steps)
	case err != nil && time.Since(h.Hub) >= aliveTime:
		return fmt.Sprintf("does not answer, and the rendezvous has not been heard of for %s either: the network may be cut here", wholeSeconds(h.Hub))
	case err != nil && time.Since(h.Seen) >= aliveTime:
		return fmt.Sprintf("has not been heard of for %s, after step %d, and does not answer: it may be stopped, or cut off", wholeSeconds(h.Seen), h.Steps)
	case err != nil:
		return fmt.Sprintf("does not answer: %s", strings.TrimPrefix(err.Error(), "epl: "))
	case what != "" && time.Since(at) < aliveTime:
		return "is " + what
	}
	return fmt.Sprintf("is alive after step %d, and waits for nobody: its own program holds it up", h.Steps)
}

func wholeSeconds(since time.Time) string { return fmt.Sprintf("%.0f s", time.Since(since).Seconds()) }

// ask asks a worker for its state.
func (w *World) ask(ctx context.Context, worker int) (s toldState, err error) {
	if h := w.base.Mesh.Health(worker); h.Ended {
		return s, errors.New("it has ended its part")
	}
	text, err := w.base.Mesh.Query(ctx, worker, questionState)
	if err == nil {
		if err = json.Unmarshal([]byte(text), &s); err != nil {
			err = errors.Errorf("it answers %q", text)
		}
	}
	return s, err
}

// busy tells whether the worker of one of the ranks was busy so recently that others must be patient.
func (w *World) busy(ranks []int) bool { return time.Now().Before(w.busyUntil(ranks)) }

// busyUntil returns until when others must be patient because the worker of one of the ranks was busy.
func (w *World) busyUntil(ranks []int) (until time.Time) {
	if w.base.Mesh == nil {
		return until
	}
	_, giveUp := w.Patience()
	for _, worker := range w.workersOf(ranks) {
		if _, at := w.base.Mesh.Busy(worker); !at.IsZero() && at.Add(giveUp).After(until) {
			until = at.Add(giveUp)
		}
	}
	return until
}

// workersOf returns the workers of some ranks.
func (w *World) workersOf(ranks []int) (workers []int) {
	for _, r := range ranks {
		if !slices.Contains(workers, w.base.WorkerOf[r]) {
			workers = append(workers, w.base.WorkerOf[r])
		}
	}
	return workers
}

// details says in words who waits for whom, and why the last of them do not go on. Waits in the call itself go without saying.
func (w *World) details(f findings, k *transport.Call) string {
	var parts []string
	for _, worker := range w.workersOf(f.causes) {
		name := fmt.Sprintf("worker %d", worker)
		if w.base.Mesh != nil {
			name = w.base.Mesh.Health(worker).Name
		}
		parts = append(parts, name+" "+f.why[worker])
	}
	if len(f.causes) == 0 && len(f.chain) > 0 {
		parts = append(parts, "they wait for each other")
	}
	for i, wait := range f.chain {
		if i == 8 {
			parts = append(parts, fmt.Sprintf("and %d more wait", len(f.chain)-i))
			break
		}
		if len(wait.For) > 0 && (k == nil || !sameCall(wait.Header, k) || len(f.causes) == 0) {
			parts = append(parts, fmt.Sprintf("rank %d waits for %s in %s", wait.Rank, transport.TheRanks(wait.For), wait.Header))
		}
	}
	for _, worker := range slices.Sorted(maps.Keys(f.elsewhere)) {
		parts = append(parts, fmt.Sprintf("worker %d waits to %s", worker, f.elsewhere[worker].What))
	}
	return strings.Join(parts, "; ")
}
