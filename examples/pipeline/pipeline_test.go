// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"errors"
	"flag"
	"io"
	"math"
	"os"
	"path/filepath"
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

func TestEveryPipelineLearnsWhatOneDeviceLearns(t *testing.T) {
	want, err := run(parse(t, "-stages 1 -micro_batches 4 -steps 3"), io.Discard)
	if err != nil {
		t.Fatalf("%+v", err)
	}
	for _, line := range []string{
		"-stages 2 -micro_batches 4",
		"-stages 2 -micro_batches 2 -devices 4",
		"-stages 4 -micro_batches 4 -strategy PreferForward",
		"-stages 3 -micro_batches 4 -strategy PreferBackwardOptimizer",
		"-stages 4 -micro_batches 4 -strategy ZeroBubble",
		"-stages 4 -micro_batches 4 -strategy Interleaved",
		"-stages 2 -micro_batches 4 -devices_per_stage 2",
		"-stages 4 -micro_batches 4 -auto",
	} {
		t.Run(line, func(t *testing.T) {
			got, err := run(parse(t, line+" -steps 3"), io.Discard)
			if err != nil {
				t.Fatalf("%+v", err)
			}
			if len(got) != len(want) {
				t.Fatalf("%d losses", len(got))
			}
			for i := range want {
				if d := math.Abs(float64(want[i] - got[i])); !(d < 1e-3*float64(want[i])) {
					t.Errorf("step %d: the loss is %v, on one device %v", i+1, got[i], want[i])
				}
			}
		})
	}
}

// What documents show of the program: all that it prints but the losses, which depend on how a CPU rounds.
func TestWhatIsPrintedOfAStepIsAsDocumented(t *testing.T) {
	t.Setenv("EPL_PROFILES", t.TempDir()) // what is known of this machine changes times, and the choice
	for name, line := range map[string]string{
		"two":      "",
		"replicas": "-devices 4",
		"auto":     "-auto -stages 4",
		"wide":     "-devices_per_stage 2",
	} {
		t.Run(name, func(t *testing.T) {
			var out bytes.Buffer
			if _, err := run(parse(t, line+" -steps 1"), &out); err != nil {
				t.Fatalf("%+v", err)
			}
			_, got, _ := strings.Cut(out.String(), "\n\n")
			file := filepath.Join("testdata", name+".txt")
			if *update {
				if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			if want, err := os.ReadFile(file); err != nil || string(want) != got {
				t.Errorf("%s differs (%v); run go test -update\ngot:\n%s", file, err, got)
			}
		})
	}
}

func TestWrongFlagsAreOneClearSentence(t *testing.T) {
	for line, want := range map[string]string{
		"-stages 9":                  "pipeline: -stages is 9; the network has 8 blocks, so it can be from 1 to 8",
		"-stages 0":                  "pipeline: -stages is 0; the network has 8 blocks, so it can be from 1 to 8",
		"-auto -devices_per_stage 2": "pipeline: -devices_per_stage is 2; it is at least 1, and 1 with -auto",
		"-devices -1":                "pipeline: -devices is -1; a worker has at least 1",
		"-steps 0":                   "pipeline: -steps is 0; train for at least 1 step",
		"now":                        `pipeline: there are no arguments, only flags: remove "now", or see -help`,
		"-stage 2":                   "pipeline: flag provided but not defined: -stage; see -help",
	} {
		if _, err := parseFlags(strings.Fields(line), io.Discard); err == nil || err.Error() != want {
			t.Errorf("%s: got %v\nwant %s", line, err, want)
		}
	}
	for line, want := range map[string]string{
		"-micro_batches 0": "epl: pipeline.num_micro_batch = 0 (set by code) must be an integer of at least 1",
		"-strategy Fast":   `epl: pipeline.strategy = "Fast" (set by code) must be `,
		"-devices 3":       "epl: 3 devices do not divide into replicas of 2 (stage_0: 1, stage_1: 1); use 2 or 4 devices",
	} {
		if _, err := run(parse(t, line), io.Discard); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v\nwant …%s…", line, err, want)
		}
	}
}

func TestHelpListsTheFlags(t *testing.T) {
	var help bytes.Buffer
	if _, err := parseFlags([]string{"-help"}, &help); !errors.Is(err, flag.ErrHelp) || !strings.Contains(help.String(), "-micro_batches") {
		t.Errorf("-help gives the error %v and prints %s", err, &help)
	}
}
