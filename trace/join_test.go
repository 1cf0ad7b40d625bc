// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package trace_test

import (
	"strings"
	"testing"

	"github.com/easyparallel/epl/trace"
)

// ofWorkers deals the devices of a step to two workers.
func ofWorkers(s *trace.Step) (a, b *trace.Step) {
	a, b = &trace.Step{Program: s.Program, Number: s.Number, Pipeline: s.Pipeline}, &trace.Step{Program: s.Program, Number: s.Number, Pipeline: s.Pipeline}
	for _, e := range s.Events() {
		[]*trace.Step{a, b}[e.Device%2].Note(e)
	}
	return a, b
}

func TestStepsOfWorkersAreJoinedOnOneTimeAxis(t *testing.T) {
	s := small()
	a, b := ofWorkers(s)
	var read []*trace.Step // through files, which have times of their own
	for _, part := range []*trace.Step{b, a} {
		p, err := trace.Read(strings.NewReader(written(t, part)))
		if err != nil {
			t.Fatal(err)
		}
		read = append(read, p)
	}
	joined, err := trace.Join(read...)
	if err != nil {
		t.Fatal(err)
	}
	s.Workers = 2
	if got, want := text(t, joined), text(t, s); got != want {
		t.Errorf("joined:\n%s\nwant:\n%s", got, want)
	}
	if !strings.Contains(text(t, joined), "Times of 2 workers, each on the clock of its machine") {
		t.Error("nothing is said about clocks")
	}
}

func TestStepsThatDoNotBelongTogetherAreNotJoined(t *testing.T) {
	for _, test := range []struct {
		name   string
		change func(b *trace.Step)
		want   string
	}{
		{"another program", func(b *trace.Step) { b.Program = "evaluate" }, `step 3 of program "train" and of step 3 of program "evaluate"`},
		{"another step", func(b *trace.Step) { b.Number = 2 }, "do not belong together"},
		{"another pipeline", func(b *trace.Step) { b.Pipeline.MicroBatches = 7 }, "different pipelines"},
		{"the same device", func(b *trace.Step) { b.Note(trace.Event{Kind: trace.Run, Start: ms(1), End: ms(2)}) }, "device 0 is in two of the timelines"},
		{"another time", func(b *trace.Step) {
			*b = trace.Step{Program: b.Program, Number: b.Number, Pipeline: b.Pipeline}
			b.Note(trace.Event{Device: 1, Kind: trace.Run, Start: ms(113.75), End: ms(114)})
		}, "timelines that are 100 ms apart are not of one step"},
	} {
		t.Run(test.name, func(t *testing.T) {
			a, b := ofWorkers(small())
			test.change(b)
			for _, steps := range [][]*trace.Step{{a, b}, {b, a}} {
				if _, err := trace.Join(steps...); err == nil || !strings.Contains(err.Error(), "epl: ") {
					t.Errorf("joined with %v", err)
				}
			}
			if _, err := trace.Join(a, b); !strings.Contains(err.Error(), test.want) {
				t.Errorf("%v, want %q", err, test.want)
			}
		})
	}
	if _, err := trace.Join(); err == nil {
		t.Error("nothing was joined with nothing")
	}
}
