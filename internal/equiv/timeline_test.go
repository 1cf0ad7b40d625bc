// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package equiv

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/easyparallel/epl"
	"github.com/easyparallel/epl/internal/chrome"
	"github.com/easyparallel/epl/trace"
	"github.com/gomlx/compute"
)

// timelineCase is a way to run, and the kinds of communication it has.
type timelineCase struct {
	workload
	params map[string]any
	ops    []string
}

func timelineCases() []timelineCase {
	mlp := Model{"mlp", MLP(2, 16, false), Models()[0].Loss, Regression(8, 8)}
	replicas := func(n, micro int) workload { return replicated(staged(mlp), n, micro) }
	parted := partedModel("mlp")
	return []timelineCase{
		{replicas(2, 1), nil, []string{"all-reduce"}},
		{replicas(1, 1), nil, nil},
		{replicas(1, 3), nil, nil},
		{replicas(3, 2), map[string]any{"communication.fp16": true}, []string{"all-reduce"}},
		{replicas(2, 2), map[string]any{"zero.level": "v0"}, []string{"all-reduce"}},
		{replicas(2, 2), map[string]any{"zero.level": "v1"}, []string{"reduce-scatter"}},
		{replicas(3, 2), map[string]any{"zero.level": "v2"}, []string{"reduce-scatter", "all-gather"}},
		{replicas(2, 2), map[string]any{"offload.level": "v0"}, []string{"all-reduce", "load", "store"}},
		{replicas(2, 1), map[string]any{"gradient_checkpoint.type": "auto", "zero.level": "v2"}, []string{"reduce-scatter", "all-gather"}},
		{inStages(stagedMLP(), pipelinePlan{stages: 3, replicas: 1, micro: 4, strategy: "PreferBackward"}), nil, []string{"send"}},
		{inStages(stagedMLP(), pipelinePlan{stages: 2, replicas: 2, micro: 3, strategy: "PreferForward"}), map[string]any{"zero.level": "v1"}, []string{"send", "reduce-scatter"}},
		{inStages(stagedMLP(), pipelinePlan{stages: 4, replicas: 1, micro: 3, strategy: "Interleaved", perDevice: 2}), nil, []string{"send"}},
		{inStages(stagedMLP(), pipelinePlan{stages: 2, replicas: 2, micro: 3, strategy: "ZeroBubble"}), nil, []string{"send", "all-reduce"}},
		{inParts(parted, parted.whole(2, 1, 2)), nil, []string{"all-reduce"}},
		{inParts(parted, parted.whole(2, 2, 1)), map[string]any{"zero.level": "v0"}, []string{"all-reduce"}},
		{inParts(parted, splitPlan{parts: []int{2, 2}, replicas: 1, micro: 3}), nil, []string{"send"}},
	}
}

// What a timeline says must add up, Perfetto must show all of it, and writing it must change nothing.
func TestTimelinesNestFlowAndAddUp(t *testing.T) {
	for _, c := range timelineCases() {
		t.Run(fmt.Sprint(c.name, " ", c.params), func(t *testing.T) {
			plain := c.run(t, c.params, sgd(), 4)
			file := filepath.Join(t.TempDir(), "trace.json")
			t.Setenv(epl.EnvTrace, file)
			t.Setenv(epl.EnvTraceSteps, "2:4")
			traced := c.run(t, c.params, sgd(), 4)
			if err := CloseWeights(plain, traced, 1e-6); err != nil {
				t.Error(err)
			}
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			check, err := chrome.Check(bytes.NewReader(text))
			if err != nil {
				t.Fatal(err)
			}
			steps, err := trace.ReadAll(bytes.NewReader(text))
			if err != nil {
				t.Fatal(err)
			}
			if len(steps) != 3 || steps[0].Number != 2 || steps[2].Number != 4 {
				t.Fatalf("there are %d steps, the first is step %d", len(steps), steps[0].Number)
			}
			if check.Overlaps != 0 {
				t.Errorf("%d pairs of slices overlap", check.Overlaps)
			}
			if pipeline := slices.Contains(c.ops, "send"); (check.Flows > 0) != pipeline {
				t.Errorf("%d arrows from sends to receives", check.Flows)
			}
			for _, s := range steps {
				checkStep(t, s, c.ops)
			}
			for _, use := range []string{"weights", "activations", "gradients"} {
				if n := check.Counters["0 memory "+use]; n < 3*3 {
					t.Errorf("%d samples of the memory for %s", n, use)
				}
			}
		})
	}
}

