// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package _default_test

import (
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// An example of GoMLX, as it is published, runs on EPL. Beside it is a file with the import, and nothing else.
func TestAnUnchangedExampleOfGoMLXRunsOnEPL(t *testing.T) {
	program := filepath.Join(t.TempDir(), "linear")
	// noxla leaves out GoMLX's own backend for GPUs, which needs cgo.
	if out, err := exec.Command("go", "build", "-ldflags=-w", "-tags", "noxla", "-o", program, "./testdata/linear").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	run := func(backend string) (string, error) {
		cmd := exec.Command(program, "-num_examples", "200", "-steps", "1000", "-noise", "0")
		cmd.Env = append(os.Environ(), "GOMLX_BACKEND="+backend)
		if backend == "" {
			cmd.Env = cmd.Env[:len(cmd.Env)-1]
		}
		out, err := cmd.CombinedOutput()
		return string(out), err
	}
	t.Setenv("GOMLX_BACKEND", "") // restored at the end
	if err := os.Unsetenv("GOMLX_BACKEND"); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ backend, over, says string }{
		{"", "epl, Easy Parallel Library", ""},
		{"go", "Go Backend, ", ""},
		{"epl:inner=go", "epl, Easy Parallel Library over", ""},
		{"epl:devices=2", "epl, Easy Parallel Library", "trains on 1 of 2 devices, because EPL knows no gradients to reduce: wrap the optimizer in epl.Optimizer"},
	} {
		out, err := run(c.backend)
		if err != nil || !strings.Contains(out, "Backend: "+c.over) || !strings.Contains(out, c.says) {
			t.Errorf("GOMLX_BACKEND=%q: %v\n%s", c.backend, err, out)
			continue
		}
		if c.says == "" && strings.Contains(out, "EPL knows no gradients") {
			t.Errorf("GOMLX_BACKEND=%q says what does not concern one device:\n%s", c.backend, out)
		}
		target, learned := numbers(t, out, "Target coefficients"), numbers(t, out, "Learned coefficients")
		near := func(a, b float64) bool { return math.Abs(a-b) < 0.2 }
		if len(target) != 3 || !slices.EqualFunc(target, learned, near) {
			t.Errorf("GOMLX_BACKEND=%q: the coefficients are %v, and it learned %v\n%s", c.backend, target, learned, out)
		}
	}
	for backend, want := range map[string]string{
		"epl:devices=2,pipeline.num_micro_batch=4": "pipeline.num_micro_batch = 4 would have no effect: wrap the optimizer in epl.Optimizer",
		"epl:pipeline.num_micro_batches=4":         `unknown configuration key "pipeline.num_micro_batches"`,
	} {
		if out, err := run(backend); err == nil || !strings.Contains(out, want) {
			t.Errorf("GOMLX_BACKEND=%q: %v, want %q in\n%s", backend, err, want, out)
		}
	}
}

var number = regexp.MustCompile(`-?\d+(\.\d+)?(e[-+]\d+)?`)

// numbers are those of a line.
func numbers(t *testing.T, out, line string) (all []float64) {
	t.Helper()
	_, rest, _ := strings.Cut(out, line)
	rest, _, _ = strings.Cut(rest, "\n")
	for _, n := range number.FindAllString(rest, -1) {
		x, err := strconv.ParseFloat(n, 64)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, x)
	}
	return all
}
