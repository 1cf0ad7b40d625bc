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
)

//go:embed torch_mlp.py
var torchMLP string

// torchRow compares with PyTorch on the same model, data sizes, optimizer and number of threads.
func torchRow(batch int, p problem) Row {
	return Row{Name: fmt.Sprintf("mlp-25M/%d", batch), Peer: "PyTorch", Pairs: 15, Warm: 2,
		Ours:   func() (side, error) { return p.onEPL("all") },
		Theirs: func() (side, error) { return torch(batch) }}
}

// pythonWithTorch returns a Python that has PyTorch.
func pythonWithTorch() (string, error) {
	python := os.Getenv("EPL_BENCH_PYTHON")
	if python == "" {
		python = "/usr/bin/python3"
	}
	if err := exec.Command(python, "-c", "import torch").Run(); err != nil {
		return "", missing(fmt.Sprintf("%s has no PyTorch (Debian: apt-get install python3-torch libopenblas0-pthread)", python))
	}
	return python, nil
}

// torch starts a Python process that does a train step for every line it reads.
func torch(batch int) (side, error) {
	python, err := pythonWithTorch()
	if err != nil {
		return side{}, err
	}
	cmd := exec.Command(python, "-u", "-c", torchMLP, strconv.Itoa(batch))
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		return side{}, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return side{}, err
	}
	if err := cmd.Start(); err != nil {
		return side{}, err
	}
	lines := bufio.NewReader(out)
	return side{
		once: func() (time.Duration, error) {
			if _, err := io.WriteString(in, "step\n"); err != nil {
				return 0, err
			}
			line, err := lines.ReadString('\n')
			if err != nil {
				return 0, err
			}
			s, err := strconv.ParseFloat(strings.TrimSpace(line), 64)
			return time.Duration(s * float64(time.Second)), err
		},
		close: func() {
			_ = in.Close()
			_ = cmd.Wait()
		},
	}, nil
}
