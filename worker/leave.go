// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package worker

import (
	"context"
	"fmt"
	"time"

	"github.com/easyparallel/epl/rendezvous"
)

// Trouble remembers an error of the user's program. If it takes no step after that, and leaves, this is why.
func (j *Job) Trouble(err error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.trouble, j.troubleAt = err, j.steps.Load()
}

// Fail tells the others why this worker stops: the job is over.
func (j *Job) Fail(err error) { j.World.Abort(err) }

// Leave tells the others that this worker is finished, and ends its communication. Who has offered variables, or values by [Peers], keeps them
// readable until all the others want to leave too. Doing it twice is harmless.
func (j *Job) Leave() error { return j.leave() }

func (j *Job) goAway() error {
	close(j.stop)
	j.stopped.Wait()
	j.member.Progress(j.steps.Load(), j.samples.Load())
	// First of all the others are told: they may be waiting for this worker in a call, in vain.
	j.mu.Lock()
	trouble, wentOn := j.trouble, j.troubleAt != j.steps.Load()
	j.mu.Unlock()
	if trouble != nil && !wentOn {
		j.Fail(trouble)
	}
	j.member.End()
	err := j.World.Close()
	if j.offered.Load() || j.joints.Load() > 0 {
		j.stay()
	}
	j.lines.close()
	j.server.Close()
	if leaveErr := j.member.Leave(); err == nil {
		err = leaveErr
	}
	return err
}

// stay returns when all workers want to leave, or the job has failed. A worker that is not heard of for longer than others
// would wait for it fails the job.
func (j *Job) stay() {
	ctx, cancel := context.WithCancelCause(context.Background())
	defer cancel(nil)
	go func() {
		tick := time.NewTicker(200 * time.Millisecond)
		defer tick.Stop()
		awake, last := time.Now(), time.Now()
		for {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
			}
			now := time.Now()
			if now.Sub(last) > time.Second { // this process itself was stopped, and has not listened
				awake = now
			}
			if last = now; now.Sub(awake) < min(j.timeout, aliveTime) {
				continue
			}
			for i, w := range j.member.Workers() {
				if s := j.member.State(i); i != j.Worker && !s.Left && time.Since(s.Seen) >= j.timeout {
					cancel(&silentError{w, s, j.member.Heard()})
					return
				}
			}
		}
	}()
	if err := j.member.Agree(ctx, "the end", ""); err != nil && ctx.Err() != nil {
		j.member.Fail(context.Cause(ctx))
	}
}

// silentError says that a worker was not heard of while the others wanted to leave.
type silentError struct {
	worker rendezvous.Worker
	state  rendezvous.State
	hub    time.Time
}

// Error implements error.
func (e *silentError) Error() string {
	if time.Since(e.hub) > aliveTime {
		return fmt.Sprintf("epl: the rendezvous has not been heard of for %.0f s (communication.timeout), when this worker had finished; "+
			"it may be stopped, or this machine cut off", time.Since(e.hub).Seconds())
	}
	return fmt.Sprintf("epl: %s has not been heard of for %.0f s (communication.timeout), when others had finished; it may be stopped, or cut off; it was %s",
		e.worker, time.Since(e.state.Seen).Seconds(), rendezvous.Doing(e.state.Busy, e.state.Step))
}

// Culprits says who is to blame.
func (e *silentError) Culprits() []int {
	if time.Since(e.hub) > aliveTime {
		return nil
	}
	return []int{e.worker.Index}
}
