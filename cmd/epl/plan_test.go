// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

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
)

// The tests start themselves as a program that trains on two devices, and tries again after every error.
func TestMain(m *testing.M) {
	if len(os.Args) > 2 && os.Args[1] == "-stubborn" {
		stubborn(os.Args[2])
	}
	if len(os.Args) > 2 && os.Args[1] == "-slow" {
		slow(os.Args[2])
		return
	}
	os.Exit(runTests(m))
}

func runTests(m *testing.M) int {
	folder, err := os.MkdirTemp("", "epl-examples-")
	if err != nil {
		panic(err)
	}
	defer os.RemoveAll(folder)
	examples.folder = folder
	return m.Run()
}

func stubborn(name string) {
	env, err := epllib.Init(nil, epllib.WithLocalDevices(2))
	if err != nil {
		panic(err)
	}
	build := func(scope *model.Scope, x *graph.Node) *graph.Node {
		return layers.Dense(scope.In("%s", name), x, true, 1)
	}
	for {
		trainer := train.NewTrainer(env.Backend(), model.NewStore(), build, loss.MeanSquaredError,
			epllib.Optimizer(optimizer.StochasticGradientDescent().Done()), nil, nil)
		_, _ = trainer.TrainStep(train.Batch{Inputs: []*tensors.Tensor{tensors.FromShape(shapes.Make(dtypes.Float32, 4, 3))},
			Labels: []*tensors.Tensor{tensors.FromShape(shapes.Make(dtypes.Float32, 4, 1))}})
	}
}

// examples are those that were built, by name, in a folder that TestMain removes.
var examples = struct {
	folder string
	built  map[string]bool
}{built: map[string]bool{}}

// example builds an example, once for all tests.
func example(t *testing.T, name string) string {
	t.Helper()
	program := filepath.Join(examples.folder, name)
	if examples.built[name] {
		return program
	}
	if text, err := exec.Command("go", "build", "-ldflags=-w", "-o", program, "../../examples/"+name).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	examples.built[name] = true
	return program
}

func TestAPlanIsPrintedForDevicesThatDoNotExist(t *testing.T) {
	clearEnvironment(t)
	program := example(t, "pipeline")
	status, stdout, stderr := epl(t, "plan", "--workers", "2", "--devices", "4", "--set", "pipeline.num_micro_batch=6", "--", program)
	if !regexp.MustCompile(`^plan    8 devices = 4 model replicas of 2 devices in 2 stages \(PreferBackward, 14\.3% idle .*\); a step takes 24 batches, 6 micro-batches for each replica
memory  at most [\d.]+ MiB on a device: weights [\d.]+ MiB, .*
traffic a step of a replica: [\d.]+ MiB of gradients merged in \d+ buckets, [\d.]+ KiB sent from device to device

settings
`).MatchString(stdout) {
		t.Errorf("the summary is\n%s", stdout[:min(len(stdout), 500)])
	}
	for _, want := range []string{
		"pipeline.num_micro_batch = 6 (from epl plan --set)", "training step", "8 devices hold 4 model replicas of 2 devices each",
		"6 micro-batches", "memory of a device, predicted",
	} {
		if !strings.Contains(stdout, want) {
			t.Errorf("the plan does not say %q", want)
		}
	}
	if status != 0 || stderr != "" {
		t.Errorf("status %d, stderr %q, stdout:\n%s", status, stderr, stdout)
	}
}

func TestAPlanThatDoesNotFitSaysWhatWouldHelp(t *testing.T) {
	clearEnvironment(t)
	program := example(t, "pipeline")
	_, stdout, _ := epl(t, "plan", "--devices", "2", "--set", "cluster.device_memory=5MiB", "--", program)
	if !strings.Contains(stdout, "; it does not fit into 5.0 MiB (cluster.device_memory)\ntraffic ") {
		t.Errorf("the summary does not say it:\n%s", stdout[:min(len(stdout), 500)])
	}
	if !regexp.MustCompile(`(?s)it does not fit: device \d needs .* and has 5.0 MiB \(cluster.device_memory\).*what would help.*offload.level=v0`).MatchString(stdout) {
		t.Errorf("the plan ends with:\n%s", stdout[max(0, len(stdout)-1500):])
	}
}

func TestAPlanDrawsMemoryOverAStep(t *testing.T) {
	clearEnvironment(t)
	program := example(t, "pipeline")
	file := filepath.Join(t.TempDir(), "memory.svg")
	status, stdout, stderr := epl(t, "plan", "--devices", "2", "--memory", file, "--set", "cluster.device_memory=8MiB", "--", program)
	if status != 0 || stderr != "" || !strings.Contains(stdout, "memory of a device, predicted") {
		t.Errorf("status %d, stderr %q, stdout:\n%s", status, stderr, stdout)
	}
	picture, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"stage 0 · device 0", "stage 1 · device 1", "activations", "8.0 MiB, which a device has", "4 micro-batches"} {
		if !strings.Contains(string(picture), want) {
			t.Errorf("the picture does not say %q", want)
		}
	}
}

