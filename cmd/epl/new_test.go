// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// What "epl new" writes is a module of its own, whose tests hold.
func TestANewProgramLearns(t *testing.T) {
	if testing.Short() {
		t.Skip("it links a program; not with -short")
	}
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(t.TempDir(), "spirals")
	status, stdout, stderr := epl(t, "new", "--epl", root, dir)
	if status != 0 || stderr != "" || !strings.Contains(stdout, "Next: cd "+dir+" && go mod tidy") {
		t.Fatalf("status %d, stdout %q, stderr %q", status, stdout, stderr)
	}
	for _, name := range []string{"main.go", "model.go", "data.go", "main_test.go", "Makefile", "Dockerfile", "k8s.yaml", ".gitignore", "go.mod", "README.md"} {
		text, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil || len(text) == 0 || strings.Contains(string(text), "{{") {
			t.Errorf("%s: %v\n%s", name, err, text)
		}
	}
	for file, want := range map[string]string{"Dockerfile": "COPY --from=epl . /epl\nRUN go mod edit -replace=github.com/easyparallel/epl=/epl\n", "Makefile": "docker build --build-context epl='" + root + "' -t"} {
		if text, err := os.ReadFile(filepath.Join(dir, file)); err != nil || !strings.Contains(string(text), want) {
			t.Errorf("an image would lack EPL: %s has no %q\n%s", file, want, text)
		}
	}
	sums, err := os.ReadFile(filepath.Join(root, "go.sum"))
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, "go.sum"), sums, 0o666) // what this module needs is there
	}
	if err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{{"vet", "."}, {"test", "."}} {
		cmd := exec.Command("go", args...)
		cmd.Dir = dir
		cmd.Env = append(os.Environ(), "GOFLAGS=-mod=mod", "GOPROXY=off", "GOWORK=off")
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("go %v: %v\n%s", args, err, out)
		}
	}
	if out, err := exec.Command("gofmt", "-l", dir).CombinedOutput(); err != nil || len(out) > 0 {
		t.Errorf("gofmt: %v %s", err, out)
	}

	// It is not written over.
	status, _, stderr = epl(t, "new", "--epl", root, dir)
	if status != 1 || !strings.Contains(stderr, "is not empty (it has .gitignore); use a new folder") {
		t.Errorf("status %d, stderr %q", status, stderr)
	}
}

func TestANewProgramNeedsANameAndEPL(t *testing.T) {
	for _, c := range []struct {
		status int
		args   []string
		want   string
	}{
		{2, []string{}, "epl: which folder? One, for example: epl new mytrainer"},
		{2, []string{"My Trainer"}, `"My Trainer" is no name for a program`},
		{2, []string{"--module", "a b", "x"}, `"a b" is no path of a module; one is github.com/me/x`},
		{2, []string{"x-"}, `"x-" is no name for a program`},
		{2, []string{"--module", "a/../b", "x"}, `"a/../b" is no path of a module`},
		{2, []string{"--module", "a/b.", "x"}, `"a/b." is no path of a module`},
		{1, []string{"--epl", "nowhere", "x"}, "--epl nowhere is no clone of EPL"},
		{1, []string{"x"}, "which is not released; give the clone it was built from: epl new --epl PATH x"},
	} {
		status, stdout, stderr := epl(t, append([]string{"new"}, c.args...)...)
		if status != c.status || stdout != "" || !strings.Contains(stderr, c.want) {
			t.Errorf("%v: status %d, stdout %q, stderr %q, not %q", c.args, status, stdout, stderr, c.want)
		}
	}
	if _, err := os.Stat("x"); err == nil {
		t.Error("a folder was made all the same")
	}
}
