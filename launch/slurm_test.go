// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package launch

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// startSlurm starts a Slurm of this machine for the test, and returns the environment in which its commands reach it.
func startSlurm(t *testing.T) []string {
	t.Helper()
	for command, name := range map[string]string{"srun": "slurm-client", "slurmctld": "slurmctld", "slurmd": "slurmd", "munged": "munge"} {
		if _, err := lookPath(command, []string{"PATH=" + os.Getenv("PATH") + ":/usr/sbin"}); err != nil {
			t.Skipf("there is no %s here; Debian has it in the package %s", command, name)
		}
	}
	if os.Getuid() != 0 {
		t.Skip("a Slurm of its own needs root")
	}
	directory, err := os.MkdirTemp("", "slurm") // a socket's path must be short
	if err != nil {
		t.Fatal(err)
	}
	var out output
	cmd := exec.Command("../scripts/slurm-one-machine.sh", directory, fmt.Sprint(freePort(t)), fmt.Sprint(freePort(t)))
	cmd.Stdout, cmd.Stderr = &out, &out
	input, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() {
		cmd.Wait()
		close(ended)
		out.Write([]byte("ended\n"))
	}()
	t.Cleanup(func() {
		input.Close()
		<-ended
		if t.Failed() {
			for _, name := range []string{"slurmctld.log", "slurmd.log"} {
				text, _ := os.ReadFile(filepath.Join(directory, name))
				t.Logf("%s:\n%s", name, text[max(0, len(text)-4000):])
			}
		}
		os.RemoveAll(directory)
	})
	if said := out.await(t, `(ready|ended)\n`, 1); said[0] != "ready" {
		t.Fatal(out.String())
	}
	return cleanEnviron("SLURM_CONF="+filepath.Join(directory, "slurm.conf"), "TMPDIR="+t.TempDir())
}

// slurmCommand runs a command of Slurm to its end.
func slurmCommand(t *testing.T, environ []string, name string, args ...string) (status int, output string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), name, args...)
	cmd.Env, cmd.Dir, cmd.WaitDelay = environ, t.TempDir(), 10*time.Second
	text, err := cmd.CombinedOutput()
	if cmd.ProcessState == nil {
		t.Fatal(err)
	}
	return cmd.ProcessState.ExitCode(), string(text)
}

