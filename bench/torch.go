// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	_ "embed"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/cpu"
)

// The programs of PyTorch: the models, and what trains one of them in a process, or in several.
var (
	//go:embed torch_models.py
	torchModels string
	//go:embed torch_steps.py
	torchSteps string
	//go:embed torch_parallel.py
	torchParallel string
)

// torchRow compares with PyTorch on the same model, data sizes, optimizer and number of threads.
func torchRow(batch int, p problem) Row {
	return Row{Name: fmt.Sprintf("mlp-25M/%d", batch), Peer: "PyTorch", Pairs: 15, Warm: 2,
		Ours:   func() (side, error) { return p.onEPL("all") },
		Theirs: func() (side, error) { return torch("mlp", batch) }}
}

// pythonWithTorch returns a Python that has PyTorch.
func pythonWithTorch() (string, error) {
	python := os.Getenv("EPL_BENCH_PYTHON")
	if python == "" {
		python = "/usr/bin/python3"
	}
	if err := exec.Command(python, "-c", "import torch").Run(); err != nil {
		return "", missing(fmt.Sprintf("%s has no PyTorch (Debian: apt-get install python3-torch libopenblas0-openmp)", python))
	}
	return python, nil
}

// torch starts a Python process that does a train step of a model for every line it reads.
func torch(model string, numbers ...int) (side, error) {
	cmd, err := torchCommand(model, numbers...)
	if err != nil {
		return side{}, err
	}
	return stepper(cmd)
}

func torchCommand(model string, numbers ...int) (*exec.Cmd, error) {
	python, err := pythonWithTorch()
	if err != nil {
		return nil, err
	}
	args := []string{"-u", "-c", torchModels + torchSteps, model}
	for _, n := range numbers {
		args = append(args, strconv.Itoa(n))
	}
	cmd := exec.Command(python, args...)
	cmd.Env = blas()
	return cmd, nil
}

// openMP is where Debian keeps OpenBLAS with the threads of OpenMP, which PyTorch has as well. The other OpenBLAS has threads of
// its own, and both kinds spin: on few cores that takes PyTorch twice the time.
const openMP = "/usr/lib/x86_64-linux-gnu/openblas-openmp"

// blas is the environment, with the fastest BLAS that is installed. Kernels of OpenBLAS are named, because an OpenBLAS that is
// older than the CPU takes it for one of 2004, and is five times slower than need be.
func blas() []string {
	env := os.Environ()
	if _, err := os.Stat(openMP); err == nil && os.Getenv("LD_LIBRARY_PATH") == "" {
		env = append(env, "LD_LIBRARY_PATH="+openMP)
	}
	if os.Getenv("OPENBLAS_CORETYPE") == "" {
		switch {
		case cpu.X86.HasAVX512F:
			env = append(env, "OPENBLAS_CORETYPE=SKYLAKEX")
		case cpu.X86.HasAVX2:
			env = append(env, "OPENBLAS_CORETYPE=HASWELL")
		}
	}
	return env
}

// stepper starts a process that does a train step for every line it reads, and prints the seconds it took.
func stepper(cmd *exec.Cmd) (side, error) {
	p, err := start(cmd)
	if err != nil {
		return side{}, err
	}
	return side{once: func() (time.Duration, error) {
		line, err := p.ask("step")
		if err != nil {
			return 0, err
		}
		s, err := strconv.ParseFloat(line, 64)
		return time.Duration(s * float64(time.Second)), err
	}, close: p.close}, nil
}

// process answers every line with a line.
type process struct {
	ask   func(line string) (string, error)
	close func()
}

func start(cmd *exec.Cmd) (process, error) {
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		return process{}, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return process{}, err
	}
	if err := cmd.Start(); err != nil {
		return process{}, err
	}
	lines := bufio.NewReader(out)
	return process{
		ask: func(line string) (string, error) {
			if _, err := io.WriteString(in, line+"\n"); err != nil {
				return "", err
			}
			answer, err := lines.ReadString('\n')
			return strings.TrimSpace(answer), err
		},
		close: func() {
			_ = in.Close()
			_ = cmd.Wait()
		},
	}, nil
}
