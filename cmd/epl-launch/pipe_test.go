// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/easyparallel/epl/wire"
)

// launcher is the command in a process of its own, whose signals are real.
func launcher(args ...string) *exec.Cmd {
	cmd := exec.Command(os.Args[0], append([]string{"epl-launch"}, args...)...)
	cmd.WaitDelay = time.Minute
	return cmd
}

// statusOf waits for a launcher to end.
func statusOf(t *testing.T, cmd *exec.Cmd) int {
	t.Helper()
	timer := time.AfterFunc(time.Minute, func() { cmd.Process.Kill() })
	defer timer.Stop()
	cmd.Wait() // what it says is in the state
	if cmd.ProcessState.Sys().(syscall.WaitStatus).Signaled() {
		t.Fatalf("the launcher was ended by a signal: %v", cmd.ProcessState)
	}
	return cmd.ProcessState.ExitCode()
}

// until is a shell command that returns when the file exists.
func until(file string) string {
	return fmt.Sprintf("while [ ! -e '%s' ]; do sleep 0.05; done", file)
}

func TestStrangersWhoConnectAndLeaveDoNotEndTheJob(t *testing.T) {
	t.Parallel()
	end := filepath.Join(t.TempDir(), "end")
	cmd := launcher("--num_workers", "2", "sh", "-c", "echo $EPL_RDZV; "+until(end))
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	stdout, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewReader(stdout)
	first, err := lines.ReadString('\n')
	_, address, found := strings.Cut(strings.TrimSpace(first), "tcp://")
	if err != nil || !found {
		t.Fatalf("the workers say %q, %v", first, err)
	}
	for i := range 60 {
		conn, err := net.Dial("tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		switch i % 3 {
		case 0:
			io.WriteString(conn, "GET / HTTP/1.1\r\n\r\n")
		default: // a hello and a proof with a token that is wrong, without waiting for the answers: these break the pipe
			wire.WriteFrame(conn, 1, make([]byte, 40))
			wire.WriteFrame(conn, 3, make([]byte, 40))
		}
		conn.Close()
	}
	if err := os.WriteFile(end, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	go io.Copy(io.Discard, lines)
	if status := statusOf(t, cmd); status != 0 {
		t.Errorf("status %d:\n%s", status, &stderr)
	}
}

func TestAJobWhoseOutputNobodyReadsEnds(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		script string
		both   bool
	}{
		"| head -1":            {"while sleep 0.02; do echo out; echo errors >&2; done", false},
		"2>&1 | head -1":       {"while sleep 0.02; do echo errors >&2; done", true},
		"a worker that is mad": {"trap '' TERM INT; while :; do echo out; done", false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			read, write, err := os.Pipe()
			if err != nil {
				t.Fatal(err)
			}
			cmd := launcher("--num_workers", "2", "sh", "-c", "echo pid $$; "+test.script)
			var stderr bytes.Buffer
			if cmd.Stdout, cmd.Stderr = write, &stderr; test.both {
				cmd.Stderr = write
			}
			err = cmd.Start()
			write.Close()
			if err != nil {
				t.Fatal(err)
			}
			line, err := bufio.NewReader(read).ReadString('\n')
			read.Close()
			var worker, pid int
			if _, scan := fmt.Sscanf(line, "[%d] pid %d", &worker, &pid); err != nil || scan != nil {
				t.Fatalf("got %q, %v, %v", line, err, scan)
			}
			if status := statusOf(t, cmd); status != 128+int(syscall.SIGPIPE) {
				t.Errorf("status %d:\n%s", status, &stderr)
			}
			if syscall.Kill(pid, 0) == nil {
				t.Errorf("worker %d outlived the launcher", worker)
			}
		})
	}
}

func TestAJobGoesOnWithoutStandardError(t *testing.T) {
	t.Parallel()
	end := filepath.Join(t.TempDir(), "end")
	cmd := launcher("sh", "-c", "while [ ! -e '"+end+"' ]; do echo errors >&2; sleep 0.01; done; echo done")
	read, write, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	var stdout bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, write
	err = cmd.Start()
	write.Close()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := bufio.NewReader(read).ReadString('\n'); err != nil {
		t.Fatal(err)
	}
	read.Close()
	time.Sleep(100 * time.Millisecond) // some more lines
	if err := os.WriteFile(end, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if status := statusOf(t, cmd); status != 0 || stdout.String() != "[0] done\n" {
		t.Errorf("status %d, %q", status, &stdout)
	}
}

func TestOutputThatCannotBeWrittenIsSaid(t *testing.T) {
	t.Parallel()
	full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	if err != nil {
		t.Skipf("there is no full device here: %v", err)
	}
	defer full.Close()
	cmd := launcher("sh", "-c", "echo one; echo two")
	var stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = full, &stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	want := "epl-launch: standard output cannot be written (write /dev/stdout: no space left on device): what workers print is lost\n"
	if status := statusOf(t, cmd); status != 0 || stderr.String() != want {
		t.Errorf("status %d, got %q", status, &stderr)
	}
}
