// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package trace_test

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/easyparallel/epl/trace"
)

// twice is a step as predicted, and as measured: backwards take half as long again, and there is one device more.
func twice() (predicted, measured *trace.Step) {
	p := trace.Pipeline{Strategy: "PreferBackward", Stages: 2, Groups: 2, MicroBatches: 2, Replicas: 1}
	predicted = &trace.Step{Program: "train", Number: 1, Pipeline: p, Predicted: true}
	measured = &trace.Step{Program: "train", Number: 3, Pipeline: p}
	orders := []order{{"F0", "F1", "B0", "B1"}, {"F0", "B0", "F1", "B1"}}
	play(predicted, 1, 2, 0, orders...)
	play(measured, 1, 3, 0, orders...)
	measured.Add(trace.Event{Device: 7, Kind: trace.Run, Name: "other", Start: ms(0), End: ms(1)})
	return predicted, measured
}

func TestWhatWasPredictedIsComparedWithWhatWasMeasured(t *testing.T) {
	c, err := trace.Compare(twice())
	if err != nil {
		t.Fatal(err)
	}
	if c.Span != (trace.Compared{Predicted: 9 * time.Millisecond, Measured: 12 * time.Millisecond}) {
		t.Errorf("%+v", c.Span)
	}
	for _, k := range c.Kinds {
		want := map[string]float64{trace.Forward: 1, trace.Backward: 1.5}
		if ratio, ok := want[k.Kind]; ok && (k.Ratio() != ratio || k.Events != [2]int{4, 4}) {
			t.Errorf("%+v", k)
		}
	}
	if len(c.Devices) != 2 || len(c.Missing) != 1 || c.Missing[0] != 7 {
		t.Errorf("%+v, without %v", c.Devices, c.Missing)
	}
	var w bytes.Buffer
	if err := c.WriteText(&w, 80); err != nil {
		t.Fatal(err)
	}
	golden(t, "compared.txt", w.String())
}

func TestAPictureHasBothStepsFromTheirStart(t *testing.T) {
	c, err := trace.Compare(twice())
	if err != nil {
		t.Fatal(err)
	}
	for _, write := range []func(*bytes.Buffer) error{
		func(w *bytes.Buffer) error { return c.Both().WriteSVG(w, 800) },
		func(w *bytes.Buffer) error { return c.Both().WriteHTML(w, 800) },
	} {
		var w bytes.Buffer
		if err := write(&w); err != nil {
			t.Fatal(err)
		}
		for _, want := range []string{"device 0, predicted", "device 0, measured", "device 1, predicted", "predicted and measured", "0 ms"} {
			if !strings.Contains(w.String(), want) {
				t.Errorf("it has no %q", want)
			}
		}
	}
}

func TestTimelinesOfOtherDevicesAreNotCompared(t *testing.T) {
	predicted, _ := twice()
	other := &trace.Step{Program: "train", Number: 3}
	other.Add(trace.Event{Device: 9, Kind: trace.Run, Start: ms(0), End: ms(1)})
	if _, err := trace.Compare(predicted, other); err == nil || !strings.Contains(err.Error(), "no device in common") {
		t.Error(err)
	}
}

func TestAPredictedStepSaysSoAndReadsBack(t *testing.T) {
	predicted, _ := twice()
	var w bytes.Buffer
	if err := predicted.WriteChrome(&w); err != nil {
		t.Fatal(err)
	}
	s, err := trace.Read(&w)
	if err != nil || !s.Predicted {
		t.Fatalf("%v, %+v", err, s)
	}
	if err := s.WriteText(&w, 80); err != nil {
		t.Fatal(err)
	}
	if got := w.String(); !strings.Contains(got, "train, predicted: PreferBackward") || !strings.Contains(got, "% predicted, ") {
		t.Error(got)
	}
}
