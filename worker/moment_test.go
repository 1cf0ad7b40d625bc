// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package worker

import (
	"strings"
	"testing"
	"time"
)

func TestMomentsAreReadOnTheClockThatNobodySets(t *testing.T) {
	var m moment
	if !m.last().IsZero() {
		t.Error("what never was has a time")
	}
	m.set()
	if at := m.last(); !strings.Contains(at.String(), " m=") || time.Since(at) > time.Minute {
		t.Errorf("%v has no monotonic reading, or is long ago", at)
	}
}

// What others were seen to do counts when deciding whether they are late.
func TestWhenAWorkerWasSeenIsReadOnTheClockThatNobodySets(t *testing.T) {
	jobs := joined(t, 2, "1m", nil)
	defer jobs[1].Busy("saving")()
	for deadline := time.Now().Add(30 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		what, at := jobs[0].lastBusy(1)
		if what != "" {
			if !strings.Contains(at.String(), " m=") {
				t.Errorf("%v has no monotonic reading", at)
			}
			return
		}
		if time.Now().After(deadline) {
			t.Fatal("worker 1 is not seen to be busy")
		}
	}
}
