// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
)

// The test binary is also the command: for the guard that a launcher starts, and after the word "epl-launch".
func TestMain(m *testing.M) {
	if len(os.Args) > 1 {
		switch os.Args[1] {
		case "--guard":
			os.Exit(run(os.Args[1:], os.Stdin, os.Stdout, os.Stderr, nil))
		case "epl-launch":
			os.Args = append(os.Args[:1], os.Args[2:]...)
			main()
		}
	}
	os.Exit(m.Run())
}

func execute(args ...string) (status int, stdout, stderr string) {
	var out, errs bytes.Buffer
	status = run(args, strings.NewReader(""), &out, &errs, nil)
	return status, out.String(), errs.String()
}

func TestTheFlagsEndWhereTheCommandBegins(t *testing.T) {
	for _, args := range [][]string{
		{"--num_workers", "2", "echo", "--num_workers", "3", "-n", "--debug"},
		{"-n", "2", "echo", "--num_workers", "3", "-n", "--debug"},
		{"-n2", "echo", "--num_workers", "3", "-n", "--debug"},
		{"--num-workers=2", "--", "echo", "--num_workers", "3", "-n", "--debug"},
		{"--num_workers=2", "--gpu-per-worker", "1", "echo", "--num_workers", "3", "-n", "--debug"},
		{"--devices-per-worker=4", "--num-workers", "2", "echo", "--num_workers", "3", "-n", "--debug"},
	} {
		status, stdout, stderr := execute(args...)
		if status != 0 || strings.Count(stdout, "] --num_workers 3 -n --debug\n") != 2 {
			t.Errorf("%q: status %d, %q, %q", args, status, stdout, stderr)
		}
	}
}

// The address of the dashboard may be left out, or be a word of its own, with more flags after it. Its URL is said once, with a token where others reach it.
func TestTheDashboardHasAnAddressOrNone(t *testing.T) {
	for _, c := range []struct {
		args []string
		want string // of the URL
	}{
		{[]string{"--dashboard", "-n", "2", "echo", "--dashboard", ":1"}, "http://"},
		{[]string{"--dashboard", "127.0.0.1:0", "-n", "2", "echo", "--dashboard", ":1"}, "http://127.0.0.1:"},
		{[]string{"-n", "2", "--dashboard=localhost:0", "echo", "--dashboard", ":1"}, "http://"},
		{[]string{"-n2", "--dashboard", ":0", "--", "echo", "--dashboard", ":1"}, "/?token="},
	} {
		status, stdout, stderr := execute(c.args...)
		if status != 0 || strings.Count(stdout, "] --dashboard :1\n") != 2 || strings.Count(stderr, "epl-launch: dashboard: http://") != 1 || !strings.Contains(stderr, c.want) {
			t.Errorf("%q: status %d, %q, %q", c.args, status, stdout, stderr)
		}
		if strings.Contains(stderr, "token") != strings.Contains(c.want, "token") {
			t.Errorf("%q: %s", c.args, stderr)
		}
	}
}

func TestTheStatusIsTheWorkers(t *testing.T) {
	if status, _, stderr := execute("sh", "-c", "exit 7"); status != 7 || !strings.Contains(stderr, "worker 0 on ") {
		t.Errorf("status %d, %q", status, stderr)
	}
}

func TestWorkersRunOnCoresOfTheirOwnUnlessToldNotTo(t *testing.T) {
	if _, err := exec.LookPath("nproc"); err != nil || runtime.GOOS != "linux" || runtime.NumCPU() < 2 {
		t.Skip("it needs Linux, two cores and the command nproc, of the package coreutils")
	}
	for flag, want := range map[string]int{"--no-pin": runtime.NumCPU(), "--no_pin=false": runtime.NumCPU() / 2} {
		t.Setenv("GOMAXPROCS", "") // else nobody is bound
		os.Unsetenv("GOMAXPROCS")
		status, stdout, stderr := execute(flag, "-n", "2", "nproc")
		if status != 0 || !strings.Contains(stdout, fmt.Sprintf("[0] %d\n", want)) {
			t.Errorf("%s: status %d, %q, want %d; %s", flag, status, stdout, want, stderr)
		}
	}
}

func TestLogsAreWrittenUnderTheLabel(t *testing.T) {
	directory := t.TempDir()
	if status, _, stderr := execute("--log_dir", directory, "--task_label", "run1", "--num_workers", "2", "echo", "hello"); status != 0 {
		t.Fatal(stderr)
	}
	for _, name := range []string{"worker-0.log", "worker-1.log"} {
		if text, err := os.ReadFile(filepath.Join(directory, "run1", name)); err != nil || string(text) != "hello\n" {
			t.Errorf("%s: %q, %v", name, text, err)
		}
	}
}

