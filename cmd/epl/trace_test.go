// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// timelineOf is what worker w of a job of one device each writes: a forward, and a backward, of its stage.
func timelineOf(worker int) string {
	const event = `{"name": "segment", "cat": "run", "ph": "X", "ts": %d, "dur": %d, "pid": %d, "args": {"task": %q, "stage": %[3]d}}`
	forward := fmt.Sprintf(event, 1000*worker, 1000, worker, "forward")
	backward := fmt.Sprintf(event, 4000-2000*worker, 2000, worker, "backward")
	return fmt.Sprintf(`{"traceEvents": [%s, %s], "otherData": {"program": "train", "step": 3, "startUnixNano": "1780000000000000000",
		"pipeline": {"strategy": "PreferBackward", "stages": 2, "groups": 2, "microBatches": 1, "replicas": 1}}}`, forward, backward)
}

// timelines writes the files of two workers, and returns the first one's.
func timelines(t *testing.T) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "trace.json")
	write(t, file, timelineOf(0))
	write(t, strings.Replace(file, ".json", ".worker1.json", 1), timelineOf(1))
	return file
}

func write(t *testing.T, file, text string) {
	t.Helper()
	if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

func TestTracePrintsTheReportAndTheChartOfAllWorkers(t *testing.T) {
	file := timelines(t)
	status, stdout, stderr := epl(t, "trace", file, "--width", "70")
	const want = `train, step 3: PreferBackward, 2 stages, 1 micro-batch
bubble 50.0% measured, 50.0% ideal
Times of 2 workers, each on the clock of its machine: between machines they may be off by as much as the clocks are.

                                   busy      waiting        idle      communication  exposed
replica 0 · stage 0 · device 0  3.00 ms 50%     0 ms 0%  3.00 ms 50%           0 ms     0 ms
replica 0 · stage 1 · device 1  3.00 ms 50%     0 ms 0%  3.00 ms 50%           0 ms     0 ms
all                             6.00 ms 50%     0 ms 0%  6.00 ms 50%           0 ms     0 ms

replica 0 · stage 0 · device 0 |F0----                   B0==========|
replica 0 · stage 1 · device 1 |      F0----B0===========            |
                                0                             6.00 ms

F forward, B backward, numbers are micro-batches; blank is idle
`
	says := fmt.Sprintf("epl: with the other workers' %s\n", strings.Replace(file, ".json", ".worker1.json", 1))
	if status != 0 || stdout != want || stderr != says {
		t.Errorf("status %d, stderr %q, stdout:\n%s", status, stderr, stdout)
	}
}

func TestTraceTakesOnlyTheFilesThatAreGivenIfThereAreSeveral(t *testing.T) {
	file := timelines(t)
	write(t, strings.Replace(file, ".json", ".worker2.json", 1), "of an earlier job")
	status, stdout, stderr := epl(t, "trace", file, strings.Replace(file, ".json", ".worker1.json", 1))
	if status != 0 || !strings.Contains(stdout, "bubble 50.0%") || stderr != "" {
		t.Errorf("status %d, stderr %q, stdout:\n%s", status, stderr, stdout)
	}
	status, stdout, stderr = epl(t, "trace", strings.Replace(file, ".json", ".worker1.json", 1))
	if status != 0 || strings.Contains(stdout, "device 0") || stderr != "" {
		t.Errorf("another worker's file alone: status %d, stderr %q, stdout:\n%s", status, stderr, stdout)
	}
}

func TestTraceWritesPictures(t *testing.T) {
	file := timelines(t)
	for name, begins := range map[string]string{"out.svg": "<svg ", "out.html": "<!doctype html>", "OUT.HTML": "<!doctype html>", "all.json": "{"} {
		out := filepath.Join(t.TempDir(), name)
		status, stdout, stderr := epl(t, "trace", file, "-o", out, "--width", "777")
		picture, err := os.ReadFile(out)
		if status != 0 || stdout != "" || !strings.HasPrefix(stderr, "epl: with the other workers' ") || err != nil {
			t.Fatalf("%s: status %d, stdout %q, stderr %q, %v", name, status, stdout, stderr, err)
		}
		if !strings.HasPrefix(string(picture), begins) || name != "all.json" && !strings.Contains(string(picture), `width="777"`) || !strings.Contains(string(picture), "device 1") {
			t.Errorf("%s is\n%s", name, picture)
		}
	}
}

func TestTraceMistakesAreMessages(t *testing.T) {
	dir := t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	write(t, at("good.json"), timelineOf(0))
	write(t, at("notes.txt"), "buy milk")
	write(t, at("empty.json"), `{"traceEvents": [], "otherData": {"program": "train"}}`)
	write(t, at("other.json"), strings.Replace(timelineOf(1), `"step": 3`, `"step": 2`, 1))
	for _, test := range []struct {
		name string
		args []string
		want string
	}{
		{"no file", nil, "epl: which timeline? Run the program with EPL_TRACE=trace.json, then: epl trace trace.json\n"},
		{"a wrong flag", []string{"--widht", "3"}, "epl: unknown flag: --widht (did you mean --width?)\n"},
		{"a missing file", []string{at("none.json")}, "epl: the timeline: open " + at("none.json") + ": no such file or directory\n"},
		{"a folder", []string{dir}, "epl: " + dir + ": this is no timeline that EPL_TRACE wrote: read " + dir + ": is a directory\n"},
		{"something else", []string{at("notes.txt")}, "epl: " + at("notes.txt") + ": this is no timeline that EPL_TRACE wrote: invalid character 'b' looking for beginning of value\n"},
		{"nothing in it", []string{at("empty.json")}, "epl: " + at("empty.json") + " has no events: the step that it shows did nothing\n"},
		{"of different steps", []string{at("good.json"), at("other.json")}, "epl: " + at("good.json") + ", " + at("other.json") +
			": timelines of step 3 of program \"train\" and of step 2 of program \"train\" do not belong together; give the files of one job\n"},
		{"another kind of picture", []string{at("good.json"), "-o", "out.png"}, "epl: -o out.png: a picture is .svg, .html or .json\n"},
		{"a step that is not there", []string{at("good.json"), "--step", "4"}, "epl: " + at("good.json") + " has the steps 3 to 3, and not step 4\n"},
		{"a step before the first", []string{at("good.json"), "--step", "0"}, "epl: --step 0: the first step is 1\n"},
		{"no width", []string{at("good.json"), "--width", "0"}, "epl: --width 0 must be from 1 to 20000\n"},
		{"too much width", []string{at("good.json"), "--width", "1000000000"}, "epl: --width 1000000000 must be from 1 to 20000\n"},
		{"a place that is not there", []string{at("good.json"), "-o", at("none/out.svg")}, "epl: -o: open " + at("none/out.svg") + ": no such file or directory\n"},
	} {
		t.Run(test.name, func(t *testing.T) {
			status, stdout, stderr := epl(t, append([]string{"trace"}, test.args...)...)
			code := 1
			switch test.name {
			case "no file", "a wrong flag", "another kind of picture", "no width", "too much width":
				code = 2 // of the command line
			}
			if status != code || stdout != "" || stderr != test.want {
				t.Errorf("status %d, stdout %q, stderr:\n%s", status, stdout, stderr)
			}
		})
	}
}

func TestTraceDiffPutsAPredictionBesideWhatRan(t *testing.T) {
	measured := timelines(t)
	predicted := filepath.Join(t.TempDir(), "predicted.json")
	const event = `{"name": "segment", "cat": "run", "ph": "X", "ts": %d, "dur": %d, "pid": 0, "args": {"task": %q}}`
	write(t, predicted, fmt.Sprintf(`{"traceEvents": [`+event+`, `+event+`], "otherData": {"program": "train", "step": 1, "predicted": true}}`,
		0, 1000, "forward", 2000, 1000, "backward"))
	status, stdout, stderr := epl(t, "trace", "diff", predicted, measured, "--width", "70")
	for _, want := range []string{"step predicted 3.00 ms, measured 6.00 ms: 2.00×", "backward       1  1    1.00 ms   2.00 ms  2.00×", "1 of them, from device 1", "device 0, measured "} {
		if status != 0 || !strings.Contains(stdout, want) {
			t.Errorf("status %d, stderr %q, no %q in:\n%s", status, stderr, want, stdout)
		}
	}
	picture := filepath.Join(t.TempDir(), "both.svg")
	if status, _, stderr := epl(t, "trace", "diff", predicted, measured, "-o", picture); status != 0 || stderr != "" {
		t.Errorf("status %d, %q", status, stderr)
	}
	if text, err := os.ReadFile(picture); err != nil || !strings.Contains(string(text), "device 0, predicted") {
		t.Errorf("%v: %s", err, text)
	}
	for want, args := range map[string][]string{"which timelines?": {predicted}, "give the prediction first": {measured, predicted}} {
		if status, _, stderr := epl(t, append([]string{"trace", "diff"}, args...)...); status != 2 || !strings.Contains(stderr, want) {
			t.Errorf("%q: status %d, %q", args, status, stderr)
		}
	}
}
