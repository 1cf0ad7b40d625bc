// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package worker

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/pkg/errors"
)

// A program without gradients may be called by all workers, or by some: only the calls tell. Meet finds out before any worker begins
// what takes all of them. The first worker keeps the list of who waits, so that all hear the same.

// joint counts what takes all workers, such as training steps. All workers do these things in the same order.
type joint struct {
	mu     sync.Mutex
	begun  int
	inside bool
}

func (x *joint) begin() (over func()) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.begun++
	x.inside = true
	return func() {
		x.mu.Lock()
		defer x.mu.Unlock()
		x.inside = false
	}
}

// now is how many were begun, and whether the last is going on.
func (x *joint) now() (begun int, inside bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.begun, x.inside
}

// Joint notes that this worker does something that takes all workers, until the returned function is called.
func (j *Job) Joint() (over func()) { return j.joint.begin() }

// visit is a call of Meet.
type visit struct {
	number  int // of the worker's calls
	subject string
	verdict string // "" until it is known
}

const (
	together = "together"
	apart    = "apart"
)

// meetings are the calls of Meet, by worker: the last of each.
type meetings struct {
	mu      sync.Mutex
	last    map[int]*visit
	decided chan struct{} // closed with every verdict
}

// visit returns the verdict of a worker's call, or who has not come yet. All that is known after a moment counts; at once, if giveUp is
// set, which makes the workers that wait go apart.
func (m *meetings) visit(worker, workers int, v visit, moment time.Duration, giveUp bool) (verdict string, missing []int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.last == nil {
		m.last, m.decided = map[int]*visit{}, make(chan struct{})
	}
	x := m.last[worker]
	if x == nil || x.number != v.number {
		x = &v
		m.last[worker] = x
	}
	var waiting []*visit
	for w := range workers {
		if y := m.last[w]; y != nil && y.verdict == "" {
			waiting = append(waiting, y)
		} else {
			missing = append(missing, w)
		}
	}
	differ := slices.ContainsFunc(waiting, func(y *visit) bool { return y.subject != waiting[0].subject })
	if x.verdict == "" && (giveUp || differ || len(missing) == 0) {
		verdict := together
		if giveUp || differ {
			verdict = apart
		}
		for _, y := range waiting {
			y.verdict = verdict
		}
		close(m.decided)
		m.decided = make(chan struct{})
	}
	if x.verdict == "" && moment > 0 {
		decided := m.decided
		m.mu.Unlock()
		select {
		case <-decided:
		case <-time.After(moment):
		}
		m.mu.Lock()
	}
	return x.verdict, missing
}

// Meet tells whether all workers call the program with a fingerprint, by returning true to all of them. It returns false, to those that call it, when another
// calls something else, is in a step that this one has not begun, or has finished; and when another does not come within communication.timeout
// and is not busy. It never waits for a worker that waits for this one.
func (j *Job) Meet(program, fingerprint string) (bool, error) {
	j.meeting.Lock() // one program at a time
	defer j.meeting.Unlock()
	ctx, cancel := j.patiently(context.Background(), j.others(), fmt.Sprintf("call program %q", program), &moment{})
	defer cancel()
	j.visits++
	v := visit{number: j.visits, subject: program + " " + fingerprint}
	giveUp := false
	for moment := time.Duration(0); ; moment = 20 * time.Millisecond {
		verdict, missing, err := j.visit(v, moment, giveUp)
		switch {
		case j.member.Err() != nil:
			return false, j.member.Err()
		case verdict != "":
			return verdict == together, nil
		case err != nil && giveUp:
			return false, nil // nobody keeps the list any more: the others go apart, too
		}
		giveUp = err != nil || ctx.Err() != nil || slices.ContainsFunc(missing, func(w int) bool { return j.passedBy(ctx, w) })
	}
}

// visit asks the first worker.
func (j *Job) visit(v visit, moment time.Duration, giveUp bool) (verdict string, missing []int, err error) {
	if j.Worker == 0 {
		verdict, missing = j.meetings.visit(0, len(j.Devices), v, moment, giveUp)
		return verdict, missing, nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), j.timeout)
	defer cancel()
	if s := j.member.State(0); s.Ended || s.Left {
		return "", nil, errors.New("the first worker has finished")
	}
	text, err := j.member.Query(ctx, 0, fmt.Sprintf("%s%d %d %d %t %s", questionMeet, j.Worker, v.number, moment, giveUp, v.subject))
	if err != nil {
		return "", nil, err
	}
	for _, word := range strings.Fields(text) {
		w := 0
		if _, err := fmt.Sscan(word, &w); err != nil {
			return word, nil, nil
		}
		missing = append(missing, w)
	}
	return "", missing, nil
}

// passedBy tells whether a worker does something that takes this one, and that this one has not begun, or has finished. It cannot come
// before this one goes there.
func (j *Job) passedBy(ctx context.Context, worker int) bool {
	if worker == j.Worker {
		return false
	}
	if s := j.member.State(worker); s.Ended || s.Left {
		return true
	}
	begun, _ := j.joint.now()
	its, inside := 0, false
	text, err := j.member.Query(ctx, worker, questionJoint)
	if err != nil {
		return false
	}
	n, _ := fmt.Sscan(text, &its, &inside)
	return n == 2 && inside && its > begun
}

// questionMeet comes to a meeting; questionJoint asks what a worker has begun.
const (
	questionMeet  = "meet "
	questionJoint = "joint"
)

// answerMeeting answers what is asked about meetings.
func (j *Job) answerMeeting(question string) (answer string, ours bool) {
	if question == questionJoint {
		begun, inside := j.joint.now()
		return fmt.Sprint(begun, " ", inside), true
	}
	text, ours := strings.CutPrefix(question, questionMeet)
	if !ours {
		return "", false
	}
	fields := strings.SplitN(text, " ", 5)
	if len(fields) != 5 {
		return "", false
	}
	var worker int
	var v visit
	var moment time.Duration
	var giveUp bool
	if _, err := fmt.Sscan(strings.Join(fields[:4], " "), &worker, &v.number, (*int64)(&moment), &giveUp); err != nil {
		return inner(err), true
	}
	v.subject = fields[4]
	verdict, missing := j.meetings.visit(worker, len(j.Devices), v, moment, giveUp)
	if verdict != "" {
		return verdict, true
	}
	return strings.Trim(fmt.Sprint(missing), "[]"), true
}
