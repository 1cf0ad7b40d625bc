// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package trace_test

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/easyparallel/epl/internal/chrome"
	"github.com/easyparallel/epl/trace"
)

func TestATimelineIsReadAsItWasWritten(t *testing.T) {
	golden(t, "small.json", written(t, small()))
	rng := rand.New(rand.NewPCG(1, 2))
	kinds := []trace.Kind{trace.Run, trace.Wait, trace.Communicate, trace.Data, trace.Launch, trace.Receive, trace.Kernel}
	tasks := []string{trace.Forward, trace.Backward, trace.Weights, trace.Instance, trace.Accumulate, trace.Apply}
	for range 50 {
		s := &trace.Step{Program: "a \"b\" <c> \u2028", Number: rng.IntN(9), Workers: rng.IntN(3)}
		if rng.IntN(2) == 0 {
			s.Pipeline = trace.Pipeline{Strategy: "ZeroBubble", Stages: rng.IntN(9), Groups: rng.IntN(9), MicroBatches: rng.IntN(9), Replicas: 1}
		}
		for range rng.IntN(30) {
			start := zero.Add(time.Duration(rng.Int64N(1e12))).Local()
			e := trace.Event{Device: rng.IntN(5), Lane: rng.IntN(3), Kind: kinds[rng.IntN(len(kinds))], Name: "x", Start: start,
				End: start.Add(time.Duration(rng.Int64N(1e12))), Bytes: rng.Int64N(2) * rng.Int64(), Op: []string{"", "all-gather"}[rng.IntN(2)]}
			if e.Kind == trace.Run && rng.IntN(3) > 0 {
				e.Task = trace.Task{Kind: tasks[rng.IntN(len(tasks))], Stage: rng.IntN(3), Micro: rng.IntN(3) - 1, Replica: rng.IntN(2)}
			}
			if e.Kind == trace.Kernel {
				e.Flops = rng.Int64N(1e12)
			}
			s.Note(e)
		}
		got, err := trace.Read(strings.NewReader(written(t, s)))
		if err != nil {
			t.Fatal(err)
		}
		if got.Program != s.Program || got.Number != s.Number || got.Workers != s.Workers || got.Pipeline != s.Pipeline {
			t.Fatalf("%v is read as %v", s, got)
		}
		if want := s.Events(); !reflect.DeepEqual(got.Events(), want) {
			t.Fatalf("events %v are read as %v", want, got.Events())
		}
	}
}

func TestAKernelHasItsSpeed(t *testing.T) {
	s := &trace.Step{Program: "p"}
	s.Add(trace.Event{Lane: 6, Kind: trace.Kernel, Op: "product", Name: "DotGeneral", Start: zero, End: zero.Add(time.Millisecond), Bytes: 3e6, Flops: 1e8})
	text := written(t, s)
	for _, want := range []string{`"name": "product"`, `"what": "DotGeneral"`, `"GB/s": 3`, `"GFLOP/s": 100`, `"name": "kernels"`} {
		if !strings.Contains(text, want) {
			t.Errorf("there is no %s in\n%s", want, text)
		}
	}
}

func TestMemoryAndFlowsAreReadAsTheyWereWritten(t *testing.T) {
	s := small()
	s.Fetched = 5 * time.Millisecond
	s.SetPeak(trace.Peak{Device: 1, Bytes: 1})
	s.NoteSites(trace.Memory{Device: 1, At: ms(3), Bytes: map[string]int64{"model.go:1": 7}})
	s.SetPeak(trace.Peak{Device: 1, Bytes: 9, Held: []trace.Held{{Use: "weights", What: "/w", Tensors: 1, Bytes: 2}, {Use: "activations", Line: "model.go:1", Tensors: 2, Bytes: 7}}})
	got, err := trace.Read(strings.NewReader(written(t, s)))
	if err != nil {
		t.Fatal(err)
	}
	if fmt.Sprint(got.Sites()) != fmt.Sprint(s.Sites()) || len(got.Sites()) != 1 {
		t.Errorf("places of memory %v are read as %v", s.Sites(), got.Sites())
	}
	if len(got.Memory()) != 4 || fmt.Sprint(got.Memory()[3].Bytes) != fmt.Sprint(s.Memory()[3].Bytes) || !got.Memory()[3].At.Equal(s.Memory()[3].At) {
		t.Errorf("memory %v is read as %v", s.Memory(), got.Memory())
	}
	if want := "[{1 9 [{activations  model.go:1  2 7} {weights /w   1 2}]}]"; fmt.Sprint(got.Peaks()) != want || got.Fetched != s.Fetched {
		t.Errorf("peaks %v, and %v", got.Peaks(), got.Fetched)
	}
	if again := written(t, got); again != written(t, s) {
		t.Errorf("written again it is\n%s", again)
	}
	check, err := chrome.Check(strings.NewReader(written(t, s)))
	if err != nil || check.Overlaps != 0 || check.Flows != 3 || check.Async != 2 || check.Counters["1 memory weights"] != 2 {
		t.Errorf("%+v, %v", check, err)
	}
}

