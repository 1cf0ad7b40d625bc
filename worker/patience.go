// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package worker

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/easyparallel/epl/comm"
)

// aliveTime is how long a worker that gives signs of life may take to answer.
const aliveTime = 3 * time.Second

// need is something that this worker waits for outside the world, and which workers it takes.
type need struct {
	what    string
	workers []int
}

// patiently returns a context that ends with its parent, and when communication.timeout has passed since the call, since a worker that holds up
// this one was busy, and since something moved. Its cause names who is to blame. what completes
// "waits to …", and needs the workers.
func (j *Job) patiently(parent context.Context, workers []int, what string, moved *moment) (ctx context.Context, cancel func()) {
	ctx, end := context.WithCancelCause(parent)
	n := need{what, workers}
	j.mu.Lock()
	j.need = append(j.need, n)
	j.mu.Unlock()
	inquire, giveUp := j.World.Patience()
	var watch sync.WaitGroup
	watch.Go(func() {
		since := time.Now()
		tick := time.NewTicker(min(200*time.Millisecond, max((giveUp-inquire)/4, time.Millisecond)))
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
			}
			if at := moved.last(); at.After(since) {
				since = at
			}
			waited := time.Since(since)
			if waited < inquire {
				continue
			}
			limited, over := context.WithTimeout(ctx, (giveUp-inquire)/2)
			stall := j.World.Inquire(limited, workers, what)
			over()
			due := since.Add(giveUp)
			if stall.Patience.After(due) {
				due = stall.Patience
			}
			if time.Until(due) > giveUp-inquire || stall.Unsure && waited < j.timeout+aliveTime {
				continue // whoever holds up the others is busy, or slow to answer
			}
			select {
			case <-ctx.Done():
				return
			case <-time.After(time.Until(due)):
			}
			if at := moved.last(); !at.After(since) {
				end(stall)
			}
		}
	})
	return ctx, func() {
		end(nil)
		watch.Wait()
		j.mu.Lock()
		defer j.mu.Unlock()
		at := slices.IndexFunc(j.need, func(o need) bool { return o.what == n.what })
		j.need = slices.Delete(j.need, at, at+1)
	}
}

// Waiting implements comm.Mesh.
func (m mesh) Waiting() (string, []int) {
	m.job.mu.Lock()
	defer m.job.mu.Unlock()
	n := len(m.job.need)
	if n == 0 {
		return "", nil
	}
	return m.job.need[n-1].what, m.job.need[n-1].workers
}

// Health implements comm.Mesh.
func (m mesh) Health(worker int) comm.Health {
	s := m.State(worker)
	h := comm.Health{Name: m.Workers()[worker].String(), Seen: s.Seen, Hub: m.Heard(), Steps: s.Step, Ended: s.Ended || s.Left}
	if worker == m.Index() {
		h.Steps = m.job.steps.Load()
	}
	return h
}
