// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/easyparallel/epl/doctor"
)

// sshThat makes a command in the place of ssh, and returns its path.
func sshThat(t *testing.T, does string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "ssh")
	if err := os.WriteFile(path, []byte("#!/bin/sh\n"+does+"\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestDoctorNamesHostsThatCannotBeUsed(t *testing.T) {
	for does, want := range map[string]string{
		`echo "ssh: $1 is unknown" >&2; exit 255`: "It cannot be reached: ssh: nowhere is unknown.",
		`echo "sh: epl: not found" >&2; exit 127`: "It can be reached, but does not run epl: sh: epl: not found.",
		`echo '{"version":"0.0.1"}'; cat`:         "Its epl is 0.0.1, and ",
	} {
		status, stdout, stderr := epl(t, "doctor", "--hosts", "nowhere", "--ssh", sshThat(t, does), "--json")
		var found struct {
			Problems int
			Findings []doctor.Finding
		}
		if err := json.Unmarshal([]byte(stdout), &found); err != nil {
			t.Fatal(err, stdout)
		}
		if status != 1 || found.Problems == 0 || !strings.Contains(stdout, want) || !strings.HasSuffix(stderr, " found\n") || found.Findings[0].Host != "nowhere" {
			t.Errorf("%s: status %d, want %q:\n%s%s", does, status, want, stdout, stderr)
		}
	}
}

func TestDoctorRefusesWhatMakesNoSense(t *testing.T) {
	for args, want := range map[string]string{
		"--port 0":          "--port 0: expected a number from 1 to 65535",
		"-- ./train":        "name them by --hosts",
		"--hosts a,,b":      `--hosts "a,,b": expected names`,
		"--hosts a --jsson": "did you mean --json?",
	} {
		if status, _, stderr := epl(t, append([]string{"doctor"}, strings.Fields(args)...)...); status != 2 || !strings.Contains(stderr, want) {
			t.Errorf("%s: status %d: %s", args, status, stderr)
		}
	}
}