func TestWorkersOfARealSlurmMeet(t *testing.T) {
	t.Parallel()
	environ := startSlurm(t)
	bin := t.TempDir()
	if text, err := exec.Command("go", "build", "-o", bin, "../cmd/epl-launch").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	path, _ := lookup(environ, "PATH")
	environ = append(environ, "PATH="+bin+":"+path)
	const joined = "[0] worker 0 of 2 joined\n[1] worker 1 of 2 joined"

	t.Run("srun with epl-launch", func(t *testing.T) {
		status, output := slurmCommand(t, environ, "srun", "-n", "2", "epl-launch", os.Args[0], "join")
		if status != 0 || sorted(output) != joined {
			t.Errorf("status %d:\n%s", status, output)
		}
	})
	t.Run("a worker that fails", func(t *testing.T) {
		status, output := slurmCommand(t, environ, "srun", "-n", "2", "epl-launch", os.Args[0], "join", "fail")
		if status == 0 || !strings.Contains(output, "worker 1 on "+hostName()+" exited with status 5") {
			t.Errorf("status %d:\n%s", status, output)
		}
	})
	t.Run("the generated script", func(t *testing.T) {
		var script bytes.Buffer
		if err := Generate(&script, "slurm", Options{Workers: 2, Command: []string{os.Args[0], "join"}, TaskLabel: "two"}); err != nil {
			t.Fatal(err)
		}
		directory := t.TempDir()
		file, out := filepath.Join(directory, "two.sh"), filepath.Join(directory, "out")
		if err := os.WriteFile(file, script.Bytes(), 0o755); err != nil {
			t.Fatal(err)
		}
		status, said := slurmCommand(t, environ, "sbatch", "--wait", "--output", out, file)
		output, _ := os.ReadFile(out)
		if status != 0 || sorted(string(output)) != joined {
			t.Errorf("status %d: %s\n%s", status, said, output)
		}
	})
	t.Run("an elastic job that is queued again goes on", func(t *testing.T) {
		trainer := filepath.Join(bin, "trainer")
		if text, err := exec.Command("go", "build", "-o", trainer, "../examples/elastic").CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, text)
		}
		directory := t.TempDir()
		program := func(dir string) []string {
			return []string{trainer, "-dir", filepath.Join(directory, dir), "-steps", "60", "-pause", "50ms"}
		}
		status, calm, _ := test(t, Options{Workers: 2, Command: program("undisturbed")})
		if status != 0 {
			t.Fatal(calm)
		}
		var script bytes.Buffer
		if err := Generate(&script, "slurm", Options{Workers: 2, MinWorkers: 2, MaxRestarts: 3, NumMachines: 1, Command: program("checkpoints"), TaskLabel: "again"}); err != nil {
			t.Fatal(err)
		}
		file, out := filepath.Join(directory, "again.sh"), filepath.Join(directory, "out")
		if err := os.WriteFile(file, script.Bytes(), 0o755); err != nil {
			t.Fatal(err)
		}
		status, said := slurmCommand(t, environ, "sbatch", "--parsable", "--output", out, file)
		if status != 0 {
			t.Fatal(said)
		}
		id := strings.TrimSpace(said)
		output := func() string {
			text, _ := os.ReadFile(out)
			return string(text)
		}
		await := func(what string, there func() bool) {
			t.Helper()
			for end := time.Now().Add(time.Minute); !there(); time.Sleep(100 * time.Millisecond) {
				if time.Now().After(end) {
					_, job := slurmCommand(t, environ, "scontrol", "show", "job", id)
					t.Fatalf("%s: it does not come to that\n%s\n%s", what, job, output())
				}
			}
		}
		is := func(state string) func() bool {
			return func() bool {
				_, job := slurmCommand(t, environ, "scontrol", "show", "job", id)
				return strings.Contains(job, "JobState="+state)
			}
		}
		await("it trains", func() bool { return strings.Contains(output(), "[0] step 10: ") })
		if status, said := slurmCommand(t, environ, "scancel", "--batch", "--signal=USR1", id); status != 0 { // as before a time limit
			t.Fatal(said)
		}
		await("it queues itself again", is("PENDING"))
		if told := output(); !strings.Contains(told, "training was interrupted by a signal") || strings.Contains(told, "[0] step 40: ") {
			t.Errorf("it was not told:\n%s", told)
		}
		if status, said := slurmCommand(t, environ, "scontrol", "update", "JobId="+id, "StartTime=now"); status != 0 { // else it waits for two minutes
			t.Fatal(said)
		}
		await("it saves", func() bool { return strings.Contains(output(), "[0] step 40: ") })
		if status, said := slurmCommand(t, environ, "scontrol", "requeue", id); status != 0 {
			t.Fatal(said)
		}
		await("it is queued again", is("PENDING"))
		if status, said := slurmCommand(t, environ, "scontrol", "update", "JobId="+id, "StartTime=now"); status != 0 { // else it waits for two minutes
			t.Fatal(said)
		}
		await("it ends", is("COMPLETED"))
		before, after, again := strings.Cut(output(), "DUE TO JOB REQUEUE")
		if !again || strings.Count(output(), "[0] step 10: ") != 1 {
			t.Errorf("it began anew:\n%s", output())
		}
		for line := range strings.Lines(calm) { // a step may be there twice: it was taken again
			if strings.HasPrefix(line, "[0] step ") && !strings.Contains(before+after, line) {
				t.Errorf("there is no %s in:\n%s", line, output())
			}
		}
	})
	t.Run("a shell in an allocation is no worker", func(t *testing.T) {
		status, output := slurmCommand(t, environ, "salloc", "--quiet", "-n", "2", "epl-launch", "--num_workers", "2", os.Args[0], "join")
		if status != 0 || sorted(output) != joined {
			t.Errorf("status %d:\n%s", status, output)
		}
	})
}
