// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package launch

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/easyparallel/epl/cluster"
)

// fakeSSH returns a command that runs its last argument here, as ssh would there, and notes what was on the command line.
func fakeSSH(t *testing.T) (ssh []string, seen string) {
	t.Helper()
	directory := t.TempDir()
	seen = filepath.Join(directory, "seen")
	script := filepath.Join(directory, "ssh")
	text := fmt.Sprintf("#!/bin/sh\necho \"$*\" >>%s\nshift\nexec sh -c \"$*\"\n", seen)
	if err := os.WriteFile(script, []byte(text), 0o755); err != nil {
		t.Fatal(err)
	}
	return []string{script}, seen
}

// freePort returns a port that nobody listens on.
func freePort(t *testing.T) int {
	t.Helper()
	for {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		port := l.Addr().(*net.TCPAddr).Port
		next, err := net.Listen("tcp", fmt.Sprint("127.0.0.1:", port+1)) // launchers of elastic jobs use it, too
		_ = l.Close()
		if err == nil {
			_ = next.Close()
			return port
		}
	}
}

func TestWorkersAreDealtToMachines(t *testing.T) {
	for _, test := range []struct {
		list    string
		workers int
		want    string
	}{
		{"a,b:2", 0, "[{a 1} {b 2}]"},
		{"a,b:2", 4, "[{a 2} {b 2}]"},
		{"a,b", 6, "[{a 3} {b 3}]"},
		{"a, b ", 2, "[{a 1} {b 1}]"},
		{"[::1]:2,fe80::1", 3, "[{::1 2} {fe80::1 1}]"},
		{"user@a:3", 3, "[{user@a 3}]"},
	} {
		if got, err := hosts(test.list, test.workers); err != nil || fmt.Sprint(got) != test.want {
			t.Errorf("%s for %d: got %v, %v, want %s", test.list, test.workers, got, err, test.want)
		}
	}
	for _, list := range []string{"a:0", "a:x", "a b", "a:2,b:3"} {
		if got, err := hosts(list, 4); err == nil {
			t.Errorf("%s became %v", list, got)
		}
	}
	got, port, err := machineList("a:1234,b:99,c", 1, 6)
	if err != nil || port != 1234 || fmt.Sprint(got) != "[{a 2} {b 2} {c 2}]" {
		t.Errorf("got %v, %d, %v", got, port, err)
	}
}

func TestWorkersOnOtherHostsMeetAndAreShown(t *testing.T) {
	t.Parallel()
	ssh, seen := fakeSSH(t)
	status, stdout, stderr := test(t, Options{Hosts: "127.0.0.1:2,localhost", Port: freePort(t), SSH: ssh, Command: []string{"join"},
		LogDir: t.TempDir()})
	if want := "[0] worker 0 of 3 joined\n[1] worker 1 of 3 joined\n[2] worker 2 of 3 joined"; status != 0 || sorted(stdout) != want {
		t.Errorf("status %d, got:\n%s\n%s", status, stdout, stderr)
	}
	commands, err := os.ReadFile(seen)
	if err != nil || strings.Count(string(commands), "\n") != 2 || regexp.MustCompile(`[0-9a-f]{64}`).Match(commands) {
		t.Errorf("the command lines, %v:\n%s", err, commands)
	}
}

func TestAWorkerThatFailsOnAnotherHostEndsTheJob(t *testing.T) {
	t.Parallel()
	ssh, _ := fakeSSH(t)
	logs := t.TempDir()
	status, _, stderr := test(t, Options{Hosts: "127.0.0.1,localhost:2", Port: freePort(t), SSH: ssh, Command: []string{"join", "fail"},
		LogDir: logs, TaskLabel: "x"})
	last := "epl-launch: worker 1 on localhost exited with status 5; its log is " + filepath.Join(logs, "x", "worker-1.log") + "\n"
	if status != 5 || !strings.HasSuffix(stderr, "[1] worker 1 of 3 joined\n"+last) {
		t.Errorf("status %d, got:\n%s", status, stderr)
	}
	for _, worker := range []int{0, 2} {
		if text, err := os.ReadFile(filepath.Join(logs, "x", logName(worker))); err != nil || strings.Count(string(text), "stops: ") != 1 {
			t.Errorf("worker %d was not told: %v\n%s", worker, err, text)
		}
	}
}