func TestAFlowWhoseOtherEndIsAnotherWorkersIsNotWrittenUntilBothAreJoined(t *testing.T) {
	a, b := ofWorkers(small())
	for _, s := range []*trace.Step{a, b} {
		if got, err := chrome.Check(strings.NewReader(written(t, s))); err != nil || got.Flows != 0 {
			t.Errorf("one worker's: %+v, %v", got, err)
		}
	}
	joined, err := trace.Join(a, b)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := chrome.Check(strings.NewReader(written(t, joined))); err != nil || got.Flows != 3 {
		t.Errorf("joined: %+v, %v", got, err)
	}
}

func TestSeveralStepsAreWrittenToOneFileAndReadApart(t *testing.T) {
	first, second := small(), small()
	second.Number = 4
	later := &trace.Step{Program: second.Program, Number: 4, Pipeline: second.Pipeline}
	for _, e := range second.Events() {
		e.Start, e.End = e.Start.Add(time.Second), e.End.Add(time.Second)
		later.Note(e)
	}
	for _, m := range second.Memory() {
		m.At = m.At.Add(time.Second)
		later.NoteMemory(m)
	}
	var w bytes.Buffer
	if err := trace.Write(&w, first, later); err != nil {
		t.Fatal(err)
	}
	if got, err := chrome.Check(bytes.NewReader(w.Bytes())); err != nil || got.Overlaps != 0 || got.Flows != 6 {
		t.Errorf("%+v, %v", got, err)
	}
	steps, err := trace.ReadAll(bytes.NewReader(w.Bytes()))
	if err != nil || len(steps) != 2 {
		t.Fatalf("%d steps, %v", len(steps), err)
	}
	for i, want := range []*trace.Step{first, later} {
		if written(t, steps[i]) != written(t, want) {
			t.Errorf("step %d is read as\n%s", want.Number, text(t, steps[i]))
		}
	}
	if last, err := trace.Read(bytes.NewReader(w.Bytes())); err != nil || last.Number != 4 {
		t.Errorf("the last step is %v, %v", last, err)
	}
	if err := trace.Write(&w); err == nil {
		t.Error("a file without steps was written")
	}
}

func TestRangesOfSteps(t *testing.T) {
	for text, want := range map[string]trace.Range{"3:6": {First: 3, Last: 6}, "5": {First: 5, Last: 5}, " 1 : 1 ": {First: 1, Last: 1}} {
		r, err := trace.ParseRange(text)
		if err != nil || r != want {
			t.Errorf("%q is %v, %v", text, r, err)
		}
	}
	for text, want := range map[string]string{
		"": "are no steps", "a:b": "are no steps", "3:": "are no steps", "3:6:9": "are no steps", "0:3": "the first step is 1",
		"-1": "the first step is 1", "6:3": "ends before it begins", "1:1000": "are 1000 steps, and a timeline has at most 100",
	} {
		if _, err := trace.ParseRange(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", text, err, want)
		}
	}
	r, _ := trace.ParseRange("3:4")
	var got []bool
	for step := 1; step <= 5; step++ {
		has, replaces := r.Has(step)
		if replaces {
			t.Error("steps of a range replace each other")
		}
		got = append(got, has)
	}
	if fmt.Sprint(got) != "[false false true true false]" {
		t.Errorf("3:4 has %v", got)
	}
}

