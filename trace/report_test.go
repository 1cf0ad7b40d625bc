// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package trace_test

import (
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/easyparallel/epl/trace"
)

func TestEqualStagesHaveTheIdealBubble(t *testing.T) {
	for stages := 1; stages <= 5; stages++ {
		for micro := 1; micro <= 7; micro++ {
			s := &trace.Step{Pipeline: trace.Pipeline{Strategy: "PreferBackward", Stages: stages, Groups: stages, MicroBatches: micro, Replicas: 1}}
			var orders []order
			for stage := range stages {
				orders = append(orders, oneForwardOneBackward(stages, stage, micro))
			}
			play(s, 3, 5, 0, orders...)
			r := s.Report()
			want := float64(stages-1) / float64(micro+stages-1)
			if stages == 1 {
				if !math.IsNaN(r.Bubble) || r.Ideal != 0 {
					t.Errorf("one stage: bubble %g, ideal %g", r.Bubble, r.Ideal)
				}
				continue
			}
			if math.Abs(r.Bubble-want) > 1e-9 || math.Abs(r.Ideal-want) > 1e-9 {
				t.Errorf("%d stages, %d micro-batches: bubble %g, ideal %g, want %g", stages, micro, r.Bubble, r.Ideal, want)
			}
		}
	}
}

func TestZeroBubbleFillsItsBubbleWithWeights(t *testing.T) {
	s := &trace.Step{Pipeline: trace.Pipeline{Strategy: "ZeroBubble", Stages: 2, Groups: 2, MicroBatches: 4, Replicas: 1}}
	play(s, 1, 1, 1,
		strings.Fields("F0 F1 B0 F2 B1 F3 W0 B2 W1 W2 B3 W3"),
		strings.Fields("F0 B0 F1 B1 W0 F2 B2 W1 F3 B3 W2 W3"))
	if r := s.Report(); math.Abs(r.Bubble-1./13) > 1e-9 || math.Abs(r.Ideal-1./13) > 1e-9 {
		t.Errorf("bubble %g, ideal %g, want 1/13", r.Bubble, r.Ideal)
	}
}

func TestInterleavedStagesHaveTheIdealBubble(t *testing.T) {
	s := &trace.Step{Pipeline: trace.Pipeline{Strategy: "Interleaved", Stages: 4, Groups: 2, MicroBatches: 2, Replicas: 1}}
	play(s, 1, 2, 0,
		strings.Fields("F0/0 F1/0 F0/2 F1/2 B0/2 B1/2 B0/0 B1/0"),
		strings.Fields("F0/1 F1/1 F0/3 B0/3 F1/3 B1/3 B0/1 B1/1"))
	r := s.Report()
	if want := 1. / 5; math.Abs(r.Bubble-want) > 1e-9 || math.Abs(r.Ideal-want) > 1e-9 {
		t.Errorf("bubble %g, ideal %g, want %g", r.Bubble, r.Ideal, want)
	}
	if got := fmt.Sprint(r.Devices[0].Stages, r.Devices[1].Stages); got != "[0 2] [1 3]" {
		t.Errorf("stages %s", got)
	}
}

func TestTheIdealBubbleOfWhatIsNotKnownIsNotANumber(t *testing.T) {
	for _, p := range []trace.Pipeline{
		{}, {Strategy: "Sideways", Stages: 2, MicroBatches: 2}, {Strategy: "PreferForward", Stages: 2},
		{Strategy: "Interleaved", Stages: 4, MicroBatches: 2}, {Strategy: "ZeroBubble", Stages: 4, MicroBatches: 2},
	} {
		if r := (&trace.Step{Pipeline: p}).Report(); !math.IsNaN(r.Ideal) || !math.IsNaN(r.Bubble) {
			t.Errorf("%+v: bubble %g, ideal %g", p, r.Bubble, r.Ideal)
		}
	}
}

