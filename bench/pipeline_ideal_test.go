// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package main

import (
	"math"
	"testing"
	"time"

	"github.com/easyparallel/epl/trace"
)

// Two stages, two micro-batches, forward 1 ms and backward 2 ms: devices are busy for 6 of 9 ms. What a task takes longer is no part of the ideal but for its mean, and no part of
// the typical if it is so in one step of three. What comes between tasks is in what was measured alone.
func TestABubbleIsTakenApart(t *testing.T) {
	for name, c := range map[string]struct {
		slower, later, always           float64 // ms: the last backward of the first stage, which in all steps is slower by always
		measured, played, typical, want float64
	}{
		"equal":       {0, 0, 0, 3. / 9, 3. / 9, 3. / 9, 3. / 9},
		"a gap":       {0, 1, 0, 4. / 10, 3. / 9, 3. / 9, 3. / 9},
		"one slow":    {1, 0, 0, 1 - 13./2/10, 1 - 13./2/10, 3. / 9, 3. / 9},
		"always slow": {1, 0, 1, 1 - 13./2/10, 1 - 13./2/10, 1 - 13./2/10, 3. / 9},
	} {
		t.Run(name, func(t *testing.T) {
			stepOf := func(slower float64) *trace.Step {
				s := &trace.Step{Pipeline: trace.Pipeline{Stages: 2, Groups: 2, MicroBatches: 2, Replicas: 1}}
				ran := func(device int, kind string, micro int, from, to float64) {
					at := func(ms float64) time.Time { return time.Unix(1, int64(ms*1e6)) }
					s.Add(trace.Event{Device: device, Kind: trace.Run, Task: trace.Task{Kind: kind, Stage: device, Micro: micro}, Start: at(from), End: at(to)})
				}
				ran(0, trace.Forward, 0, 0, 1)
				ran(0, trace.Forward, 1, 1, 2)
				ran(1, trace.Forward, 0, 1, 2)
				ran(1, trace.Backward, 0, 2, 4)
				ran(1, trace.Forward, 1, 4, 5)
				ran(1, trace.Backward, 1, 5, 7)
				ran(0, trace.Backward, 0, 4, 6)
				ran(0, trace.Backward, 1, 7+c.later, 9+c.later+slower)
				return s
			}
			all, err := bubblesOf([]*trace.Step{stepOf(c.slower), stepOf(c.always), stepOf(c.always)})
			if err != nil {
				t.Fatal(err)
			}
			b := all[0]
			for what, x := range map[string][2]float64{"measured": {b.measured, c.measured}, "played": {b.played, c.played}, "typical": {b.typical, c.typical}} {
				if math.Abs(x[0]-x[1]) > 1e-6 {
					t.Errorf("%s %.4f, want %.4f", what, x[0], x[1])
				}
			}
			if math.Abs(b.ideal-c.want) > 0.01 { // means move a little with the slow task
				t.Errorf("ideal %.4f, want about %.4f", b.ideal, c.want)
			}
		})
	}
}
