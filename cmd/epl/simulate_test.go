// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

func TestAStepIsSimulatedOnDevicesThatDoNotExist(t *testing.T) {
	clearEnvironment(t)
	program := example(t, "pipeline")
	dir := t.TempDir()
	timeline, picture, page := filepath.Join(dir, "p.json"), filepath.Join(dir, "p.svg"), filepath.Join(dir, "p.html")
	status, stdout, stderr := epl(t, "simulate", "--cluster", "2x2xV100-32", "--what-if", "bandwidth=2,straggler=3:1.5", "--what-if", "lost=1",
		"--trace", timeline, "--svg", picture, "--html", page, "--", program)
	if status != 0 || stderr != "" || !regexp.MustCompile(`^step    [\d.]+ ms predicted; 8 batches, \d+ batches/s on 4 devices
time    [\d.]+% busy, [\d.]+% bubble, [\d.]+% exposed communication

group  devices  busy .* peak memory
0      0, 2 .* MiB
1      1, 3 .* MiB

what if
change .*
as it is .*
bandwidth=2 .*
straggler=3:1.5 .*\+[\d.]+% .*
lost=1 .*
bandwidth=2,straggler=3:1.5,lost=1 .*
$`).MatchString(stdout) {
		t.Errorf("status %d, stderr %q, stdout:\n%s", status, stderr, stdout)
	}
	for file, want := range map[string]string{timeline: `"predicted": true`, picture: "bubble", page: "predicted"} {
		if text, err := os.ReadFile(file); err != nil || !strings.Contains(string(text), want) {
			t.Errorf("%s has no %q: %v", file, want, err)
		}
	}
	if status, stdout, stderr := epl(t, "trace", timeline); status != 0 || !strings.Contains(stdout, "bubble") || !strings.Contains(stdout, "predicted") {
		t.Errorf("status %d, %q:\n%s", status, stderr, stdout)
	}

	// A plan can be simulated, too; it says what there is. What a plan says of time is what is simulated of it.
	file := filepath.Join(dir, "plan.json")
	if status, stdout, _ = epl(t, "plan", "--cluster", "2x2xV100-32", "--json", file, "--", program); status != 0 || !regexp.MustCompile(`\ntime    [\d.]+ms a step, simulated`).MatchString(stdout) {
		t.Errorf("status %d, the plan says no time:\n%s", status, stdout[:min(len(stdout), 500)])
	}
	if !strings.Contains(stdout, "counted op by op") || strings.Contains(stdout, "what devices run") {
		t.Errorf("a plan for GPUs asks this machine's engine for memory:\n%s", stdout)
	}
	if text, err := os.ReadFile(file); err != nil || !strings.Contains(string(text), `"step_seconds": 0.00`) {
		t.Errorf("the plan has no time, %v", err)
	}
	if status, stdout, stderr := epl(t, "simulate", "--cluster", "2x2xV100-32", "--plan", file, "--", program); status != 0 || !strings.Contains(stdout, "on 4 devices") {
		t.Errorf("status %d, %q:\n%s", status, stderr, stdout)
	}
	if status, _, stderr := epl(t, "simulate", "--cluster", "1x2xV100-32", "--plan", file, "--", program); status != 1 || !strings.Contains(stderr, "plan.json") {
		t.Errorf("a plan for other devices: status %d, %q", status, stderr)
	}
	if status, _, stderr := epl(t, "simulate", "--cluster", "2x2xV100-32", "--what-if", "straggler=99:2", "--", program); status != 1 ||
		!strings.Contains(stderr, "straggler=99:2: the cluster has the devices 0 to 3") {
		t.Errorf("a device that is not there: status %d, %q", status, stderr)
	}
	if status, _, stderr := epl(t, "simulate", "--devices", "2", "--", program); status != 1 || !strings.Contains(stderr, "name their profile") {
		t.Errorf("devices that nothing is known of: status %d, %q", status, stderr)
	}
}

func TestAWrongSimulationIsRefusedBeforeTheProgramRuns(t *testing.T) {
	clearEnvironment(t)
	for want, args := range map[string][]string{
		"which program?":                     {},
		"write bandwidth=2, latency=0.5":     {"--what-if", "memory=2", "--", "none"},
		"there is no profile":                {"--cluster", "2x2xV1000", "--", "none"},
		"there is one standard output":       {"--trace", "-", "--html", "-", "--", "none"},
		"the picture is an .svg":             {"--svg", "p.png", "--", "none"},
		"there must be at least one of each": {"--workers", "0", "--", "none"},
	} {
		if status, stdout, stderr := epl(t, append([]string{"simulate"}, args...)...); status != 2 || stdout != "" || !strings.Contains(stderr, want) {
			t.Errorf("%q: status %d, stdout %q, stderr %q", args, status, stdout, stderr)
		}
	}
}