func TestBusyWaitingAndIdleAddUpAndOverlapsCountOnce(t *testing.T) {
	s := &trace.Step{}
	add := func(device, lane int, kind trace.Kind, from, to float64) {
		s.Note(trace.Event{Device: device, Lane: lane, Kind: kind, Start: ms(from), End: ms(to)})
	}
	add(0, 0, trace.Run, 0, 4)
	add(0, 0, trace.Run, 3, 5)  // overlaps
	add(0, 0, trace.Run, 3, 4)  // within
	add(0, 0, trace.Wait, 4, 7) // overlaps with work
	add(0, 0, trace.Launch, 8, 9)
	add(0, 1, trace.Communicate, 2, 6)
	add(0, 2, trace.Communicate, 5, 8)
	add(7, 0, trace.Receive, 1, 10)
	r := s.Report()
	const unit = time.Millisecond
	want := []trace.Times{
		{Busy: 5 * unit, Waiting: 3 * unit, Idle: 2 * unit, Communication: 6 * unit, Exposed: 3 * unit},
		{Waiting: 9 * unit, Idle: unit},
	}
	for i, d := range r.Devices {
		if d.Times != want[i] || d.Replica != -1 {
			t.Errorf("device %d: %+v, want %+v", d.Device, d, want[i])
		}
	}
	if sum := (trace.Times{Busy: 5 * unit, Waiting: 12 * unit, Idle: 3 * unit, Communication: 6 * unit, Exposed: 3 * unit}); r.Total != sum || r.Span != 10*unit {
		t.Errorf("all: %+v of %s, want %+v", r.Total, r.Span, sum)
	}
}

func TestDevicesAreOrderedByReplicaAndStageAndThoseWithoutTasksComeLast(t *testing.T) {
	s := &trace.Step{}
	for device, task := range map[int]trace.Task{
		5: {Kind: trace.Forward, Replica: 0, Stage: 0}, 2: {Kind: trace.Forward, Replica: 0, Stage: 1},
		1: {Kind: trace.Apply, Replica: 1, Stage: 0, Micro: -1}, 4: {Kind: trace.Forward, Replica: 1, Stage: 0}, 0: {},
	} {
		s.Note(trace.Event{Device: device, Kind: trace.Run, Start: ms(0), End: ms(1), Task: task})
	}
	var got []int
	for _, d := range s.Report().Devices {
		got = append(got, d.Device)
	}
	if fmt.Sprint(got) != "[5 2 1 4 0]" {
		t.Errorf("devices %v", got)
	}
}

func TestCommunicationIsToldApartByKindWithWhatIsExposed(t *testing.T) {
	s := &trace.Step{Pipeline: trace.Pipeline{Stages: 1, MicroBatches: 1, Replicas: 2}}
	beside := func(device int, op string, from, to float64, bytes int64) {
		s.Note(trace.Event{Device: device, Lane: 1, Kind: trace.Communicate, Op: op, Start: ms(from), End: ms(to), Bytes: bytes})
	}
	for d := range 2 {
		s.Note(trace.Event{Device: d, Kind: trace.Run, Start: ms(0), End: ms(4), Task: trace.Task{Kind: trace.Backward, Replica: d}})
		s.Note(trace.Event{Device: d, Kind: trace.Wait, Op: "reduce-scatter", Start: ms(4), End: ms(6)})
		beside(d, "all-gather", 0, 2, 1e6)
		beside(d, "all-gather", 1, 3, 1e6)
		beside(d, "reduce-scatter", 3, 6, 6e6)
	}
	beside(1, "send", 6, 8, 4e6)
	r := s.Report()
	const unit = time.Millisecond
	want := []trace.Traffic{
		{Op: "all-gather", Calls: 4, Bytes: 4e6, Time: 6 * unit},
		{Op: "reduce-scatter", Calls: 2, Bytes: 12e6, Time: 6 * unit, Exposed: 4 * unit},
		{Op: "send", Calls: 1, Bytes: 4e6, Time: 2 * unit, Exposed: 2 * unit},
	}
	if fmt.Sprint(r.Traffic) != fmt.Sprint(want) {
		t.Errorf("traffic %v, want %v", r.Traffic, want)
	}
	if rate := r.Traffic[1].Rate(); rate != 2 {
		t.Errorf("12 MB in 6 ms are %g GB/s", rate)
	}
	for name, got := range map[string]string{"text": text(t, s), "page": page(t, s), "picture": svg(t, s)} {
		if strings.Contains(got, "ubble") {
			t.Errorf("the %s of a step without a pipeline speaks of a bubble:\n%s", name, got)
		}
		if !strings.Contains(got, "xposed communication") && !strings.Contains(got, "</b> exposed communication") {
			t.Errorf("the %s does not say what communication costs:\n%s", name, got)
		}
		for _, op := range []string{"all-gather", "reduce-scatter"} {
			if !strings.Contains(got, op) {
				t.Errorf("the %s does not tell %s apart", name, op)
			}
		}
	}
	if got := text(t, s); !strings.Contains(got, "exposed communication 37.5% of the devices' time; 57.1% of it is hidden behind computation") ||
		!strings.Contains(got, "reduce-scatter      2  11.4 MiB  6.00 ms  4.00 ms   2.00") {
		t.Errorf("the text is\n%s", got)
	}
}
