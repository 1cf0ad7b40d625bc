// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package main

import (
	"flag"
	"io"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "rewrite the golden files")

func parse(t *testing.T, line string) flags {
	t.Helper()
	f, err := parseFlags(strings.Fields(line), io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// planOn plans the program as "epl plan --cluster" does, for workers with so many V100 each, and returns the text.
func planOn(t *testing.T, workers, devices string, f flags) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "plan.txt")
	for key, value := range map[string]string{
		"EPL_PLAN_OUT": file, "EPL_PLAN_CLUSTER": workers + "x" + devices + "xV100-32", "EPL_PLAN_SET": "cluster.device_memory=32GiB",
		"EPL_NUM_WORKERS": workers, "EPL_WORKER_INDEX": "0", "EPL_DEVICES_PER_WORKER": devices,
	} {
		t.Setenv(key, value)
	}
	if _, err := f.run(io.Discard); err == nil || !strings.Contains(err.Error(), "EPL_PLAN_OUT is set") {
		t.Fatalf("%+v", err)
	}
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// The tutorial shows these.
func TestTheTutorialShowsWhatEPLChooses(t *testing.T) {
	for name, c := range map[string]struct{ workers, devices, flags, chosen string }{
		"small": {"1", "4", "", "4 replicas "},
		"wide":  {"1", "4", "-classes 100000 -width 512", "split "},
		"deep":  {"1", "4", "-layers 16 -width 2048 -batch 32", "4 stages, pipeline.strategy=ZeroBubble "},
		"hosts": {"4", "1", "-classes 100000 -width 512", "split of "},
	} {
		t.Run(name, func(t *testing.T) {
			_, after, found := strings.Cut(planOn(t, c.workers, c.devices, parse(t, c.flags)), "\n  ways to run it")
			section, _, _ := strings.Cut("  ways to run it"+after, "\n    samples are")
			if lines := strings.Split(section, "\n"); !found || len(lines) < 3 || !strings.HasPrefix(strings.TrimSpace(lines[2]), c.chosen) {
				t.Fatalf("EPL did not choose %s:\n%s", c.chosen, section)
			}
			got := strings.ReplaceAll("\n"+section, "\n  ", "\n")[1:] + "\n"
			file := filepath.Join("testdata", name+".txt")
			if *update {
				if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			if want, err := os.ReadFile(file); err != nil || !slices.Equal(ways(string(want)), ways(got)) {
				t.Errorf("%s has other ways (%v); run go test -update here, and see docs/auto.md\ngot:\n%s", file, err, got)
			}
		})
	}
}

// ways are the names in a table, in their order. Its numbers are predictions, which change a little with what EPL knows of devices.
func ways(table string) (names []string) {
	for line := range strings.SplitSeq(strings.TrimSpace(table), "\n") {
		name, _, _ := strings.Cut(strings.TrimSpace(line), "  ")
		names = append(names, name)
	}
	return names
}

func TestTheChoiceLearnsWhatOneDeviceLearns(t *testing.T) {
	t.Setenv("EPL_AUTO_GLOBAL_BATCH", "32") // the same samples on all devices
	const model = "-layers 2 -width 32 -classes 40 -batch 8 -steps 6"
	want, err := parse(t, model+" -devices 1").run(io.Discard)
	if err != nil {
		t.Fatalf("%+v", err)
	}
	var out strings.Builder
	got, err := parse(t, model+" -devices 4").run(&out)
	if err != nil {
		t.Fatalf("%+v", err)
	}
	if !strings.Contains(out.String(), "EPL chose: ") || !(math.Abs(float64(got-want)) < 1e-4) {
		t.Errorf("one device ends at a loss of %v, four at %v:\n%s", want, got, &out)
	}
}

func TestWrongFlagsAreOneClearSentence(t *testing.T) {
	for line, want := range map[string]string{
		"-steps 0": "auto: numbers are at least 1; see -help",
		"now":      `auto: there are no arguments, only flags: remove "now", or see -help`,
		"-stage 2": "auto: flag provided but not defined: -stage; see -help",
	} {
		if _, err := parseFlags(strings.Fields(line), io.Discard); err == nil || err.Error() != want {
			t.Errorf("%s: got %v\nwant %s", line, err, want)
		}
	}
}
