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
			s.Add(d, 0, trace.Run, "forward", time.Now().Add(-time.Millisecond), 0)
			s.Add(d, 1, trace.Communicate, "bucket 0", time.Now().Add(-time.Millisecond), 128)
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
	bars, names := 0, map[[2]int]bool{}
	for _, e := range got.TraceEvents {
		switch e.Ph {
		case "X":
			bars++
			if e.Ts < 0 || e.Dur < 900 {
				t.Errorf("%+v starts before the step or is too short", e)
			}
			if e.Cat == "communicate" && e.Args["bytes"] != 128.0 {
				t.Errorf("%+v does not say how many bytes", e)
			}
		case "M":
			names[[2]int{e.Pid, e.Tid}] = true
		}
	}
	if bars != 6 || len(names) != 6 {
		t.Errorf("%d bars in %d named rows", bars, len(names))
	}
}

func TestANilStepCollectsNothing(t *testing.T) {
	var s *trace.Step
	s.Add(0, 0, trace.Run, "forward", time.Now(), 0)
}
