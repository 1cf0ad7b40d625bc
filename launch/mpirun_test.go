// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package launch

import (
	"os"
	"os/exec"
	"strings"
	"testing"
)

// With the real thing, twice: the test binary as a launcher under mpirun, and as the program itself.
func TestWorkersUnderMpirunMeet(t *testing.T) {
	t.Parallel()
	for name, mpirun := range map[string][]string{
		"Open MPI": {"mpirun.openmpi", "--allow-run-as-root", "--oversubscribe", "-n", "2"},
		"MPICH":    {"mpirun.mpich", "-n", "2"},
	} {
		t.Run(name, func(t *testing.T) {
			path, err := exec.LookPath(mpirun[0])
			if err != nil {
				t.Skipf("there is no %s here; Debian has it in the packages openmpi-bin and mpich", mpirun[0])
			}
			directory := t.TempDir()
			cmd := exec.Command(path, append(mpirun[1:], os.Args[0], "launcher", `{"Command":["`+os.Args[0]+`","join"]}`)...)
			cmd.Env = cleanEnviron("TMPDIR=" + directory)
			output, err := cmd.CombinedOutput()
			if err != nil || sorted(strings.ReplaceAll(string(output), "\r", "")) != "[0] worker 0 of 2 joined\n[1] worker 1 of 2 joined" {
				t.Errorf("%v:\n%s", err, output)
			}
			if left, _ := os.ReadDir(directory + "/epl-" + itoa(os.Getuid())); len(left) != 0 {
				t.Errorf("what they left: %v", left)
			}
		})
	}
}

func TestAFailureUnderMpirunIsNamed(t *testing.T) {
	t.Parallel()
	path, err := exec.LookPath("mpirun.mpich")
	if err != nil {
		t.Skip("there is no mpirun.mpich here; Debian has it in the package mpich")
	}
	cmd := exec.Command(path, "-n", "2", os.Args[0], "launcher", `{"Command":["`+os.Args[0]+`","exit","0","3"]}`)
	cmd.Env = cleanEnviron("TMPDIR=" + t.TempDir())
	output, err := cmd.CombinedOutput()
	if cmd.ProcessState.ExitCode() != 3 || !strings.Contains(string(output), "worker 1 on "+hostName()+" exited with status 3") {
		t.Errorf("%v:\n%s", err, output)
	}
}
