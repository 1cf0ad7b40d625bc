// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"encoding/gob"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"time"
)

// job is the workers of a try.
type job struct {
	folder  string
	workers []*process
}

// process is a worker whose output is read while it runs.
type process struct {
	cmd  *exec.Cmd
	file string
	mu   sync.Mutex
	out  bytes.Buffer
	end  chan struct{}
	err  error // when it has ended
}

// Write implements io.Writer.
func (p *process) Write(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.out.Write(b)
}

func (p *process) output() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.out.String()
}

// start starts this program again as the workers of a try. They are killed when the context ends.
func start(ctx context.Context, t try, batches int, o options) (*job, error) {
	folder, err := os.MkdirTemp("", "nccl")
	if err != nil {
		return nil, err
	}
	j := &job{folder: folder}
	for i := range t.processes {
		p := &process{file: filepath.Join(folder, fmt.Sprintf("worker%d", i)), end: make(chan struct{})}
		role, err := json.Marshal(part{Try: t.String(), Batches: batches, Backend: o.backend, File: p.file, Timeout: o.timeout * 2 / 3})
		if err != nil {
			return j, err
		}
		p.cmd = exec.CommandContext(ctx, os.Args[0])
		p.cmd.Env = append(os.Environ(), partVariable+"="+string(role), "XLA_PYTHON_CLIENT_PREALLOCATE=false",
			fmt.Sprintf("XLA_PYTHON_CLIENT_MEM_FRACTION=%.2f", 0.9/float64(max(t.processes, 2)*o.parallel)))
		if t.processes > 1 {
			p.cmd.Env = append(p.cmd.Env, fmt.Sprintf("EPL_NUM_WORKERS=%d", t.processes), fmt.Sprintf("EPL_WORKER_INDEX=%d", i), "EPL_DEVICES_PER_WORKER=1",
				"EPL_RDZV=file://"+filepath.Join(folder, "job"))
		}
		if o.oneGPU { // NCCL refuses two ranks on a GPU, unless it takes them for ones of different hosts
			p.cmd.Env = append(p.cmd.Env, fmt.Sprintf("NCCL_HOSTID=host-%d", i), "NCCL_P2P_DISABLE=1", "NCCL_SHM_DISABLE=1", "NCCL_SOCKET_IFNAME=lo", "NCCL_NET=Socket")
		} else {
			p.cmd.Env = append(p.cmd.Env, fmt.Sprintf("CUDA_VISIBLE_DEVICES=%d", i))
		}
		p.cmd.Stdout, p.cmd.Stderr, p.cmd.WaitDelay = p, p, 5*time.Second
		if err := p.cmd.Start(); err != nil {
			return j, err
		}
		j.workers = append(j.workers, p)
		go func() {
			p.err = p.cmd.Wait()
			close(p.end)
		}()
	}
	return j, nil
}

// wait waits until all have ended; killed by the context is an error that says so.
func (j *job) wait(ctx context.Context, timeout time.Duration) error {
	var failed error
	for i, p := range j.workers {
		<-p.end
		if p.err != nil && failed == nil {
			failed = fmt.Errorf("worker %d: %v", i, p.said())
		}
	}
	if ctx.Err() != nil {
		return fmt.Errorf("stuck: killed after %v; %v", timeout, failed)
	}
	return failed
}

// said is the error of a worker, or the end of what it says.
func (p *process) said() string {
	out := strings.TrimSpace(p.output())
	if _, why, found := strings.Cut(out, "FAILED: "); found {
		out = why
	} else {
		if i := strings.Index(out, "goroutine "); i > 0 {
			out = out[:i] // it crashed, and says why before
		}
		out = fmt.Sprintf("%v: %s", p.err, out[max(0, len(out)-1000):])
	}
	return strings.Join(strings.Fields(out), " ")
}

// result is what a worker found.
func (p *process) result() (*result, error) {
	f, err := os.Open(p.file)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	var r result
	return &r, gob.NewDecoder(f).Decode(&r)
}

// close ends what is left of it, and writes down what workers said.
func (j *job) close(t try, logs string) {
	for i, p := range j.workers {
		_ = p.cmd.Process.Kill()
		<-p.end
		if logs != "" {
			name := strings.NewReplacer(" ", "-", ":", "", ",", "").Replace(fmt.Sprintf("%s-%s-%d.log", t, filepath.Base(j.folder), i))
			_ = os.WriteFile(filepath.Join(logs, name), p.out.Bytes(), 0o666)
		}
	}
	_ = os.RemoveAll(j.folder)
}
