// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package local

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"
)

// run runs so many steps, in which workers are busy for so many milliseconds, and returns what is said, each with the step that it is said after.
func (s *stragglers) run(from, steps int, busy ...float64) (lines []string) {
	for i := range steps {
		var paces []pace
		for w, b := range busy {
			if (i+w)%5 == 0 {
				b *= 10 // now and then anybody takes long
			}
			d := time.Duration(b * float64(time.Millisecond))
			paces = append(paces, pace{between: d / 4, computed: d - d/4, rank: 2*w + 1})
		}
		for _, line := range s.step(uint64(from+i), paces) {
			lines = append(lines, fmt.Sprintf("%d: %s", from+i, line))
		}
	}
	return lines
}

func named(w int) string { return fmt.Sprintf("worker %d (host%d, pid 7)", w, w) }

func want(t *testing.T, got []string, parts ...string) {
	t.Helper()
	if len(got) != len(parts) {
		t.Fatalf("%d lines:\n%s", len(got), strings.Join(got, "\n"))
	}
	for i, part := range parts {
		if !strings.Contains(got[i], part) {
			t.Errorf("%s\nlacks %s", got[i], part)
		}
	}
}

func TestAWorkerThatIsSlowIsNamedOnceAndWhenItIsWorseOrWell(t *testing.T) {
	same := []string{"a", "a", "a", "a"}
	s := newStragglers(same, named)
	want(t, s.run(1, 64, 10, 11, 10, 12))
	text, err := os.ReadFile("testdata/straggler.txt") // docs/reliability.md shows it
	if err != nil {
		t.Fatal(err)
	}
	said := strings.Split(strings.TrimSpace(string(text)), "\n")
	want(t, s.run(65, 160, 10, 11, 30, 12), "96: "+said[0])
	want(t, s.run(225, 64, 10, 11, 70, 12), "since step 65 it is busy for 70.0 ms")
	want(t, s.run(289, 64, 10, 11, 10.5, 12), "320: "+said[1])
	want(t, s.run(353, 48, 10, 11, 30, 12)) // it comes back: that is said later
	want(t, s.run(401, 16, 10, 11, 30, 12), "416: epl: worker 2 (host2, pid 7) is slow, and the others wait for it: since step 353")
	want(t, s.run(417, 160, 10, 11, 14, 12)) // neither slow nor well
	want(t, s.run(577, 320, 10, 11, 12.5, 12), "608: epl: worker 2 (host2, pid 7) is not slow any more")
}

func TestOfTwoWorkersTheOtherCounts(t *testing.T) {
	s := newStragglers([]string{"a", "a"}, named)
	want(t, s.run(1, 64, 10, 14))
	want(t, s.run(65, 64, 16, 10), "worker 0 (host0, pid 7) is slow, and the others wait for it: since step 65 it is busy for 16.0 ms of a step, 1.6 times as long as the other one with the same work (10.0 ms)")
}

func TestStagesOfAPipelineAreComparedWithThemselves(t *testing.T) {
	s := newStragglers([]string{"0", "1", "2"}, named)
	want(t, s.run(1, 64, 10, 40, 20))
	want(t, s.run(65, 64, 20, 80, 40)) // all of them: the batches are larger
	want(t, s.run(129, 64, 20, 80, 100), "worker 2 (host2, pid 7) is slow, and the others wait for it: since step 129 it is busy for 100.0 ms of a step, ")
}

func TestWhatIsHardlyMeasurableIsNotSlow(t *testing.T) {
	s := newStragglers([]string{"a", "a", "a"}, named)
	want(t, s.run(1, 160, 0.1, 0.1, 1))
}
