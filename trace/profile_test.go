// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package trace_test

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/easyparallel/epl/trace"
)

// replicas are steps of two devices that compute for some milliseconds each, all-reduce a number of buckets of so many bytes
// for some more while nothing is computed, and do nothing at all between steps.
func replicas(compute [2]float64, buckets int, bytes int64, reduce, gap float64) (steps []*trace.Step) {
	at := 0.0
	for n := range 4 {
		s := &trace.Step{Program: "train", Number: 3 + n, Pipeline: trace.Pipeline{Strategy: "PreferBackward", Stages: 1, Groups: 1, MicroBatches: 1, Replicas: 2}}
		joint := at + max(compute[0], compute[1])
		end := joint + reduce
		for d, busy := range compute {
			s.Note(trace.Event{Device: d, Kind: trace.Run, Name: "run", Start: ms(at), End: ms(at + busy), Task: trace.Task{Kind: trace.Backward, Replica: d}})
			s.Note(trace.Event{Device: d, Lane: 6, Kind: trace.Kernel, Op: "product", Name: "DotGeneral 64×64×64", Start: ms(at), End: ms(at + 0.75*busy), Flops: 1 << 19, Bytes: 1 << 14,
				Sites: []trace.Site{{Line: "mlp/model.go:12", TaskGraph: "body", Scope: "/body/dense", Share: 1}}})
			s.Note(trace.Event{Device: d, Lane: 6, Kind: trace.Kernel, Op: "group", Name: "Add Max", Start: ms(at + 0.75*busy), End: ms(at + busy), Bytes: 1 << 14,
				Sites: []trace.Site{{Line: "mlp/model.go:12", TaskGraph: "body", Scope: "/body/dense", Share: 0.75}, {Line: "mlp/model.go:20", TaskGraph: "head", Scope: "/head", Share: 0.25}}})
			s.Note(trace.Event{Device: d, Kind: trace.Wait, Op: "all-reduce", Name: "bucket 0", Start: ms(at + busy), End: ms(end)})
			for b := range buckets {
				each := (end - at - busy) / float64(buckets)
				from := at + busy + float64(b)*each
				s.Note(trace.Event{Device: d, Lane: 1, Kind: trace.Communicate, Op: "all-reduce", Start: ms(from), End: ms(from + each), Bytes: bytes})
			}
		}
		steps = append(steps, s)
		at = end + gap
	}
	return steps
}

// pipelined is a step of two stages that are as long as they are.
func pipelined(micro int, work [2]float64) []*trace.Step {
	s := &trace.Step{Program: "train", Number: 3, Pipeline: trace.Pipeline{Strategy: "PreferForward", Stages: 2, Groups: 2, MicroBatches: micro, Replicas: 1}}
	at := 0.0
	add := func(stage, m int, kind string) {
		s.Note(trace.Event{Device: stage, Kind: trace.Run, Name: kind, Start: ms(at), End: ms(at + work[stage]), Task: trace.Task{Kind: kind, Stage: stage, Micro: m}})
		s.Note(trace.Event{Device: 1 - stage, Kind: trace.Receive, Op: "send", Start: ms(at), End: ms(at + work[stage])})
		at += work[stage]
	}
	for m := range micro { // one at a time
		add(0, m, trace.Forward)
		add(1, m, trace.Forward)
		add(1, m, trace.Backward)
		add(0, m, trace.Backward)
	}
	return []*trace.Step{s}
}

func profile(t *testing.T, workers ...[]*trace.Step) *trace.Profile {
	t.Helper()
	p, err := trace.NewProfile(workers...)
	if err != nil {
		t.Fatal(err)
	}
	var sum time.Duration
	for _, part := range p.Parts {
		sum += part.Time
	}
	if sum != p.Total {
		t.Errorf("the parts come to %v of %v: %v", sum, p.Total, p.Parts)
	}
	return p
}