func TestWhatIsWrongOnAnotherHostIsSaidBeforeAnythingIsStarted(t *testing.T) {
	t.Parallel()
	ssh, _ := fakeSSH(t)
	for _, test := range []struct {
		name string
		ssh  []string
		want string
	}{
		{"no such command", ssh, `epl: on localhost: the command "no-such" was not found`},
		{"no connection", []string{"sh", "-c", "echo refused >&2; exit 255", "ssh"}, `epl: cannot run epl-launch on localhost: the connection ended with exit status 255; try: ssh localhost`},
		{"no ssh", []string{"/no/ssh"}, `epl: cannot reach localhost: `},
	} {
		t.Run(test.name, func(t *testing.T) {
			var out, errs output
			status, err := Run(t.Context(), prepared(Options{Hosts: "localhost", Port: freePort(t), SSH: test.ssh, Command: []string{"no-such"}, Stdout: &out, Stderr: &errs}))
			if status != 2 || err == nil || !strings.HasPrefix(err.Error(), test.want) {
				t.Errorf("status %d, got  %v\nwant %s", status, err, test.want)
			}
		})
	}
}

func TestWorkersOnOtherHostsEndWithTheLauncher(t *testing.T) {
	t.Parallel()
	for _, s := range []syscall.Signal{syscall.SIGINT, syscall.SIGKILL} {
		t.Run(s.String(), func(t *testing.T) {
			t.Parallel()
			ssh, _ := fakeSSH(t)
			cmd, out := launcher(t, Options{Hosts: "127.0.0.1,localhost", Port: freePort(t), SSH: ssh, Command: []string{"sleep", "stubborn"}})
			pids := out.await(t, `pid (\d+)`, 4)
			cmd.Process.Signal(s)
			cmd.Wait()
			mustBeGone(t, pids)
		})
	}
}

func TestTheLossOfAHostIsAFailure(t *testing.T) {
	t.Parallel()
	directory := t.TempDir()
	script := filepath.Join(directory, "ssh")
	// The first host stays; the other one is cut off once its worker has said something.
	text := fmt.Sprintf("#!/bin/sh\nhost=$1; shift\n[ $host = localhost ] && echo $$ >%s/pid\nexec sh -c \"$*\"\n", directory)
	if err := os.WriteFile(script, []byte(text), 0o755); err != nil {
		t.Fatal(err)
	}
	var out, errs output
	done := make(chan int)
	go func() {
		status, _ := Run(context.Background(), prepared(Options{Hosts: "127.0.0.1,localhost", Port: freePort(t), SSH: []string{script},
			Command: []string{"sleep"}, Stdout: &out, Stderr: &errs}))
		done <- status
	}()
	pids := out.await(t, `pid (\d+)`, 4)
	var agent int
	if text, err := os.ReadFile(filepath.Join(directory, "pid")); err != nil {
		t.Fatal(err)
	} else if _, err := fmt.Sscan(string(text), &agent); err != nil {
		t.Fatal(err)
	}
	syscall.Kill(agent, syscall.SIGKILL)
	if status := <-done; status != 1 || !strings.Contains(errs.String(), "worker 1 on localhost was lost with its machine: the connection ended with signal: killed") {
		t.Errorf("status %d, got:\n%s", status, &errs)
	}
	mustBeGone(t, pids)
}

// several runs launchers at the same time, and returns their statuses and outputs.
func several(t *testing.T, options ...Options) (statuses []int, outputs []string) {
	t.Helper()
	type result struct{ i, status int }
	outs := make([]output, len(options))
	results := make(chan result)
	for i, o := range options {
		o.Stdout, o.Stderr = &outs[i], &outs[i]
		go func() {
			status, err := Run(t.Context(), prepared(o))
			if err != nil {
				fmt.Fprintln(&outs[i], err)
			}
			results <- result{i, status}
		}()
	}
	statuses, outputs = make([]int, len(options)), make([]string, len(options))
	for range options {
		select {
		case r := <-results:
			statuses[r.i] = r.status
		case <-time.After(time.Minute):
			t.Fatal("a launcher does not end")
		}
	}
	for i := range outs {
		outputs[i] = outs[i].String()
	}
	return statuses, outputs
}

