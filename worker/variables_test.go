// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package worker

import (
	"bytes"
	"crypto/tls"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/pkg/errors"

	"github.com/easyparallel/epl/cluster"
	"github.com/easyparallel/epl/config"
	"github.com/easyparallel/epl/internal/jobtest"
	"github.com/easyparallel/epl/rendezvous"
)

// join makes this process, or a part of it, worker i of n. More variables may be given.
func join(i, n int, url, timeout string, environment map[string]string) (*Job, error) {
	cfg, err := config.New(map[string]any{"communication.timeout": timeout})
	if err != nil {
		return nil, err
	}
	return joinWith(cfg, i, n, url, environment)
}

func joinWith(cfg *config.Config, i, n int, url string, environment map[string]string) (*Job, error) {
	all := map[string]string{cluster.EnvNumWorkers: strconv.Itoa(n), cluster.EnvWorkerIndex: strconv.Itoa(i), rendezvous.EnvURL: url}
	maps.Copy(all, environment)
	lookup := func(name string) (string, bool) { value, ok := all[name]; return value, ok }
	c, err := cluster.FromEnvironment(lookup, 0, nil)
	if err != nil {
		return nil, err
	}
	return Join(Options{Cluster: c, Config: cfg, Lookup: lookup})
}

// joined returns the workers of a job that are all in this process.
func joined(t *testing.T, n int, timeout string, environment map[string]string) []*Job {
	t.Helper()
	url := "file://" + filepath.Join(t.TempDir(), "job")
	jobs, errs := make([]*Job, n), make([]error, n)
	jobtest.OnAll(n, func(i int) { jobs[i], errs[i] = join(i, n, url, timeout, environment) })
	for i, err := range errs {
		if err != nil {
			t.Fatalf("worker %d: %v", i, err)
		}
	}
	t.Cleanup(func() { jobtest.OnAll(n, func(i int) { jobs[i].Leave() }) })
	return jobs
}

func offer(j *Job, name string, version uint64, data []byte) (withdraw func()) {
	return j.Offer(name, version, func() ([]byte, func(), error) { return data, func() {}, nil })
}

func TestEveryWorkerReadsTheVariablesOfAllOthers(t *testing.T) {
	const n = 3
	jobs := joined(t, n, "1m", nil)
	for i, j := range jobs {
		if made := j.lines.count.Load(); made != n-1 {
			t.Errorf("worker %d has opened %d connections at the start: one to each other is needed later", i, made)
		}
	}
	value := func(worker, variable int) []byte {
		return bytes.Repeat([]byte{byte(1 + worker), byte(variable)}, 10+100_000*variable)
	}
	jobtest.OnAll(n, func(me int) {
		for variable := range 5 {
			for other := range n {
				if other == me {
					offer(jobs[me], fmt.Sprint("variable ", variable), 1, value(me, variable))
					continue
				}
				got := make([]byte, len(value(other, variable)))
				if err := jobs[me].Fetch(other, fmt.Sprint("variable ", variable), 1, got); err != nil {
					t.Errorf("worker %d: %v", me, err)
				} else if !bytes.Equal(got, value(other, variable)) {
					t.Errorf("worker %d has other bytes of worker %d", me, other)
				}
			}
		}
	})
	for i, j := range jobs {
		if made := j.lines.count.Load(); made != n-1 {
			t.Errorf("worker %d made %d connections: one to each other would have done", i, made)
		}
	}
}

func TestConnectionsForVariablesAreEncryptedIfTheJobIs(t *testing.T) {
	cert, key := jobtest.Certificate(t)
	jobs := joined(t, 2, "1m", map[string]string{rendezvous.EnvTLSCert: cert, rendezvous.EnvTLSKey: key, rendezvous.EnvTLSCA: cert})
	for i, j := range jobs {
		offer(jobs[1-i], "w", 1, []byte("abc"))
		got := make([]byte, 3)
		if err := j.Fetch(1-i, "w", 1, got); err != nil || string(got) != "abc" {
			t.Errorf("%q, %v", got, err)
		}
		line := j.lines.take(1 - i)
		if _, ok := line.Conn.(watched).Conn.(*tls.Conn); !ok {
			t.Error("a connection is not encrypted")
		}
		j.lines.keep(1-i, line)
	}
}

