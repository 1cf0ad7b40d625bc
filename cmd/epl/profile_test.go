// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"iter"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/shapes"
	"github.com/gomlx/gomlx/core/graph"
	"github.com/gomlx/gomlx/core/tensors"
	"github.com/gomlx/gomlx/ml/layers"
	"github.com/gomlx/gomlx/ml/model"
	"github.com/gomlx/gomlx/ml/train"
	"github.com/gomlx/gomlx/ml/train/loss"
	"github.com/gomlx/gomlx/ml/train/optimizer"

	epllib "github.com/easyparallel/epl"
	"github.com/easyparallel/epl/trace"
)

// slow trains with something that makes it slow on purpose: its dataset, a hook, many small all-reduces, or unbalanced stages. "short" and
// "broken" end after 4 steps, and "none" trains nothing.
func slow(how string) {
	settings, last, wide, devices := map[string]any{}, 1<<30, 4, 2
	var pause, hook time.Duration
	switch how {
	case "none":
		return
	case "dataset":
		pause = 100 * time.Millisecond
	case "hook":
		hook = 100 * time.Millisecond
	case "short", "broken":
		last = 4
	case "all-reduces":
		settings["communication.max_splits"], devices = 1000, 4
	case "stages":
		wide, settings["pipeline.num_micro_batch"] = 512, 4
	}
	cfg, err := epllib.NewConfig(settings)
	if err != nil {
		panic(err)
	}
	env, err := epllib.Init(cfg, epllib.WithLocalDevices(devices))
	if err != nil {
		panic(err)
	}
	build := func(scope *model.Scope, x *graph.Node) *graph.Node {
		dense := func(first, last int) func() {
			return func() {
				for i := first; i < last; i++ {
					x = layers.Dense(scope.In("%d", i), x, true, wide)
				}
			}
		}
		if how == "stages" {
			epllib.With(x, epllib.Replicate(1, "first"), dense(0, 1))
			epllib.With(x, epllib.Replicate(1, "second"), dense(1, 8))
			return x
		}
		dense(0, 40)()
		return x
	}
	trainer := train.NewTrainer(env.Backend(), model.NewStore(), build, loss.MeanSquaredError,
		epllib.Optimizer(optimizer.StochasticGradientDescent().Done()), nil, nil)
	loop := train.NewLoop(trainer)
	if hook > 0 {
		loop.OnStep("slow", 0, func(*train.Loop, []*tensors.Tensor) error {
			time.Sleep(hook)
			return nil
		})
	}
	if _, err := loop.RunSteps(env.Dataset(slowBatches{pause, wide}), last); err != nil {
		panic(err)
	}
	if how == "broken" {
		fmt.Println("out of luck")
		os.Exit(3)
	}
}

// slowBatches are batches for ever, each after a pause.
type slowBatches struct {
	pause time.Duration
	wide  int
}

func (slowBatches) Name() string { return "slow" }

func (b slowBatches) Iter() iter.Seq2[train.Batch, error] {
	return func(yield func(train.Batch, error) bool) {
		for more := true; more; {
			time.Sleep(b.pause)
			more = yield(train.Batch{Inputs: []*tensors.Tensor{tensors.FromShape(shapes.Make(dtypes.Float32, 64, b.wide))},
				Labels: []*tensors.Tensor{tensors.FromShape(shapes.Make(dtypes.Float32, 64, b.wide))}}, nil)
		}
	}
}

// Each program is slow on purpose, by far more than anything else that happens on a machine; where threads have to meet that is not certain, and one of three
// profiles is enough. Tests of package trace have timelines made by hand.
func TestAProfileNamesWhyAProgramIsSlow(t *testing.T) {
	if testing.Short() {
		t.Skip("-short leaves out tests that run programs")
	}
	for _, test := range []struct{ how, says string }{
		{"hook", "A hook is slow, or something else that the program does between steps, and it is not the dataset: "},
		{"all-reduces", "Communication is exposed, by many tiny messages: 41 of kind all-reduce in a step, "},
		{"stages", "The stages are unbalanced: stage 1 computes "},
	} {
		t.Run(test.how, func(t *testing.T) {
			clearEnvironment(t)
			for try := range 3 {
				status, stdout, stderr := epl(t, "profile", "--steps", "3:12", "--", os.Args[0], "-slow", test.how)
				switch {
				case status != 0:
					t.Fatalf("status %d, stderr %q", status, stderr)
				case strings.HasPrefix(stdout, test.says):
					return
				case try == 2:
					t.Errorf("it says\n%s", stdout)
				}
			}
		})
	}
}

