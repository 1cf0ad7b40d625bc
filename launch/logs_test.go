// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package launch

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

func TestLogsAreTheUsersAlone(t *testing.T) {
	defer syscall.Umask(syscall.Umask(0))
	directory := filepath.Join(t.TempDir(), "new", "logs")
	if err := os.MkdirAll(filepath.Join(directory, "old"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(directory, "old", "worker-0.log"), []byte("then\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	for label, mode := range map[string]fs.FileMode{"first": 0o700, "old": 0o755} { // a directory that is there is not ours to change
		status, _, stderr := test(t, Options{Workers: 2, Command: []string{"say", "secret\n"}, LogDir: directory, TaskLabel: label})
		if status != 0 {
			t.Fatal(stderr)
		}
		if info, err := os.Stat(filepath.Join(directory, label)); err != nil || info.Mode().Perm() != mode {
			t.Errorf("%s: %v, %v", label, info.Mode(), err)
		}
		for worker := range 2 {
			if info, err := os.Stat(filepath.Join(directory, label, logName(worker))); err != nil || info.Mode().Perm() != 0o600 {
				t.Errorf("%s, log of worker %d: %v, %v", label, worker, info.Mode(), err)
			}
		}
	}
}

func TestLogsOfAnEarlierRunAreSaid(t *testing.T) {
	t.Parallel()
	directory := t.TempDir()
	run := func(workers int) string {
		status, _, stderr := test(t, Options{Workers: workers, Command: []string{"say", "hello\n"}, LogDir: directory, TaskLabel: "x"})
		if status != 0 {
			t.Errorf("status %d", status)
		}
		return stderr
	}
	if stderr := run(12); stderr != "" {
		t.Errorf("the first run: %s", stderr)
	}
	earlier := filepath.Join(directory, "x") + " has logs of an earlier run"
	if stderr := run(12); !strings.Contains(stderr, earlier+": this one is appended to them") || strings.Count(stderr, "\n") != 1 {
		t.Errorf("the second run: %s", stderr)
	}
	if stderr := run(9); !strings.Contains(stderr, earlier+" with more workers, which this one does not touch: worker-9.log, worker-10.log, worker-11.log\n") {
		t.Errorf("a smaller run: %s", stderr)
	}
	text, err := os.ReadFile(filepath.Join(directory, "x", "worker-0.log"))
	if lines := strings.Split(string(text), "\n"); err != nil || len(lines) != 6 || lines[0] != "hello" || lines[4] != "hello" ||
		!strings.HasPrefix(lines[1], "epl-launch: a new run begins here, ") {
		t.Errorf("%v:\n%s", err, text)
	}
}

func TestALogThatIsIncompleteIsSaid(t *testing.T) {
	t.Parallel()
	if _, err := os.Stat("/dev/full"); err != nil {
		t.Skipf("there is no full device here: %v", err)
	}
	directory := t.TempDir()
	if err := os.Mkdir(filepath.Join(directory, "x"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("/dev/full", filepath.Join(directory, "x", "worker-1.log")); err != nil {
		t.Fatal(err)
	}
	incomplete(t, directory)
}

// incomplete runs a job whose worker 1 prints more than there is room for in the directory for logs.
func incomplete(t *testing.T, directory string) {
	t.Helper()
	script := `if [ $RANK = 1 ]; then i=0; while [ $i -lt 2000 ]; do echo "line $i of many"; i=$((i+1)); done; exit 3; fi`
	status, stdout, stderr := test(t, Options{Workers: 2, Command: []string{"sh", "-c", script}, LogDir: directory, TaskLabel: "x"})
	log := filepath.Join(directory, "x", "worker-1.log")
	said := fmt.Sprintf("epl-launch: write %s: no space left on device: from here on, what worker 1 prints is shown, but not logged\n", log)
	last := fmt.Sprintf("epl-launch: worker 1 on %s exited with status 3; its log, which is incomplete, is %s\n", hostName(), log)
	if status != 3 || strings.Count(stderr, said) != 1 || !strings.Contains(stderr, "epl-launch: what worker 1 printed is not all in the logs\n") ||
		!strings.HasSuffix(stderr, last) {
		t.Errorf("status %d:\n%s", status, stderr)
	}
	if strings.Count(stdout, "\n") != 2000 {
		t.Errorf("%d lines were shown", strings.Count(stdout, "\n"))
	}
}

func TestLogsThatCannotBeAreRefusedBeforeAnythingIsStarted(t *testing.T) {
	t.Parallel()
	directory := t.TempDir()
	file := filepath.Join(directory, "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(filepath.Join(directory, "x", "worker-0.log"), 0o700); err != nil {
		t.Fatal(err)
	}
	for logDir, want := range map[string]string{
		file:      "epl: cannot make the directory for logs: mkdir " + file + ": not a directory; choose another --log_dir",
		directory: "epl: cannot write the log of worker 0: open " + filepath.Join(directory, "x", "worker-0.log") + ": is a directory; choose another --log_dir",
	} {
		var out output
		o := prepared(Options{Command: []string{"say", "x"}, LogDir: logDir, TaskLabel: "x"})
		o.Stdout, o.Stderr = &out, &out
		if status, err := Run(t.Context(), o); status != 2 || err == nil || err.Error() != want || out.String() != "" {
			t.Errorf("status %d, %v\nwant %s\n%s", status, err, want, &out)
		}
	}
}

func TestControlCharactersOfAWorkerDoNotReachTheTerminal(t *testing.T) {
	t.Parallel()
	directory := t.TempDir()
	bad := "good\b\b\b\b\x1b[2J\x1b]0;title\a\u009b31m\x85end\x1b[31m!\n"
	_, stdout, _ := test(t, Options{Command: []string{"say", bad}, LogDir: directory, TaskLabel: "x"})
	want := `good^H^H^H^H\x9b31m\x85end!` + "\n"
	if stdout != "[0] "+want {
		t.Errorf("shown: %q", stdout)
	}
	if text, err := os.ReadFile(filepath.Join(directory, "x", "worker-0.log")); err != nil || string(text) != want {
		t.Errorf("logged: %q, %v", text, err)
	}
}