// Programs that are slow on purpose: the first sentence names why, and there are at most three.
func TestAProfileNamesTheLargestCauseFirst(t *testing.T) {
	offloaded := replicas([2]float64{2, 2}, 1, 1<<20, 8, 0)
	for _, s := range offloaded {
		for i := range s.Events() {
			s.Change(i, func(e *trace.Event) {
				if e.Op == "all-reduce" {
					e.Op = "load"
				}
			})
		}
	}
	fed := replicas([2]float64{2, 2}, 1, 1<<20, 0, 8)
	for i, s := range fed[1:] {
		for d := range 2 {
			_, end := ms(0), ms(float64(10*i)+10)
			s.Note(trace.Event{Device: d, Kind: trace.Data, Name: "input 0", Start: ms(float64(10*i) + 2), End: end, Bytes: 64})
		}
	}
	fetched := func(each, gap float64) []*trace.Step { // how much of the time between steps was the dataset's
		steps := replicas([2]float64{2, 2}, 2, 1<<20, 1, gap)
		for _, s := range steps[1:] {
			s.Fetched = ms(each).Sub(ms(0))
		}
		return steps
	}
	instant := pipelined(4, [2]float64{1, 1})
	for name, test := range map[string]struct {
		steps      []*trace.Step
		first, has string
	}{
		"tiny all-reduces":             {replicas([2]float64{2, 2}, 40, 100, 6, 0.5), "Communication is exposed, by many tiny messages: 40 of kind all-reduce in a step, 100 B each on average, for which devices wait 72% ", " smaller communication.max_splits"},
		"large gradients":              {replicas([2]float64{2, 2}, 4, 64<<20, 6, 0.5), "Communication is exposed: devices wait for it for 72% of their time, mostly for all-reduce of 256 MiB in a step.", "A larger batch"},
		"few small ones":               {replicas([2]float64{2, 2}, 2, 100, 6, 0.5), "Communication is exposed: ", "A larger batch"},
		"a slow device":                {replicas([2]float64{9, 2}, 40, 100, 0.1, 0), "The devices are unbalanced: device 0 computes 1.6 times as long ", "smaller share"},
		"offloading":                   {offloaded, "Offloading is exposed: ", "Offload less"},
		"unbalanced":                   {pipelined(4, [2]float64{1, 6}), "The stages are unbalanced: stage 1 computes 1.7 times as long ", "Move layers from stage 1 to stage 0,"},
		"a bubble":                     {instant, "The pipeline has a bubble: its stages are balanced, and devices wait for each other for 50% of their time, with 4 micro-batches on 2 stages.", "pipeline.num_micro_batch"},
		"a slow dataset":               {replicas([2]float64{2, 2}, 2, 1<<20, 1, 12), "The dataset is slow, or something else that the program does between steps: devices have nothing to do for 75% ", "ahead of time"},
		"a slow dataset that is known": {fetched(11, 12), "The dataset is slow: devices spend 75% ", "ahead of time"},
		"a slow hook":                  {fetched(1, 12), "A hook is slow, or something else that the program does between steps, and it is not the dataset: devices have nothing to do for 75% ", "less often"},
		"slow batches":                 {fed, "The dataset is slow: devices spend ", "ahead of time"},
		"short steps":                  {replicas([2]float64{0.1, 0.1}, 2, 100, 0.01, 0.3), "The steps are short: ", "A larger batch"},
		"two causes":                   {replicas([2]float64{2, 2}, 40, 100, 4, 8), "The dataset is slow, ", "The next largest loss is communication that computation does not hide: 33%."},
		"computation":                  {replicas([2]float64{9, 9}, 2, 100, 0.1, 0.5), "The devices compute for 95% of their time, and no loss stands out. Ops of kind product take 75% of what ops take, most of all DotGeneral 64×64×64 (75% of it); of lines, mlp/model.go:12 takes most (94%).", "amp.level"},
	} {
		t.Run(name, func(t *testing.T) {
			says := profile(t, test.steps).Advice()
			if !strings.HasPrefix(says, test.first) || !strings.Contains(says, test.has) {
				t.Errorf("it says %q", says)
			}
			if n := strings.Count(says+" ", ". "); n < 2 || n > 3 {
				t.Errorf("%d sentences: %q", n, says)
			}
		})
	}
}

// Writing a timeline takes time between steps, which is not the program's.
func TestAProfileDoesNotBlameTheProgramForItsTimeline(t *testing.T) {
	steps := replicas([2]float64{9, 9}, 2, 100, 0.1, 12)
	for _, s := range steps[1:] {
		s.Overhead = 12 * time.Millisecond
	}
	var file bytes.Buffer
	if err := trace.Write(&file, steps...); err != nil {
		t.Fatal(err)
	}
	read, err := trace.ReadAll(&file)
	if err != nil {
		t.Fatal(err)
	}
	if says := profile(t, read).Advice(); !strings.HasPrefix(says, "The devices compute for 99% ") {
		t.Errorf("it says %q", says)
	}
}

