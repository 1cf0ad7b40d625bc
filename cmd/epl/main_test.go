// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"os"
	"slices"
	"strings"
	"testing"
)

// epl runs one command line as a shell would.
func epl(t *testing.T, args ...string) (status int, stdout, stderr string) {
	t.Helper()
	var out, errs bytes.Buffer
	status = run(args, &out, &errs)
	return status, out.String(), errs.String()
}

// clearEnvironment hides the configuration of whoever runs the tests.
func clearEnvironment(t *testing.T) {
	t.Helper()
	for _, setting := range os.Environ() {
		if name, _, _ := strings.Cut(setting, "="); strings.HasPrefix(name, "EPL_") {
			t.Setenv(name, "")
		}
	}
	t.Setenv("EPL_PROFILES", t.TempDir()) // those of the machine, too
}

func TestTheVersionIsPrinted(t *testing.T) {
	status, stdout, stderr := epl(t, "--version")
	if status != 0 || stdout != "epl 0.1.0-dev\n" || stderr != "" {
		t.Errorf("status %d, stdout %q, stderr %q", status, stdout, stderr)
	}
}

func TestHelpNamesTheSubcommands(t *testing.T) {
	status, stdout, stderr := epl(t)
	if status != 0 || !strings.Contains(stdout, "  config ") || stderr != "" {
		t.Errorf("status %d, stdout %q, stderr %q", status, stdout, stderr)
	}
}

func TestAnUnknownSubcommandIsOneMessageWithTheOneThatWasMeant(t *testing.T) {
	for args, want := range map[string]string{
		"confg":    "epl: unknown command \"confg\" for \"epl\" (did you mean config?)\n",
		"simplify": "epl: unknown command \"simplify\" for \"epl\"\n",
	} {
		if status, stdout, stderr := epl(t, args); status != 2 || stdout != "" || stderr != want {
			t.Errorf("status %d, stdout %q, stderr %q", status, stdout, stderr)
		}
	}
}

func TestVersionNamesEPLAndWhatItIsBuiltWith(t *testing.T) {
	status, stdout, stderr := epl(t, "version")
	if status != 0 || !strings.HasPrefix(stdout, "epl 0.1.0-dev\ngo1") || stderr != "" {
		t.Errorf("status %d, stdout %q, stderr %q", status, stdout, stderr)
	}
	if status, _, stderr := epl(t, "version", "now"); status != 2 || !strings.HasPrefix(stderr, "epl: ") {
		t.Errorf("an argument too many: status %d, stderr %q", status, stderr)
	}
}

// Every command says by examples how it is used, and what its exit codes mean.
func TestHelpHasExamplesAndExitCodes(t *testing.T) {
	for _, args := range [][]string{{"--help"}, {"config", "--help"}, {"plan", "--help"}, {"trace", "--help"}, {"trace", "diff", "--help"}, {"simulate", "--help"},
		{"doctor", "--help"}, {"checkpoint", "--help"}, {"checkpoint", "list", "--help"}, {"checkpoint", "export", "--help"}} {
		status, stdout, _ := epl(t, args...)
		if status != 0 || !strings.Contains(stdout, "Examples:\n  ") || !strings.Contains(stdout, "Exit codes: 0 fine, 1 ") || !strings.Contains(stdout, "2 wrong usage") {
			t.Errorf("%v: status %d:\n%s", args, status, stdout)
		}
	}
}

func TestTabCompletesKeysAndTheirValues(t *testing.T) {
	clearEnvironment(t)
	t.Setenv("EPL_ZERO_LEVEL", "wrong") // which is no reason to offer nothing
	for _, test := range []struct {
		args []string
		want []string
	}{
		{[]string{"config", "zero."}, []string{"zero.level"}},
		{[]string{"config", "communication.m"}, []string{"communication.max_splits"}},
		{[]string{"config", "--set", "pipeline.s"}, []string{"pipeline.strategy=", "pipeline.stages_per_device="}},
		{[]string{"plan", "--set", "zero.level="}, []string{"zero.level=v0", "zero.level=v1", "zero.level=v2"}},
		{[]string{"plan", "--set", "pipeline.strategy=preferb"}, []string{"pipeline.strategy=PreferBackward", "pipeline.strategy=PreferBackwardOptimizer"}},
		{[]string{"plan", "--set", "io.slicing="}, []string{"io.slicing=true", "io.slicing=false"}},
		{[]string{"plan", "--set", "nothing="}, nil},
		{[]string{"ver"}, []string{"version"}},
	} {
		_, stdout, _ := epl(t, append([]string{"__complete"}, test.args...)...)
		var got []string
		for line := range strings.Lines(stdout) {
			if word, _, _ := strings.Cut(strings.TrimSpace(line), "\t"); !strings.HasPrefix(word, ":") {
				got = append(got, word)
			}
		}
		if !slices.Equal(got, test.want) {
			t.Errorf("%v: got %q, want %q", test.args, got, test.want)
		}
	}
}
