// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package epl_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// The program of the README, in a module of its own: nothing that it needs is internal.
func TestAModuleOfItsOwnBuildsAndRunsOnEPL(t *testing.T) {
	if testing.Short() {
		t.Skip("it links a program; not with -short")
	}
	here, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	for name, from := range map[string]string{"go.sum": "go.sum", "main.go": "examples/line/main.go"} {
		text, err := os.ReadFile(from)
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, name), text, 0o644)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, command := range []string{
		"go mod init example.com/mine",
		"go mod edit -require=github.com/easyparallel/epl@v0.0.0 -replace=github.com/easyparallel/epl=" + here, // in place of go get
		"go run .",
	} {
		cmd := exec.Command("go", strings.Fields(command)[1:]...)
		cmd.Dir = dir
		cmd.Env = append(os.Environ(), "GOFLAGS=-mod=mod", "GOPROXY=off", "GOWORK=off", "EPL_NUM_WORKERS=1", "EPL_DEVICES_PER_WORKER=2") // what this module needs is there
		out, err := cmd.CombinedOutput()
		if err != nil || command == "go run ." && !strings.Contains(string(out), "2 model replicas, loss 0.00") { // weights begin at random
			t.Fatalf("%s: %v\n%s", command, err, out)
		}
	}
}
