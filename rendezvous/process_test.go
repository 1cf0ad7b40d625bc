// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package rendezvous

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/easyparallel/epl/internal/jobtest"
)

// workerVariable makes the test binary a worker.
const workerVariable = "EPL_TEST_WORKER"

func TestMain(m *testing.M) {
	if value := os.Getenv(workerVariable); value != "" {
		work(value)
		return
	}
	os.Exit(m.Run())
}

// work joins, says so, and waits for the end of the job or of its input.
func work(value string) {
	index, _ := strconv.Atoi(value)
	j, _, err := FromEnvironment(os.LookupEnv)
	if err != nil {
		fmt.Println(err)
		os.Exit(2)
	}
	j.Workers, j.Index, j.Host, j.Timeout = 3, index, "host"+value, jobtest.Limit
	j.Logf = func(format string, args ...any) { fmt.Printf("log "+format+"\n", args...) }
	m, err := Join(context.Background(), j)
	if err != nil {
		fmt.Println(err)
		os.Exit(2)
	}
	fmt.Println("joined")
	end := make(chan struct{})
	go func() {
		bufio.NewReader(os.Stdin).ReadString('\n')
		close(end)
	}()
	select {
	case <-end:
	case <-m.Done():
		fmt.Println("failed " + m.Err().Error())
	}
	m.Leave()
}

// process is a worker in a process of its own.
type process struct {
	cmd   *exec.Cmd
	lines *jobtest.Journal
	ended chan struct{}
}

func startWorkers(t *testing.T, url string) []*process {
	t.Helper()
	all := make([]*process, 3)
	for i := range all {
		p := &process{cmd: exec.Command(os.Args[0]), lines: jobtest.NewJournal(), ended: make(chan struct{})}
		p.cmd.Env = append(os.Environ(), fmt.Sprintf("%s=%d", workerVariable, i), EnvURL+"="+url, EnvToken+"="+testSecurity.Token)
		stdin, err := p.cmd.StdinPipe()
		if err != nil {
			t.Fatal(err)
		}
		stdout, err := p.cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		p.cmd.Stderr = os.Stderr
		if err := p.cmd.Start(); err != nil {
			t.Fatal(err)
		}
		go func() {
			defer close(p.ended)
			for s := bufio.NewScanner(stdout); s.Scan(); {
				p.lines.Logf("%s", s.Text())
			}
			p.cmd.Wait()
		}()
		t.Cleanup(func() {
			stdin.Close()
			p.cmd.Process.Signal(syscall.SIGCONT)
			select {
			case <-p.ended:
			case <-time.After(jobtest.Limit):
				t.Error("a worker did not end")
				p.cmd.Process.Kill()
				<-p.ended
			}
		})
		all[i] = p
	}
	for _, p := range all {
		p.lines.WaitFor(t, "joined")
	}
	return all
}

func TestAKilledWorkerIsNoticedAtOnce(t *testing.T) {
	s := serve(t, ServerOptions{Workers: 3})
	for _, url := range []string{"tcp://" + s.Addr().String(), "file://" + t.TempDir() + "/meet"} {
		all := startWorkers(t, url)
		all[1].cmd.Process.Kill()
		for _, i := range []int{0, 2} {
			all[i].lines.WaitFor(t, fmt.Sprintf("failed epl: worker 1 (host1, pid %d) is gone: its connection closed without a word", all[1].cmd.Process.Pid))
		}
	}
	jobtest.WantError(t, s.Err(), "worker 1")
}

func TestAKilledServingWorkerIsNoticedAtOnce(t *testing.T) {
	all := startWorkers(t, "file://"+t.TempDir()+"/meet")
	all[0].cmd.Process.Kill()
	for _, i := range []int{1, 2} {
		all[i].lines.WaitFor(t, "is gone: its connection closed without a word; the process that serves it (worker 0)")
	}
}

func TestAStoppedWorkerIsReportedAndGoesOn(t *testing.T) {
	s := serve(t, ServerOptions{Workers: 3})
	all := startWorkers(t, "tcp://"+s.Addr().String())
	all[2].cmd.Process.Signal(syscall.SIGSTOP)
	for _, i := range []int{0, 1} {
		all[i].lines.WaitFor(t, "log epl: worker 2 (host2, pid")
	}
	all[2].cmd.Process.Signal(syscall.SIGCONT)
	for _, i := range []int{0, 1} {
		all[i].lines.WaitFor(t, "is heard of again")
	}
	if s.Err() != nil {
		t.Error(s.Err())
	}
	for _, p := range all {
		if strings.Contains(p.lines.Text(), "failed") || strings.Contains(p.lines.Text(), "rendezvous") {
			t.Error(p.lines.Text())
		}
	}
}
