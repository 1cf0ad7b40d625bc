// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package worker

import (
	"bytes"
	"context"
	"net"
	"path/filepath"
	"sync"
	"testing"

	"github.com/easyparallel/epl/config"
	"github.com/easyparallel/epl/internal/jobtest"
)

// flaw is a connection that changes a bit of the byte at an offset of what is read.
type flaw struct {
	net.Conn
	at int
}

func (f *flaw) Read(b []byte) (int, error) {
	n, err := f.Conn.Read(b)
	if f.at >= 0 && f.at < n {
		b[f.at] ^= 4
	}
	f.at -= n
	return n, err
}

// flawedLine makes worker 0 read variables of worker 1 on a connection with a flaw, at one of its ends.
func flawedLine(t *testing.T, jobs []*Job, at int, server bool) {
	t.Helper()
	jobs[0].lines.take(1).Close()
	wrap := func(c net.Conn, is bool) net.Conn {
		if is {
			return &flaw{c, at}
		}
		return c
	}
	const name = "a line with a flaw"
	done := make(chan struct{})
	go func() {
		defer close(done)
		c, err := jobs[1].member.Connect(context.Background(), 0, name)
		if err != nil {
			t.Error(err)
			return
		}
		jobs[1].server.Handle(jobs[1].newLine(wrap(c, server)))
	}()
	c, err := jobs[0].member.Connect(context.Background(), 1, name)
	if err != nil {
		t.Fatal(err)
	}
	<-done
	jobs[0].lines.keep(1, jobs[0].newLine(wrap(c, !server)))
}

func TestAVariableThatWasChangedOnItsWayIsNotUsed(t *testing.T) {
	t.Parallel()
	jobs := joined(t, 2, "1m", nil)
	value := bytes.Repeat([]byte("weights "), 100_000)
	offer(jobs[1], "w", 1, value)
	for _, at := range []int{3, 20, 1000, 700_000} {
		flawedLine(t, jobs, at, false)
		err := jobs[0].Fetch(1, "w", 1, make([]byte, len(value)))
		jobtest.WantError(t, err, `worker 0 cannot read "w" of worker 1 (`, "arrived damaged", "CRC-32C", "network card")
		got := make([]byte, len(value))
		if err := jobs[0].Fetch(1, "w", 1, got); err != nil || !bytes.Equal(got, value) { // on another connection
			t.Fatal(err)
		}
	}
	flawedLine(t, jobs, 30, true)
	jobtest.WantError(t, jobs[0].Fetch(1, "w", 1, make([]byte, len(value))), `worker 0 cannot read "w" of worker 1 (`, "the request", "arrived damaged")
}

func TestTheConfigurationSaysWhetherDataAreChecked(t *testing.T) {
	t.Setenv("EPL_COMMUNICATION_CHECKSUM", "false")
	jobs := joined(t, 2, "1m", nil)
	value := bytes.Repeat([]byte("weights "), 1000)
	offer(jobs[1], "w", 1, value)
	flawedLine(t, jobs, 1000, false)
	got := make([]byte, len(value))
	if err := jobs[0].Fetch(1, "w", 1, got); err != nil || bytes.Equal(got, value) {
		t.Errorf("the flaw was noticed, or there was none: %v", err)
	}
}

func TestWorkersThatDoNotAgreeOnChecksumsAreTold(t *testing.T) {
	url := "file://" + filepath.Join(t.TempDir(), "job")
	errs := make([]error, 2)
	var both sync.WaitGroup
	for i := range errs {
		cfg, err := config.New(map[string]any{"communication.checksum": i == 0, "communication.timeout": "1m"})
		if err != nil {
			t.Fatal(err)
		}
		both.Go(func() { _, errs[i] = joinWith(cfg, i, 2, url, nil) })
	}
	both.Wait()
	for _, err := range errs {
		jobtest.WantError(t, err, "communication.checksum", "do not agree", `"true" on worker 0`, `"false" on worker 1`)
	}
}
