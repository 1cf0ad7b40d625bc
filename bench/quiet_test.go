// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package main

import "testing"

func TestSomebodyElseOnACoreIsToldFromItsClock(t *testing.T) {
	for want, w := range map[string]watch{
		"somebody else was seen on a core 0 of 3 times": {0.4, 0.41, 0.45},
		"somebody else was seen on a core 1 of 3 times": {0.4, 0.6, 0.45},
		"who else is on the cores is not known":         {0, 0},
	} {
		if got := w.String(); got != want {
			t.Errorf("%v: %s, want %s", []float64(w), got, want)
		}
	}
}

func TestAStepIsQuietIfNobodyIsSeenBeforeNorAfterIt(t *testing.T) {
	w := watch{1, 1, 2, 1, 1, 1} // two processes of two steps
	for i, want := range []bool{true, false, true, true} {
		if got := w.quiet(i/2, 2, i%2); got != want {
			t.Errorf("step %d of process %d: quiet %v, want %v", i%2, i/2, got, want)
		}
	}
	if (&watch{0, 0}).quiet(0, 1, 0) {
		t.Error("a step is quiet where that is not known")
	}
}
