// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package gemm

import (
	"bytes"
	"os"
	"os/exec"
	"testing"
)

func TestGeneratedKernelsAreWhatTheGeneratorWrites(t *testing.T) {
	if testing.Short() {
		t.Skip("short: the generator is not built")
	}
	want, err := exec.Command("go", "run", "gen_amd64.go").Output()
	if err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile("kernels_amd64.s")
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(want, got) {
		t.Error("kernels_amd64.s is not what gen_amd64.go writes: run go generate")
	}
}