func TestLaunchersOfAMachineListMakeOneJob(t *testing.T) {
	t.Parallel()
	o := Options{Workers: 4, MachineList: fmt.Sprintf("localhost:%d,127.0.0.1", freePort(t)), Command: []string{"join"}, Environ: cleanEnviron("EPL_TOKEN=" + strings.Repeat("5ec8e7", 8))}
	second := o
	second.MachineRank = 1
	statuses, outputs := several(t, o, second)
	if statuses[0] != 0 || sorted(outputs[0]) != "[0] worker 0 of 4 joined\n[1] worker 1 of 4 joined" {
		t.Errorf("the first: status %d, got:\n%s", statuses[0], outputs[0])
	}
	if statuses[1] != 0 || sorted(outputs[1]) != "[2] worker 2 of 4 joined\n[3] worker 3 of 4 joined" {
		t.Errorf("the second: status %d, got:\n%s", statuses[1], outputs[1])
	}
}

func TestInAnAllocationEachLauncherRunsOneWorker(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	port, masterPort := freePort(t), freePort(t)
	for name, environ := range map[string]func(rank string) []string{
		"torchrun": func(rank string) []string {
			return []string{"RANK=" + rank, "WORLD_SIZE=2", "LOCAL_RANK=" + rank, "LOCAL_WORLD_SIZE=2", "MASTER_ADDR=node1", "MASTER_PORT=1",
				"TORCHELASTIC_RUN_ID=none"}
		},
		"torchrun's variables, one worker on each machine": func(rank string) []string {
			return []string{"RANK=" + rank, "WORLD_SIZE=2", "LOCAL_RANK=0", "LOCAL_WORLD_SIZE=1", "MASTER_ADDR=127.0.0.1",
				fmt.Sprintf("MASTER_PORT=%d", masterPort), "EPL_TOKEN=" + testToken}
		},
		"Open MPI": func(rank string) []string {
			return []string{"PMIX_NAMESPACE=7", "OMPI_COMM_WORLD_RANK=" + rank, "OMPI_COMM_WORLD_SIZE=2",
				"OMPI_COMM_WORLD_LOCAL_RANK=" + rank, "OMPI_COMM_WORLD_LOCAL_SIZE=2"}
		},
		"Kubernetes": func(rank string) []string {
			return []string{"JOB_COMPLETION_INDEX=" + rank, "EPL_NUM_WORKERS=2", "EPL_WORKER_HOSTS=localhost,127.0.0.1",
				fmt.Sprintf("EPL_RDZV=first://127.0.0.1:%d", port), "EPL_TOKEN=" + testToken}
		},
	} {
		t.Run(name, func(t *testing.T) {
			of := func(rank string) Options {
				return Options{Command: []string{"join"}, Environ: cleanEnviron(environ(rank)...)}
			}
			statuses, outputs := several(t, of("0"), of("1"))
			for i, status := range statuses {
				if want := fmt.Sprintf("[%d] worker %d of 2 joined\n", i, i); status != 0 || outputs[i] != want {
					t.Errorf("launcher %d: status %d, got:\n%s", i, status, outputs[i])
				}
			}
		})
	}
}

func TestAFailureInAnAllocationIsTheStatusOfItsLauncher(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	status, stdout, stderr := test(t, Options{Command: []string{"exit", "0", "3"},
		Environ: cleanEnviron("PMI_RANK=1", "PMI_SIZE=2", "MPI_LOCALRANKID=1", "MPI_LOCALNRANKS=2")})
	if status != 3 || !strings.Contains(stdout, "[1] line 0 of 1\n") || !strings.Contains(stderr, "worker 1 on "+hostName()+" exited with status 3") {
		t.Errorf("status %d, got:\n%s", status, stderr)
	}
}

func TestWorkersOnOtherMachinesGetTheUsersSettings(t *testing.T) {
	got := forwarded([]string{"PATH=x", "EPL_PASSES=none", "GOMLX_BACKEND=go", "XLA_FLAGS=y", "HOME=z"})
	if want := "EPL_PASSES=none GOMLX_BACKEND=go XLA_FLAGS=y"; strings.Join(got, " ") != want {
		t.Errorf("got %q", got)
	}
	s := spec{Workers: 2, Environ: []string{"EPL_PASSES=none"}}
	vars := s.environ([]string{"EPL_PASSES=all", "A=b"}, 1, "tcp://a:1", "mark", nil, 0)
	if value, _ := lookup(vars, "EPL_PASSES"); value != "none" {
		t.Errorf("EPL_PASSES=%s", value)
	}
	if value, _ := lookup(vars, cluster.EnvWorkerIndex); value != "1" {
		t.Errorf("index %s", value)
	}
}
