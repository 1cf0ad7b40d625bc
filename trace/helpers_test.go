// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package trace_test

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/easyparallel/epl/trace"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// golden compares with a file, or rewrites it.
func golden(t *testing.T, name, got string) {
	t.Helper()
	file := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("%s differs; if that is meant, run with -update. Got:\n%s", file, got)
	}
}

// zero is when hand-made steps begin.
var zero = time.Date(2026, 7, 1, 12, 0, 0, 123456789, time.UTC)

func ms(n float64) time.Time { return zero.Add(time.Duration(n * 1e6)) }

// order is what a device does, in words: "F0 F1 B0 W0 …", with the stage behind a slash if it has several: "F0/2".
type order []string

// play runs orders as soon as what they need is there, with values that travel at once. Forwards take f milliseconds,
// backwards b, weights w. Devices wait for values of others in Receive events.
func play(s *trace.Step, f, b, w float64, devices ...order) {
	type key struct {
		kind         string
		stage, micro int
	}
	kinds := map[byte]string{'F': trace.Forward, 'B': trace.Backward, 'W': trace.Weights}
	takes := map[string]float64{trace.Forward: f, trace.Backward: b, trace.Weights: w}
	end := map[key]float64{}
	now, next := make([]float64, len(devices)), make([]int, len(devices))
	for done := false; !done; {
		done = true
		for d, list := range devices {
			for next[d] < len(list) {
				k := key{kind: kinds[list[next[d]][0]], stage: d}
				if n, _ := fmt.Sscanf(list[next[d]][1:], "%d/%d", &k.micro, &k.stage); n == 0 {
					panic(list[next[d]])
				}
				needs := key{k.kind, k.stage - 1, k.micro}
				switch k.kind {
				case trace.Backward:
					needs.stage = k.stage + 1
				case trace.Weights:
					needs.stage = -1
				}
				at, ok := end[needs]
				if !ok && needs.stage >= 0 && needs.stage < s.Pipeline.Stages {
					break
				}
				if at > now[d] {
					s.Note(trace.Event{Device: d, Kind: trace.Receive, Op: "send", Name: "from " + fmt.Sprint(needs.stage), Start: ms(now[d]), End: ms(at),
						Flow: fmt.Sprint(needs)})
					s.Note(trace.Event{Device: needs.stage % len(devices), Kind: trace.Launch, Op: "send", Name: "to " + fmt.Sprint(d), Start: ms(at), End: ms(at),
						Flow: fmt.Sprint(needs)})
					now[d] = at
				}
				start := now[d]
				now[d] += takes[k.kind]
				end[k] = now[d]
				s.Note(trace.Event{Device: d, Kind: trace.Run, Name: strings.ToLower(list[next[d]]), Start: ms(start), End: ms(now[d]),
					Task: trace.Task{Kind: k.kind, Stage: k.stage, Micro: k.micro}})
				next[d]++
				done = false
			}
		}
	}
}

// oneForwardOneBackward is the order of PreferBackward for a stage.
func oneForwardOneBackward(stages, stage, micro int) (list order) {
	warm := min(stages-stage, micro)
	for m := range warm {
		list = append(list, fmt.Sprintf("F%d", m))
	}
	for m := range micro {
		list = append(list, fmt.Sprintf("B%d", m))
		if warm+m < micro {
			list = append(list, fmt.Sprintf("F%d", warm+m))
		}
	}
	return list
}

// small is a step of two stages with one of everything.
func small() *trace.Step {
	s := &trace.Step{Program: "train", Number: 3,
		Pipeline: trace.Pipeline{Strategy: "PreferBackward", Stages: 2, Groups: 2, MicroBatches: 3, Replicas: 1}}
	play(s, 1, 2, 0, oneForwardOneBackward(2, 0, 3), oneForwardOneBackward(2, 1, 3))
	s.Note(trace.Event{Kind: trace.Data, Name: "input 0", Start: ms(-0.5), End: ms(0), Bytes: 64})
	for d := range 2 {
		s.Note(trace.Event{Device: d, Lane: 1, Kind: trace.Communicate, Op: "all-reduce", Name: "bucket 0", Start: ms(11), End: ms(13), Bytes: 1 << 20})
		s.Note(trace.Event{Device: d, Kind: trace.Wait, Op: "all-reduce", Name: "bucket 0", Start: ms(12), End: ms(13)})
		s.NoteMemory(trace.Memory{Device: d, At: ms(0), Bytes: map[string]int64{"weights": 1 << 20, "activations": 0}})
		s.NoteMemory(trace.Memory{Device: d, At: ms(5), Bytes: map[string]int64{"weights": 1 << 20, "activations": 1 << 10}})
		s.Note(trace.Event{Device: d, Kind: trace.Run, Name: "apply", Start: ms(13), End: ms(13.75),
			Task: trace.Task{Kind: trace.Apply, Stage: d, Micro: -1}})
	}
	return s
}

func written(t *testing.T, s *trace.Step) string {
	t.Helper()
	var w bytes.Buffer
	if err := s.WriteChrome(&w); err != nil {
		t.Fatal(err)
	}
	return w.String()
}
