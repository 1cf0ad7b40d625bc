// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package rendezvous

import (
	"encoding/json"
	"regexp"
	"testing"
	"time"
)

// The agents of a launcher tell it what they know of their workers; their clocks differ.
func TestAStatusTravelsWithoutTheClockOfItsMachine(t *testing.T) {
	was := WorkerStatus{Index: 3, Joined: true, Host: "a", PID: 7, Step: 5, Samples: 40, Busy: "saving", Silent: true,
		Since: time.Now().Add(-time.Hour), Seen: time.Now().Add(-time.Minute)}
	text, err := json.Marshal([]WorkerStatus{was, {Index: 4}})
	if err != nil {
		t.Fatal(err)
	}
	if year := regexp.MustCompile(`\d{4}-\d\d-\d\d`).Find(text); year != nil {
		t.Errorf("a date travels: %s", text)
	}
	var is []WorkerStatus
	if err := json.Unmarshal(text, &is); err != nil {
		t.Fatal(err)
	}
	for _, at := range [][2]time.Time{{was.Since, is[0].Since}, {was.Seen, is[0].Seen}} {
		if off := at[1].Sub(at[0]); off < -10*time.Millisecond || off > 10*time.Second {
			t.Errorf("%v became %v", at[0], at[1])
		}
	}
	is[0].Since, is[0].Seen = was.Since, was.Seen
	if is[0] != was || is[1] != (WorkerStatus{Index: 4}) {
		t.Errorf("%+v", is)
	}
}

func TestAWorkerIsNamedWithItsRanksIfTheyAreOthersThanItsNumber(t *testing.T) {
	for ranks, want := range map[string]string{"": "worker 2 (a, pid 7)", "rank 2": "worker 2 (a, pid 7)", "ranks 4 to 5": "worker 2 (a, pid 7, ranks 4 to 5)"} {
		if got := (Worker{Index: 2, Host: "a", PID: 7, Ranks: ranks}).String(); got != want {
			t.Errorf("%q, not %q", got, want)
		}
	}
}