func TestAReadThatCannotBeNamesTheWorkerAndTheVariable(t *testing.T) {
	t.Parallel()
	jobs := joined(t, 2, "2s", nil)
	offer(jobs[1], "w", 2, []byte("abc"))
	for version, words := range map[uint64][]string{
		1: {"version 1", "not there any more", "version 2"},
		2: {"3 bytes", "4 were asked for"},
		3: {"version 3", "has not been offered, version 2 is the newest", "waited for 2s (communication.timeout)"},
	} {
		jobtest.WantError(t, jobs[0].Fetch(1, "w", version, make([]byte, 4)), append(words, `worker 0 cannot read "w" of worker 1 (`)...)
	}
	for _, worker := range []int{0, 2, -1} {
		jobtest.WantError(t, jobs[0].Fetch(worker, "w", 2, nil), "internal error", `"w"`)
	}
}

func TestABusyWorkerIsWaitedFor(t *testing.T) {
	t.Parallel()
	jobs := joined(t, 2, "3s", nil) // some signs of life
	over := jobs[1].Busy("compiling")
	done := make(chan error)
	go func() { done <- jobs[0].Fetch(1, "w", 1, make([]byte, 3)) }()
	select {
	case err := <-done:
		t.Fatalf("it was not waited for: %v", err)
	case <-time.After(jobs[0].timeout + 2*time.Second):
	}
	offer(jobs[1], "w", 1, []byte("abc"))
	over()
	if err := <-done; err != nil {
		t.Error(err)
	}
}

func TestAFailureOfTheJobEndsReadsWithItsReason(t *testing.T) {
	for _, connected := range []bool{false, true} {
		jobs := joined(t, 3, "5m", nil)
		done := make(chan error)
		if connected {
			offer(jobs[1], "w", 1, nil)
			if err := jobs[0].Fetch(1, "w", 1, nil); err != nil {
				t.Fatal(err)
			}
		}
		go func() { done <- jobs[0].Fetch(1, "w", 2, nil) }()
		jobs[2].World.Abort(errors.New("epl: the disk is full"))
		jobtest.WantError(t, <-done, `worker 0 cannot read "w" of worker 1`, "worker 2 stopped: the disk is full")
	}
}

func TestABrokenConnectionNamesTheWorker(t *testing.T) {
	t.Parallel()
	jobs := joined(t, 2, "5m", nil)
	offer(jobs[1], "w", 1, nil)
	if err := jobs[0].Fetch(1, "w", 1, nil); err != nil {
		t.Fatal(err)
	}
	jobs[1].server.Close()
	jobtest.WantError(t, jobs[0].Fetch(1, "w", 2, nil), `worker 0 cannot read "w" of worker 1 (`, "see what happened to that worker")
}

// meetVariable makes this test binary worker 1 of a job that meets there, until it is killed.
const meetVariable = "EPLTEST_MEET"

func TestAWorkerThatDiesIsNamedByItsReaders(t *testing.T) {
	if url := os.Getenv(meetVariable); url != "" {
		j, err := join(1, 2, url, "5m", nil)
		if err != nil {
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
	done := make(chan error)
	go func() { done <- j.Fetch(1, "w", 1, nil) }()
	if err := other.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	jobtest.WantError(t, <-done, `worker 0 cannot read "w" of worker 1 (`, "is gone")
}

func TestVariablesStayReadableUntilAllLeave(t *testing.T) {
	jobs := joined(t, 3, "1m", nil)
	for _, j := range jobs {
		offer(j, "w", 1, []byte("abc"))
	}
	left := make(chan error, 2)
	for _, j := range jobs[1:] {
		go func() { left <- j.Leave() }()
	}
	for range 100 {
		for worker := 1; worker < 3; worker++ {
			if err := jobs[0].Fetch(worker, "w", 1, make([]byte, 3)); err != nil {
				t.Fatal(err)
			}
		}
	}
	select {
	case <-left:
		t.Fatal("a worker has left")
	default:
	}
	if err := jobs[0].Leave(); err != nil {
		t.Error(err)
	}
	for range 2 {
		if err := <-left; err != nil {
			t.Error(err)
		}
	}
	jobtest.WantError(t, jobs[0].Fetch(1, "w", 1, nil), "has left")
}