func TestAProfileNamesASlowDatasetAndWritesItsPage(t *testing.T) {
	clearEnvironment(t)
	flat := `{"name": "flat", "source": "a test", "bandwidth": "1GB/s", "rates": {"dot/float32": 1e9}}`
	if err := os.WriteFile(filepath.Join(os.Getenv("EPL_PROFILES"), "this.json"), []byte(flat), 0o644); err != nil {
		t.Fatal(err)
	}
	page, timeline := filepath.Join(t.TempDir(), "profile.html"), filepath.Join(t.TempDir(), "all.json")
	status, stdout, stderr := epl(t, "profile", "-o", page, "--", os.Args[0], "-slow", "dataset")
	if status != 0 || !strings.HasPrefix(stdout, "The dataset is slow: devices ") {
		t.Fatalf("status %d, stderr %q, stdout:\n%s", status, stderr, stdout)
	}
	for _, want := range []string{"steps 3 to 6, on 2 devices", "\nforward ", "\nwaiting for the dataset ", "\nall-reduce ", "\nproduct ", "\nbackward: DotGeneral ", "\nline of the model ", "\nmemory at the peak of device ", "\nepl/profile_test.go:", "of roofline\n"} {
		if !strings.Contains(stdout, want) {
			t.Errorf("no %q in\n%s", want, stdout)
		}
	}
	text, err := os.ReadFile(page)
	for _, want := range []string{"<!doctype html>", "The dataset is slow: ", "<svg ", "device 1", "Flame graph", "<title>waiting for the dataset"} {
		if err != nil || !strings.Contains(string(text), want) {
			t.Errorf("%v, or no %q in the page", err, want)
		}
	}

	// Fewer steps than asked for, and a failure after them, are said, and what there is is shown.
	status, stdout, stderr = epl(t, "profile", "-o", timeline, "--", os.Args[0], "-slow", "short")
	if status != 0 || !strings.Contains(stdout, "steps 3 to 4") || !strings.HasSuffix(stderr, "epl: the profile ends with step 4, and so did the program\n") {
		t.Errorf("status %d, stderr %q, stdout:\n%s", status, stderr, stdout)
	}
	steps, err := readSteps(timeline)
	if err != nil || len(steps) != 2 || steps[1].Number != 4 || steps[1].Overhead <= 0 {
		t.Errorf("the timeline has %d steps, %v", len(steps), err)
	}
	for _, peak := range steps[1].Peaks() { // all that lives is somebody's, but for gaps between tensors
		known := int64(0)
		for _, h := range peak.Held {
			known += h.Bytes
		}
		if known > peak.Bytes || known < peak.Bytes*9/10 {
			t.Errorf("of %d bytes on device %d it is known where %d come from: %v", peak.Bytes, peak.Device, known, peak.Held)
		}
	}
	if n := len(steps[1].Peaks()); n != 2 {
		t.Errorf("there are peaks of %d devices", n)
	}
	for _, peak := range steps[1].Peaks() { // one of the samples by place is that of the peak, and there are others
		samples := slices.DeleteFunc(steps[1].Sites(), func(m trace.Memory) bool { return m.Device != peak.Device })
		most := int64(0)
		for _, m := range samples {
			sum := int64(0)
			for _, n := range m.Bytes {
				sum += n
			}
			most = max(most, sum)
		}
		if most != peak.Bytes || len(samples) < 3 {
			t.Errorf("%d samples of memory by place on device %d come to %d bytes at most, and the peak is %d", len(samples), peak.Device, most, peak.Bytes)
		}
	}
	status, stdout, stderr = epl(t, "profile", "--", os.Args[0], "-slow", "broken")
	if status != 1 || !strings.Contains(stdout, "steps 3 to 4") || !strings.Contains(stderr, "out of luck\n") || !strings.Contains(stderr, "ends with step 4, since") {
		t.Errorf("status %d, stderr %q, stdout:\n%s", status, stderr, stdout)
	}
}

func TestMistakesOfAProfileAreMessages(t *testing.T) {
	clearEnvironment(t)
	for _, test := range []struct {
		name   string
		args   []string
		status int
		want   string
	}{
		{"no program", nil, 2, "epl: which program? For example: epl profile -- go run ./examples/pipeline\n"},
		{"no steps", []string{"--steps", "soon", "--", "true"}, 2, `epl: --steps "soon" are no steps: write the first and the last one, as in 3:6, or one, as in 5` + "\n"},
		{"another kind of page", []string{"-o", "out.png", "--", "true"}, 2, "epl: -o out.png: a profile is .html, .pprof for go tool pprof, or .json for the timeline\n"},
		{"no folder", []string{"-o", "none/out.html", "--", "true"}, 2, "epl: -o none/out.html: there is no folder none\n"},
		{"no such device", []string{"--device", "Z80", "--", "true"}, 1, `epl: there is no profile "Z80"`},
		{"no such program", []string{"--", "./none"}, 1, "epl: ./none did not train step 3: fork/exec ./none: no such file or directory\n"},
		{"no training", []string{"--", os.Args[0], "-slow", "none"}, 1, "ended before it trained step 3: let it train more steps, or choose others by --steps"},
	} {
		t.Run(test.name, func(t *testing.T) {
			status, stdout, stderr := epl(t, append([]string{"profile"}, test.args...)...)
			if status != test.status || stdout != "" || !strings.Contains(stderr, test.want) {
				t.Errorf("status %d, stdout %q, stderr:\n%s", status, stdout, stderr)
			}
		})
	}
}