func TestWhatIsNoTimelineIsRefusedWithTheReason(t *testing.T) {
	event := func(fields string) string {
		return `{"otherData": {"program": "p"}, "traceEvents": [{"name": "n", "ph": "X", "cat": "run", ` + fields + `}]}`
	}
	for _, test := range []struct{ text, want string }{
		{``, "it is empty"},
		{`no JSON`, "invalid character 'o' in literal null"},
		{`[]`, "cannot unmarshal array"},
		{`{"traceEvents": [], "otherData": {}} {}`, "something follows the JSON value, at byte 38"},
		{`{}`, "it has no traceEvents"},
		{`{"traceEvents": []}`, "does not say which program"},
		{`{"traceEvents": [], "otherData": {"startUnixNano": "soon"}}`, `its startUnixNano is "soon"`},
		{`{"traceEvents": [], "otherData": {"startUnixNano": "-1"}}`, `its startUnixNano is "-1"`},
		{`{"traceEvents": [], "otherData": {"workers": -1}}`, "it is of -1 workers"},
		{`{"traceEvents": [], "otherData": {"pipeline": {"stages": -2}}}`, "counts below 0"},
		{`{"traceEvents": [], "otherData": {"step": 3, "fetched": -1}}`, "its step 3 waited -1 µs for the dataset"},
		{`{"traceEvents": [], "otherData": {"step": 3}, "peaks": [{"step": 4, "bytes": 7}]}`, "it has a peak of 7 bytes on device 0 in step 4"},
		{`{"traceEvents": [], "otherData": {"step": 3}, "peaks": [{"step": 3, "bytes": 7, "held": [{"bytes": -1}]}]}`, "it has a peak of 7 bytes"},
		{event(`"args": {"sites": [{"line": "model.go:1", "share": 2}]}`), `has a share of 2 in "model.go:1"`},
		{event(`"ph": "b"`), "begins without an id of its own"},
		{event(`"ph": "b", "id2": {"local": "1"}`), "1 of its events do not end"},
		{event(`"ph": "e", "id2": {"local": "1"}`), "ends without having begun"},
		{event(`"ph": "C", "args": {"weights": "many"}`), "counts something else than bytes"},
		{event(`"ph": "C", "pid": -2, "args": {}`), "is of device -2"},
		{event(`"args": [1]`), "has other args"},
		{`{"traceEvents": [], "otherData": {"steps": [{"step": 3, "begin": 5}, {"step": 4, "begin": 1}]}}`, "its step 4 begins before the one before"},
		{event(`"ph": "B"`), `its event 0, "n", has the phase "B"`},
		{event(`"cat": "blink"`), `has the category "blink"`},
		{event(`"pid": -1`), "is of device -1 and lane 0"},
		{event(`"tid": -3`), "is of device 0 and lane -3"},
		{event(`"ts": -1`), "starts at -1 µs"},
		{event(`"ts": 1e300`), "starts at 1e+300 µs"},
		{event(`"dur": 1e13`), "takes 1e+13"},
		{event(`"args": {"bytes": -5}`), "communicates -5 bytes"},
		{event(`"args": {"task": "sleep"}`), `is of the task "sleep"`},
		{event(`"args": {"task": "apply", "stage": -1}`), "is of stage -1"},
		{event(`"args": {"task": "apply", "micro": -2}`), "micro-batch -2"},
	} {
		_, err := trace.Read(strings.NewReader(test.text))
		if err == nil || !strings.HasPrefix(err.Error(), "epl: this is no timeline that EPL_TRACE wrote: ") || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: %v, want %q", test.text, err, test.want)
		}
	}
}

// Whatever is read can be shown, and is read again as the same.
func FuzzRead(f *testing.F) {
	var w bytes.Buffer
	if err := small().WriteChrome(&w); err != nil {
		f.Fatal(err)
	}
	f.Add(w.Bytes())
	f.Add([]byte(`{"traceEvents": [], "otherData": {}}`))
	f.Add([]byte(`{"traceEvents": [{"ph": "X", "cat": "run", "ts": 1e12, "dur": 0.0001, "args": {"task": "weights", "micro": 10000000}}],
		"otherData": {"program": "\u0000\u001b[2J<script>", "workers": 2, "pipeline": {"strategy": "ZeroBubble", "stages": 1000000000, "microBatches": 2}}}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		s, err := trace.Read(bytes.NewReader(text))
		if err != nil {
			return
		}
		again, err := trace.Read(strings.NewReader(written(t, s)))
		if err != nil {
			t.Fatal(err)
		}
		if !reflect.DeepEqual(s.Events(), again.Events()) || s.Pipeline != again.Pipeline {
			t.Errorf("%v is read again as %v", s.Events(), again.Events())
		}
		r := s.Report()
		for _, d := range r.Devices {
			if d.Busy < 0 || d.Waiting < 0 || d.Idle < 0 || d.Busy+d.Waiting+d.Idle != r.Span {
				t.Errorf("device %d: %+v of %s", d.Device, d.Times, r.Span)
			}
		}
		if r.Bubble < 0 || r.Bubble > 1 {
			t.Errorf("a bubble of %g", r.Bubble)
		}
		var out bytes.Buffer
		for _, write := range []func() error{
			func() error { return s.WriteText(&out, 80) },
			func() error { return s.WriteSVG(&out, 800) },
			func() error { return s.WriteHTML(&out, 800) },
		} {
			if err := write(); err != nil {
				t.Fatal(err)
			}
		}
	})
}
