// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package worker

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/pkg/errors"

	"github.com/easyparallel/epl/internal/jobtest"
)

// peersOf makes the peers of all workers of a job.
func peersOf(jobs []*Job) (all []*Peers) {
	for _, j := range jobs {
		all = append(all, j.Peers())
	}
	return all
}

func TestWorkersExchangeValues(t *testing.T) {
	jobs := joined(t, 3, "1m", nil)
	old := peersOf(jobs)
	if err := old[1].Put("topology/1", []byte("an old client's")); err != nil {
		t.Fatal(err)
	}
	all := peersOf(jobs)
	if value, found, err := all[2].TryGet("topology/1"); found || err != nil {
		t.Errorf("a key of other peers is found: %q, %v", value, err)
	}
	value := func(i int) []byte { return bytes.Repeat([]byte{0, ' ', byte(i), 0xff, '\n'}, 800_000*i) }
	jobtest.OnAll(3, func(i int) {
		time.Sleep(time.Duration(i) * 50 * time.Millisecond) // who comes first waits
		if err := all[i].Put(fmt.Sprint("a key/", i), value(i)); err != nil {
			t.Error(err)
		}
		jobtest.OnAll(3, func(of int) {
			got, err := all[i].Get(jobtest.Within(t), fmt.Sprint("a key/", of))
			if err != nil || !bytes.Equal(got, value(of)) {
				t.Errorf("worker %d has %d bytes of worker %d, %v", i, len(got), of, err)
			}
		})
		if got, found, err := all[i].TryGet(fmt.Sprint("a key/", i)); !found || err != nil || !bytes.Equal(got, value(i)) {
			t.Errorf("worker %d: %d bytes, %t, %v", i, len(got), found, err)
		}
		if _, found, err := all[i].TryGet("another"); found || err != nil {
			t.Errorf("worker %d: %t, %v", i, found, err)
		}
	})
	jobtest.WantError(t, all[1].Put("large", make([]byte, 9<<20)), "internal error", "large", "the limit")
}

func TestAValueThatNobodyPutsIsNotWaitedForLongerThanTheContext(t *testing.T) {
	for _, p := range peersOf(joined(t, 2, "1m", nil)) {
		ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
		_, err := p.Get(ctx, "topology/7")
		cancel()
		if !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "topology/7") {
			t.Errorf("the error is %v", err)
		}
	}
}

func TestAFailureEndsTheWaitForAValue(t *testing.T) {
	jobs := joined(t, 3, "1m", nil)
	all := peersOf(jobs)
	errs := make([]error, 2)
	done := make(chan struct{})
	go func() {
		defer close(done)
		jobtest.OnAll(2, func(i int) { _, errs[i] = all[i].Get(jobtest.Within(t), "topology/2") })
	}()
	jobs[2].Fail(errors.New("epl: there is no GPU"))
	<-done
	for i, err := range errs {
		if err == nil || !strings.Contains(err.Error(), "worker 2") || !strings.Contains(err.Error(), "there is no GPU") {
			t.Errorf("worker %d: %v", i, err)
		}
		if err := all[i].Put("x", nil); err == nil || !strings.Contains(err.Error(), "there is no GPU") {
			t.Errorf("worker %d puts: %v", i, err)
		}
		if _, _, err := all[i].TryGet("x"); err == nil || !strings.Contains(err.Error(), "there is no GPU") {
			t.Errorf("worker %d gets: %v", i, err)
		}
	}
}

func TestWorkersThatHaveFinishedPutNoValue(t *testing.T) {
	for absent := range 2 {
		jobs := joined(t, 2, "1m", nil)
		all := peersOf(jobs)
		if err := all[absent].Put("early", []byte("yes")); err != nil {
			t.Fatal(err)
		}
		go jobs[absent].Leave() // it stays until the other leaves, too
		_, err := all[1-absent].Get(jobtest.Within(t), "id")
		jobtest.WantError(t, err, "all other workers have finished", "id")
		if value, err := all[1-absent].Get(jobtest.Within(t), "early"); err != nil || string(value) != "yes" {
			t.Errorf("what was put before is %q, %v", value, err)
		}
	}
}

// Who holds up others for longer than communication.timeout, and is not busy, is named, and the job ends.
func TestAWorkerThatHoldsUpAWaitIsNamed(t *testing.T) {
	t.Parallel()
	jobs := joined(t, 2, "2s", nil)
	all := peersOf(jobs)
	ctx, over := all[0].Watch("finish program \"step\"")
	defer over()
	<-ctx.Done()
	jobtest.WantError(t, context.Cause(ctx), "communication.timeout", "worker 1", `finish program "step"`)
	<-jobs[1].member.Done()
	jobtest.WantError(t, all[1].Err(), "communication.timeout", "worker 1")
}

func TestAWorkerThatDiesEndsTheWaitForAValue(t *testing.T) {
	if url := os.Getenv(meetVariable); url != "" {
		j, err := join(1, 2, url, "5m", nil)
		if err != nil {
			t.Fatal(err)
		}
		if err := j.Peers().Put("ready", nil); err != nil {
			t.Fatal(err)
		}
		<-j.member.Done()
		return
	}
	t.Parallel()
	url := "file://" + filepath.Join(t.TempDir(), "job")
	other := exec.Command(os.Args[0], "-test.run=^"+t.Name()+"$")
	other.Env = append(os.Environ(), meetVariable+"="+url)
	if err := other.Start(); err != nil {
		t.Fatal(err)
	}
	defer other.Wait()
	defer other.Process.Kill()
	j, err := join(0, 2, url, "5m", nil)
	if err != nil {
		t.Fatal(err)
	}
	defer j.Leave()
	p := j.Peers()
	if _, err := p.Get(jobtest.Within(t), "ready"); err != nil {
		t.Fatal(err)
	}
	ctx, over := p.Watch("finish program \"step\"")
	defer over()
	failed := make(chan error)
	go func() { _, err := p.Get(jobtest.Within(t), "id"); failed <- err }()
	if err := other.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	<-ctx.Done()
	for _, err := range []error{<-failed, context.Cause(ctx), p.Err()} {
		if err == nil || !strings.Contains(err.Error(), "worker 1") || !strings.Contains(err.Error(), "ended") {
			t.Errorf("the error is %v", err)
		}
	}
}
