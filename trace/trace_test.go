// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package trace_test

import (
	"bytes"
	"encoding/json"
	"sync"
	"testing"
	"time"

	"github.com/easyparallel/epl/trace"
)

func TestAStepIsWrittenAsATimelineWithARowPerDeviceAndCommunicator(t *testing.T) {
	s := &trace.Step{Program: "train", Number: 3}
	var wg sync.WaitGroup
	for d := range 3 {
		wg.Go(func() {
			s.Add(trace.Event{Device: d, Kind: trace.Run, Name: "forward", Start: time.Now().Add(-time.Millisecond)})
			s.Add(trace.Event{Device: d, Lane: 1, Kind: trace.Communicate, Op: "all-reduce", Name: "bucket 0", Start: time.Now().Add(-time.Millisecond), Bytes: 128})
		})
	}
	wg.Wait()
	var w bytes.Buffer
	if err := s.WriteChrome(&w); err != nil {
		t.Fatal(err)
	}
	var got struct {
		TraceEvents []struct {
			Name, Cat, Ph string
			Ts, Dur       float64
			Pid, Tid      int
			Args          map[string]any
		}
	}
	if err := json.Unmarshal(w.Bytes(), &got); err != nil {
		t.Fatal(err)
	}
	bars, beside, names := 0, 0, map[[2]int]bool{}
	for _, e := range got.TraceEvents {
		switch e.Ph {
		case "X":
			bars++
			if e.Ts < 0 || e.Dur < 900 {
				t.Errorf("%+v starts before the step or is too short", e)
			}
		case "b":
			beside++
			if e.Name != "all-reduce" || e.Args["bytes"] != 128.0 || e.Args["what"] != "bucket 0" || e.Args["GB/s"] == 0.0 {
				t.Errorf("%+v does not say what is communicated", e)
			}
		case "M":
			names[[2]int{e.Pid, e.Tid}] = true
		}
	}
	if bars != 3 || beside != 3 || len(names) != 6 {
		t.Errorf("%d bars, %d beside them in %d named rows", bars, beside, len(names))
	}
}

func TestANilStepCollectsNothing(t *testing.T) {
	var s *trace.Step
	s.Add(trace.Event{Kind: trace.Run, Name: "forward", Start: time.Now()})
	s.AddMemory(trace.Memory{})
}