// checkStep checks what one step adds up to.
func checkStep(t *testing.T, s *trace.Step, ops []string) {
	t.Helper()
	r := s.Report()
	var sum trace.Times
	for _, d := range r.Devices {
		if d.Busy <= 0 || d.Waiting < 0 || d.Idle < 0 || d.Busy+d.Waiting+d.Idle != r.Span {
			t.Errorf("step %d: device %d was %+v of %s", s.Number, d.Device, d.Times, r.Span)
		}
		if d.Exposed > d.Communication || d.Exposed > d.Waiting+d.Idle {
			t.Errorf("step %d: device %d: more is exposed than there is: %+v", s.Number, d.Device, d.Times)
		}
		sum.Busy += d.Busy
		done, awaited := map[string]bool{}, map[string]bool{}
		products := 0
		for _, e := range s.Events() {
			if e.Device == d.Device {
				if e.Kind == trace.Kernel && e.Op == "product" && e.Flops > 0 && e.Bytes > 0 {
					products++
				}
				done[e.Task.Kind] = true
				awaited[e.Op] = awaited[e.Op] || e.Kind == trace.Wait
			}
		}
		if products == 0 && os.Getenv(compute.ConfigEnvVar) == "" {
			t.Errorf("step %d: device %d shows no products", s.Number, d.Device)
		}
		for _, op := range ops { // waiting is not being idle
			if !awaited[op] && op != "send" && op != "store" { // one device receives, or stores, for another
				t.Errorf("step %d: device %d does not say that it waits for %s", s.Number, d.Device, op)
			}
		}
		for _, kind := range []string{trace.Forward, trace.Backward} {
			if !done[kind] && !(kind == trace.Backward && done[trace.Weights]) {
				t.Errorf("step %d: device %d shows no %s", s.Number, d.Device, kind)
			}
		}
		if done[trace.Instance] {
			t.Errorf("step %d: device %d does not tell forward and backward apart", s.Number, d.Device)
		}
	}
	if sum.Busy != r.Total.Busy {
		t.Errorf("step %d: devices were busy for %s, and all of them for %s", s.Number, sum.Busy, r.Total.Busy)
	}
	var seen []string
	for _, x := range r.Traffic {
		seen = append(seen, x.Op)
		if x.Op == "" || x.Calls < 1 || x.Bytes < 1 && x.Op != "barrier" || x.Time <= 0 || x.Exposed > x.Time {
			t.Errorf("step %d: %+v", s.Number, x)
		}
	}
	for _, op := range ops {
		if !slices.Contains(seen, op) {
			t.Errorf("step %d: no %s among %v", s.Number, op, seen)
		}
	}
	if len(r.Devices) == 1 && len(seen) > 0 {
		t.Errorf("step %d: one device communicates: %v", s.Number, seen)
	}
}

func TestStepsOfATimelineThatCannotBeChosenAreRefused(t *testing.T) {
	for name, c := range map[string]struct {
		file, steps string
		want        []string
	}{
		"no file":    {"", "3:6", []string{`EPL_TRACE_STEPS="3:6"`, "EPL_TRACE=trace.json"}},
		"no numbers": {"trace.json", "soon", []string{"EPL_TRACE_STEPS", `"soon"`, "as in 3:6"}},
		"backwards":  {"trace.json", "6:3", []string{"EPL_TRACE_STEPS", "ends before it begins"}},
		"too many":   {"trace.json", "1:5000", []string{"EPL_TRACE_STEPS", "at most 100"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Setenv(epl.EnvTrace, c.file)
			t.Setenv(epl.EnvTraceSteps, c.steps)
			_, err := epl.Init(nil)
			mustFail(t, err, c.want...)
		})
	}
}

var memoryBand = regexp.MustCompile(`<rect class="(forward|backward)" x="[^"]*" y="[^"]*" width="([^"]*)"`)

