// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package main

import (
	_ "embed"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
)

//go:embed mpi_peer.c
var mpiPeer string

//go:embed gloo_peer.py
var glooPeer string

// compiled is the path of the MPI peer.
var compiled = sync.OnceValues(func() (string, error) {
	if _, err := exec.LookPath("mpirun.openmpi"); err != nil {
		return "", missing("there is no Open MPI (Debian: apt-get install openmpi-bin libopenmpi-dev)")
	}
	if _, err := exec.LookPath("mpicc.openmpi"); err != nil {
		return "", missing("there is no compiler of Open MPI (Debian: apt-get install libopenmpi-dev)")
	}
	dir, err := os.MkdirTemp("", "epl-bench-")
	if err != nil {
		return "", err
	}
	temporary = append(temporary, dir)
	source, program := filepath.Join(dir, "mpi_peer.c"), filepath.Join(dir, "mpi_peer")
	if err := os.WriteFile(source, []byte(mpiPeer), 0o600); err != nil {
		return "", err
	}
	if out, err := exec.Command("mpicc.openmpi", "-O2", "-o", program, source).CombinedOutput(); err != nil {
		return "", fmt.Errorf("mpicc: %w: %s", err, out)
	}
	return program, nil
})

// temporary are folders to remove at the end.
var temporary []string

// openMPI is processes of Open MPI, with parameters of it.
func openMPI(workers int, settings ...string) (*fleet, error) {
	program, err := compiled()
	if err != nil {
		return nil, err
	}
	return theFleet("Open MPI "+strings.Join(settings, " "), workers, func(string) ([]*exec.Cmd, error) {
		args := []string{"--oversubscribe", "-n", strconv.Itoa(workers)}
		if workers <= runtime.NumCPU() {
			args = append(args, "--bind-to", "core")
		}
		for _, s := range settings {
			key, value, _ := strings.Cut(s, "=")
			args = append(args, "--mca", key, value)
		}
		cmd := exec.Command("mpirun.openmpi", append(args, program)...)
		cmd.Env = append(os.Environ(), "OMPI_ALLOW_RUN_AS_ROOT=1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1")
		return []*exec.Cmd{cmd}, nil
	})
}

// gloo is processes of PyTorch.
func gloo(workers int) (*fleet, error) {
	python, err := pythonWithTorch()
	if err != nil {
		return nil, err
	}
	return theFleet("Gloo", workers, func(string) ([]*exec.Cmd, error) {
		return torchProcesses(python, glooPeer, workers)
	})
}

// torchProcesses are processes that meet each other in a file.
func torchProcesses(python, program string, workers int, args ...string) ([]*exec.Cmd, error) {
	dir, err := os.MkdirTemp("", "epl-bench-")
	if err != nil {
		return nil, err
	}
	temporary = append(temporary, dir)
	var commands []*exec.Cmd
	for rank := range workers {
		cmd := exec.Command(python, append([]string{"-c", program, strconv.Itoa(rank), strconv.Itoa(workers), filepath.Join(dir, "meet")}, args...)...)
		cmd.Env = append(blas(), "GLOO_SOCKET_IFNAME=lo", "OMP_NUM_THREADS=1")
		commands = append(commands, cmd)
	}
	return commands, nil
}
