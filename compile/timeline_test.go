// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package compile

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/easyparallel/epl/trace"
)

// play runs so many steps, and returns the timeline's last words.
func (x *timeline) play(t *testing.T, steps int) string {
	t.Helper()
	for range steps {
		if s := x.begin("train"); s != nil {
			s.Add(trace.Event{Kind: trace.Run, Name: "forward", Start: time.Now()})
			if err := x.end(s); err != nil {
				t.Fatal(err)
			}
		}
	}
	var w strings.Builder
	x.close(&w)
	return w.String()
}

func TestATimelineHasTheStepsThatWereChosen(t *testing.T) {
	for _, c := range []struct {
		which       trace.Range
		steps       int
		first, last int // in the file; 0: there is none
		says        string
	}{
		{trace.Range{}, 5, 3, 3, ""},
		{trace.Range{}, 2, 2, 2, ""}, // fewer than usual
		{trace.Range{First: 3, Last: 6}, 10, 3, 6, ""},
		{trace.Range{First: 3, Last: 6}, 4, 3, 4, ""},
		{trace.Range{First: 5, Last: 5}, 9, 5, 5, ""},
		{trace.Range{First: 3, Last: 6}, 1, 0, 0, "was not written: EPL_TRACE_STEPS=3:6, and the program ended after 1 training step\n"},
		{trace.Range{}, 0, 0, 0, "was not written: no training step ran"},
	} {
		file := filepath.Join(t.TempDir(), "below", "trace.json")
		x := &timeline{file: file, which: c.which}
		says := x.play(t, c.steps)
		if (says == "") != (c.says == "") || !strings.Contains(says, c.says) {
			t.Errorf("%+v: it says %q", c, says)
		}
		f, err := os.Open(file)
		if c.first == 0 {
			if err == nil {
				t.Errorf("%+v: there is a file", c)
				_ = f.Close()
			}
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		steps, err := trace.ReadAll(f)
		_ = f.Close()
		if err != nil || steps[0].Number != c.first || steps[len(steps)-1].Number != c.last || len(steps) != c.last-c.first+1 {
			t.Errorf("%+v: the file has %d steps, %v", c, len(steps), err)
		}
	}
	if says := (&timeline{}).play(t, 5); says != "" {
		t.Errorf("without a file it says %q", says)
	}
}
