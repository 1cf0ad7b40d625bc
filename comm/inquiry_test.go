// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package comm

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/easyparallel/epl/comm/internal/transport"
)

// jobsOf runs a test in jobs of n workers that communicate by shared memory, TCP, and both.
func jobsOf(t *testing.T, n int, timeout time.Duration, f func(t *testing.T, j *testJob, w *World)) {
	for name, host := range map[string]func(i int) string{
		"shared memory": func(int) string { return "a" },
		"TCP":           func(i int) string { return string(rune('a' + i)) },
		"both":          func(i int) string { return string(rune('a' + i/2)) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			j := newTestJob(n)
			var places []Place
			for i := range n {
				places = append(places, Place{Ranks: 1, Host: host(i)})
			}
			w, err := newJob(j, places, Options{Timeout: timeout})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { closeAll(t, w) })
			f(t, j, w)
		})
	}
}

// wantCauses wants that all errors name the same workers.
func wantCauses(t *testing.T, errs []error, workers ...int) {
	t.Helper()
	for i, err := range errs {
		var blaming interface{ Culprits() []int }
		switch {
		case err == nil:
			t.Errorf("%d: no error", i)
		case errors.As(err, &blaming) && !slices.Equal(blaming.Culprits(), workers):
			t.Errorf("%d: %v are to blame, want %v: %v", i, blaming.Culprits(), workers, err)
		}
	}
}

func TestWaitsAreFollowedToTheirEnd(t *testing.T) {
	t.Run("several workers", func(t *testing.T) {
		jobsOf(t, 4, 2*time.Second, func(t *testing.T, j *testJob, w *World) {
			j.mu.Lock()
			j.stopped[3] = true
			j.mu.Unlock()
			start := time.Now()
			errs := onAll(ends(t, w.All(), 0)[:3], func(c *Communicator) error { // a pipeline
				return c.Recv(make([]float32, 4), c.Position()+1, 0)
			})
			if d := time.Since(start); d > 3500*time.Millisecond {
				t.Errorf("it took %s", d) // for an answer that does not come, too
			}
			wantCauses(t, errs, 3)
			wantError(t, j.err, "rank 3", "worker 3 has not been heard of for 60 s", "it may be stopped, or cut off")
			if strings.Contains(j.err.Error(), "epl: rank 1 did") || strings.Contains(j.err.Error(), "epl: rank 2 did") {
				t.Errorf("an innocent rank is accused: %v", j.err)
			}
		})
	})
	t.Run("one worker", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			w, err := NewInProcess(4, Options{Timeout: time.Minute})
			if err != nil {
				t.Fatal(err)
			}
			defer w.Close()
			cs := ends(t, w.All(), 0)
			errs := onAll(cs[:3], func(c *Communicator) error {
				if c.Position() == 0 { // others first, so that it is the first to give up that sees a chain
					return c.Recv(make([]float32, 4), 1, 0)
				}
				time.Sleep(time.Duration(c.Position()) * time.Second)
				return c.Recv(make([]float32, 4), c.Position()+1, 0)
			})
			wantError(t, errs[0], "epl: rank 3 held up the others for 1m0s", "rank 1 waits for rank 2 in recv from rank 2", "rank 2 waits for rank 3 in recv from rank 3",
				"so rank 1 did not arrive in recv from rank 1 with tag 0 #1", "see what rank 3 did last", "rank 3: no calls")
		})
	})
}

func TestRanksThatWaitForEachOtherAreTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, err := NewInProcess(3, Options{Timeout: time.Minute})
		if err != nil {
			t.Fatal(err)
		}
		defer w.Close()
		errs := onAll(ends(t, w.All(), 0), func(c *Communicator) error {
			return c.Recv(make([]float32, 4), (c.Position()+1)%3, 0)
		})
		all := errors.Join(errs...).Error()
		if !strings.Contains(all, "they wait for each other") {
			t.Error(all)
		}
	})
}

