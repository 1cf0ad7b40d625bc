// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package main

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/easyparallel/epl/cost"
)

func TestCalibrateWritesTheProfileOfThisMachine(t *testing.T) {
	clearEnvironment(t)
	dir := filepath.Join(t.TempDir(), "profiles")
	t.Setenv(cost.EnvProfiles, dir)
	status, stdout, stderr := epl(t, "calibrate", "--each", "1ns", "--transports", "in-process")
	for _, want := range []string{"cores of a device", "dot/float32", "FLOP/s", "devices of a worker", "written to " + filepath.Join(dir, "this.json")} {
		if status != 0 || !strings.Contains(stdout, want) {
			t.Errorf("status %d, it does not say %q:\n%s\n%s", status, want, stdout, stderr)
		}
	}
	if !strings.Contains(stderr, "transport in-process") || strings.Contains(stderr, "transport tcp") {
		t.Errorf("progress is %s", stderr)
	}
	p, err := cost.Find(cost.This)
	if err != nil || p.Within == nil || p.Between != nil {
		t.Errorf("%+v, %v", p, err)
	}
}

func TestAWrongCalibrationIsRefusedBeforeItMeasures(t *testing.T) {
	clearEnvironment(t)
	dir := t.TempDir()
	t.Setenv(cost.EnvProfiles, dir)
	for want, args := range map[string][]string{
		"use in-process, shared-memory, tcp": {"--transports", "pigeons"},
		"--inner abacus: there is no such":   {"--inner", "abacus"},
		"--each 0s: a measurement takes":     {"--each", "0s"},
		"--each -1s: a measurement takes":    {"--each", "-1s"},
		"there is no folder":                 {"--out", filepath.Join(dir, "none", "this.json")},
		"is a folder; name a file":           {"--out", dir},
	} {
		if status, stdout, stderr := epl(t, append([]string{"calibrate"}, args...)...); status != 2 || stdout != "" || !strings.Contains(stderr, want) {
			t.Errorf("%q: status %d, stdout %q, stderr %q", args, status, stdout, stderr)
		}
	}
}
