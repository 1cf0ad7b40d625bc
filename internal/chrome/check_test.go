// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package chrome

import (
	"strings"
	"testing"
)

func check(t *testing.T, events string) (Summary, error) {
	t.Helper()
	return Check(strings.NewReader(`{"traceEvents": [` + events + `]}`))
}

func TestOverlapsAreCountedAndNestingIsNot(t *testing.T) {
	for events, want := range map[string]int{
		`{"ph": "X", "ts": 0, "dur": 10}, {"ph": "X", "ts": 2, "dur": 3}, {"ph": "X", "ts": 5, "dur": 5}, {"ph": "X", "ts": 10, "dur": 1}`: 0,
		`{"ph": "X", "ts": 0, "dur": 10}, {"ph": "X", "ts": 9.999, "dur": 1}`:                                                              1,
		`{"ph": "X", "ts": 0, "dur": 10}, {"ph": "X", "ts": 5, "dur": 10}, {"ph": "X", "ts": 6, "dur": 10}`:                                3,
		`{"ph": "X", "ts": 0, "dur": 10}, {"ph": "X", "ts": 5, "dur": 10, "tid": 1}`:                                                       0,
		`{"ph": "X", "ts": 0.1, "dur": 0.2}, {"ph": "X", "ts": 0.3, "dur": 0.6}`:                                                           0, // 0.1 + 0.2 > 0.3
	} {
		if s, err := check(t, events); err != nil || s.Overlaps != want {
			t.Errorf("%s: %d overlaps, %v; want %d", events, s.Overlaps, err, want)
		}
	}
}

func TestWhatLacksABeginningOrAnEndIsAnError(t *testing.T) {
	const slices = `{"ph": "X", "ts": 0, "dur": 10}, {"ph": "X", "ts": 0, "dur": 10, "pid": 1}`
	good := map[string]string{
		"async":   `{"ph": "b", "name": "x", "ts": 1, "id2": {"local": "1"}}, {"ph": "e", "name": "x", "ts": 2, "id2": {"local": "1"}}`,
		"flow":    `{"ph": "s", "ts": 1, "id": "0x1"}, {"ph": "f", "bp": "e", "ts": 2, "id": "0x1", "pid": 1}`,
		"counter": `{"ph": "C", "name": "memory", "ts": 1, "args": {"weights": 3}}`,
	}
	for name, events := range good {
		if _, err := check(t, slices+","+events); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	for _, events := range []string{
		`{"ph": "b", "name": "x", "ts": 1, "id2": {"local": "1"}}`,
		`{"ph": "e", "name": "x", "ts": 1, "id2": {"local": "1"}}`,
		`{"ph": "b", "name": "x", "ts": 1}, {"ph": "e", "name": "x", "ts": 2}`,
		`{"ph": "s", "ts": 1, "id": "0x1"}`,
		`{"ph": "f", "bp": "e", "ts": 1, "id": "0x1"}`,
		strings.Replace(good["flow"], `"ts": 2`, `"ts": 20`, 1),
		strings.Replace(good["flow"], `"ts": 2`, `"ts": 0`, 1),
		strings.Replace(good["flow"], `"bp": "e", `, ``, 1),
		good["flow"] + "," + good["flow"],
		strings.Replace(good["counter"], `3`, `"three"`, 1),
		`{"ph": "X", "ts": -1}`,
		`{"ph": "?", "ts": 1}`,
	} {
		if s, err := check(t, slices+","+events); err == nil {
			t.Errorf("%s is %+v", events, s)
		}
	}
}