func TestAPictureWithoutAPlaceIsRefusedBeforeTheProgramRuns(t *testing.T) {
	clearEnvironment(t)
	dir := t.TempDir()
	folder := filepath.Join(dir, "folder.svg")
	if err := os.Mkdir(folder, 0o755); err != nil {
		t.Fatal(err)
	}
	for file, want := range map[string]string{
		filepath.Join(dir, "memory.png"):         "the picture is an .svg",
		filepath.Join(dir, "none", "memory.svg"): "there is no folder " + filepath.Join(dir, "none"),
		folder:                                   "is a folder; name a file",
	} {
		status, stdout, stderr := epl(t, "plan", "--memory", file, "--", "./no-such-program")
		if status != 2 || stdout != "" || !strings.Contains(stderr, "epl: --memory "+file) || !strings.Contains(stderr, want) {
			t.Errorf("%s: status %d, stdout %q, stderr %q", file, status, stdout, stderr)
		}
	}
}

func TestAProgramWithoutAPlanShowsWhatItPrinted(t *testing.T) {
	clearEnvironment(t)
	for _, c := range []struct {
		status int
		args   []string
		want   []string
	}{
		{2, []string{"plan"}, []string{"epl: which program?"}},
		{1, []string{"plan", "--", "go", "version"}, []string{"go version go", "ended without a training step", "epl.Optimizer"}},
		{1, []string{"plan", "--", "go", "no-such-command"}, []string{"no-such-command", "epl: go made no plan"}},
		{1, []string{"plan", "--", "./no-such-program"}, []string{"no-such-program"}},
		{2, []string{"plan", "--cluster", "", "--", "go", "version"}, []string{"--cluster is empty"}},
		{2, []string{"plan", "--workers", "0", "--", "go", "version"}, []string{"--workers 0", "at least one"}},
		{2, []string{"plan", "--device", "2", "--", "go", "version"}, []string{"epl: unknown flag: --device (did you mean --devices?)"}},
		{2, []string{"plan", "--set", "zero.level", "--", "go", "version"}, []string{"has no value"}},
		{2, []string{"plan", "--set", "", "--", "go", "version"}, []string{`--set "" has no value`}},
		{2, []string{"plan", "--set", "zero.levl=v1", "--", "./no-such-program"}, []string{`did you mean "zero.level"?`}},
		{1, []string{"plan", "go", "version", "--workers", "0"}, []string{"epl: go made no plan"}}, // a flag of the program
	} {
		status, stdout, stderr := epl(t, c.args...)
		if status != c.status || stdout != "" {
			t.Errorf("%v: status %d, stdout %q", c.args, status, stdout)
		}
		for _, want := range c.want {
			if !strings.Contains(stderr, want) {
				t.Errorf("%v: stderr %q does not say %q", c.args, stderr, want)
			}
		}
	}
}

func TestAWrongSettingIsTheProgramsErrorAndNoPlan(t *testing.T) {
	clearEnvironment(t)
	program := example(t, "quickstart")
	status, _, stderr := epl(t, "plan", "--set", "zero.level=v9", "--", program)
	if status != 1 || !strings.Contains(stderr, `zero.level = "v9" (set by epl plan --set) must be`) {
		t.Errorf("status %d, stderr %q", status, stderr)
	}
}

func TestAPlanKeepsWhatTheProgramAndTheEnvironmentSay(t *testing.T) {
	clearEnvironment(t)
	t.Setenv("EPL_ZERO_LEVEL", "v1")
	t.Setenv("EPL_AMP_LEVEL", "O1")
	status, stdout, stderr := epl(t, "plan", "--workers", "3", "--set", "amp.debug_log=true", os.Args[0], "-stubborn", "first")
	for _, want := range []string{
		`zero.level = "v1" (from environment EPL_ZERO_LEVEL)`, "amp.debug_log = true (from epl plan --set)",
		"6 devices hold 6 model replicas", // two each, as the program asks
		"DotGeneral", "computes in float16: it is on the allow list",
	} {
		if !strings.Contains(stdout, want) {
			t.Errorf("the plan does not say %q", want)
		}
	}
	if status != 0 || stderr != "" {
		t.Errorf("status %d, stderr %q, stdout:\n%s", status, stderr, stdout)
	}
}

// A program that would try for ever is ended with its first plan, which is the one that is shown.
func TestAProgramThatGoesOnAfterAnErrorIsEndedWithItsPlan(t *testing.T) {
	clearEnvironment(t)
	program := os.Args[0] + " -stubborn "
	status, stdout, stderr := epl(t, "plan", "sh", "-c", program+"first; "+program+"second")
	if status != 0 || stderr != "" || !strings.Contains(stdout, "/first/dense/weights") || strings.Contains(stdout, "/second") {
		t.Errorf("status %d, stderr %q, stdout:\n%s", status, stderr, stdout)
	}
}

