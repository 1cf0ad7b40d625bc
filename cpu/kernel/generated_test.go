// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package kernel

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

func TestGeneratedKernelsAreWhatTheGeneratorWrites(t *testing.T) {
	if testing.Short() {
		t.Skip("short: the generator is not built")
	}
	dir := t.TempDir()
	if out, err := exec.Command("go", "run", "gen_amd64.go", "-dir", dir).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for _, name := range []string{"kernels_amd64.s", "gen_kernels_amd64.go", "gen_tables_amd64.go"} {
		want, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		got, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(want, got) {
			t.Errorf("%s is not what gen_amd64.go writes: run go generate", name)
		}
	}
}