// Each worker's times are on its own clock, and they are not compared.
func TestAProfileAddsUpWorkersWithClocksOfTheirOwn(t *testing.T) {
	var workers [2][]*trace.Step
	for w := range workers {
		for _, s := range replicas([2]float64{2, 2}, 2, 1<<20, 1, 12) {
			peak := []trace.Held{{Use: "activations", What: "Add", Line: "mlp/model.go:12", Tensors: 2, Bytes: 3 << 20}, {Use: "weights", What: "/body/dense/w", Scope: "/body/dense", Tensors: 1, Bytes: 1 << 20}}
			own := &trace.Step{Program: s.Program, Number: s.Number, Pipeline: s.Pipeline, Fetched: 11 * time.Millisecond}
			for _, e := range s.Events() {
				if e.Device == w {
					e.Start, e.End = e.Start.Add(time.Duration(w)*time.Hour), e.End.Add(time.Duration(w)*time.Hour)
					own.Note(e)
				}
			}
			own.SetPeak(trace.Peak{Device: w, Bytes: int64(4+w) << 20, Held: peak})
			workers[w] = append(workers[w], own)
		}
	}
	p := profile(t, workers[0], workers[1])
	p.Against(func(flops, bytes float64) time.Duration { return time.Duration(max(flops, 10*bytes)) }) // 1 GFLOP/s and 0.1 GB/s
	var text bytes.Buffer
	if err := p.WriteText(&text); err != nil {
		t.Fatal(err)
	}
	golden(t, "profile.txt", text.String())
	if p.Devices != 2 || p.Steps != 4 || p.Total != 2*(4*3+3*12)*time.Millisecond {
		t.Errorf("%d devices, %d steps, %v", p.Devices, p.Steps, p.Total)
	}
}

func TestAProfileOfAPipelineHasItsStagesAndSaysThatOpsAreNotKnown(t *testing.T) {
	p := profile(t, pipelined(4, [2]float64{1, 6}))
	var text bytes.Buffer
	if err := p.WriteText(&text); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"One step says nothing of the time between steps.", "1            1  24.0 ms   24.0 ms   0 ms           48.0 ms", "no times of single ops"} {
		if !strings.Contains(text.String(), want) {
			t.Errorf("no %q in\n%s", want, &text)
		}
	}
	if len(p.Stages) != 2 || p.Stages[0].Work() != 8*time.Millisecond {
		t.Errorf("the stages are %v", p.Stages)
	}
}

func TestThereIsNoProfileOfNothing(t *testing.T) {
	if _, err := trace.NewProfile([]*trace.Step{{Program: "train", Number: 3}}); err == nil || !strings.Contains(err.Error(), "has no steps") {
		t.Error(err)
	}
}

func TestPprofOpensAProfile(t *testing.T) {
	p := profile(t, replicas([2]float64{8, 8}, 2, 1<<20, 4, 0))
	file := filepath.Join(t.TempDir(), "x.pprof")
	f, err := os.Create(file)
	if err == nil {
		err = p.WritePprof(f)
	}
	if err == nil {
		err = f.Close()
	}
	if err != nil {
		t.Fatal(err)
	}
	pprof := func(flags ...string) string {
		t.Helper()
		out, err := exec.Command("go", slices.Concat([]string{"tool", "pprof", "-unit=ms"}, flags, []string{file})...).CombinedOutput()
		if err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		return regexp.MustCompile(` +`).ReplaceAllString(string(out), " ")
	}
	// Four steps of two devices: products for 6 ms of the 8, and 4 ms of communication. Of 2 ms of a group the head has a quarter.
	for _, test := range []struct{ got, want string }{
		{pprof("-top", "-cum"), "Type: time\n"},
		{pprof("-top", "-cum"), " 64ms 66.67% backward\n"},
		{pprof("-top", "-cum"), "48ms 50.00% 50.00% 48ms 50.00% DotGeneral 64×64×64\n"},
		{pprof("-top", "-cum"), "32ms 33.33% 83.33% 32ms 33.33% communication that nothing hides\n"},
		{pprof("-tags"), " 48ms (50.00%): product\n"},
		{pprof("-traces"), " 4ms Add Max\n mlp/model.go:20\n head\n head\n backward\n"},
		{pprof("-traces"), " 48ms DotGeneral 64×64×64\n mlp/model.go:12\n dense\n body\n body\n backward\n"},
		{pprof("-top", "-cum", "-lines"), "mlp/model.go:12 mlp/model.go:12\n"},
	} {
		if !strings.Contains(test.got, test.want) {
			t.Errorf("there is no %q in:\n%s", test.want, test.got)
		}
	}
}
