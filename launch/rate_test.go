// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package launch

import (
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/easyparallel/epl/rendezvous"
)

// simulated is two workers that take a step of 10 samples each in every interval, and say so as real ones do: each counts
// every second, at its own time, and the count goes out with its next sign of life. It returns the job's speed each time
// that the launcher looks.
func simulated(t *testing.T, step func(second float64) float64, seconds int) (speeds []float64) {
	t.Helper()
	start := time.Now()
	at := func(s float64) time.Time { return start.Add(time.Duration(s * float64(time.Second))) }
	var ends []float64
	for s := 5.0; s < float64(seconds); { // what is before has been spent on compiling
		s += step(s)
		ends = append(ends, s)
	}
	d := &director{rates: map[int]*rate{}}
	for look := 0.0; look < float64(seconds); look += 0.5 {
		var known []rendezvous.WorkerStatus
		for worker, phase := range []float64{0.2, 0.7} {
			beat := math.Floor(look-phase) + phase
			counted, steps := beat-0.3, 0
			for _, end := range ends {
				if end <= counted {
					steps++
				}
			}
			known = append(known, rendezvous.WorkerStatus{Index: worker, Joined: true, Seen: at(beat), Samples: int64(10 * steps)})
		}
		speeds = append(speeds, d.speed(at(look), known))
	}
	return speeds
}

func TestASpeedIsSteadyWhateverAStepTakes(t *testing.T) {
	for _, step := range []float64{0.01, 0.3, 0.7, 1, 1.5, 3, 7, 20} {
		t.Run(fmt.Sprint(step, " s"), func(t *testing.T) {
			speeds := simulated(t, func(float64) float64 { return step }, 30+int(20*step))
			want, shown := 20/step, 0
			for i, speed := range speeds {
				if speed == 0 {
					continue
				}
				if shown++; speed < 0.6*want || speed > 1.5*want {
					t.Errorf("after %.1f s: %.3g samples/s, not %.3g", float64(i)/2, speed, want)
				}
				if i > len(speeds)/2 && math.Abs(speed-want) > 0.08*want {
					t.Errorf("after %.1f s: %.4g samples/s, not %.4g", float64(i)/2, speed, want)
				}
			}
			if shown < len(speeds)/3 {
				t.Errorf("it was shown %d times of %d", shown, len(speeds))
			}
		})
	}
}

func TestASpeedIsThatOfTheLastSteps(t *testing.T) {
	slower := simulated(t, func(second float64) float64 {
		if second < 60 {
			return 0.1
		}
		return 0.5
	}, 120)
	if last := slower[len(slower)-1]; math.Abs(last-40) > 3 {
		t.Errorf("at the end: %.3g samples/s, not 40", last)
	}
	stuck := simulated(t, func(second float64) float64 {
		if second < 60 {
			return 0.1
		}
		return 1000
	}, 120)
	if before, last := stuck[2*59], stuck[len(stuck)-1]; before < 190 || last > 100 {
		t.Errorf("it stands still for a minute, and went from %.3g to %.3g samples/s", before, last)
	}
}

func TestThereIsNoSpeedWhileAWorkerDoesSomethingElse(t *testing.T) {
	d := &director{rates: map[int]*rate{}}
	start := time.Now()
	look := func(second int, samples int64, busy string) float64 {
		now := start.Add(time.Duration(second) * time.Second)
		return d.speed(now, []rendezvous.WorkerStatus{
			{Index: 0, Joined: true, Seen: now, Samples: samples, Busy: busy},
			{Index: 1, Joined: true, Seen: now, Samples: samples},
			{Index: 2, Joined: true, Seen: now}, // a later stage of a pipeline, which is fed nothing
			{Index: 3, Joined: true, Seen: now, Samples: 7, Left: true},
			{Index: 4},
		})
	}
	for second := range 10 {
		look(second, int64(100*(second+1)), "")
	}
	if got := look(10, 1100, ""); got != 200 {
		t.Errorf("%v samples/s, want 200", got)
	}
	for second := 11; second < 60; second++ {
		if got := look(second, 1100, "evaluating"); got != 0 {
			t.Errorf("%v samples/s while a worker evaluates", got)
		}
	}
	for second := 60; second < 100; second++ {
		got := look(second, 1100+int64(100*(second-59)), "")
		if second > 85 && got != 200 {
			t.Errorf("%v samples/s after a pause, want 200", got)
		}
	}
}

func TestSpeedsHaveThreeDigitsThatCount(t *testing.T) {
	for speed, want := range map[float64]string{0.012345: "0.0123", 0.5: "0.500", 1.2345: "1.23", 12.345: "12.3", 123.45: "123", 1234.5: "1230", 98765: "98800", 1e-9: "0.000000"} {
		if got := speedText(speed); got != want {
			t.Errorf("%v: %s, want %s", speed, got, want)
		}
	}
}
