// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gomlx/compute/dtypes"

	"github.com/easyparallel/epl/checkpoint"
	"github.com/easyparallel/epl/state"
)

// saveOne saves a checkpoint of one variable.
func saveOne(t *testing.T, dir string, n int, step int64, values ...byte) string {
	t.Helper()
	dims := []int{len(values)}
	folder := filepath.Join(dir, checkpoint.Name(n, step))
	file, err := checkpoint.Write(checkpoint.OS, folder, 0, []checkpoint.Chunk{{Piece: state.Piece{Path: "/w", DType: dtypes.Uint8, Shape: dims, Region: state.Whole(dims)}, Bytes: values}})
	if err != nil {
		t.Fatal(err)
	}
	p, _ := checkpoint.NewParam("/", "rate", 0.5)
	if err := checkpoint.Commit(checkpoint.OS, folder, &checkpoint.Manifest{Step: step, Variables: 1, Bytes: file.DataBytes, Workers: 1, Devices: 2, EPL: "1", Go: "go", Metrics: map[string]float64{"loss": float64(step) / 10},
		Files: []checkpoint.File{file}, Params: []checkpoint.Param{p}}); err != nil {
		t.Fatal(err)
	}
	return folder
}

func TestCheckpointsAreListedShownComparedVerifiedAndRemoved(t *testing.T) {
	dir := t.TempDir()
	first := saveOne(t, dir, 0, 10, 1, 2, 3)
	second := saveOne(t, dir, 1, 20, 1, 5, 3)
	best := filepath.Join(dir, "best")
	for n := range 3 {
		saveOne(t, best, n, int64(n+1), 1)
	}
	safetensors, gomlx, back := filepath.Join(dir, "w.safetensors"), filepath.Join(dir, "gomlx"), filepath.Join(dir, "back")
	for _, c := range []struct {
		args   string
		status int
		want   []string // of what is printed, or is the error
	}{
		{"list DIR", 0, []string{"n0000000-step-00000010  10 ", "n0000001-step-00000020  20 ", "3 B"}},
		{"show DIR", 0, []string{second, "step 20", "/w ", "(Uint8)[3]", "/rate", "0.5"}},
		{"show FIRST --json", 0, []string{`"step": 10`}},
		{"show FIRST --plan", 1, []string{"has no plan"}},
		{"verify DIR", 0, []string{first + ": fine", second + ": fine"}},
		{"diff FIRST DIR", 0, []string{"steps 10 and 20", "/w", "1 of 3", "3\n"}},
		{"diff FIRST FIRST", 0, []string{"the variables are the same"}},
		{"export FIRST SAFETENSORS", 0, nil},
		{"import SAFETENSORS BACK", 0, []string{filepath.Join(back, "n0000000-step-00000000")}},
		{"diff FIRST BACK", 0, []string{"the variables are the same; steps 10 and 0"}},
		{"export FIRST GOMLX", 0, nil},
		{"import GOMLX BACK", 0, []string{"n0000001"}},
		{"diff BACK FIRST", 0, []string{"/global_step  only in the first\n"}}, // GoMLX's handler makes one
		{"export FIRST GOMLX2 --names x.json", 2, []string{"--names"}},
		{"export FIRST x --format pickle", 2, []string{"pickle"}},
		{"prune DIR --keep 0", 2, []string{"--keep"}},
		{"prune DIR", 0, []string{"removed " + first}},
		{"list DIR", 0, []string{"n0000001-step-00000020"}},
		{"prune BEST --lowest los", 1, []string{`"los"`, `["loss"]`}},
		{"prune BEST --lowest loss", 0, []string{"step-00000002"}},
		{"list BEST", 0, []string{"step-00000001", "loss 0.1", "step-00000003", "loss 0.3"}},
		{"show NOWHERE", 1, []string{"no such file"}},
		{"list NOWHERE", 1, []string{"no such file"}},
		{"list", 2, []string{"epl checkpoint list DIR"}},
	} {
		line := strings.NewReplacer("DIR", dir, "FIRST", first, "SAFETENSORS", safetensors, "GOMLX", gomlx, "BACK", back, "BEST", best, "NOWHERE", filepath.Join(dir, "nowhere")).Replace(c.args)
		status, stdout, stderr := epl(t, append([]string{"checkpoint"}, strings.Fields(line)...)...)
		if status != c.status {
			t.Errorf("%s: status %d: %s", c.args, status, stderr)
		}
		for _, want := range c.want {
			if !strings.Contains(stdout+stderr, want) {
				t.Errorf("%s: %q is not in\n%s%s", c.args, want, stdout, stderr)
			}
		}
	}
	b, err := os.ReadFile(filepath.Join(second, checkpoint.FileName(0)))
	if err != nil {
		t.Fatal(err)
	}
	b[len(b)-1] ^= 1
	if err := os.WriteFile(filepath.Join(second, checkpoint.FileName(0)), b, 0o666); err != nil {
		t.Fatal(err)
	}
	if status, stdout, stderr := epl(t, "checkpoint", "verify", dir); status != 1 || !strings.Contains(stdout, "checksum is wrong") || !strings.Contains(stderr, "damaged") {
		t.Errorf("status %d:\n%s%s", status, stdout, stderr)
	}
}
