// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

//go:build linux

package comm

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/pkg/errors"
)

// A job of real processes: each is this test binary, run again for one test only, which makes the world of one worker and
// calls a function of processJobs. They are connected over loopback.

const (
	jobVariable       = "EPL_TEST_JOB"       // which function
	workerVariable    = "EPL_TEST_WORKER"    // which worker
	addressesVariable = "EPL_TEST_ADDRESSES" // of all workers
)

// processJobs are what workers in processes of their own can do.
var processJobs = map[string]func(w *World) error{}

func TestAsAWorkerInAProcessOfItsOwn(t *testing.T) {
	job := os.Getenv(jobVariable)
	if job == "" {
		t.Skip("only other tests start this, as a worker")
	}
	worker, err := strconv.Atoi(os.Getenv(workerVariable))
	if err != nil {
		t.Fatal(err)
	}
	mesh, err := newProcessMesh(worker, strings.Fields(os.Getenv(addressesVariable)))
	if err != nil {
		t.Fatal(err)
	}
	var places []Place
	for range mesh.addresses {
		places = append(places, Place{Ranks: 1, Host: "a"})
	}
	w, err := New(Layout{Worker: worker, Workers: places}, mesh, Options{Timeout: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	if err := processJobs[job](w); err != nil {
		t.Errorf("worker %d: %v", worker, err)
	}
	if err := w.Close(); err != nil {
		t.Error(err)
	}
	mesh.Close()
}

// startProcesses starts the workers of a job.
func startProcesses(t *testing.T, job string, n int, env ...string) (workers []*exec.Cmd, outputs []*bytes.Buffer) {
	t.Helper()
	var addresses []string
	var files []*os.File
	for range n {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		f, err := l.(*net.TCPListener).File()
		if err != nil {
			t.Fatal(err)
		}
		l.Close()
		addresses, files = append(addresses, l.Addr().String()), append(files, f)
	}
	for i := range n {
		out := &bytes.Buffer{}
		c := exec.Command("/proc/self/exe", "-test.run=^TestAsAWorkerInAProcessOfItsOwn$")
		c.Env = append(os.Environ(), jobVariable+"="+job, fmt.Sprint(workerVariable, "=", i), addressesVariable+"="+strings.Join(addresses, " "))
		c.Env = append(c.Env, env...)
		c.ExtraFiles = files[i : i+1]
		c.Stdout, c.Stderr = out, out
		if err := c.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			c.Process.Kill() // if it still runs
			c.Wait()
		})
		files[i].Close()
		workers, outputs = append(workers, c), append(outputs, out)
	}
	return workers, outputs
}

// processMesh connects the workers of a job of processes.
type processMesh struct {
	worker    int
	addresses []string
	listener  net.Listener
	answer    func(string) string

	mu      sync.Mutex
	waiting map[string]chan net.Conn
	alive   []net.Conn
	closing bool
	err     error
	done    chan struct{}
}

func newProcessMesh(worker int, addresses []string) (*processMesh, error) {
	const inherited = 3
	l, err := net.FileListener(os.NewFile(inherited, "listener"))
	if err != nil {
		return nil, err
	}
	m := &processMesh{worker: worker, addresses: addresses, listener: l, waiting: map[string]chan net.Conn{}, done: make(chan struct{})}
	go m.serve()
	for lower := range worker {
		c, err := m.dial(lower, "alive %d", worker)
		if err != nil {
			return nil, err
		}
		go m.watch(c, lower)
	}
	// Nobody begins before all have met: one that is gone early would be missed by those who start late.
	for deadline := time.Now().Add(20 * time.Second); m.met() < len(addresses)-1; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			return nil, fmt.Errorf("worker %d has met %d workers", worker, m.met())
		}
	}
	return m, nil
}

// met counts the workers that this one was ever connected to.
func (m *processMesh) met() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.alive)
}

func (m *processMesh) dial(worker int, format string, args ...any) (net.Conn, error) {
	c, err := net.Dial("tcp", m.addresses[worker])
	if err == nil {
		_, err = fmt.Fprintf(c, format+"\n", args...)
	}
	return c, err
}

func (m *processMesh) serve() {
	for {
		c, err := m.listener.Accept()
		if err != nil {
			return
		}
		go func() {
			line, err := readLine(c)
			if err != nil {
				c.Close()
				return
			}
			verb, rest, _ := strings.Cut(line, " ")
			switch verb {
			case "alive":
				worker, _ := strconv.Atoi(rest)
				m.watch(c, worker)
			case "connect":
				m.slot(rest) <- c
			case "query":
				for m.answer == nil {
					time.Sleep(time.Millisecond)
				}
				io.WriteString(c, m.answer(rest))
				c.Close()
			case "fail":
				text, _ := strconv.Unquote(rest)
				m.finish(errors.New(text))
				c.Close()
			}
		}()
	}
}

// readLine reads no more than the line.
func readLine(c net.Conn) (string, error) {
	var line []byte
	for b := []byte{0}; ; {
		if _, err := c.Read(b); err != nil {
			return "", err
		}
		if b[0] == '\n' {
			return string(line), nil
		}
		line = append(line, b[0])
	}
}

// watch notices the end of a worker.
func (m *processMesh) watch(c net.Conn, worker int) {
	m.mu.Lock()
	m.alive = append(m.alive, c)
	m.mu.Unlock()
	if word, err := bufio.NewReader(c).ReadString('\n'); err != nil && word != "bye" {
		m.finish(errors.Errorf("epl: worker %d is gone", worker))
	}
}

func (m *processMesh) finish(err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.err == nil && !m.closing {
		m.err = err
		close(m.done)
	}
}

func (m *processMesh) slot(key string) chan net.Conn {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.waiting[key] == nil {
		m.waiting[key] = make(chan net.Conn, 1)
	}
	return m.waiting[key]
}

func (m *processMesh) Connect(ctx context.Context, worker int, name string) (net.Conn, error) {
	if m.worker > worker {
		return m.dial(worker, "connect %d %s", m.worker, name)
	}
	select {
	case c := <-m.slot(fmt.Sprint(worker, " ", name)):
		return c, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func (m *processMesh) Answer(f func(string) string) { m.answer = f }

func (m *processMesh) Query(_ context.Context, worker int, question string) (string, error) {
	c, err := m.dial(worker, "query %s", question)
	if err != nil {
		return "", err
	}
	defer c.Close()
	text, err := io.ReadAll(c)
	return string(text), err
}

func (m *processMesh) Health(worker int) Health {
	return Health{Name: fmt.Sprintf("worker %d", worker), Seen: time.Now(), Hub: time.Now()}
}

func (m *processMesh) Waiting() (string, []int) { return "", nil }

func (m *processMesh) Busy(int) (string, time.Time) { return "", time.Time{} }

func (m *processMesh) Fail(err error) {
	for i := range m.addresses {
		if i != m.worker {
			if c, e := m.dial(i, "fail %s", strconv.Quote(fmt.Sprintf("epl: worker %d stopped: %s", m.worker, err))); e == nil {
				c.Close()
			}
		}
	}
}

func (m *processMesh) Done() <-chan struct{} { return m.done }

func (m *processMesh) Err() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.err
}

// Close leaves in peace.
func (m *processMesh) Close() {
	m.mu.Lock()
	m.closing = true
	alive := m.alive
	m.mu.Unlock()
	for _, c := range alive {
		io.WriteString(c, "bye\n")
		c.Close()
	}
	m.listener.Close()
}