func TestBadFlagsEndWithStatus2AndASentence(t *testing.T) {
	for _, test := range []struct {
		args []string
		want string
	}{
		{nil, "epl: there is no command to run"},
		{[]string{"--num_workers", "0", "echo"}, "epl: --num_workers 0: expected a number of at least 1"},
		{[]string{"--num_workers", "-2", "echo"}, "epl: --num_workers -2: expected"},
		{[]string{"--num_workers", "x", "echo"}, "epl: invalid argument"},
		{[]string{"--num_workers", "3:2", "echo"}, `epl: invalid argument "3:2" for "-n, --num_workers" flag: expected a number, or MIN:MAX such as 2:4 (MIN is at least 1, and MAX at least MIN)`},
		{[]string{"--num_workers", "0:2", "echo"}, "epl: invalid argument"},
		{[]string{"--spares", "-1", "echo"}, "epl: --spares -1: expected"},
		{[]string{"--num_workers", "1:2", "--max_restarts", "-1", "echo"}, "epl: --max_restarts -1: expected"},
		{[]string{"--num_workers", "1:2", "--machine_list", "a,b", "--rdzv", "tcp://a:1", "echo"}, "epl: --rdzv is not for elastic jobs"},
		{[]string{"--num_workers", "1:2", "--machine_list", "a,b", "--machine_rank", "1", "echo"}, "epl: the launchers of several machines need the same EPL_TOKEN"},
		{[]string{"--dashboard=8080", "echo"}, `epl: invalid argument "8080" for "--dashboard" flag: the dashboard cannot listen at "8080": write HOST:PORT`},
		{[]string{"--dashboard", "127.0.0.1:0", "--num_workers", "0", "echo"}, "epl: --num_workers 0: expected"},
		{[]string{"--dashboard", "127.0.0.1:0", "--no_such_flag", "echo"}, "epl: unknown flag: --no_such_flag"},
		{[]string{"--gpu_per_worker", "0", "echo"}, "epl: --gpu_per_worker 0: expected"},
		{[]string{"--gpu_per_worker", "1", "--devices_per_worker", "1", "echo"}, "epl: --gpu_per_worker and --devices_per_worker are two names"},
		{[]string{"--no_such_flag", "echo"}, "epl: unknown flag: --no_such_flag; \"epl-launch --help\" lists the flags"},
		{[]string{"--num_worker", "2", "echo"}, "epl: unknown flag: --num_worker (did you mean --num_workers?)"},
		{[]string{"--devices-per-workers=2", "echo"}, "epl: unknown flag: --devices-per-workers (did you mean --devices_per_worker?)"},
		{[]string{"-n", "0", "echo"}, "epl: --num_workers 0: expected a number of at least 1"},
		{[]string{"--generate", "lsf", "echo"}, `epl: --generate "lsf": expected slurm, k8s or jobset`},
		{[]string{"--queue", "research", "echo"}, "epl: --queue is for manifests: add --generate k8s or jobset"},
		{[]string{"--hosts", "", "echo"}, "epl: --hosts names no machine"},
		{[]string{"--ssh", "ssh -p 2222", "echo"}, "epl: --ssh is how the machines of --hosts are reached"},
		{[]string{"--grace", "1s", "echo"}, "epl: --grace 1s: expected at least 3s"},
		{[]string{"--grace", "0", "echo"}, "epl: --grace 0s: expected at least 3s"},
		{[]string{"--generate", "k8s"}, "epl: there is no command to run"},
		{[]string{"no-such-command"}, `epl: the command "no-such-command" was not found`},
	} {
		if status, stdout, stderr := execute(test.args...); status != 2 || stdout != "" || !strings.HasPrefix(stderr, test.want) {
			t.Errorf("%q: status %d, %q, got  %q\nwant %q", test.args, status, stdout, stderr, test.want)
		}
	}
}

func TestGeneratedFilesGoToStandardOutput(t *testing.T) {
	if status, stdout, stderr := execute("--generate", "slurm", "--num_workers", "4", "./train"); status != 0 || !strings.Contains(stdout, "#SBATCH --ntasks=4\n") {
		t.Errorf("status %d, %q, %q", status, stdout, stderr)
	}
	if _, stdout, _ := execute("--generate", "slurm", "--num_workers", "4", "--dashboard", ":8080", "./train"); !strings.Contains(stdout, " epl-launch --dashboard=:8080 ./train\n") {
		t.Error(stdout)
	}
	if status, stdout, stderr := execute("--generate", "k8s", "--dashboard", "./train"); status != 2 || stdout != "" || !strings.Contains(stderr, "WithDashboard") {
		t.Errorf("status %d, %q, %q", status, stdout, stderr)
	}
	_, first, _ := execute("--generate", "k8s", "--image", "mine:1", "./train")
	_, second, _ := execute("--generate", "k8s", "--image", "mine:1", "./train")
	if !strings.Contains(first, "image: mine:1\n") || first == second {
		t.Errorf("every job needs a token of its own:\n%s", first)
	}
}

func TestTheHelpListsTheFlagsButNotTheHelperForms(t *testing.T) {
	status, stdout, _ := execute("--help")
	if status != 0 || !strings.Contains(stdout, "-n, --num_workers") || !strings.Contains(stdout, "Exit codes: 0 fine; 2 wrong usage") ||
		!strings.Contains(stdout, "Examples:\n  epl-launch -n 2 ") || !strings.Contains(stdout, "--dashboard HOST:PORT[=here]") || strings.Contains(stdout, "--guard") {
		t.Errorf("status %d:\n%s", status, stdout)
	}
	if _, stdout, _ := execute("--version"); !strings.HasPrefix(stdout, "epl-launch ") {
		t.Errorf("the version: %q", stdout)
	}
}