func TestWhoWaitsForABusyWorkerThroughAnotherIsPatient(t *testing.T) {
	jobsOf(t, 3, 500*time.Millisecond, func(t *testing.T, j *testJob, w *World) {
		mustAll(t, ends(t, w.All(), 0), func(c *Communicator) error {
			if c.Position() == 2 {
				for until := time.Now().Add(1500 * time.Millisecond); time.Now().Before(until); {
					j.mu.Lock()
					j.busy[2] = time.Now()
					j.mu.Unlock()
					time.Sleep(20 * time.Millisecond)
				}
				return c.Send(make([]float32, 4), 1, 0)
			}
			if c.Position() == 1 {
				if err := c.Recv(make([]float32, 4), 2, 0); err != nil {
					return err
				}
				return c.Send(make([]float32, 4), 0, 0)
			}
			return c.Recv(make([]float32, 4), 1, 0)
		})
	})
}

func TestWhoWaitsOutsideTheWorldIsNotToBlame(t *testing.T) {
	jobsOf(t, 3, 2*time.Second, func(t *testing.T, j *testJob, w *World) {
		j.mu.Lock()
		j.stopped[2], j.need[1] = true, 2
		j.mu.Unlock()
		errs := onAll(ends(t, w.All(), 0)[:1], func(c *Communicator) error { return c.Recv(make([]float32, 4), 1, 0) })
		wantCauses(t, errs, 2)
		wantError(t, errs[0], "epl: rank 2 held up the others for 2s", "worker 1 waits to read a variable")
	})
}

func TestNobodyWaitsForAWorkerThatHasEnded(t *testing.T) {
	jobsOf(t, 4, 5*time.Minute, func(t *testing.T, j *testJob, w *World) {
		cs := ends(t, w.All(), 0)
		mustAll(t, cs, (*Communicator).Barrier)
		timer := time.AfterFunc(300*time.Millisecond, func() {
			j.mu.Lock()
			defer j.mu.Unlock()
			j.ended[2] = true
		})
		defer timer.Stop()
		start := time.Now()
		errs := onAll(slices.Delete(cs, 2, 3), (*Communicator).Barrier)
		if d := time.Since(start); d > 10*time.Second {
			t.Errorf("it took %s", d)
		}
		wantCauses(t, errs, 2)
		wantError(t, j.err, "worker 2 ended its part of the job after step 37", "in step 38, in barrier #2", "all workers must take the same steps")
	})
}

// Somebody who ends may have done his part of a call that others are still in.
func TestAWorkerThatEndsAfterItsPartHarmsNobody(t *testing.T) {
	jobsOf(t, 3, 5*time.Minute, func(t *testing.T, j *testJob, w *World) {
		mustAll(t, ends(t, w.All(), 0), func(c *Communicator) error {
			switch c.Position() {
			case 0: // a message that waits for its receiver does not keep the sender
				sent := c.Start(Call{Op: Send, Buf: make([]float32, 4), Peer: 1})
				if err := sent.Wait(); err != nil {
					return err
				}
				j.mu.Lock()
				defer j.mu.Unlock()
				j.ended[0] = true
				return nil
			case 1:
				if err := c.Recv(make([]float32, 4), 0, 0); err != nil {
					return err
				}
				time.Sleep(time.Second)
				return c.Send(make([]float32, 4), 2, 0)
			}
			return c.Recv(make([]float32, 4), 1, 0) // who waits for somebody else does not mind
		})
	})
}

func TestAWorkerThatEndsBecauseTheJobFailedIsNotToBlame(t *testing.T) {
	j := newTestJob(3)
	w, err := newJob(j, []Place{{Ranks: 1, Host: "a"}, {Ranks: 1, Host: "b"}, {Ranks: 1, Host: "c"}}, Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { closeAll(t, w) })
	j.mu.Lock()
	j.ended[2] = true
	j.mu.Unlock()
	var ended *EndedError
	if err := w.base.Ended(&transport.Call{}, 0, 2); !errors.As(err, &ended) || ended.Worker != 2 {
		t.Errorf("got %v", err)
	}
	j.meshes[1].Fail(errors.New("the disk is full"))
	wantError(t, w.base.Ended(&transport.Call{}, 0, 2), "worker 1 stopped", "the disk is full")
}