// Devices that split a model run first what waits for nobody, some of backward included: that is no backward of its own.
func TestTheStripOfMemoryTellsForwardFromBackwardUnderSplit(t *testing.T) {
	parted := partedModel("mlp")
	for _, micro := range []int{1, 2} {
		dir := t.TempDir()
		t.Setenv(epl.EnvDump, dir)
		inParts(parted, parted.whole(2, 1, micro)).run(t, nil, sgd(), 1)
		pages, err := filepath.Glob(filepath.Join(dir, "01-*.html"))
		if err != nil || len(pages) != 1 {
			t.Fatalf("%v, %v", pages, err)
		}
		page, err := os.ReadFile(pages[0])
		if err != nil {
			t.Fatal(err)
		}
		panels := strings.Split(string(page), `<g transform="translate(`)[1:]
		if len(panels) != 1 || !strings.Contains(panels[0], "devices 0 1") { // they do the same
			t.Fatalf("%d groups of devices are shown", len(panels))
		}
		for device, panel := range panels {
			bands, width := map[string]int{}, map[string]float64{}
			panel, _, _ = strings.Cut(panel, `class="peak"`) // a legend follows
			for _, m := range memoryBand.FindAllStringSubmatch(panel, -1) {
				w, err := strconv.ParseFloat(m[2], 64)
				if err != nil {
					t.Fatal(err)
				}
				bands[m[1]]++
				width[m[1]] += w
			}
			if bands["forward"] != micro || bands["backward"] != micro || width["forward"] < width["backward"]/4 {
				t.Errorf("%d micro-batches, device %d: %v bands are %v wide", micro, device, bands, width)
			}
		}
	}
}

func init() {
	parts["traced"] = func(w *part) error {
		file := filepath.Join(w.folder, "trace.json")
		if err := errors.Join(os.Setenv(epl.EnvTrace, file), os.Setenv(epl.EnvTraceSteps, "2:3")); err != nil {
			return err
		}
		return w.pipeline(stagedMLP(), 2, 2, 3, nil)
	}
	parts["other timeline"] = func(w *part) error {
		if os.Getenv("EPL_WORKER_INDEX") == "0" {
			if err := os.Setenv(epl.EnvTrace, filepath.Join(w.folder, "trace.json")); err != nil {
				return err
			}
		}
		_, err := w.init(nil)
		return err
	}
}

// Each worker writes a file; an arrow that leads from one to another is there when they are joined.
func TestTimelinesOfWorkersAreJoinedWithTheirArrows(t *testing.T) {
	w := workers{num: 2, devices: 1, hosts: "a,b"}
	folder := t.TempDir()
	var commands []*exec.Cmd
	for i := range w.num {
		cmd := w.command(t, folder, "traced", i)
		cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
		commands = append(commands, cmd)
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
	}
	for i, cmd := range commands {
		if err := cmd.Wait(); err != nil {
			t.Fatalf("worker %d: %v", i, err)
		}
	}
	var steps []*trace.Step
	for _, name := range []string{"trace.json", "trace.worker1.json"} {
		text, err := os.ReadFile(filepath.Join(folder, name))
		if err != nil {
			t.Fatal(err)
		}
		if check, err := chrome.Check(bytes.NewReader(text)); err != nil || check.Overlaps != 0 || check.Flows != 0 {
			t.Errorf("%s: %+v, %v", name, check, err)
		}
		all, err := trace.ReadAll(bytes.NewReader(text))
		if err != nil || len(all) != 2 {
			t.Fatalf("%s has %d steps, %v", name, len(all), err)
		}
		steps = append(steps, all[1])
	}
	joined, err := trace.Join(steps...)
	if err != nil {
		t.Fatal(err)
	}
	var all bytes.Buffer
	if err := joined.WriteChrome(&all); err != nil {
		t.Fatal(err)
	}
	// A value goes forward and a gradient comes back in each micro-batch; results go to the worker that lacks them.
	if check, err := chrome.Check(&all); err != nil || check.Flows < 2*3 {
		t.Errorf("joined: %+v, %v", check, err)
	}
	checkStep(t, joined, []string{"send"})
}

func TestWorkersOfWhichOnlyOneHasATimelineAreRefused(t *testing.T) {
	failing(t, workers{num: 2, devices: 1}, "other timeline", "timeline (EPL_TRACE, EPL_TRACE_STEPS)", "worker 0", "worker 1", "none")
}
