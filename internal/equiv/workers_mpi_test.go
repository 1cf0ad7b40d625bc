// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package equiv

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/easyparallel/epl/comm/mpi"
)

// mpirun lets MPI start the workers, which find out by themselves, and communicate by MPI. All must give the same report.
func mpirun(t *testing.T, workers int, name string) {
	t.Helper()
	run, err := exec.LookPath("mpirun")
	if err != nil {
		t.Skip("there is no mpirun: install the package openmpi-bin")
	}
	args := []string{"-n", fmt.Sprint(workers)}
	if out, _ := exec.Command(run, "--version").CombinedOutput(); strings.Contains(string(out), "Open MPI") {
		args = append(args, "--allow-run-as-root", "--oversubscribe")
	}
	cmd := exec.Command(run, append(args, os.Args[0])...)
	cmd.Env = append(os.Environ(), partVariable+"="+name, folderVariable+"="+t.TempDir(), backendVariable+"=mpi")
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	count := map[string]int{}
	for line := range strings.Lines(string(out)) {
		count[line]++
	}
	if len(count) == 0 {
		t.Error("there is no report")
	}
	for line, n := range count {
		if n%workers != 0 {
			t.Errorf("%d of %d workers say %s", n, workers, line)
		}
	}
}

func TestWorkersOverMPI(t *testing.T) {
	if !mpi.Available {
		t.Skip(`this program was built without MPI, see "make mpi"`)
	}
	for _, name := range []string{"same weights", "random plans", "as one worker", "start equal", "incomplete step", "own data", "evaluation", "checkpoints"} {
		for _, workers := range []int{2, 4} {
			if workers > 2 && name != "same weights" && name != "random plans" || workers == 4 && name == "as one worker" {
				continue
			}
			t.Run(fmt.Sprintf("%s/%d", name, workers), func(t *testing.T) { mpirun(t, workers, name) })
		}
	}
}