func TestAPlanAsDataIsWrittenComparedAndPinned(t *testing.T) {
	clearEnvironment(t)
	program := example(t, "pipeline")
	dir := t.TempDir()
	described := filepath.Join(dir, "cluster.yaml")
	if err := os.WriteFile(described, []byte("workers:\n- {host: a, devices: 2}\n- {host: b, devices: 2}\ndevice_memory: 64MiB\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	one, four, page := filepath.Join(dir, "one.json"), filepath.Join(dir, "four.json"), filepath.Join(dir, "four.html")
	for _, args := range [][]string{
		{"plan", "--cluster", "1x2", "--json", one, "--", program},
		{"plan", "--cluster", described, "--set", "zero.level=v1", "--json", four, "--html", page, "--", program},
	} {
		if status, stdout, stderr := epl(t, args...); status != 0 || stderr != "" || !strings.HasPrefix(stdout, "plan ") {
			t.Fatalf("%v: status %d, stderr %q, stdout:\n%s", args, status, stderr, stdout)
		}
	}
	html, err := os.ReadFile(page)
	if err != nil || !strings.Contains(string(html), "zero.level") || !strings.Contains(string(html), "epl plan --set") {
		t.Errorf("%v: the page does not say what was set, and by whom", err)
	}
	status, stdout, stderr := epl(t, "plan", "diff", one, four)
	for _, want := range []string{"1 worker with 2 devices", "→ 2 workers with 2 devices each", "zero.level", "model replicas", "memory of the device that needs most"} {
		if status != 0 || stderr != "" || !strings.Contains(stdout, want) {
			t.Errorf("status %d, stderr %q: the difference does not say %q:\n%s", status, stderr, want, stdout)
		}
	}
	if _, stdout, _ := epl(t, "plan", "diff", one, one); stdout != "the plans are the same\n" {
		t.Errorf("a plan differs from itself: %s", stdout)
	}
	status, stdout, _ = epl(t, "plan", "--cluster", "2+2", "--json", "-", "--", program)
	if status != 0 || !strings.HasPrefix(stdout, "{\n  \"version\": 2,") {
		t.Errorf("status %d: standard output is\n%s", status, stdout[:min(len(stdout), 200)])
	}
	for file, want := range map[string]string{one: "model replica", four: "epl: plan " + four + ": the plan is for another cluster"} {
		cmd := exec.Command(program, "-steps", "1")
		cmd.Env = append(os.Environ(), "EPL_PLAN_FILE="+file)
		if text, err := cmd.CombinedOutput(); !strings.Contains(string(text), want) || (err == nil) != (file == one) {
			t.Errorf("%s: %v, and it does not say %q:\n%s", file, err, want, text)
		}
	}
}

func TestTheMemoryOfAProfileIsThatOfDevices(t *testing.T) {
	clearEnvironment(t)
	dir := t.TempDir()
	t.Setenv("EPL_PROFILES", dir)
	text := `{"name": "tiny", "memory": "5MiB", "bandwidth": "1GB/s", "rates": {"dot": 1e9}}`
	if err := os.WriteFile(filepath.Join(dir, "tiny.json"), []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	_, stdout, stderr := epl(t, "plan", "--cluster", "1x2xtiny", "--", example(t, "pipeline"))
	if !strings.Contains(stdout, "it does not fit into 5.0 MiB (cluster.device_memory)") {
		t.Errorf("stderr %q, stdout:\n%s", stderr, stdout)
	}
}

func TestAClusterThatIsNoneIsRefusedBeforeTheProgramRuns(t *testing.T) {
	clearEnvironment(t)
	dir := t.TempDir()
	write := func(name, text string) string {
		file := filepath.Join(dir, name)
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		return file
	}
	for spec, want := range map[string]string{
		"8x":    "such as 8x8",
		"0x8":   "such as 8x8",
		"4+-1":  "such as 8x8",
		"ghost": "such as 8x8",
		write("a.yaml", "workers: [{devices: 0}]"):                        "worker 0 has no devices",
		write("b.yaml", "workers: [{host: a, devices: 1}, {devices: 1}]"): "name the host of every one",
		write("c.yaml", "worker: 3"):                                      "docs/profiles.md",
		"8x8xV100-3":                                                      "there is no profile \"V100-3\"; did you mean V100-32",
	} {
		status, _, stderr := epl(t, "plan", "--cluster", spec, "--", "./no-such-program")
		if status != 2 || !strings.Contains(stderr, want) {
			t.Errorf("%s: status %d, stderr %q", spec, status, stderr)
		}
	}
	for _, args := range [][]string{
		{"plan", "--cluster", "1x2", "--devices", "3", "--", "./no-such-program"},
		{"plan", "--json", "-", "--html", "-", "--", "./no-such-program"},
		{"plan", "diff", "only-one.json"},
	} {
		if status, _, stderr := epl(t, args...); status != 2 {
			t.Errorf("%v: status %d, stderr %q", args, status, stderr)
		}
	}
}
