// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestDrillsOfTheElasticExample has real workers: some drills of each kind.
func TestDrillsOfTheElasticExample(t *testing.T) {
	if testing.Short() {
		t.Skip("it builds programs; not with -short")
	}
	dir := t.TempDir()
	for _, name := range []string{"cmd/epl", "examples/elastic"} {
		if out, err := exec.Command("go", "build", "-ldflags=-w", "-o", dir+"/", "github.com/easyparallel/epl/"+name).CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
	}
	drill := func(args ...string) (string, error) {
		cmd := exec.Command(filepath.Join(dir, "epl"), append([]string{"drill", "--folder", t.TempDir()}, args...)...)
		var out bytes.Buffer
		cmd.Stdout, cmd.Stderr = &out, &out
		err := cmd.Run()
		return out.String(), err
	}
	trainer := filepath.Join(dir, "elastic")
	t.Setenv("EPL_COMMUNICATION_TIMEOUT", "5s") // of the worker that is stopped
	out, err := drill("--only", "kill rank 1,stop,cut,flip,nan,disk full", "--", trainer, "-dir", "{dir}", "-steps", "24", "-pause", "10ms")
	if err != nil || !strings.Contains(out, "7 of 7 drills as they should be") || strings.Count(out, "restarted, went on  equal") != 6 {
		t.Errorf("%v:\n%s", err, out)
	}
	// Steps are copied to memory before the wrong bit is found: the job must not go on from there.
	t.Setenv("EPL_RECOVERY_COPIES", "1")
	t.Setenv("EPL_RELIABILITY_CHECK_EVERY", "7")
	if out, err := drill("--only", "flip", "--", trainer, "-dir", "{dir}", "-steps", "20", "-pause", "5ms"); err != nil || !strings.Contains(out, "restarted, went on  equal") {
		t.Errorf("%v:\n%s", err, out)
	}
	t.Setenv("EPL_RECOVERY_COPIES", "0")
	for args, want := range map[string]string{
		"-- false": "the program fails although nothing goes wrong, with status 1",
		"-- true":  "the program says nothing about its steps",
		"--only x -- " + trainer + " -dir {dir} -steps 3": "no drill is called x",
		"--workers 0 -- true":                             "--workers 0: expected a number of at least 1",
	} {
		out, err := drill(strings.Fields(args)...)
		if err == nil || !strings.Contains(out, want) {
			t.Errorf("%s: %v; want %q:\n%s", args, err, want, out)
		}
	}
}
